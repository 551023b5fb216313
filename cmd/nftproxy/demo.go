package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/demo"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/sandbox"
	"github.com/nftproxy/nftproxy/proxier"
)

// The connections that a demo may be asked for: fewer say nothing about shares,
// more would take minutes.
const (
	minDemoConnections = 1_000
	maxDemoConnections = 100_000
)

func newDemoCommand() *cobra.Command {
	connections := 10_000
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See it work: no root, no cluster",
		Long: `demo opens a private user and network namespace, starts the endpoints of a few
example manifests in it, and runs the real daemon on them. It makes connections
through the ClusterIPs, then scales a Service up and down and rolls all its endpoints
over while connecting. It prints which endpoint got which share, how many connections
failed, how long the rules took to follow, and what nft shows. It touches nothing
outside of that namespace and takes less than a minute.

The exit status is 1 if a connection failed or a share is off. Progress is on standard
error, the report on standard output.`,
		Example: `  nftproxy demo
  nftproxy demo --connections 50000
  nftproxy demo > report.txt
  sudo nftproxy demo                  # where user namespaces are forbidden`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if connections < minDemoConnections || connections > maxDemoConnections {
				return usagef("--connections: %d is not in %d..%d", connections, minDemoConnections, maxDemoConnections)
			}
			return runDemo(cmd, connections)
		},
	}
	cmd.Flags().IntVar(&connections, "connections", connections, "`number` of connections through the ClusterIPs, 1000 to 100000")
	return cmd
}

// runDemo runs the demo in this process if it is the one in the private namespace,
// and starts that one if not.
func runDemo(cmd *cobra.Command, connections int) error {
	ctx, stdout, stderr := cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	var err error
	if sandbox.Inside() {
		err = demo.Run(ctx, demo.Options{
			Connections: connections,
			Families:    enabledFamilies,
			Daemon:      demoDaemon,
			Stdout:      stdout,
			Stderr:      stderr,
		})
	} else {
		err = sandbox.Launch(ctx, []string{"demo", "--connections", strconv.Itoa(connections)}, stdout, stderr)
	}
	if errors.Is(err, sandbox.ErrReported) {
		return errReported
	}
	return err //nolint:wrapcheck // says it all
}

// demoDaemon is the daemon as `run` runs it.
func demoDaemon(ctx context.Context, source proxier.Source, opts proxier.Options) error {
	kernel, err := openKernel(ctx, opts.Rules, false, nil)
	if err != nil {
		return err
	}
	kernel = addKernelWork(&opts, kernel)
	return runProxier(ctx, source, kernel, opts)
}
