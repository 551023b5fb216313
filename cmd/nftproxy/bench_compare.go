package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/bench"
)

func newBenchCompareCommand() *cobra.Command {
	var cluster benchCluster
	var peer benchPeer
	var output benchOutput
	changes := 100
	cmd := &cobra.Command{
		Use:   "compare",
		Short: "Compare with another proxy, from outside",
		Long: `compare runs nftproxy and then another proxy as processes, each in a private network
namespace of its own with a small API server, which gives both the same objects and the
same changes. What it measures is seen from outside, in the same way for both: the
notifications of nftables, and connections through a ClusterIP. With a proxy that does not
use nftables, or has another --peer-mode, it is the connections alone.

A change replaces the only endpoint of a Service by another one. Both proxies are told
not to wait between syncs (minSyncPeriod 1ms). kube-proxy has to run as root.

With -o json the result has these fields, whose names are stable:
` + bench.CompareFields,
		Example: `  sudo nftproxy bench compare --peer 'kube-proxy --config {config}' --services 1000
  sudo nftproxy bench compare --peer 'kube-proxy --config {config}' --peer-mode iptables
  sudo nftproxy bench compare --peer 'kube-proxy --config {config}' -o json --report report/`,
		Args: noArgs,
	}
	cmd.Flags().IntVar(&cluster.services, "services", 1000, "`number` of Services")
	cmd.Flags().IntVar(&changes, "changes", changes, "`number` of changes")
	cluster.add(cmd.Flags(), 10)
	peer.add(cmd.Flags())
	output.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		spec, err := cluster.spec(cluster.services)
		if err != nil {
			return err
		}
		if changes < 1 {
			return usagef("--changes: %d is less than 1", changes)
		}
		if err := output.check(); err != nil {
			return err
		}
		if peer.command == "" && peer.only == "" {
			return usagef("--peer: give the command of the other proxy, such as 'kube-proxy --config {config}'")
		}
		if err := peer.check(); err != nil {
			return err
		}
		if peer.only == "" {
			return comparePeer(cmd, spec, &peer, &output)
		}
		return inSandbox(cmd, func(ctx context.Context, lo netlink.Link) error {
			opts := peer.options(cmd, spec)
			opts.Link, opts.Changes = lo, changes
			result, err := bench.MeasureProxy(ctx, opts)
			if err != nil {
				return err //nolint:wrapcheck // says it all
			}
			return printJSON(cmd, result)
		})
	}
	return cmd
}

// comparePeer measures both proxies, each in a process and namespaces of its own.
func comparePeer(cmd *cobra.Command, spec bench.Spec, peer *benchPeer, output *benchOutput) error {
	var results []*bench.ProxyResult
	for _, name := range peer.proxies() {
		result := &bench.ProxyResult{}
		if err := launch(cmd, append(sameCommand(cmd), "--only="+name), result); err != nil {
			return err
		}
		results = append(results, result)
	}
	return output.write(cmd.OutOrStdout(), bench.NewCompareResult(spec, results))
}
