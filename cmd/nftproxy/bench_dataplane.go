package main

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/bench"
)

// The connections by each way that may be asked for: fewer say nothing, more would fill
// the conntrack table.
const (
	minDataplaneConnections = 10 * bench.DataplaneRounds
	maxDataplaneConnections = 100_000
)

func newBenchDataplaneCommand() *cobra.Command {
	var cluster benchCluster
	var peer benchPeer
	var output benchOutput
	connections, sizes := 40_000, []int{10, 1_000, 50_000}
	cmd := &cobra.Command{
		Use:   "dataplane",
		Short: "Measure new connections through a ClusterIP",
		Long: `dataplane makes new connections to one listener, direct and through a ClusterIP, in
turn, in a private network namespace with more and more Services. It reports how many
there are a second and how long one takes. With --peer it does the same with another
proxy.

With -o json the result has these fields, whose names are stable:
` + bench.DataplaneFields,
		Example: `  nftproxy bench dataplane
  nftproxy bench dataplane --sizes 10,10000 --endpoints-per-service 10 --report report/
  sudo nftproxy bench dataplane --peer 'kube-proxy --config {config}'`,
		Args: noArgs,
	}
	cmd.Flags().IntSliceVar(&sizes, "sizes", sizes, "`numbers` of Services")
	cmd.Flags().IntVar(&connections, "connections", connections, "`number` of connections by each way")
	cluster.add(cmd.Flags(), 1)
	peer.add(cmd.Flags())
	output.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if connections < minDataplaneConnections || connections > maxDataplaneConnections {
			return usagef("--connections: %d is not in %d..%d", connections, minDataplaneConnections, maxDataplaneConnections)
		}
		specs, err := cluster.specs("sizes", sizes)
		if err != nil {
			return err
		}
		if err := output.check(); err != nil {
			return err
		}
		if err := peer.check(); err != nil {
			return err
		}
		if peer.only == "" {
			return measureDataplanes(cmd, sizes, &peer, &output)
		}
		if len(specs) > 1 {
			return usagef("--only: give one number of Services in --sizes")
		}
		return inSandbox(cmd, func(ctx context.Context, lo netlink.Link) error {
			opts := peer.options(cmd, specs[0])
			opts.Link = lo
			result, err := bench.MeasureDataplane(ctx, opts, connections)
			if err != nil {
				return err //nolint:wrapcheck // says it all
			}
			return printJSON(cmd, result)
		})
	}
	return cmd
}

// measureDataplanes measures all sizes with all proxies, each in a process and namespaces
// of its own.
func measureDataplanes(cmd *cobra.Command, sizes []int, peer *benchPeer, output *benchOutput) error {
	result := &bench.DataplaneResult{}
	for _, n := range sizes {
		for _, name := range peer.proxies() {
			args := append([]string{"bench", "dataplane", "--only=" + name, "--sizes=" + strconv.Itoa(n)}, flagsBut(cmd, "sizes", "report", "output")...)
			run := &bench.DataplaneRun{}
			if err := launch(cmd, args, run); err != nil {
				return err
			}
			result.Runs = append(result.Runs, run)
		}
	}
	return output.write(cmd.OutOrStdout(), result)
}
