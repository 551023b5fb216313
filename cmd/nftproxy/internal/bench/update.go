package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sync/errgroup"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/traffic"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

const (
	// madeAhead is how many changes are made up at a time, while nothing is measured. At a
	// rate there should be no pauses in which the daemon could catch up.
	madeAhead       = 1000
	madeAheadAtRate = 100_000
	// keptUpShare is how much of a rate has to be reached by who keeps up.
	keptUpShare = 0.99
	// settleTime is between the first sync and the changes, see UpdateOptions.Settle.
	settleTime = 2 * time.Second
	// updatePhases is how many phases there are to tell of.
	updatePhases = 3
)

// Hooks wrap what the daemon uses, so that it can be watched.
type Hooks struct {
	Kernel func(syncer.Kernel) syncer.Kernel
	Flows  func(proxier.Flows) proxier.Flows
}

// UpdateOptions are what is measured by Update.
type UpdateOptions struct {
	Spec    Spec
	Changes int // how many, at least 1
	Mix     []Kind
	// Rate is how many changes come a second; 0 for the next one as soon as the kernel
	// has taken the one before.
	Rate float64
	// Settle waits between the first sync and the changes until the kernel has resized its
	// new tables in the background.
	Settle bool
	// Daemon runs the daemon, with the hooks, until the context is done.
	Daemon func(ctx context.Context, source proxier.Source, opts proxier.Options, hooks Hooks) error
	// Version is that of nftproxy.
	Version string
	// Progress takes what goes on, and the daemon's warnings.
	Progress io.Writer
}

// Update measures how long the rules take to follow the objects, in the network
// namespace of this process.
func Update(ctx context.Context, opts UpdateOptions) (*UpdateResult, error) {
	u := &update{
		opts: opts, recorder: newRecorder(), progress: terminal.NewProgress(opts.Progress, updatePhases),
		result: &UpdateResult{
			Shape: opts.Spec.Shape, Seed: opts.Spec.Seed, Families: len(opts.Spec.Families), Rate: opts.Rate,
			Changes: map[Kind]ChangeResult{}, Machine: ThisMachine(opts.Version),
		},
	}
	var err error
	u.result.HeapEmpty = ownHeap()
	if u.result.RSSEmpty, err = ownMemory(); err != nil {
		return nil, err
	}
	if err := u.withDaemon(ctx); err != nil {
		u.progress.Stop()
		if ctx.Err() != nil {
			return nil, errors.New("interrupted")
		}
		return nil, err
	}
	return u.result, nil
}

// update is a measurement that runs.
type update struct {
	opts     UpdateOptions
	recorder *recorder
	progress *terminal.Progress
	result   *UpdateResult
	handler  proxier.Handler
}

// withDaemon measures while the daemon runs.
func (u *update) withDaemon(ctx context.Context) error {
	log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewDevelopmentEncoderConfig()),
		zapcore.Lock(zapcore.AddSync(u.opts.Progress)), zapcore.WarnLevel))
	started := make(source)
	group, ctx := errgroup.WithContext(ctx)
	untilMeasured, end := context.WithCancel(ctx)
	group.Go(func() error {
		return u.opts.Daemon(untilMeasured, started, proxier.Options{
			Rules: rules.Config{Families: u.opts.Spec.Families, ClusterCIDRs: PodRanges()},
			Log:   log, OnSync: u.recorder.synced,
		}, Hooks{Kernel: u.recorder.kernel, Flows: u.recorder.flows})
	})
	group.Go(func() error {
		defer end()
		select {
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // says it all
		case u.handler = <-started:
			return u.measure(ctx)
		}
	})
	return group.Wait() //nolint:wrapcheck // says it all
}

// source is the Source of a measurement: it passes the handler on.
type source chan proxier.Handler

