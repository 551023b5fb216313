package demo

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/syncer"
)

func TestCommits(t *testing.T) {
	report := func(batches int, took time.Duration, err error) proxier.Report {
		r := proxier.Report{Err: err, Queued: time.Millisecond, Took: took}
		r.Batches, r.Counts = batches, syncer.Counts{Elements: 2, Verdicts: 1}
		return r
	}
	c := newCommits()
	done := make(chan error)
	go func() { done <- c.wait(t.Context(), 1) }()
	c.note(report(1, 9*time.Millisecond, nil))
	c.note(report(0, time.Millisecond, nil))                   // sent nothing
	c.note(report(1, time.Millisecond, errors.New("refused"))) // failed
	select {
	case err := <-done:
		t.Fatalf("wait ended before the second commit: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	c.note(report(1, 3*time.Millisecond, nil))
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	l := c.latencies()
	if c.count() != 2 || l.first != 10*time.Millisecond || len(l.updates) != 1 || l.updates[0] != 4*time.Millisecond ||
		l.elements != 2 || l.verdicts != 1 {
		t.Errorf("%d commits, %+v", c.count(), l)
	}
}

func TestCommitsWaitEnds(t *testing.T) {
	c := newCommits()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.wait(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("wait of a done context: %v", err)
	}
	r := proxier.Report{}
	r.Batches = 1
	r.Refused = []syncer.Refusal{{Err: errors.New("no")}}
	c.note(r) // a service port that is missing is no success
	if c.count() != 0 || c.failed == nil {
		t.Errorf("%d commits, %v", c.count(), c.failed)
	}
}
