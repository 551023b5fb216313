package main

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

const (
	// After a failure the next try waits, longer each time.
	firstTakeOverRetry = time.Second
	// A kube-proxy that still runs writes its rules again, in its mode iptables within
	// half a minute. So it is looked for once more, less and less often while there is
	// something to find.
	firstTakeOverCheck = time.Minute
	lastTakeOverPause  = time.Hour
)

// takeOver removes what kube-proxy left, or reports it, once our own rules are in
// force: until then those of kube-proxy serve.
//
// Both may be in force together. A new connection is translated by the one whose chain
// comes first, and after that by nobody. No chain that rejects or drops sees what was
// translated as anything but a connection to an endpoint. Both request masquerading
// with a bit of the mark, and an established connection is conntrack's.
type takeOver struct {
	remove bool
	find   func(context.Context) (syncer.Leftovers, error) // removes too, if remove is set
	log    *zap.Logger
	failed func(rules.Family) // counts what could not be removed

	once   sync.Once
	synced chan struct{} // closed after the first sync that succeeded
}

// newTakeOver returns a takeOver that learns of syncs through the options of a proxier.
func newTakeOver(remove bool, opts *proxier.Options) *takeOver {
	t := &takeOver{remove: remove, find: syncer.FindLeftovers, log: opts.Log, failed: func(rules.Family) {}, synced: make(chan struct{})}
	if m := opts.Observers.Metrics; m != nil {
		t.failed = m.CleanupFailed
	}
	if remove {
		t.find = func(ctx context.Context) (syncer.Leftovers, error) { return syncer.RemoveLeftovers(ctx, true) }
	}
	next := opts.OnSync
	opts.OnSync = func(r proxier.Report) {
		if r.Err == nil {
			t.once.Do(func() { close(t.synced) })
		}
		if next != nil {
			next(r)
		}
	}
	return t
}

// run ends when there is nothing more to do, and when the context is done.
func (t *takeOver) run(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-t.synced:
	}
	if t.remove {
		t.removeAll(ctx)
	} else {
		t.report(ctx)
	}
}

// report says what kube-proxy left, and how to remove it.
func (t *takeOver) report(ctx context.Context) {
	left, err := t.find(ctx)
	if err != nil && ctx.Err() == nil {
		t.log.Warn("what kube-proxy left could not be looked for", zap.Error(err))
	}
	if len(left.Found) > 0 {
		t.log.Warn("kube-proxy's rules are in force beside those of nftproxy: end kube-proxy on this node, "+
			"then run `nftproxy cleanup --kube-proxy`, or nftproxy with --take-over", zap.Strings("found", left.Found))
	}
}

// removeAll removes what kube-proxy left, until nothing is there any more.
func (t *takeOver) removeAll(ctx context.Context) {
	retry, check := firstTakeOverRetry, firstTakeOverCheck
	clean := false // nothing was left after the last time
	for {
		left, err := t.find(ctx)
		if ctx.Err() != nil {
			return
		}
		t.tell(left, clean)
		for _, f := range left.Failed {
			t.failed(f)
		}
		clean = err == nil && len(left.Kept) == 0
		pause := &check
		switch {
		case err != nil:
			t.log.Error("not all that kube-proxy left could be removed, it is tried again", zap.Duration("in", retry), zap.Error(err))
			pause = &retry
		case left.None():
			return
		}
		if !sleep(ctx, *pause) {
			return
		}
		*pause = min(*pause+*pause, lastTakeOverPause)
	}
}

// tell says what was removed, and whether it came again.
func (t *takeOver) tell(left syncer.Leftovers, again bool) {
	switch {
	case len(left.Found) > 0 && again:
		t.log.Warn("kube-proxy's rules were there again and are removed: does it still run on this node?", zap.Strings("removed", left.Found))
	case len(left.Found) > 0:
		t.log.Info("nftproxy has taken over from kube-proxy", zap.Strings("removed", left.Found))
	}
	if len(left.Kept) > 0 {
		t.log.Info("something of kube-proxy has to stay", zap.Strings("kept", left.Kept))
	}
}

// sleep returns false when the context is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
