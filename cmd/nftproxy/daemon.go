package main

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"runtime"
	"sync"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/nodesetup"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/metrics"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// daemon is what `run` runs.
type daemon struct {
	settings *settings
	flags    *pflag.FlagSet // of the command
	dryRun   bool
	takeOver bool      // remove what kube-proxy left
	stdout   io.Writer // for the batches of a dry run
	metrics  *metrics.Metrics
}

// run runs the daemon with a configuration until the context is done.
func (d *daemon) run(ctx context.Context, cfg *config.Config, log *zap.Logger) error {
	node, err := nodeName(cfg)
	if err != nil {
		return err
	}
	opts := options(cfg, enabledFamilies(), log)
	reports := newReports(cfg, d.metrics, opts.Rules.Families, log)
	source, client, err := d.settings.source(cfg, node, log)
	if err != nil {
		return err
	}
	opts.Observers = reports.observers(client, node)
	opts.OnNode = (&nodeCheck{cfg: cfg, families: opts.Rules.Families, log: log}).check
	kernel, err := openKernel(ctx, opts.Rules, d.dryRun, d.stdout)
	if err != nil {
		return err
	}
	slowDown(&opts)
	group, ctx := errgroup.WithContext(ctx)
	if !d.dryRun {
		setUpNode(cfg, log)
		kernel = addKernelWork(&opts, kernel)
		take := newTakeOver(d.takeOver, &opts)
		group.Go(func() error { take.run(ctx); return nil })
	}
	group.Go(func() error { return reports.run(ctx, d.flags) })
	group.Go(func() error {
		return runProxier(ctx, source, batchLog{reports.metrics.Kernel(kernel, clock.RealClock{}), log}, opts)
	})
	return group.Wait() //nolint:wrapcheck // each part says it all
}

// nodeSetup changes settings of this node.
func nodeSetup() nodesetup.Setup { return nodesetup.Setup{Root: "/", CPUs: runtime.NumCPU()} }

// setUpNode applies settings of the node. What this process may not write it only says.
func setUpNode(cfg *config.Config, log *zap.Logger) {
	setup := nodeSetup()
	if err := setup.Conntrack(cfg.Conntrack); err != nil {
		log.Warn("settings of connection tracking stay as they are; run once with --init-only and more privileges, "+
			"set them on the node, or those of conntrack in the configuration to 0",
			zap.Error(err))
	}
	if err := setup.OOMScoreAdj(cfg.OOMScoreAdj); err != nil {
		log.Debug("oom_score_adj stays as it is", zap.Error(err))
	}
}

// openKernel opens the kernel and probes it, or for a dry run makes a model of one
// that prints what it is sent.
func openKernel(ctx context.Context, cfg rules.Config, dryRun bool, out io.Writer) (syncer.Kernel, error) {
	if dryRun {
		return syncer.NewPrinter(&syncer.Memory{}, out), nil
	}
	kernel, err := syncer.NewNetlink(0)
	if err != nil {
		return nil, err
	}
	if err := kernel.Probe(ctx, cfg); err != nil {
		return nil, errors.Join(err, kernel.Close())
	}
	return kernel, nil
}

// addKernelWork adds what is done in the kernel beside the rules, in the network
// namespace of this process, and returns the kernel that the rules are for.
func addKernelWork(opts *proxier.Options, kernel syncer.Kernel) syncer.Kernel {
	report := func(what string) func(error) {
		return func(err error) { opts.Log.Warn(what, zap.Error(err)) }
	}
	conntrack := syncer.NewConntrack(0, report("conntrack"))
	if m := opts.Observers.Metrics; m != nil {
		conntrack.OnPass(m.ConntrackPass)
	}
	opts.Flows = conntrack
	opts.Affinity = syncer.NewAffinity(0, report("session affinity"))
	opts.WatchAddresses = func(ctx context.Context, changed func([]netip.Addr)) error {
		return syncer.NewAddresses(0, changed, report("addresses of this node")).Run(ctx)
	}
	w := newForeignWatch(report("notifications of nftables"))
	opts.WatchForeign = w.run
	return w.monitor.Quiet(kernel)
}

// foreignWatch tells of changes of our tables by other programs.
type foreignWatch struct {
	monitor *syncer.Monitor
	changed chan string   // what was done, until somebody is told
	broken  chan struct{} // closed once it is known not to work, for now
}

func newForeignWatch(problem func(error)) *foreignWatch {
	w := &foreignWatch{changed: make(chan string, 1), broken: make(chan struct{})}
	tell := func(what string) {
		select {
		case w.changed <- what:
		default: // one full write undoes everything
		}
	}
	breaks := sync.OnceFunc(func() { close(w.broken) })
	w.monitor = syncer.NewMonitor(0,
		func(c syncer.ForeignChange) { tell(c.String()) },
		func() { tell("unknown: notifications of the kernel were lost") },
		func(err error) {
			problem(err)
			breaks() // once it works, it tells of a loss
		},
	)
	return w
}

// run implements WatchForeign of proxier.Options.
func (w *foreignWatch) run(ctx context.Context, ready func(), changed func(string)) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.monitor.Run(ctx) })
	group.Go(func() error {
		select {
		case <-w.monitor.Subscribed():
		case <-w.broken:
		case <-ctx.Done():
			return nil
		}
		ready()
		for {
			select {
			case what := <-w.changed:
				changed(what)
			case <-ctx.Done():
				return nil
			}
		}
	})
	return group.Wait() //nolint:wrapcheck // says it all
}

// runProxier runs a proxier, as `run` and the demo do. It closes the kernel.
func runProxier(ctx context.Context, source proxier.Source, kernel syncer.Kernel, opts proxier.Options) (err error) {
	defer func() { err = errors.Join(err, kernel.Close()) }()
	memory := newMemory(&opts)
	p, err := proxier.New(source, kernel, opts)
	if err != nil {
		return err
	}
	opts.Log.Info("nftproxy starts", zap.String("version", versionString()))
	ctx, end := context.WithCancel(ctx)
	var tidying sync.WaitGroup
	defer tidying.Wait()
	defer end()
	tidying.Go(func() { memory.run(ctx) })
	if err := p.Run(ctx); err != nil {
		return err
	}
	opts.Log.Info("nftproxy ends; its rules stay in the kernel")
	return nil
}
