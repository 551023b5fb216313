package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/bench"
)

func newBenchScaleCommand() *cobra.Command {
	var cluster benchCluster
	var stream benchStream
	var output benchOutput
	sizes := []int{100, 1_000, 10_000, 100_000}
	cmd := &cobra.Command{
		Use:   "scale",
		Short: "Measure how costs grow with the cluster",
		Long: `scale does what update does for clusters of several sizes, each in a process and a
network namespace of its own. With the default sizes it takes some minutes, and 3 GiB of
memory for a moment.

With -o json the result has one field, sizes: for each of them, in a list, what
` + "`bench update -o json`" + ` prints for it.`,
		Example: `  nftproxy bench scale
  nftproxy bench scale --sizes 100,1000 --mix endpoint-add,endpoint-remove --report report/`,
		Args: noArgs,
	}
	cmd.Flags().IntSliceVar(&sizes, "sizes", sizes, "`numbers` of Services")
	cluster.add(cmd.Flags(), 10)
	stream.add(cmd.Flags())
	output.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := cluster.specs("sizes", sizes); err != nil {
			return err
		}
		if _, err := stream.check(); err != nil {
			return err
		}
		if err := output.check(); err != nil {
			return err
		}
		result, err := bench.Scale(sizes, func(services int) (*bench.UpdateResult, error) {
			return launchUpdate(cmd, services)
		}, cmd.ErrOrStderr())
		if err != nil {
			return err //nolint:wrapcheck // says it all
		}
		return output.write(cmd.OutOrStdout(), result)
	}
	return cmd
}

// launchUpdate measures one size by `bench update` with the same flags, in a process of
// its own.
func launchUpdate(cmd *cobra.Command, services int) (*bench.UpdateResult, error) {
	args := append([]string{"bench", "update", "--services=" + strconv.Itoa(services), "--output=" + formatJSON},
		flagsBut(cmd, "sizes", "output", "report")...)
	result := &bench.UpdateResult{}
	if err := launch(cmd, args, result); err != nil {
		return nil, err
	}
	return result, nil
}
