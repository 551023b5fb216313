package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/nftproxy/nftproxy/rules"
)

// Conntrack deletes the conntrack entries of UDP and SCTP that translate to what does
// not serve any more. The kernel consults the rules for the first packet of a flow
// only: as long as a client sends, its flow stays where it is, whatever the rules say
// now.
//
// Its owner calls Prepare before it commits changes and Commit after it has; neither
// blocks. The work is done by Run, beside that.
type Conntrack struct {
	cleaner // has work while there are dirty frontends

	open func() (flowTable, error)

	mu      sync.Mutex
	serving *serving // nil once conntrack entries turn out to be out of reach
	stats   ConntrackStats
}

// ConntrackStats counts what a Conntrack has done.
type ConntrackStats struct {
	Passes  uint64 // over the conntrack table that were completed
	Failed  uint64 // that were not, and were begun again
	Deleted uint64 // entries
}

// NewConntrack returns a Conntrack for the network namespace with this file
// descriptor, 0 for that of the process. Problems go to report, from the goroutine of
// Run: that conntrack entries are out of reach here, and that passes keep failing.
func NewConntrack(netns int, report func(error)) *Conntrack {
	return newConntrack(func() (flowTable, error) { return openNetlinkFlows(netns) }, report)
}

func newConntrack(open func() (flowTable, error), report func(error)) *Conntrack {
	return &Conntrack{cleaner: newCleaner("conntrack entries of UDP and SCTP", report), open: open, serving: newServing()}
}

// Prepare takes changes that are about to be committed. What was prepared and not
// committed yet stays so: after a commit that failed the same changes need not be
// prepared again. Until the commit no flow to their frontends is judged.
func (c *Conntrack) Prepare(changes []Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serving != nil {
		c.serving.prepare(changes)
	}
}

// Commit says that everything that was prepared is in force. Flows to the frontends
// concerned are judged soon. After a start all flows are, once their frontends come;
// so they are if full says that the whole ruleset was written. That may have taken
// several batches, and flows begun between two of them may have met no rule.
//
// A service port that the kernel refused counts as committed: what of its endpoints
// does not serve is not worth its flows either way.
func (c *Conntrack) Commit(full bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serving == nil {
		return
	}
	c.serving.commit(full)
	if len(c.serving.dirty) > 0 {
		c.wakeUp()
	}
}

// SetNodePortIPs says on which addresses of a family NodePorts are about to be open,
// instead of those before: never all, nobody would know then which flows are to this
// node. It is in force with the next Commit; flows to addresses that come are judged
// then. Flows to other addresses, and to any before the first call, are never taken for
// flows to a NodePort.
func (c *Conntrack) SetNodePortIPs(f rules.Family, addrs []netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serving != nil {
		c.serving.setNodePortIPs(f, addrs)
	}
}

// Stats returns what was done so far.
func (c *Conntrack) Stats() ConntrackStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// Run cleans up until the context is done, then returns nil. No failure ends it. If
// conntrack entries are out of reach, it reports that once and does nothing more.
func (c *Conntrack) Run(ctx context.Context) error {
	return c.run(ctx, func(ctx context.Context) error {
		err := c.pass(ctx)
		var unavailable *errNoConntrack
		if !errors.As(err, &unavailable) || ctx.Err() != nil {
			return err
		}
		c.giveUp()
		c.report(fmt.Errorf("%s are not cleaned up: %w", c.what, err))
		return nil
	})
}

// pass judges the flows to all dirty frontends. If it fails they stay dirty.
func (c *Conntrack) pass(ctx context.Context) error {
	c.mu.Lock()
	targets := c.serving.take()
	c.mu.Unlock()
	if len(targets) == 0 {
		return nil // a commit is under way, and wakes again
	}
	err := c.clean(ctx, targets)

	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.stats.Failed++
		maps.Copy(c.serving.dirty, targets)
		c.wakeUp()
		return err
	}
	c.stats.Passes++
	return nil
}

// clean reads the flows to the targets and deletes the stale ones as they come: what
// was judged is right even if the dump fails later.
func (c *Conntrack) clean(ctx context.Context, targets map[flowTarget]struct{}) (err error) {
	table, err := c.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.close()) }()
	for _, q := range queriesFor(targets) {
		err := table.dump(ctx, q, func(f *flow) error {
			if !c.judge(targets, f) {
				return nil
			}
			deleted, err := table.delete(ctx, f)
			if deleted {
				c.mu.Lock()
				c.stats.Deleted++
				c.mu.Unlock()
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// judge reports whether the flow is a stale one to the targets, by what serves now, not
// by what did when the pass began.
func (c *Conntrack) judge(targets map[flowTarget]struct{}, f *flow) bool {
	to := flowTarget{f.protocol, f.destination}
	if _, ok := targets[to]; !ok {
		if _, ok := targets[to.asNodePort()]; !ok {
			return false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serving.judge(targets, to, f.replySource)
}

// giveUp drops what is known: nobody will use it.
func (c *Conntrack) giveUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serving = nil
	select {
	case <-c.wake:
	default:
	}
}

// queriesFor returns the dumps that it takes to see all flows to the targets: one for
// each family and protocol, narrowed to a port if all targets have the same.
func queriesFor(targets map[flowTarget]struct{}) []query {
	ports := map[query]uint16{}
	for t := range targets {
		q := query{family: rules.FamilyOf(t.addr.Addr()), protocol: t.protocol}
		port := t.addr.Port()
		if other, ok := ports[q]; ok && other != port {
			port = 0
		}
		ports[q] = port
	}
	queries := make([]query, 0, len(ports))
	for q, port := range ports {
		q.port = port
		queries = append(queries, q)
	}
	slices.SortFunc(queries, func(a, b query) int {
		return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.protocol, b.protocol))
	})
	return queries
}
