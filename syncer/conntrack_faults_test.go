package syncer

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
)

// fakeFlows is a conntrack table that goes wrong on request. It belongs to one
// goroutine at a time: the one of Run, and the test's while that waits.
type fakeFlows struct {
	flows    []flow
	openErr  error
	faults   []error // of the next dumps; nil: none
	visited  func(i int)
	dumped   []time.Time
	open     bool
	slowness time.Duration
}

var errHalf = errors.New("failed halfway")

func (t *fakeFlows) newConntrack(report func(error)) *Conntrack {
	return newConntrack(func() (flowTable, error) {
		if t.open {
			return nil, errors.New("it is open")
		}
		if t.openErr != nil {
			return nil, t.openErr
		}
		t.open = true
		return t, nil
	}, report)
}

func (t *fakeFlows) dump(ctx context.Context, q query, visit func(f *flow) error) error {
	t.dumped = append(t.dumped, time.Now())
	var fault error
	if len(t.faults) > 0 {
		fault, t.faults = t.faults[0], t.faults[1:]
	}
	time.Sleep(t.slowness)
	for i, f := range slices.Clone(t.flows) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(fault, errHalf) && i == len(t.flows)/2 {
			return fault
		}
		if f.protocol != q.protocol || rules.FamilyOf(f.destination.Addr()) != q.family {
			continue
		}
		if err := visit(&f); err != nil {
			return err
		}
		if t.visited != nil {
			t.visited(i)
		}
	}
	return fault
}

func (t *fakeFlows) delete(_ context.Context, f *flow) (bool, error) {
	n := len(t.flows)
	t.flows = slices.DeleteFunc(t.flows, func(g flow) bool { return g.destination == f.destination && g.replySource == f.replySource })
	return len(t.flows) < n, nil
}

func (t *fakeFlows) close() error {
	t.open = false
	return nil
}

// add adds flows of UDP from frontend to endpoint.
func (t *fakeFlows) add(w world, frontend int, endpoints ...int) {
	for _, e := range endpoints {
		t.flows = append(t.flows, flow{
			protocol: w.protocol, destination: netip.MustParseAddrPort(w.frontend(frontend)), replySource: netip.MustParseAddrPort(w.endpoint(e)),
		})
	}
}

// simulated runs a test with a Conntrack over a fakeFlows in simulated time. It ends
// well if no report is left over.
func simulated(t *testing.T, test func(t *testing.T, table *fakeFlows, c *Conntrack, reports chan error)) {
	synctest.Test(t, func(t *testing.T) {
		table, reports := &fakeFlows{}, make(chan error, 100)
		c := table.newConntrack(func(err error) { reports <- err })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		test(t, table, c, reports)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if table.open {
			t.Error("the table is still open")
		}
		if len(reports) > 0 {
			t.Errorf("report: %v", <-reports)
		}
	})
}

func commitNow(c *Conntrack, changes ...Change) {
	c.Prepare(changes)
	c.Commit(false)
}

// pass lets time pass until everything waits for more.
func pass(c *Conntrack, d time.Duration) {
	c.Stats() // its lock puts what the test did before what Run does, for the race detector
	time.Sleep(d)
	synctest.Wait()
}

// TestInterruptedDump: a dump that fails halfway is no truth. What it showed is used
// at once, and it is repeated until one succeeds.
func TestInterruptedDump(t *testing.T) {
	for name, fault := range map[string]error{
		"NLM_F_DUMP_INTR": errInterrupted, "EINTR": unix.EINTR, "ENOBUFS": unix.ENOBUFS, "halfway": errHalf,
	} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T, table *fakeFlows, c *Conntrack, _ chan error) {
				w := world{rules.UDP, rules.IPv4}
				table.add(w, 1, 1, 2, 3, 4)
				table.faults = []error{fault, fault}
				commitNow(c, w.service([]int{1}, 1))
				pass(c, settleTime)
				if n := len(table.flows); n > 3 {
					t.Errorf("%d flows are left after the first dump", n)
				}
				if s := c.Stats(); s.Passes != 0 || s.Failed != 1 {
					t.Errorf("after the first dump: %+v", s)
				}
				pass(c, time.Hour)
				if s := c.Stats(); len(table.flows) != 1 || s != (ConntrackStats{Passes: 1, Failed: 2, Deleted: 3}) {
					t.Errorf("%d flows are left, %+v", len(table.flows), s)
				}
			})
		})
	}
}

// TestDumpsAreRepeatedLessAndLess: failures do not end it, are reported once, and
// changes do not hurry it.
func TestDumpsAreRepeatedLessAndLess(t *testing.T) {
	simulated(t, func(t *testing.T, table *fakeFlows, c *Conntrack, reports chan error) {
		w := world{rules.UDP, rules.IPv4}
		const failures = 14
		table.faults = slices.Repeat([]error{errInterrupted}, failures)
		table.add(w, 1, 1)
		start := time.Now()
		commitNow(c, w.service([]int{1}))
		for range 1000 {
			pass(c, 100*time.Millisecond)
			c.Commit(false)
		}
		var gaps []time.Duration
		for i, at := range table.dumped {
			gaps = append(gaps, at.Sub(start))
			start = at
			want := settleTime
			if i > 0 {
				want = min(firstCleanRetry<<(i-1), lastCleanRetry)
			}
			if gaps[i] != want {
				t.Errorf("gap %d is %s, not %s", i, gaps[i], want)
			}
		}
		if err := <-reports; !errors.Is(err, errInterrupted) {
			t.Errorf("report: %v", err)
		}
		pass(c, time.Hour)
		if s := c.Stats(); len(table.flows) != 0 || s.Failed != failures || s.Passes != 1 {
			t.Errorf("%d flows are left, %+v", len(table.flows), s)
		}
	})
}

