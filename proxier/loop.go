package proxier

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/nftproxy/nftproxy/proxier/metrics"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// loop syncs: at once when a change comes while it is idle, once for all changes
// that came during a sync, again after a failure, and everything from time to time and
// when another program has changed our tables.
func (p *Proxier) loop(ctx context.Context) error {
	t := newTimers(p.opts)
	defer t.stop()
	for {
		full, reason := false, t.reason()
		select {
		case <-ctx.Done():
			return nil
		case <-t.wakeups(p.wake):
		case <-t.pause.C():
			t.paused = false
			if t.drifted {
				p.changedBy("a program that is not known: something of ours is missing")
			}
			if !t.failed {
				continue
			}
		case <-t.periods():
			t.resync.Reset(p.opts.ResyncPeriod)
			full, reason = true, metrics.ResyncPeriodic
		case what := <-t.repairable(p.foreign):
			if !t.began {
				continue // the first sync writes everything
			}
			p.logRepair(what, t.rival.repaired())
			full, reason, t.repairs = true, metrics.ResyncForeignChange, true
		case <-t.rival.hold.C():
			t.rival.held = false
			continue
		}
		w := p.take()
		if w == nil {
			continue // the kernel is left as it is until all first lists are in
		}
		if p.opts.OnNode != nil && w.Nodes != nil {
			if err := p.opts.OnNode(w.node); err != nil {
				return err
			}
		}
		w.full, w.reason, w.repairs = full, reason, t.repairs
		if !w.Empty() || full || t.failed || !t.began {
			t.done(p.sync(ctx, w))
		}
	}
}

// sync is one sync.
func (p *Proxier) sync(ctx context.Context, w *work) outcome {
	report := Report{Queued: w.queued}
	p.prepare(w)
	start := p.opts.Clock.Now()
	if w.full {
		report.Result, report.Err = p.syncer.Resync(ctx, w.Changes)
	} else {
		report.Result, report.Err = p.syncer.Sync(ctx, w.Changes)
	}
	report.Took = p.opts.Clock.Since(start)
	if p.opts.Flows != nil && report.Err == nil {
		p.opts.Flows.Commit(report.Full)
	}
	if p.opts.Affinity != nil && len(report.Affinity) > 0 {
		p.opts.Affinity.Sweep(report.Affinity)
	}
	p.reporter.synced(w, report, p.opts.Clock.Now())
	p.reporter.serveHealth(w)
	p.putBack(w, report)
	p.logSync(ctx, report, len(w.Changes))
	if p.opts.OnSync != nil {
		p.opts.OnSync(report)
	}
	switch {
	case report.Err == nil:
		return succeeded
	case report.drifted():
		return drifted
	default:
		return failed
	}
}

// putBack notes what a sync has taken and could not make use of.
func (p *Proxier) putBack(w *work, r Report) {
	var refused []rules.ServicePortKey
	for _, c := range w.Changes {
		if c.Delta != nil && slices.ContainsFunc(r.Refused, func(r syncer.Refusal) bool { return r.Key == c.Key }) {
			refused = append(refused, c.Key)
		}
	}
	if r.Err == nil && len(refused) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Err != nil {
		p.reporter.restore(w)
	}
	if len(refused) > 0 {
		p.cluster.Anew(refused)
		p.wakeUp()
	}
}

// outcome is how a sync ended.
type outcome uint8

const (
	succeeded outcome = iota
	failed
	drifted // failed since another program has changed our tables
)

// drifted reports whether a sync has failed since another program has changed our
// tables. A full write depends on nothing that is there.
func (r Report) drifted() bool { return !r.Full && syncer.Drifted(r.Err) }

// prepare hands over what a sync shall bring into the kernel beside the service ports.
// What is wrong with it is left out, and stays what it was.
func (p *Proxier) prepare(w *work) {
	for _, problem := range w.problems {
		p.Problem(problem)
	}
	if err := w.Prepare(p.syncer); err != nil {
		p.log.Error("what the node says of itself cannot be used", zap.Error(err))
	}
	if p.opts.Flows == nil {
		return
	}
	for _, node := range w.Nodes {
		p.opts.Flows.SetNodePortIPs(node.Family, node.NodePortIPs)
	}
	p.opts.Flows.Prepare(w.Changes)
}

