package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/bench"
)

func newBenchUpdateCommand() *cobra.Command {
	var cluster benchCluster
	var stream benchStream
	var output benchOutput
	cmd := &cobra.Command{
		Use:   "update",
		Short: "Measure how long the rules take to follow the objects",
		Long: `update makes a synthetic cluster, runs the whole daemon on it in a private network
namespace of the real kernel, and changes the cluster. It reports, for each kind of
change, the time from the changed object to the kernel's answer, and the operations and
bytes that it took; the time of the first sync; the processor time; and the memory.

Kinds of changes: endpoint-add and endpoint-remove at a Service drawn at random;
rolling-update, a step of one (one more endpoint, then one less, until all endpoints of a
Service are new); service-add; service-remove; policy-change, of the internal traffic
policy.

With -o json the result has these fields, whose names are stable:
` + bench.UpdateFields,
		Example: `  nftproxy bench update
  nftproxy bench update --services 10000 --mix endpoint-add,endpoint-remove -o json
  nftproxy bench update --services 5000 --shape realistic --rate 1000 --changes 60000
  nftproxy bench update --shape one-big --services 1 --endpoints-per-service 100000`,
		Args: noArgs,
	}
	cmd.Flags().IntVar(&cluster.services, "services", 1000, "`number` of Services")
	cluster.add(cmd.Flags(), 10)
	stream.add(cmd.Flags())
	output.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		spec, err := cluster.spec(cluster.services)
		if err != nil {
			return err
		}
		mix, err := stream.check()
		if err != nil {
			return err
		}
		if err := output.check(); err != nil {
			return err
		}
		return inSandbox(cmd, func(ctx context.Context, _ netlink.Link) error {
			spec.Families = enabledFamilies() // those in here
			result, err := bench.Update(ctx, bench.UpdateOptions{
				Spec: spec, Changes: stream.changes, Mix: mix, Rate: stream.rate, Settle: true,
				Daemon: benchDaemon, Version: versionString(), Progress: cmd.ErrOrStderr(),
			})
			if err != nil {
				return err //nolint:wrapcheck // says it all
			}
			return output.write(cmd.OutOrStdout(), result)
		})
	}
	return cmd
}
