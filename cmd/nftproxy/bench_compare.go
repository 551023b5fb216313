package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/bench"
)

func newBenchCompareCommand() *cobra.Command {
	var cluster benchCluster
	var peer benchPeer
	var output benchOutput
	changes, sizes := 100, []int{1000}
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
		Example: `  sudo nftproxy bench compare --peer 'kube-proxy --config {config}' --services 100,1000,10000
  sudo nftproxy bench compare --peer 'kube-proxy --config {config}' --peer-mode iptables
  sudo nftproxy bench compare --peer 'kube-proxy --config {config}' -o json --report report/`,
		Args: noArgs,
	}
	cmd.Flags().IntSliceVar(&sizes, "services", sizes, "`number` of Services; of several, each is measured")
	cmd.Flags().IntVar(&changes, "changes", changes, "`number` of changes")
	cluster.add(cmd.Flags(), 10)
	peer.add(cmd.Flags())
	output.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		specs, err := cluster.specs("services", sizes)
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
			return comparePeer(cmd, specs, &peer, &output)
		}
		if len(specs) > 1 {
			return usagef("--only: give one number of Services in --services")
		}
		return measureProxy(cmd, specs[0], changes, &peer)
	}
	return cmd
}

// measureProxy measures one proxy alone, and prints that for comparePeer.
func measureProxy(cmd *cobra.Command, spec bench.Spec, changes int, peer *benchPeer) error {
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

// comparePeer measures both proxies in all clusters, each in a process and namespaces of
// its own.
func comparePeer(cmd *cobra.Command, specs []bench.Spec, peer *benchPeer, output *benchOutput) error {
	var results []*bench.ProxyResult
	for _, spec := range specs {
		for _, name := range peer.proxies() {
			args := append([]string{"bench", "compare", "--only=" + name, "--services=" + strconv.Itoa(spec.Services)},
				flagsBut(cmd, "services", "report", "output")...)
			result := &bench.ProxyResult{}
			if err := launch(cmd, args, result); err != nil {
				return err
			}
			results = append(results, result)
		}
	}
	return output.write(cmd.OutOrStdout(), bench.NewCompareResult(specs[0], results))
}
