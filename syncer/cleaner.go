package syncer

import (
	"context"
	"fmt"
	"time"
)

const (
	// settleTime is how long a pass waits for what led to it. A packet that met the old
	// rules may leave its trace a moment after the commit, and nobody would look for it
	// again. Changes that come meanwhile are cleaned up by the same pass.
	settleTime = 10 * time.Millisecond
	// After a failed pass the next one waits, longer each time.
	firstCleanRetry = 20 * time.Millisecond
	lastCleanRetry  = 30 * time.Second
	// reportedFailure is the failure in a row that is worth a report. A table that
	// changes much may interrupt a few dumps.
	reportedFailure = 5
)

// cleaner says when passes are made over what changes have left behind in the kernel,
// beside the syncs.
type cleaner struct {
	what   string // is cleaned up, for reports
	report func(error)
	wake   chan struct{} // holds one token while there is work
}

func newCleaner(what string, report func(error)) cleaner {
	return cleaner{what: what, report: report, wake: make(chan struct{}, 1)}
}

// wakeUp says that there is work. It never blocks.
func (c *cleaner) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run makes passes until the context is done, then returns nil. No failure ends it.
// A pass that fails, and has not done its work, has to call wakeUp.
//
// A pass is followed by a pause that is as long as the pass was, at least, so that
// ever so many changes with ever so large a table take half of a core.
func (c *cleaner) run(ctx context.Context, pass func(context.Context) error) error {
	var earliest time.Time // when the next pass may begin
	failures := 0
	for c.awaitWork(ctx, earliest) {
		start := time.Now()
		failures = c.outcome(ctx, pass(ctx), failures)
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
func (c *cleaner) outcome(ctx context.Context, err error, failures int) int {
	if err == nil || ctx.Err() != nil {
		return 0
	}
	if failures++; failures == reportedFailure {
		c.report(fmt.Errorf("%s cannot be cleaned up, it is tried again: %w", c.what, err))
	}
	return failures
}

// retryPause returns the time from the last of some failures to the next pass.
func retryPause(failures int) time.Duration {
	const most = 16 // doublings, more than it takes
	return min(firstCleanRetry<<min(failures-1, most), lastCleanRetry)
}

// awaitWork waits until there is work and a pass may begin. It returns false if the
// context is done.
func (c *cleaner) awaitWork(ctx context.Context, earliest time.Time) bool {
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