func (p *Proxier) logSync(ctx context.Context, r Report, changes int) {
	for _, refused := range r.Refused {
		p.log.Warn("a service port cannot be installed; it is tried again when it changes",
			zap.Stringer("servicePort", refused.Key), zap.Error(refused.Err))
	}
	fields := []zap.Field{
		zap.Int("servicePorts", changes), zap.Int("batches", r.Batches), zap.Int("elements", r.Counts.Elements),
		zap.Int("verdicts", r.Counts.Verdicts), zap.Int("objects", r.Counts.Objects),
		zap.Duration("queued", r.Queued), zap.Duration("took", r.Took),
	}
	switch {
	case r.Err != nil && ctx.Err() != nil:
		p.log.Info("stopped during a sync", zap.Error(r.Err))
	case r.drifted():
		p.log.Warn("a sync has met what another program did", append(fields, zap.Error(r.Err))...)
	case r.Err != nil:
		p.log.Error("a sync failed; everything is written again", append(fields, zap.Error(r.Err))...)
	case r.Full:
		p.log.Info("wrote the whole ruleset", fields...)
	case r.Batches > 0:
		p.log.Info("synced", fields...)
	}
}

// timers says when the loop may and must sync.
type timers struct {
	opts    Options
	pause   clock.Timer // runs after a sync, for the minimum period or until a retry
	resync  clock.Timer
	paused  bool // pause is running
	began   bool // there was a sync
	failed  bool // the last sync failed
	drifted bool // the last sync met what another program did: only a repair helps
	retry   time.Duration

	rival   *rival
	repairs bool // another program has changed our tables, and that is not undone
}

func newTimers(opts Options) *timers {
	t := &timers{opts: opts, pause: opts.Clock.NewTimer(time.Hour), resync: opts.Clock.NewTimer(opts.ResyncPeriod)}
	t.pause.Stop()
	t.rival = newRival(opts.Clock)
	return t
}

func (t *timers) stop() {
	t.pause.Stop()
	t.resync.Stop()
	t.rival.hold.Stop()
}

// reason says why the next sync writes everything, if it does so without being told to.
func (t *timers) reason() metrics.ResyncReason {
	if t.began {
		return metrics.ResyncFailure
	}
	return metrics.ResyncStart
}

// wakeups returns the channel of changes while one may be acted upon. After a drift all
// of them wait for the repair, which a rival may have put off.
func (t *timers) wakeups(wake <-chan struct{}) <-chan struct{} {
	if t.paused || t.drifted {
		return nil
	}
	return wake
}

// inMinimum reports whether the minimum period keeps everything waiting.
func (t *timers) inMinimum() bool { return t.paused && t.opts.MinSyncPeriod > 0 }

// periods returns the channel of periodic writes while there may be one.
func (t *timers) periods() <-chan time.Time {
	if t.inMinimum() {
		return nil
	}
	return t.resync.C()
}

// repairable returns the channel of foreign changes while one may be undone.
func (t *timers) repairable(foreign <-chan string) <-chan string {
	if t.inMinimum() || t.rival.held {
		return nil
	}
	return foreign
}

// done notes the outcome of a sync.
func (t *timers) done(o outcome) {
	t.began = true
	t.failed, t.drifted = o == failed, o == drifted
	t.pause.Stop()
	pause := t.opts.MinSyncPeriod
	switch o {
	case failed:
		t.retry = min(max(2*t.retry, firstRetry), t.opts.LongestRetry)
		pause = max(pause, t.retry)
	case drifted: // who watches other programs may say in a moment which one it was
		pause = max(pause, firstRetry)
	case succeeded:
		t.retry, t.repairs = 0, false
	}
	if t.paused = pause > 0; t.paused {
		t.pause.Reset(pause)
	}
}
