package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/bench"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/sandbox"
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
memory for a moment.`,
		Example: `  nftproxy bench scale
  nftproxy bench scale --sizes 100,1000 --mix endpoint-add,endpoint-remove --report report/`,
		Args: noArgs,
	}
	cmd.Flags().IntSliceVar(&sizes, "sizes", sizes, "`numbers` of Services")
	cluster.add(cmd.Flags())
	stream.add(cmd.Flags())
	output.add(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(sizes) == 0 {
			return usagef("--sizes: give at least one number of Services")
		}
		for _, n := range sizes {
			if _, err := cluster.spec(n); err != nil {
				return err
			}
		}
		if _, err := stream.check(); err != nil {
			return err
		}
		if err := output.check(); err != nil {
			return err
		}
		result, err := bench.Scale(cmd.Context(), sizes, func(ctx context.Context, services int) (*bench.UpdateResult, error) {
			return launchUpdate(ctx, cmd, services)
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
func launchUpdate(ctx context.Context, cmd *cobra.Command, services int) (*bench.UpdateResult, error) {
	args := []string{"bench", "update", "--services=" + strconv.Itoa(services), "--output=" + formatJSON}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"sizes", "output", "report"}, f.Name) {
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	var stdout bytes.Buffer
	if err := sandbox.Launch(ctx, args, &stdout, cmd.ErrOrStderr()); err != nil {
		if errors.Is(err, sandbox.ErrReported) {
			err = errReported
		}
		return nil, err //nolint:wrapcheck // says it all
	}
	var result bench.UpdateResult
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		return nil, fmt.Errorf("read what was measured for %d Services: %w", services, err)
	}
	return &result, nil
}
