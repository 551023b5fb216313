package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/sandbox"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/deploy/examples"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/rules"
)

const (
	// The Service that is scaled, with its file, and the one whose rules are listed.
	scaledService = "frontend"
	listedService = "api"
	// loadPause is between two connections of a client while the Service is scaled,
	// so that the demo leaves a small machine some time for the daemon.
	loadPause = 3 * time.Millisecond
	// rolloutTime is when no more rounds of changes begin, on a machine that is so busy
	// that not all of them fit into a minute.
	rolloutTime = 25 * time.Second
	// numRefused is how many connections to a Service without endpoints are tried.
	numRefused = 20
)

// numPhases is how many phases the demo has.
const numPhases = 4

// nodeName is the node of the manifests that the demo is.
const nodeName = "node-1"

// podRanges are the addresses of the pods in the manifests, as for --cluster-cidr.
func podRanges() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:10:244::/56")}
}

// Options are what the demo is made of.
type Options struct {
	// Connections is how many are made through the ClusterIPs.
	Connections int
	// Families returns the IP families of this machine.
	Families func() []rules.Family
	// Daemon runs the daemon until the context is done.
	Daemon func(ctx context.Context, source proxier.Source, opts proxier.Options) error
	// Stdout takes the report, Stderr the progress and the daemon's warnings.
	Stdout, Stderr io.Writer
}

// demo is a demo that runs.
type demo struct {
	opts     Options
	rules    rules.Config
	lo       netlink.Link
	folder   string
	commits  *commits
	progress *terminal.Progress
	results  results
}

// Run runs the demo in the namespaces that sandbox.Launch made. It returns sandbox.ErrReported if the
// report says that something was wrong.
func Run(ctx context.Context, opts Options) (err error) {
	lo, err := sandbox.Enter("demo")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	folder, err := os.MkdirTemp("", "nftproxy-demo-*")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := copyManifests(folder, examples.Files); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	d := &demo{
		opts:     opts,
		rules:    rules.Config{Families: opts.Families(), ClusterCIDRs: podRanges()},
		lo:       lo,
		folder:   folder,
		commits:  newCommits(),
		progress: terminal.NewProgress(opts.Stderr, numPhases),
	}
	err = d.withDaemon(ctx, d.play)
	if ctx.Err() != nil {
		d.progress.Stop()
		return errors.New("demo: interrupted")
	}
	if err != nil {
		d.progress.Stop()
		return fmt.Errorf("demo: %w", err)
	}
	faults, err := d.results.write(opts.Stdout)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	if len(faults) > 0 {
		return sandbox.ErrReported
	}
	return nil
}

// withDaemon calls play while the daemon runs.
func (d *demo) withDaemon(ctx context.Context, play func(context.Context) error) error {
	log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()),
		zapcore.Lock(zapcore.AddSync(d.opts.Stderr)), zapcore.WarnLevel))
	group, ctx := errgroup.WithContext(ctx)
	untilPlayed, end := context.WithCancel(ctx)
	group.Go(func() error {
		return d.opts.Daemon(untilPlayed, proxier.NewManifests(d.folder, nodeName, log),
			proxier.Options{Rules: d.rules, Log: log, OnSync: d.commits.note})
	})
	group.Go(func() error {
		defer end()
		return play(ctx)
	})
	return group.Wait() //nolint:wrapcheck // says it all
}

// play is the demo but for the report.
func (d *demo) play(ctx context.Context) (err error) {
	d.progress.Begin("starting the endpoints and the daemon")
	targets, err := loadTargets(d.folder, d.rules.Families)
	if err != nil {
		return err
	}
	running, err := startPods(ctx, d.lo, targets)
	defer func() { err = errors.Join(err, running.stopAll()) }()
	if err != nil {
		return err
	}
	clients, err := newClients(d.lo, d.rules.Families)
	if err != nil {
		return err
	}
	if err := d.commits.wait(ctx, 0); err != nil {
		return err
	}
	families := "IPv4 and IPv6"
	if len(d.rules.Families) == 1 {
		families = d.rules.Families[0].String() + " alone, this machine has no other"
	}
	d.progress.End(fmt.Sprintf("%d endpoints, %d ClusterIPs with their ports, %s",
		countEndpoints(targets), len(targets), families))

	if err := d.connect(ctx, clients, targets); err != nil {
		return err
	}
	if err := d.scale(ctx, clients, running); err != nil {
		return err
	}
	return d.list(ctx)
}

