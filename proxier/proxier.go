package proxier

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/utils/clock"

	"github.com/nftproxy/nftproxy/proxier/metrics"
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
	// Rules is what the ruleset depends on. NodePortsEverywhere follows from NodePorts.
	Rules rules.Config
	// NoExternalIPs leaves the external IPs of Services out, as kube-proxy does with its
	// feature gate AllowServiceExternalIPs off.
	NoExternalIPs bool
	// NodeCIDR takes the node's pod CIDRs, as its Node has them, for Rules.ClusterCIDRs.
	NodeCIDR bool
	// NodePorts says on which addresses NodePorts are open. nil: on none.
	NodePorts NodePorts
	// BindAddress is an address of this node that comes before those of the Node. The
	// zero Addr: there is none.
	BindAddress netip.Addr
	// WatchAddresses calls changed with the addresses of this node's interfaces, first
	// those that there are, then whenever they differ, until the context is done. Nothing
	// is installed before it has called. nil: they are not known.
	WatchAddresses func(ctx context.Context, changed func([]netip.Addr)) error
	// MinSyncPeriod is the shortest time between the end of a sync and the begin of
	// the next. 0: none.
	MinSyncPeriod time.Duration
	// ResyncPeriod is how often the whole ruleset is written. 0: DefaultResyncPeriod.
	ResyncPeriod time.Duration
	// Clock is the time. nil: the system's.
	Clock clock.Clock
	// Flows cleans up after changes. nil: flows stay until they end.
	Flows Flows
	// Affinity forgets the clients of endpoints that are gone. nil: they are remembered
	// until they stay away.
	Affinity Affinity
	Log      *zap.Logger
	// Observers tell others how the proxy does.
	Observers Observers
	// WatchForeign calls changed whenever another program has changed our tables, or may
	// have, until the context is done; what says how. It calls ready once it notices
	// changes, or knows that it does not yet: nothing is installed before, so that no
	// change after the first sync goes unnoticed. nil: it is seen at the next change that
	// fails, or at the next time that everything is written.
	WatchForeign func(ctx context.Context, ready func(), changed func(what string)) error
	// OnNode, if set, is called before the first sync, and before one that follows a change
	// of the node, from the goroutine that syncs. The Node begins with BindAddress; it is
	// nil if nothing of it is known. An error ends Run, and leaves the kernel as it is.
	OnNode func(*Node) error
	// LongestRetry bounds the pause after failed syncs. 0: 10 seconds.
	LongestRetry time.Duration
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
	// SetNodePortIPs says on which addresses of a family NodePorts are open. It must not
	// block.
	SetNodePortIPs(f rules.Family, addrs []netip.Addr)
	// Run does the work until the context is done, then returns nil once nothing of
	// it runs any more.
	Run(ctx context.Context) error
}

// Affinity forgets clients; *syncer.Affinity does.
type Affinity interface {
	// Sweep takes the tables of clients of which some may have to be forgotten. It must
	// not block.
	Sweep(tables []rules.AffinityTable)
	// Run does the work until the context is done, then returns nil once nothing of it
	// runs any more.
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

	wake    chan struct{} // holds one token while there is something to do
	foreign chan string   // holds what another program has done, until it is undone

	mu       sync.Mutex
	cluster  *Cluster
	reporter *reporter
	// awaited counts what has to be there before the first sync: the first full lists,
	// the addresses of the interfaces, and the watch for other programs.
	awaited int
	oldest  time.Time // when the oldest pending change came, zero if none is
}