// Run implements proxier.Source.
func (s source) Run(ctx context.Context, h proxier.Handler) error {
	select {
	case s <- h:
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

func (u *update) measure(ctx context.Context) error {
	cluster, err := u.firstSync(ctx)
	if err != nil {
		return err
	}
	u.result.Heap = ownHeap()
	u.result.HeapPerService = max(0, u.result.Heap-u.result.HeapEmpty) / u.result.Services
	stream := NewStream(cluster, u.opts.Mix)
	if err := u.changes(ctx, stream); err != nil {
		return err
	}
	u.progress.Begin("measuring the memory")
	if u.result.RSS, err = ownMemory(); err != nil {
		return err
	}
	u.progress.End(terminal.Thousands(u.result.RSS>>20) + " MiB resident")
	return nil
}

// firstSync brings the cluster into the kernel.
func (u *update) firstSync(ctx context.Context) (*Cluster, error) {
	r := u.result
	u.progress.Begin("first sync")
	cluster := NewCluster(u.opts.Spec)
	r.Services, r.Endpoints = cluster.Services(), cluster.Endpoints()
	u.progress.Update(fmt.Sprintf("making %s Services with %s endpoints",
		terminal.Thousands(r.Services), terminal.Thousands(r.Endpoints)))
	objects, err := slimCluster(cluster)
	if err != nil {
		return nil, err
	}
	cpuBefore, err := ownCPU()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	u.handler.Apply(objects)
	u.handler.Synced()
	report, err := u.recorder.waitFirst(ctx)
	if err != nil {
		return nil, err
	}
	cpuAfter, err := ownCPU()
	if err != nil {
		return nil, err
	}
	r.FirstSync, r.FirstSyncCPU = seconds(report.ended.Sub(began)), seconds(cpuAfter.sub(cpuBefore).total())
	r.FirstSyncPerService = microseconds(report.ended.Sub(began) / time.Duration(r.Services))
	r.FirstSyncOperations = report.Counts.Elements + report.Counts.Objects
	r.FirstSyncBytes, r.FirstSyncBatches = report.bytes, report.Batches
	u.progress.End(fmt.Sprintf("%s Services with %s endpoints after %.3f s",
		terminal.Thousands(r.Services), terminal.Thousands(r.Endpoints), r.FirstSync))
	return cluster, nil
}

// changes measures the changes, a chunk at a time.
func (u *update) changes(ctx context.Context, stream *Stream) error {
	u.progress.Begin(terminal.Thousands(u.opts.Changes) + " changes")
	if u.opts.Settle {
		if _, err := ownMemory(); err != nil { // no garbage of the first sync
			return err
		}
		if err := traffic.Pause(ctx, settleTime); err != nil {
			return err
		}
	}
	u.recorder.take()
	ahead := madeAhead
	if u.opts.Rate > 0 {
		ahead = madeAheadAtRate
	}
	var used cpu
	var elapsed time.Duration
	for done := 0; done < u.opts.Changes; {
		chunk, err := makeAhead(stream, min(ahead, u.opts.Changes-done))
		if err != nil {
			return err
		}
		cpuBefore, err := ownCPU()
		if err != nil {
			return err
		}
		began := time.Now()
		if err := u.send(ctx, chunk); err != nil {
			return err
		}
		elapsed += time.Since(began)
		cpuAfter, err := ownCPU()
		if err != nil {
			return err
		}
		used = used.add(cpuAfter.sub(cpuBefore))
		done += len(chunk)
		u.progress.Update(terminal.Thousands(done) + " done")
	}
	u.summarize(elapsed, used)
	u.progress.End(fmt.Sprintf("%.1f s, %.3f s of CPU", elapsed.Seconds(), used.total().Seconds()))
	return nil
}

// makeAhead makes up changes.
func makeAhead(stream *Stream, n int) ([]*slimChange, error) {
	chunk := make([]*slimChange, 0, n)
	for range n {
		change, err := stream.Next()
		if err != nil {
			return nil, err
		}
		slim, err := newSlimChange(change)
		if err != nil {
			return nil, err
		}
		chunk = append(chunk, slim)
	}
	return chunk, nil
}

// send hands the changes over, one after the other or at the rate, and waits until the
// kernel has all of them.
func (u *update) send(ctx context.Context, chunk []*slimChange) error {
	began := time.Now()
	for i, change := range chunk {
		if u.opts.Rate > 0 {
			due := began.Add(time.Duration(float64(i) / u.opts.Rate * float64(time.Second)))
			if err := traffic.Pause(ctx, time.Until(due)); err != nil {
				return err
			}
		}
		u.recorder.begin(change)
		u.handler.Apply(change.changes)
		chunk[i] = nil
		if u.opts.Rate > 0 && i < len(chunk)-1 {
			if i%madeAhead == 0 {
				u.progress.Update(terminal.Thousands(i) + " sent")
			}
			continue
		}
		if err := u.recorder.wait(ctx); err != nil {
			return fmt.Errorf("%s of %s: %w", change.kind, change.service, err)
		}
	}
	return nil
}

func (u *update) summarize(elapsed time.Duration, used cpu) {
	r := u.result
	r.samples, r.Syncs = u.recorder.take()
	for kind, samples := range r.samples {
		r.Changes[kind] = summarize(samples)
	}
	r.Elapsed, r.CPU = seconds(elapsed), seconds(used.total())
	r.CPUUser, r.CPUKernel = seconds(used.user), seconds(used.kernel)
	r.CPUPerThousand = seconds(used.total() * 1000 / time.Duration(u.opts.Changes))
	if elapsed > 0 {
		r.Reached = float64(u.opts.Changes) / elapsed.Seconds()
		r.CoreShare = math.Round(used.total().Seconds()/elapsed.Seconds()*1e4) / 1e4
	}
	r.KeptUp = r.Reached >= keptUpShare*r.Rate
}