// connect makes the connections to all targets.
func (d *demo) connect(ctx context.Context, clients []client, targets []target) error {
	r := &d.results
	d.progress.Begin(terminal.Thousands(d.opts.Connections) + " connections through the ClusterIPs")
	for _, t := range targets {
		if len(t.endpoints) > 0 {
			r.targets = append(r.targets, t)
			continue
		}
		refusal, err := tryRefused(ctx, clients[0], t)
		if err != nil {
			return err
		}
		r.refused = append(r.refused, refusal)
	}
	var done, failed atomic.Int64
	finished := make(chan error)
	go func() {
		var err error
		r.spread, err = spread(ctx, clients, r.targets, d.opts.Connections, &done, &failed)
		finished <- err
	}()
	redraw := time.NewTicker(terminal.RedrawPeriod)
	defer redraw.Stop()
	for {
		select {
		case err := <-finished:
			d.progress.End(terminal.Thousands(failed.Load()) + " failed")
			return err
		case <-redraw.C:
			d.progress.Update(fmt.Sprintf("%s done, %s failed", terminal.Thousands(done.Load()), terminal.Thousands(failed.Load())))
		}
	}
}

// tryRefused connects to a target that has no endpoints, until that is not refused.
func tryRefused(ctx context.Context, c client, t target) (refusal, error) {
	r := refusal{target: t}
	for r.tried < numRefused && r.wrong == "" {
		r.tried++
		began := time.Now()
		answer, err := c.connect(ctx, t)
		switch took := time.Since(began); {
		case ctx.Err() != nil:
			return r, ctx.Err() //nolint:wrapcheck // says it all
		case errors.Is(err, syscall.ECONNREFUSED):
			r.refused++
			r.slowest = max(r.slowest, took)
		case err != nil:
			r.wrong = err.Error()
		default:
			r.wrong = "answered by " + answer.String()
		}
	}
	return r, nil
}

// scale changes the endpoints of a Service while the clients connect to it.
func (d *demo) scale(ctx context.Context, clients []client, running pods) error {
	r := &d.results
	manifest, err := readScaledManifest(filepath.Join(d.folder, scaledService+".yaml"))
	if err != nil {
		return err
	}
	replicas, err := manifest.replicas()
	if err != nil {
		return err
	}
	ro := &rollout{
		lo: d.lo, manifest: manifest, service: scaledService, families: d.rules.Families,
		pods: running, commits: d.commits, replicas: map[int]replica{},
	}
	for n, replica := range replicas {
		ro.replicas[n] = replica
	}
	var targets []target
	for _, t := range r.targets {
		if t.Name == scaledService {
			r.scaled = t.ServicePortName.String()
			targets = append(targets, t)
			ro.ports = []port{{t.Protocol, t.endpoints[0].Addr.Port()}}
		}
	}
	d.progress.Begin("changing endpoints while connecting")
	ro.load = startLoad(ctx, clients, targets, loadPause)
	began, changed := time.Now(), 0
	timeLeft := func() bool { return time.Since(began) < rolloutTime }
	r.stages, r.rollout, err = ro.run(ctx, plan(len(replicas)), timeLeft, func() {
		changed++
		d.progress.Update(fmt.Sprintf("%d done, %s connections, %s failed",
			changed, terminal.Thousands(ro.load.made.Load()), terminal.Thousands(ro.load.failed.Load())))
	})
	if err != nil {
		return err
	}
	r.latencies = d.commits.latencies()
	d.progress.End(fmt.Sprintf("%d changes, %s connections, %s failed", changed, terminal.Thousands(ro.load.made.Load()), terminal.Thousands(ro.load.failed.Load())))
	return nil
}

// list lists the rules of one Service.
func (d *demo) list(ctx context.Context) error {
	r := &d.results
	d.progress.Begin("listing the rules of one Service")
	for _, t := range r.targets {
		if t.Name == listedService {
			r.listed = t
		}
	}
	r.listing, r.listError = listService(ctx, r.listed)
	if r.listError == nil {
		d.progress.End("by nft")
		return nil
	}
	var err error
	r.listing, err = compileService(d.rules, r.listed)
	d.progress.End("without nft")
	return err
}
