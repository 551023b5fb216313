package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/rules"
)

const (
	// settleTime is how long a pass waits for what led to it. A packet that met the old
	// rules has an entry only when it has left the node, so the entry may come a moment
	// after the commit, and nobody would look for it again. Changes that come meanwhile
	// are cleaned up by the same pass.
	settleTime = 10 * time.Millisecond
	// After a failed pass the next one waits, longer each time.
	firstCleanRetry = 20 * time.Millisecond
	lastCleanRetry  = 30 * time.Second
	// reportedFailure is the failure in a row that is worth a report. A table that
	// changes much may interrupt a few dumps.
	reportedFailure = 5
)

// Conntrack deletes the conntrack entries of UDP and SCTP that translate to what does
// not serve any more. The kernel consults the rules for the first packet of a flow
// only: as long as a client sends, its flow stays where it is, whatever the rules say
// now.
//
// Its owner calls Prepare before it commits changes and Commit after it has; neither
// blocks. The work is done by Run, beside that.
type Conntrack struct {
	open   func() (flowTable, error)
	report func(error)
	wake   chan struct{} // holds one token while there are dirty frontends

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
	return &Conntrack{open: open, report: report, wake: make(chan struct{}, 1), serving: newServing()}
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

// Stats returns what was done so far.
func (c *Conntrack) Stats() ConntrackStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

func (c *Conntrack) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Run cleans up until the context is done, then returns nil. No failure ends it. If
// conntrack entries are out of reach, it reports that once and does nothing more.
//
// A pass is followed by a pause that is as long as the pass was, at least, so that
// ever so many changes with ever so large a table take half of a core.
func (c *Conntrack) Run(ctx context.Context) error {
	var earliest time.Time // when the next pass may begin
	failures := 0
	for c.awaitWork(ctx, earliest) {
		start := time.Now()
		failures = c.outcome(ctx, c.pass(ctx), failures)
		end := time.Now()
		pause := end.Sub(start)
		if failures > 0 {
			pause = max(pause, retryPause(failures))
		}
		earliest = end.Add(pause)
	}
	return nil
}

// outcome says what becomes of a pass's error, and returns the number of failures in a
// row.
func (c *Conntrack) outcome(ctx context.Context, err error, failures int) int {
	var unavailable *errNoConntrack
	switch {
	case err == nil || ctx.Err() != nil:
		return 0
	case errors.As(err, &unavailable):
		c.giveUp()
		c.report(fmt.Errorf("conntrack entries of UDP and SCTP are not cleaned up: %w", err))
		return 0
	}
	if failures++; failures == reportedFailure {
		c.report(fmt.Errorf("conntrack entries of UDP and SCTP cannot be cleaned up, it is tried again: %w", err))
	}
	return failures
}

// retryPause returns the time from the last of some failures to the next pass.
func retryPause(failures int) time.Duration {
	const most = 16 // doublings, more than it takes
	return min(firstCleanRetry<<min(failures-1, most), lastCleanRetry)
}

// awaitWork waits until there are dirty frontends and a pass may begin. It returns
// false if the context is done.
func (c *Conntrack) awaitWork(ctx context.Context, earliest time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c.wake:
	}
	timer := time.NewTimer(max(settleTime, time.Until(earliest)))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
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
			to := flowTarget{f.protocol, f.destination}
			if _, ok := targets[to]; !ok || !c.judge(to, f) {
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

// judge reports whether the flow is stale, by what serves now, not by what did when
// the pass began.
func (c *Conntrack) judge(to flowTarget, f *flow) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.serving.judge(to, f.replySource)
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