// New returns a Proxier. An error says what is wrong with the options.
func New(source Source, kernel syncer.Kernel, opts Options) (*Proxier, error) {
	opts.Rules = opts.Rules.WithDefaults()
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.LongestRetry == 0 {
		opts.LongestRetry = lastRetry
	}
	if opts.ResyncPeriod == 0 {
		opts.ResyncPeriod = DefaultResyncPeriod
	}
	cluster := NewCluster(opts)
	s, err := syncer.New(kernel, cluster.Config())
	if err != nil {
		return nil, fmt.Errorf("make a proxier: %w", err)
	}
	p := &Proxier{
		source: source, syncer: s, opts: opts, log: opts.Log,
		wake: make(chan struct{}, 1), foreign: make(chan string, 1), cluster: cluster, awaited: 1,
		reporter: newReporter(opts.Observers, opts.Rules.Families, opts.Clock.Now()),
	}
	if opts.WatchAddresses != nil {
		p.awaited++
	}
	if opts.WatchForeign != nil {
		p.awaited++
	}
	return p, nil
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
	if p.opts.Affinity != nil {
		group.Go(func() error { return p.opts.Affinity.Run(ctx) })
	}
	if p.opts.WatchAddresses != nil {
		group.Go(func() error { return p.watchAddresses(ctx) })
	}
	if p.opts.WatchForeign != nil {
		group.Go(func() error { return p.watchForeign(ctx) })
	}
	if p.opts.Observers.ServiceHealth != nil {
		group.Go(func() error { return p.opts.Observers.ServiceHealth.Run(ctx) })
	}
	return group.Wait()
}

// Apply implements Handler.
func (p *Proxier) Apply(changes Changes) {
	now := p.opts.Clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	pending := p.cluster.Apply(changes)
	p.reporter.received(changes, pending)
	if pending {
		p.changed(now)
	}
}

// changed notes that there is something to sync.
func (p *Proxier) changed(now time.Time) {
	if p.oldest.IsZero() {
		p.oldest = now
	}
	p.reporter.queued(now)
	p.wakeUp()
}

// Synced implements Handler.
func (p *Proxier) Synced() { p.arrived() }

// arrived notes that something is there that the first sync needs.
func (p *Proxier) arrived() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.awaited--
	p.wakeUp()
}

// watchAddresses follows the addresses of this node's interfaces.
func (p *Proxier) watchAddresses(ctx context.Context) error {
	first := true
	err := p.opts.WatchAddresses(ctx, func(addrs []netip.Addr) {
		now := p.opts.Clock.Now()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cluster.SetAddresses(addrs)
		if first {
			first = false
			p.awaited--
		}
		p.changed(now)
	})
	if err != nil {
		return fmt.Errorf("follow the addresses of this node: %w", err)
	}
	return nil
}

// Problem implements Handler.
func (p *Proxier) Problem(problem Problem) {
	p.log.Warn("an object cannot be used", zap.Error(problem.Err))
	p.reporter.problem(problem)
}

// watchForeign follows what other programs do to our tables.
func (p *Proxier) watchForeign(ctx context.Context) error {
	if err := p.opts.WatchForeign(ctx, sync.OnceFunc(p.arrived), p.changedBy); err != nil {
		return fmt.Errorf("watch what other programs do to our tables: %w", err)
	}
	return nil
}

// changedBy notes that another program has changed our tables.
func (p *Proxier) changedBy(what string) {
	select {
	case p.foreign <- what:
	default: // one full write undoes everything
	}
}

func (p *Proxier) wakeUp() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// work is what a sync has to do.
type work struct {
	Work

	problems []Problem     // of objects that are fine each by itself
	queued   time.Duration // how long the oldest change has waited
	triggers map[rules.Family][]time.Time
	full     bool                 // write the whole ruleset
	reason   metrics.ResyncReason // if the whole ruleset is written
	repairs  bool                 // another program has changed our tables since they were written
}

// take returns what is pending, nil if not everything is known yet that the first sync
// needs.
func (p *Proxier) take() *work {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.awaited > 0 {
		return nil
	}
	w := &work{Work: p.cluster.Take(), problems: p.cluster.TakeProblems()}
	if !p.oldest.IsZero() {
		w.queued = p.opts.Clock.Since(p.oldest)
	}
	p.oldest = time.Time{}
	w.triggers = p.reporter.taken(w.Work)
	return w
}
