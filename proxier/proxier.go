package proxier

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

const (
	// DefaultResyncPeriod is how often the whole ruleset is written even if nothing
	// seems wrong: that of kube-proxy.
	DefaultResyncPeriod = time.Hour
	// After a failed sync the next one waits, longer each time.
	firstRetry = 20 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// Options are the settings of a Proxier. The zero value of each field but Log is
// its default.
type Options struct {
	Rules rules.Config
	// MinSyncPeriod is the shortest time between the end of a sync and the begin of
	// the next. 0: none.
	MinSyncPeriod time.Duration
	// ResyncPeriod is how often the whole ruleset is written. 0: DefaultResyncPeriod.
	ResyncPeriod time.Duration
	// Clock is the time. nil: the system's.
	Clock clock.Clock
	// Flows cleans up after changes. nil: flows stay until they end.
	Flows Flows
	Log   *zap.Logger
	// OnSync, if set, is called after every sync that was tried, from the goroutine
	// that syncs. It must not block.
	OnSync func(Report)
}

// Flows takes care of the flows that changes leave behind; *syncer.Conntrack does.
type Flows interface {
	// Prepare takes the changes of a sync before it begins. It must not block.
	Prepare(changes []syncer.Change)
	// Commit says that a sync has succeeded: all that was prepared since the last one
	// that did is in force. full says that the whole ruleset was written. It must not
	// block.
	Commit(full bool)
	// Run does the work until the context is done, then returns nil once nothing of
	// it runs any more.
	Run(ctx context.Context) error
}

// Report says what a sync did.
type Report struct {
	syncer.Result
	// Err is why the sync failed, nil if it did not.
	Err error
	// Queued is how long the oldest change waited for the sync to begin, and was
	// resolved; 0 if there was none.
	Queued time.Duration
	// Took is the duration of the sync, until the kernel's answer.
	Took time.Duration
}

// Proxier brings what a Source delivers into the kernel.
type Proxier struct {
	source Source
	syncer *syncer.Syncer
	opts   Options
	log    *zap.Logger

	wake chan struct{} // holds one token while there is something to do

	mu      sync.Mutex
	tracker *Tracker
	synced  bool
	oldest  time.Time // when the oldest pending change came, zero if none is
}

// New returns a Proxier. An error says what is wrong with the options.
func New(source Source, kernel syncer.Kernel, opts Options) (*Proxier, error) {
	opts.Rules = opts.Rules.WithDefaults()
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.ResyncPeriod == 0 {
		opts.ResyncPeriod = DefaultResyncPeriod
	}
	s, err := syncer.New(kernel, opts.Rules)
	if err != nil {
		return nil, fmt.Errorf("make a proxier: %w", err)
	}
	return &Proxier{
		source: source, syncer: s, opts: opts, log: opts.Log,
		wake: make(chan struct{}, 1), tracker: NewTracker(opts.Rules.Families),
	}, nil
}

// Run works until the context is done, then returns nil once nothing of it runs any
// more. The rules stay in the kernel. It returns the source's error if that cannot
// go on; a failing kernel is tried again for ever.
func (p *Proxier) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return p.source.Run(ctx, p) })
	group.Go(func() error { return p.loop(ctx) })
	if p.opts.Flows != nil {
		group.Go(func() error { return p.opts.Flows.Run(ctx) })
	}
	return group.Wait()
}

// Apply implements Handler.
func (p *Proxier) Apply(changes Changes) {
	now := p.opts.Clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tracker.Apply(changes) {
		if p.oldest.IsZero() {
			p.oldest = now
		}
		p.wakeUp()
	}
}

// Synced implements Handler.
func (p *Proxier) Synced() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.synced = true
	p.wakeUp()
}

// Problem implements Handler.
func (p *Proxier) Problem(problem Problem) {
	p.log.Warn("an object cannot be used", zap.Error(problem.Err))
}

func (p *Proxier) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// take returns the pending changes and how long the oldest of them has waited.
func (p *Proxier) take() (changes []syncer.Change, queued time.Duration, synced bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.synced {
		return nil, 0, false
	}
	changes = p.tracker.TakeChanges()
	if !p.oldest.IsZero() {
		queued = p.opts.Clock.Since(p.oldest)
	}
	p.oldest = time.Time{}
	return changes, queued, true
}
