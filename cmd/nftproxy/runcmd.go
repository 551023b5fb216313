package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

func newRunCommand() *cobra.Command {
	var source sourceFlags
	var ruleset rulesFlags
	var logging logFlags
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon: keep the kernel's rules as the cluster wants them",
		Long: `run watches Services and EndpointSlices, and keeps the tables "ip nftproxy" and
"ip6 nftproxy" as they want them. It needs CAP_NET_ADMIN. On SIGTERM or SIGINT it
ends and leaves the rules in place: connections do not notice, and the next start
takes them over.`,
		Example: `  nftproxy run --kubeconfig /etc/kubernetes/proxy.conf --cluster-cidr 10.244.0.0/16
  nftproxy run --manifests /etc/nftproxy/ --hostname-override node1
  nftproxy run --manifests cluster.yaml --dry-run    # print each batch, touch nothing`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := source.check(); err != nil {
				return err
			}
			cfg, err := ruleset.config()
			if err != nil {
				return err
			}
			log, err := logging.open()
			if err != nil {
				return err
			}
			defer func() { _ = log.Sync() }() // standard error may not support it
			from, err := source.open(log)
			if err != nil {
				return err
			}
			kernel, err := openKernel(cmd.Context(), cfg, dryRun, cmd.OutOrStdout())
			if err != nil {
				return err
			}
			opts := proxier.Options{Rules: cfg, Log: log}
			if !dryRun {
				opts.Flows = newFlows(log)
			}
			return runDaemon(cmd.Context(), from, kernel, opts)
		},
	}
	source.add(cmd.Flags())
	ruleset.add(cmd.Flags())
	logging.add(cmd.Flags())
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print each batch as nft commands instead of sending it; opens no kernel socket")
	return cmd
}

// openKernel opens the kernel and probes it, or for a dry run makes a model of one
// that prints what it is sent.
func openKernel(ctx context.Context, cfg rules.Config, dryRun bool, out io.Writer) (syncer.Kernel, error) {
	if dryRun {
		return syncer.NewPrinter(&syncer.Memory{}, out), nil
	}
	kernel, err := syncer.NewNetlink(0)
	if err != nil {
		return nil, err
	}
	if err := kernel.Probe(ctx, cfg); err != nil {
		return nil, errors.Join(err, kernel.Close())
	}
	return kernel, nil
}

// newFlows makes what cleans up the conntrack table of this network namespace.
func newFlows(log *zap.Logger) proxier.Flows {
	return syncer.NewConntrack(0, func(err error) { log.Warn("conntrack", zap.Error(err)) })
}

// runDaemon is the daemon, as `run` and the demo run it. It closes the kernel.
func runDaemon(ctx context.Context, source proxier.Source, kernel syncer.Kernel, opts proxier.Options) (err error) {
	defer func() { err = errors.Join(err, kernel.Close()) }()
	p, err := proxier.New(source, kernel, opts)
	if err != nil {
		return err
	}
	opts.Log.Info("nftproxy starts", zap.String("version", versionString()))
	if err := p.Run(ctx); err != nil {
		return err
	}
	opts.Log.Info("nftproxy ends; its rules stay in the kernel")
	return nil
}
