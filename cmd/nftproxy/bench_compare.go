package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/bench"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/sandbox"
)

// The names of the proxies that are compared.
const (
	proxyOurs = "nftproxy"
	proxyPeer = "peer"
)

// ourCommand is how `bench compare` starts this program's daemon.
const ourCommand = "/proc/self/exe run --config {config}"

func newBenchCompareCommand() *cobra.Command {
	var cluster benchCluster
	var output benchOutput
	var peer, mode, only string
	changes := 100
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Compare with another proxy, from outside",
		Long: `compare runs nftproxy and then another proxy as processes, each in a private network
namespace of its own with a small API server, which gives both the same objects and the
same changes. What it measures is seen from outside, in the same way for both: the
notifications of nftables, and connections through a ClusterIP. With a proxy that does not
use nftables it is the connections alone.

A change replaces the only endpoint of a Service by another one. Both proxies are told
not to wait between syncs (minSyncPeriod 1ms). kube-proxy has to run as root.`,
		Example: `  sudo nftproxy bench compare --peer 'kube-proxy --config {config}' --services 1000
  sudo nftproxy bench compare --peer 'kube-proxy --config {config}' --peer-mode iptables
  sudo nftproxy bench compare --peer 'kube-proxy --config {config}' -o json --report report/`,
		Args: noArgs,
	}
	cmd.Flags().StringVar(&peer, "peer", "", "`command` of the other proxy, split at spaces; {config} is the path of a KubeProxyConfiguration, {kubeconfig} of a kubeconfig file")
	cmd.Flags().StringVar(&mode, "peer-mode", "nftables", "`mode` in the other proxy's configuration")
	cmd.Flags().StringVar(&only, "only", "", "measure one of both alone: nftproxy or peer; prints its part of the result, in JSON")
	cmd.Flags().IntVar(&cluster.services, "services", 1000, "`number` of Services")
	cluster.add(cmd.Flags())
	cmd.Flags().IntVar(&changes, "changes", changes, "`number` of changes")
	output.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		spec, err := cluster.spec(cluster.services)
		if err != nil {
			return err
		}
		if changes < 1 {
			return usagef("--changes: %d is less than 1", changes)
		}
		if !slices.Contains([]string{"", proxyOurs, proxyPeer}, only) {
			return usagef("--only: %q is neither %s nor %s", only, proxyOurs, proxyPeer)
		}
		if err := output.check(); err != nil {
			return err
		}
		if only != proxyOurs {
			if err := checkPeer(peer); err != nil {
				return err
			}
		}
		if only == "" {
			return comparePeer(cmd, spec, &output)
		}
		opts := bench.ProxyOptions{Spec: spec, Changes: changes, Name: proxyOurs, Command: ourCommand, Mode: "nftables"}
		if only == proxyPeer {
			opts.Name, opts.Command, opts.Mode = filepath.Base(strings.Fields(peer)[0])+" "+mode, peer, mode
		}
		return inSandbox(cmd, func(ctx context.Context, lo netlink.Link) error {
			opts.Link = lo
			return measureProxy(ctx, cmd, opts)
		})
	}
	return cmd
}

// checkPeer returns an error if the peer's command cannot be run.
func checkPeer(command string) error {
	if err := bench.CheckPeer(command); err != nil {
		return usagef("--peer: %w", err)
	}
	if _, err := exec.LookPath(strings.Fields(command)[0]); err != nil {
		return fmt.Errorf("--peer: %w", err)
	}
	return nil
}

// measureProxy measures one proxy in the namespace of this process.
func measureProxy(ctx context.Context, cmd *cobra.Command, opts bench.ProxyOptions) error {
	opts.Spec.Families = enabledFamilies() // those in here
	opts.Version, opts.Progress = versionString(), cmd.ErrOrStderr()
	result, err := bench.MeasureProxy(ctx, opts)
	if err != nil {
		return err //nolint:wrapcheck // says it all
	}
	if err := json.NewEncoder(cmd.OutOrStdout()).Encode(result); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// comparePeer measures both proxies, each in a process and namespaces of its own.
func comparePeer(cmd *cobra.Command, spec bench.Spec, output *benchOutput) error {
	var results []*bench.ProxyResult
	for _, name := range []string{proxyOurs, proxyPeer} {
		var stdout bytes.Buffer
		args := append(sameCommand(cmd), "--only="+name)
		if err := sandbox.Launch(cmd.Context(), args, &stdout, cmd.ErrOrStderr()); err != nil {
			if errors.Is(err, sandbox.ErrReported) {
				err = errReported
			}
			return err //nolint:wrapcheck // says it all
		}
		var result bench.ProxyResult
		if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
			return fmt.Errorf("read what was measured of %s: %w", name, err)
		}
		results = append(results, &result)
	}
	return output.write(cmd.OutOrStdout(), bench.NewCompareResult(spec, results))
}
