package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/proxier"
)

// commitTimeout is how long the daemon may take to follow a change.
const commitTimeout = 10 * time.Second

// commits records what the daemon reports about its syncs.
type commits struct {
	mu       sync.Mutex
	first    proxier.Report   // the first that the kernel took: the whole ruleset
	updates  []proxier.Report // the others that sent something
	accepted int              // how many the kernel took, the first included
	failed   error            // of the last sync, if it failed
	reported chan struct{}    // closed when there is a new report
}

func newCommits() *commits { return &commits{reported: make(chan struct{})} }

// note takes a report.
func (c *commits) note(r proxier.Report) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, refused := range r.Refused {
		r.Err = errors.Join(r.Err, fmt.Errorf("%s: %w", refused.Key, refused.Err))
	}
	switch c.failed = r.Err; {
	case r.Err != nil || r.Batches == 0:
	case c.accepted == 0:
		c.accepted, c.first = 1, r
	default:
		c.accepted++
		c.updates = append(c.updates, r)
	}
	close(c.reported)
	c.reported = make(chan struct{})
}

// count returns how many syncs the kernel has taken.
func (c *commits) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.accepted
}

// wait waits until the kernel has taken more syncs than that.
func (c *commits) wait(ctx context.Context, than int) error {
	timeout := time.NewTimer(commitTimeout)
	defer timeout.Stop()
	for {
		c.mu.Lock()
		accepted, failed, reported := c.accepted, c.failed, c.reported
		c.mu.Unlock()
		if accepted > than {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // says it all
		case <-timeout.C:
			return errors.Join(fmt.Errorf("the daemon has not followed a change within %s", commitTimeout), failed)
		case <-reported:
		}
	}
}

// latencies describe the updates after the first.
func (c *commits) latencies() latencies {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := latencies{first: c.first.Queued + c.first.Took}
	for _, r := range c.updates {
		l.updates = append(l.updates, r.Queued+r.Took)
		l.elements += r.Counts.Elements
		l.verdicts += r.Counts.Verdicts
	}
	return l
}

// latencies are how long the rules took to follow the objects: from the changed
// object, waiting included, to the kernel's answer.
type latencies struct {
	first              time.Duration // until the whole ruleset was there
	updates            []time.Duration
	elements, verdicts int // sent for the updates
}
