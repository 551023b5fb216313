package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// listTimeout is how long dump waits for the first lists.
const listTimeout = 30 * time.Second

func newDumpCommand() *cobra.Command {
	var source sourceFlags
	var ruleset rulesFlags
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
			if err := source.check(); err != nil {
				return err
			}
			if format != "nft" && format != "json" {
				return usagef("-o: %q is neither nft nor json", format)
			}
			if against != "" && format != "nft" {
				return usagef("--against prints nft commands, there is no JSON of them")
			}
			cfg, err := ruleset.config()
			if err != nil {
				return err
			}
			cfg.Families = nil // all, whatever this machine has
			d, err := newDumper(cmd.Context(), cfg, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if err := d.load(source); err != nil {
				return err
			}
			if against != "" {
				err = d.printAgainst(cmd.OutOrStdout(), sourceFlags{manifests: against, nodeName: source.nodeName})
			} else {
				err = d.print(cmd.OutOrStdout(), format)
			}
			return errors.Join(err, d.outcome())
		},
	}
	source.add(cmd.Flags())
	ruleset.add(cmd.Flags())
	cmd.Flags().StringVarP(&format, "output", "o", "nft", "`format`: nft or json (as `nft -j` prints it)")
	cmd.Flags().StringVar(&against, "against", "", "`path` of manifests to compare with")
	return cmd
}

// dumper brings what sources deliver into a model of the kernel.
type dumper struct {
	ctx      context.Context //nolint:containedctx // of the one command that a dumper serves
	cfg      rules.Config
	kernel   *syncer.Printer
	syncer   *syncer.Syncer
	known    map[rules.ServicePortKey]bool
	stderr   io.Writer
	problems int
}

func newDumper(ctx context.Context, cfg rules.Config, stderr io.Writer) (*dumper, error) {
	kernel := syncer.NewPrinter(&syncer.Memory{}, io.Discard)
	s, err := syncer.New(kernel, cfg)
	if err != nil {
		return nil, err
	}
	return &dumper{ctx: ctx, cfg: cfg.WithDefaults(), kernel: kernel, syncer: s, known: map[rules.ServicePortKey]bool{}, stderr: stderr}, nil
}

// load makes the objects of the source those that are wanted, and no others.
func (d *dumper) load(source sourceFlags) error {
	tracker := proxier.NewTracker(d.cfg.Families)
	if source.manifests != "" {
		objects, problems, err := proxier.LoadManifests(source.manifests, source.nodeName)
		if err != nil {
			return err
		}
		for _, problem := range problems {
			d.report(problem)
		}
		tracker.Apply(objects)
	} else if err := d.list(source, tracker); err != nil {
		return err
	}
	changes := tracker.TakeChanges()
	gone := d.known
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
func (d *dumper) list(source sourceFlags, tracker *proxier.Tracker) error {
	log, err := (&logFlags{format: "console"}).open() // what it waits for
	if err != nil {
		return err
	}
	api, err := source.open(log)
	if err != nil {
		return err
	}
	first := &firstLists{tracker: tracker, report: d.report}
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
func (d *dumper) printAgainst(out io.Writer, other sourceFlags) error {
	d.kernel.SetOutput(out)
	if err := d.load(other); err != nil {
		return err
	}
	_, err := fmt.Fprintln(d.stderr, d.kernel.Counts())
	return err
}

// firstLists is a Handler that waits for the first full lists.
type firstLists struct {
	tracker *proxier.Tracker
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
func (f *firstLists) Apply(changes proxier.Changes) { f.tracker.Apply(changes) }

// Problem implements proxier.Handler.
func (f *firstLists) Problem(p proxier.Problem) { f.report(p.Err) }

// Synced implements proxier.Handler.
func (f *firstLists) Synced() {
	f.synced = true
	f.cancel()
}
