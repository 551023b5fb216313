package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/syncer"
)

func newCleanupCommand() *cobra.Command {
	var kubeProxy bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove the rules of nftproxy, or what kube-proxy left",
		Long: `cleanup deletes the tables "ip nftproxy" and "ip6 nftproxy" in one commit, and nothing
else. It may be repeated, and needs no daemon. End the daemon before: one that runs
writes its tables again.

With --kube-proxy it removes what kube-proxy leaves when it ends, whatever its mode was,
and leaves the rules of nftproxy alone: the tables "ip kube-proxy" and "ip6 kube-proxy" of
nftables; its chains of iptables, by way of iptables-restore where that is installed; its
virtual servers of ipvs and the interface kube-ipvs0. What rules of others use stays, and
is said. The chains of the kubelet stay.

To go back to kube-proxy without a moment without rules: end nftproxy, start kube-proxy,
wait until it is ready, then run cleanup.`,
		Example: `  nftproxy cleanup
  nftproxy cleanup --kube-proxy`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if kubeProxy {
				return cleanup(cmd.Context(), cmd.OutOrStdout(), func(ctx context.Context) (syncer.Leftovers, error) {
					return syncer.RemoveLeftovers(ctx, false)
				})
			}
			return cleanup(cmd.Context(), cmd.OutOrStdout(), syncer.RemoveTables)
		},
	}
	cmd.Flags().BoolVar(&kubeProxy, "kube-proxy", false, "remove what kube-proxy left, and nothing of nftproxy")
	return cmd
}

// cleanup removes something and says in one line what that was.
func cleanup(ctx context.Context, stdout io.Writer, remove func(context.Context) (syncer.Leftovers, error)) error {
	left, err := remove(ctx)
	switch {
	case err != nil && left.None():
		return err
	case left.None():
		_, _ = fmt.Fprintln(stdout, "nothing to remove")
	case len(left.Found) == 0:
		_, _ = fmt.Fprintln(stdout, left)
	default:
		_, _ = fmt.Fprintln(stdout, "removed:", left)
	}
	return err
}