// TestChangesDuringAPass: a change that comes while the table is read is judged right
// by the rest of this pass, and by another one.
func TestChangesDuringAPass(t *testing.T) {
	simulated(t, func(t *testing.T, table *fakeFlows, c *Conntrack, _ chan error) {
		w := world{rules.UDP, rules.IPv4}
		table.add(w, 1, 1, 2, 3)
		table.add(w, 2, 9)
		changed := false
		table.visited = func(int) {
			if !changed { // endpoint 2 serves in place of 1
				changed = true
				commitNow(c, w.service([]int{1}, 2))
			}
		}
		commitNow(c, w.service([]int{1}, 1), flowService(w.protocol, "other", []string{w.frontend(2)}))
		pass(c, time.Hour)
		want := netip.MustParseAddrPort(w.endpoint(2))
		if s := c.Stats(); len(table.flows) != 1 || table.flows[0].replySource != want || s.Passes != 2 {
			t.Errorf("left: %+v; %+v", table.flows, s)
		}
	})
}

// TestNothingIsJudgedDuringACommit: while rules are being changed nobody knows which
// of them a flow has met. It is made up for.
func TestNothingIsJudgedDuringACommit(t *testing.T) {
	simulated(t, func(t *testing.T, table *fakeFlows, c *Conntrack, _ chan error) {
		w := world{rules.UDP, rules.IPv4}
		table.add(w, 1, 1, 2, 3)
		commitNow(c, w.service([]int{1}, 1))
		c.Prepare([]Change{w.service([]int{1}, 2)})
		pass(c, time.Hour)
		if len(table.flows) != 3 || len(table.dumped) != 0 {
			t.Errorf("in between %d of 3 flows are left, %d dumps", len(table.flows), len(table.dumped))
		}
		c.Prepare(nil) // the commit failed, and is tried again
		c.Commit(false)
		pass(c, time.Hour)
		if len(table.flows) != 1 || table.flows[0].replySource != netip.MustParseAddrPort(w.endpoint(2)) {
			t.Errorf("left: %+v", table.flows)
		}
	})
}

// TestManyChangesTakeHalfTheTime: as long as a pass takes, there is a pause after it.
func TestManyChangesTakeHalfTheTime(t *testing.T) {
	simulated(t, func(t *testing.T, table *fakeFlows, c *Conntrack, _ chan error) {
		w := world{rules.UDP, rules.IPv4}
		table.slowness = time.Second
		for i := range 10_000 {
			commitNow(c, w.service([]int{1}, i%2+1))
			pass(c, time.Millisecond)
		}
		pass(c, time.Minute)
		if n := len(table.dumped); n < 5 || n > 7 {
			t.Errorf("%d passes of 1 s in 10 s of changes", n)
		}
	})
}

// TestStopDuringAPass ends in the middle of a dump.
func TestStopDuringAPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &fakeFlows{slowness: time.Hour}
		c := table.newConntrack(func(err error) { t.Errorf("report: %v", err) })
		w := world{rules.UDP, rules.IPv4}
		table.add(w, 1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		commitNow(c, w.service([]int{1}))
		pass(c, time.Minute)
		cancel()
		if err := <-done; err != nil || len(table.flows) != 1 {
			t.Errorf("Run: %v, %d flows are left", err, len(table.flows))
		}
	})
}

// TestNoPassWithoutNeed: what cannot make a flow stale does not read the table.
func TestNoPassWithoutNeed(t *testing.T) {
	simulated(t, func(t *testing.T, table *fakeFlows, c *Conntrack, _ chan error) {
		w := world{rules.UDP, rules.IPv4}
		for i, step := range []struct {
			change Change
			dumps  int
		}{
			{w.service([]int{1}, 1), 1},
			{w.service([]int{1}, 1, 2), 1},
			{world{rules.TCP, rules.IPv4}.service([]int{2}, 1), 1},
			{w.service([]int{1}, 1, 2), 1},
			{w.service([]int{1}, 2), 2},
		} {
			commitNow(c, step.change)
			pass(c, time.Hour)
			if n := len(table.dumped); n != step.dumps {
				t.Errorf("%d dumps after step %d, not %d", n, i, step.dumps)
			}
		}
		c.Commit(true)
		pass(c, time.Hour)
		if n := len(table.dumped); n != 3 {
			t.Errorf("%d dumps after a full write, not 3", n)
		}
	})
}

// TestNoConntrack: without it there is one report and no work.
func TestNoConntrack(t *testing.T) {
	simulated(t, func(t *testing.T, table *fakeFlows, c *Conntrack, reports chan error) {
		table.openErr = &errNoConntrack{unix.EPROTONOSUPPORT}
		w := world{rules.UDP, rules.IPv4}
		for i := range 5 {
			commitNow(c, w.service([]int{1}, i+1))
			pass(c, time.Minute)
		}
		if err := <-reports; !errors.Is(err, unix.EPROTONOSUPPORT) {
			t.Errorf("report: %v", err)
		}
		if s := c.Stats(); s != (ConntrackStats{Failed: 1}) {
			t.Errorf("%+v", s)
		}
	})
}
