// Command nftproxy is a Service proxy for Kubernetes nodes: it turns Services and
// EndpointSlices into nftables rules. See `nftproxy --help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit statuses.
const (
	exitOK    = 0
	exitError = 1 // something failed
	exitUsage = 2 // the command line is wrong
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs the command line and returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errReported):
		return exitError
	}
	_, _ = fmt.Fprintf(stderr, "nftproxy: %s\n", oneLine(err))
	var usage *usageError
	if errors.As(err, &usage) {
		_, _ = fmt.Fprintln(stderr, "Try `nftproxy --help`.")
		return exitUsage
	}
	return exitError
}

// errReported is returned when everything that is to be said was said.
var errReported = errors.New("problems were reported")

// usageError is a command line that is wrong.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// oneLine joins the lines of a joined error.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "nftproxy",
		Short: "A Service proxy for Kubernetes nodes on nftables",
		Long: `nftproxy turns Kubernetes Services and EndpointSlices into nftables rules, over
netlink, with work proportional to the change: one endpoint that comes or goes is
one element of a shared map.`,
		Example: `  nftproxy demo                                            # see it work: no root, no cluster
  nftproxy run --kubeconfig /etc/kubernetes/proxy.conf     # the daemon, in place of kube-proxy
  nftproxy dump --manifests cluster.yaml                   # the rules, without touching the kernel`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	addVersionFlag(root)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	root.AddCommand(newRunCommand(), newDumpCommand(), newDemoCommand(), newBenchCommand(), newCleanupCommand(), newVersionCommand())
	return root
}

// noArgs refuses arguments that are no flags.
func noArgs(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasSubCommands():
		return usagef("unknown command %q", args[0])
	default:
		return usagef("unexpected argument %q of the command %s", args[0], cmd.Name())
	}
}
