package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

func newRunCommand() *cobra.Command {
	var s settings
	var dryRun, initOnly, takeOver bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon: keep the kernel's rules as the cluster wants them",
		Long: `run watches Services and EndpointSlices, and keeps the tables "ip nftproxy" and
"ip6 nftproxy" as they want them. It needs CAP_NET_ADMIN. On SIGTERM or SIGINT it
ends and leaves the rules in place: connections do not notice, and the next start
takes them over.

It reads kube-proxy's configuration file, and knows kube-proxy's flags. When the file
changes it goes on with the new configuration, as if it had been started again.`,
		Example: `  nftproxy run --config /var/lib/kube-proxy/config.conf --hostname-override node1
  nftproxy run --kubeconfig /etc/kubernetes/proxy.conf --cluster-cidr 10.244.0.0/16
  nftproxy run --config /var/lib/kube-proxy/config.conf --take-over
  nftproxy run --manifests /etc/nftproxy/ --hostname-override node1
  nftproxy run --manifests cluster.yaml --dry-run    # print each batch, touch nothing
  nftproxy run --config config.conf --write-config-to full.conf    # with all defaults`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if s.flags.WriteConfigTo != "" {
				return writeConfig(&s.flags)
			}
			if s.flags.Cleanup {
				return cleanup(cmd.Context(), cmd.OutOrStdout(), syncer.RemoveTables)
			}
			cfg, err := s.load()
			if err != nil {
				return err
			}
			if initOnly {
				return initialize(cmd.Context(), cfg)
			}
			m := newMetrics()
			for cfg != nil && err == nil { // again with each new configuration
				d := &daemon{settings: &s, flags: cmd.Flags(), dryRun: dryRun, takeOver: takeOver, stdout: cmd.OutOrStdout(), metrics: m}
				cfg, err = runOnce(cmd.Context(), d, cfg)
			}
			return err
		},
	}
	addVersionFlag(cmd)
	s.add(cmd.Flags())
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print each batch as nft commands instead of sending it; opens no kernel socket")
	cmd.Flags().BoolVar(&takeOver, "take-over", false, "once the first rules are installed, remove what kube-proxy left, as cleanup --kube-proxy does")
	cmd.Flags().BoolVar(&initOnly, "init-only", false, "only do what may need more privileges than CAP_NET_ADMIN: see whether the kernel can do all that is needed, apply the settings of conntrack, and end")
	return cmd
}

// writeConfig writes the configuration with its defaults.
func writeConfig(flags *config.Flags) error {
	cfg, err := flags.Load()
	if err != nil {
		return err //nolint:wrapcheck // says it all
	}
	return cfg.WriteFile(flags.WriteConfigTo) //nolint:wrapcheck // says it all
}

// initialize finds out whether the kernel can do what the daemon needs, and applies the
// settings of the node: here what cannot be written is an error, as for kube-proxy.
func initialize(ctx context.Context, cfg *config.Config) error {
	kernel, err := openKernel(ctx, rules.Config{Families: enabledFamilies()}, false, io.Discard)
	if err != nil {
		return err
	}
	return errors.Join(kernel.Close(), nodeSetup().Conntrack(cfg.Conntrack))
}

// runOnce runs the daemon with one configuration. When there is a new one, it ends the
// daemon and returns that.
func runOnce(ctx context.Context, d *daemon, cfg *config.Config) (*config.Config, error) {
	log, err := openLog(cfg.Logging)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Sync() }() // standard error may not support it
	for _, warning := range cfg.Warnings {
		log.Warn(warning)
	}
	var next *config.Config
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := d.run(groupCtx, cfg, log); err != nil {
			return err
		}
		return errEnded
	})
	group.Go(func() error {
		changed, err := d.settings.flags.Watch(groupCtx, cfg, func(err error) {
			log.Error("the configuration file was changed and cannot be used; the last good one stays", zap.Error(err))
		})
		if err != nil && groupCtx.Err() == nil {
			return fmt.Errorf("watch the configuration file: %w", err)
		}
		if changed == nil { // the daemon ends for another reason
			return nil
		}
		log.Info("the configuration was changed")
		next = changed
		return errEnded
	})
	if err := group.Wait(); !errors.Is(err, errEnded) {
		return nil, err //nolint:wrapcheck // each part says it all
	}
	return next, nil
}

// errEnded ends what runs beside something that has ended in order.
var errEnded = errors.New("ended")
