package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// listTimeout is how long dump waits for the first lists.
const listTimeout = 30 * time.Second

func newDumpCommand() *cobra.Command {
	var s settings
	var format, against string
	cmd := &cobra.Command{
		Use:   "dump",
		Short: "Print the rules without touching the kernel",
		Long: `dump prints the whole ruleset that a daemon would install. The nft text can be
loaded with ` + "`nft -f`" + ` where there is no such table. With --against it prints instead
the one batch that a daemon would send when the objects become those of the other
path: nft commands on standard output, and their count on standard error.

An object that cannot be used is reported on standard error, and the exit status is
1; the rest is printed all the same.`,
		Example: `  nftproxy dump --manifests cluster.yaml
  nftproxy dump --kubeconfig ~/.kube/config --hostname-override node1 -o json
  nftproxy dump --manifests before.yaml --against after.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := s.load()
			if err != nil {
				return err
			}
			if format != "nft" && format != "json" {
				return usagef("-o: %q is neither nft nor json", format)
			}
			if against != "" && format != "nft" {
				return usagef("--against prints nft commands, there is no JSON of them")
			}
			d, err := newDumper(cmd.Context(), cfg, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := d.load(&s); err != nil {
				return err
			}
			if against != "" {
				err = d.printAgainst(cmd.OutOrStdout(), &settings{manifests: against})
			} else {
				err = d.print(cmd.OutOrStdout(), format)
			}
			return errors.Join(err, d.outcome())
		},
	}
	s.add(cmd.Flags())
	cmd.Flags().StringVarP(&format, "output", "o", "nft", "`format`: nft or json (as `nft -j` prints it)")
	cmd.Flags().StringVar(&against, "against", "", "`path` of manifests to compare with")
	return cmd
}

// dumper brings what sources deliver into a model of the kernel.
type dumper struct {
	ctx      context.Context //nolint:containedctx // of the one command that a dumper serves
	cfg      *config.Config
	node     string
	rules    rules.Config // what the syncer has
	kernel   *syncer.Printer
	syncer   *syncer.Syncer
	known    map[rules.ServicePortKey]bool
	stderr   io.Writer
	problems int
}

func newDumper(ctx context.Context, cfg *config.Config, stderr io.Writer) (*dumper, error) {
	node, err := nodeName(cfg)
	if err != nil {
		return nil, err
	}
	d := &dumper{
		ctx: ctx, cfg: cfg, node: node, kernel: syncer.NewPrinter(&syncer.Memory{}, io.Discard),
		known: map[rules.ServicePortKey]bool{}, stderr: stderr,
	}
	d.rules = d.cluster().Config()
	d.syncer, err = syncer.New(d.kernel, d.rules)
	return d, err
}

// cluster returns a cluster without objects, of all families whatever this machine has.
func (d *dumper) cluster() *proxier.Cluster {
	return proxier.NewCluster(options(d.cfg, rules.Families(), zap.NewNop()))
}

// load makes the objects of the source those that are wanted, and no others.
func (d *dumper) load(s *settings) error {
	cluster := d.cluster()
	if s.manifests != "" {
		objects, problems, err := proxier.LoadManifests(s.manifests, d.node)
		if err != nil {
			return err
		}
		for _, problem := range problems {
			d.report(problem)
		}
		cluster.Apply(objects)
	} else if err := d.list(s, cluster); err != nil {
		return err
	}
	for _, problem := range cluster.TakeProblems() {
		d.report(problem.Err)
	}
	cluster.SetAddresses(cluster.NodeAddrs()) // those of this machine say nothing about the node
	return d.sync(cluster)
}

// sync brings the cluster into the model.
func (d *dumper) sync(cluster *proxier.Cluster) error {
	work := cluster.Take()
	work.Config = nil
	if config := cluster.Config(); !reflect.DeepEqual(config, d.rules) {
		work.Config, d.rules = &config, config
	}
	if err := work.Prepare(d.syncer); err != nil {
		d.report(err)
	}
	changes, gone := work.Changes, d.known
	d.known = map[rules.ServicePortKey]bool{}
	for _, c := range changes {
		d.known[c.Key] = true
		delete(gone, c.Key)
	}
	for key := range gone {
		changes = append(changes, syncer.Change{Key: key})
	}
	res, err := d.syncer.Sync(d.ctx, changes)
	for _, refused := range res.Refused {
		d.report(fmt.Errorf("service port %s cannot be installed: %w", refused.Key, refused.Err))
	}
	return err
}

// list takes the first lists of the API server.
func (d *dumper) list(s *settings, cluster *proxier.Cluster) error {
	log, err := openLog(config.Logging{Format: config.LogText}) // what it waits for
	if err != nil {
		return err
	}
	api, _, err := s.source(d.cfg, d.node, log)
	if err != nil {
		return err
	}
	first := &firstLists{cluster: cluster, report: d.report}
	return first.wait(d.ctx, api)
}

func (d *dumper) report(err error) {
	d.problems++
	_, _ = fmt.Fprintf(d.stderr, "nftproxy: %s\n", oneLine(err))
}

// outcome returns an error if problems were reported.
func (d *dumper) outcome() error {
	if d.problems > 0 {
		return errReported
	}
	return nil
}

func (d *dumper) print(out io.Writer, format string) error {
	if format == "json" {
		return d.syncer.Wanted().WriteJSON(out)
	}
	return d.syncer.Wanted().WriteText(out)
}

// printAgainst prints the batch that leads from what is loaded to the other source.
func (d *dumper) printAgainst(out io.Writer, other *settings) error {
	d.kernel.SetOutput(out)
	if err := d.load(other); err != nil {
		return err
	}
	_, err := fmt.Fprintln(d.stderr, d.kernel.Counts())
	return err
}

// firstLists is a Handler that waits for the first full lists.
type firstLists struct {
	cluster *proxier.Cluster
	report  func(error)
	cancel  context.CancelFunc
	synced  bool
}

// wait runs the source until it has delivered everything.
func (f *firstLists) wait(ctx context.Context, source proxier.Source) error {
	var limited context.Context
	limited, f.cancel = context.WithTimeout(ctx, listTimeout)
	defer f.cancel()
	if err := source.Run(limited, f); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case !f.synced:
		return fmt.Errorf("the first lists of Services and EndpointSlices did not arrive within %s: "+
			"check that the API server answers", listTimeout)
	}
	return nil
}

// Apply implements proxier.Handler.
func (f *firstLists) Apply(changes proxier.Changes) { f.cluster.Apply(changes) }

// Problem implements proxier.Handler.
func (f *firstLists) Problem(p proxier.Problem) { f.report(p.Err) }

// Synced implements proxier.Handler.
func (f *firstLists) Synced() {
	f.synced = true
	f.cancel()
}
