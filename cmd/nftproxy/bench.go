package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/bench"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/sandbox"
	"github.com/nftproxy/nftproxy/proxier"
)

// The formats of results.
const (
	formatTable = "table"
	formatJSON  = "json"
)

func newBenchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure rule-update latency on this machine",
		Long: `bench measures on this machine's kernel, in a private network namespace: nothing
outside of that is touched. As root that is all; for another user it is a user namespace
too, where the kernel bounds a batch by the sysctl net.core.wmem_max, so
that large first syncs take more batches.`,
		Example: `  nftproxy bench update --services 10000
  nftproxy bench scale --report report/
  sudo nftproxy bench compare --peer 'kube-proxy --config {config}'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBenchUpdateCommand(), newBenchScaleCommand(), newBenchCompareCommand(), newBenchDataplaneCommand())
	return cmd
}

// benchOutput is where results go.
type benchOutput struct {
	format string
	report string // a folder, or empty
}

func (o *benchOutput) add(flags *pflag.FlagSet) {
	flags.StringVarP(&o.format, "output", "o", formatTable, "`format` on standard output: table or json")
	flags.StringVar(&o.report, "report", "", "`folder` for an HTML page with plots, and the plots as SVG files")
}

// check returns an error unless the flags are usable. It makes the folder: what takes
// minutes should not be in vain.
func (o *benchOutput) check() error {
	if !slices.Contains([]string{formatTable, formatJSON}, o.format) {
		return usagef("--output: %q is neither %s nor %s", o.format, formatTable, formatJSON)
	}
	if o.report == "" {
		return nil
	}
	if err := os.MkdirAll(o.report, 0o755); err != nil { //nolint:gosec // for others to read
		return usagef("--report: %w", err)
	}
	return nil
}

// benchResult is what a benchmark has measured.
type benchResult interface {
	WriteTable(out io.Writer) error
	WriteReport(folder string) error
}

// write writes a result. With a report, the table says where it is.
func (o *benchOutput) write(out io.Writer, r benchResult) error {
	if o.report != "" {
		if err := r.WriteReport(o.report); err != nil {
			return err //nolint:wrapcheck // says it all
		}
	}
	if o.format == formatTable {
		return r.WriteTable(out) //nolint:wrapcheck // says it all
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// benchCluster are the flags that describe a cluster.
type benchCluster struct {
	services, endpoints int
	shape               string
	seed                uint64
}

// add adds the flags, with the default number of endpoints of a Service.
func (c *benchCluster) add(flags *pflag.FlagSet, endpoints int) {
	flags.IntVar(&c.endpoints, "endpoints-per-service", endpoints, "`number` of endpoints of each Service; with the shape realistic the mean, about")
	flags.StringVar(&c.shape, "shape", string(bench.Uniform), "uniform: all Services alike; realistic: endpoints from a heavy tail, and all that Services can have; one-big: one Service with all the endpoints")
	flags.Uint64Var(&c.seed, "seed", 1, "`seed` of what is drawn: the same one makes the same cluster and changes")
}

// spec returns the cluster with that many Services.
func (c *benchCluster) spec(services int) (bench.Spec, error) {
	spec := bench.Spec{
		Services: services, EndpointsPerService: c.endpoints, Shape: bench.Shape(c.shape), Seed: c.seed,
		Families: enabledFamilies(),
	}
	if err := spec.Validate(); err != nil {
		return spec, &usageError{err}
	}
	return spec, nil
}

// specs returns clusters of several sizes, which a flag has.
func (c *benchCluster) specs(flag string, sizes []int) ([]bench.Spec, error) {
	if len(sizes) == 0 {
		return nil, usagef("--%s: give at least one number of Services", flag)
	}
	specs := make([]bench.Spec, len(sizes))
	for i, n := range sizes {
		if n < 1 || n > bench.MaxServices {
			return nil, usagef("--%s: %d is not in 1..%d", flag, n, bench.MaxServices)
		}
		var err error
		if specs[i], err = c.spec(n); err != nil {
			return nil, err
		}
	}
	return specs, nil
}

// benchStream are the flags that describe changes.
type benchStream struct {
	changes int
	mix     string
	rate    float64
}

func (s *benchStream) add(flags *pflag.FlagSet) {
	kinds := make([]string, 0, len(bench.Kinds()))
	for _, kind := range bench.Kinds() {
		kinds = append(kinds, string(kind))
	}
	flags.IntVar(&s.changes, "changes", 6000, "`number` of changes")
	flags.StringVar(&s.mix, "mix", strings.Join(kinds, ","), "`kinds` of changes, in turn; one that is there twice comes twice as often")
	flags.Float64Var(&s.rate, "rate", 0, "`changes` a second; 0: each as soon as the kernel has taken the one before")
}

func (s *benchStream) check() ([]bench.Kind, error) {
	if s.changes < 1 {
		return nil, usagef("--changes: %d is less than 1", s.changes)
	}
	if !(s.rate >= 0 && s.rate <= 1e6) {
		return nil, usagef("--rate: %g is not in 0..1000000", s.rate)
	}
	mix, err := bench.ParseMix(s.mix)
	if err != nil {
		return nil, &usageError{err}
	}
	return mix, nil
}

// inSandbox calls inside in a private namespace whose loopback interface has the node's
// address: it runs this command with the same flags there if this process is not in one.
func inSandbox(cmd *cobra.Command, inside func(ctx context.Context, lo netlink.Link) error) error {
	ctx := cmd.Context()
	if !sandbox.Inside() {
		err := sandbox.Launch(ctx, sameCommand(cmd), cmd.OutOrStdout(), cmd.ErrOrStderr())
		if errors.Is(err, sandbox.ErrReported) {
			return errReported
		}
		return err //nolint:wrapcheck // says it all
	}
	lo, err := sandbox.Enter("bench")
	if err != nil {
		return err //nolint:wrapcheck // says it all
	}
	if err := bench.AddNode(lo); err != nil {
		return err //nolint:wrapcheck // says it all
	}
	return inside(ctx, lo)
}

// sameCommand returns the arguments that the command was given.
func sameCommand(cmd *cobra.Command) []string {
	return append(strings.Fields(cmd.CommandPath())[1:], flagsBut(cmd)...)
}

// benchDaemon is the daemon as `run` runs it, watched.
func benchDaemon(ctx context.Context, source proxier.Source, opts proxier.Options, hooks bench.Hooks) error {
	kernel, err := openKernel(ctx, opts.Rules, false, nil)
	if err != nil {
		return err
	}
	kernel = addKernelWork(&opts, kernel)
	opts.Flows = hooks.Flows(opts.Flows)
	opts.NodePorts = config.NodePortAddresses{IPv4: config.NodePortFamily{Primary: true}, IPv6: config.NodePortFamily{Primary: true}}
	return runProxier(ctx, source, hooks.Kernel(kernel), opts)
}
