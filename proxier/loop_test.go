package proxier

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap/zaptest"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/synctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a running Proxier with its time, its kernel and its reports.
type bench struct {
	t       *testing.T
	clock   *testclock.FakeClock
	kernel  *synctest.Kernel
	memory  *syncer.Memory
	reports chan Report
	handler Handler
}

// sourceFunc is a Source made of its Run.
type sourceFunc func(ctx context.Context, h Handler) error

func (f sourceFunc) Run(ctx context.Context, h Handler) error { return f(ctx, h) }

// start runs a Proxier until the test ends. Its source delivers what the test gives
// to the handler.
func start(t *testing.T, opts Options) *bench {
	t.Helper()
	b := newBench(t)
	b.run(b.kernel, opts)
	return b
}

// newBench returns a bench on which nothing runs yet.
func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, clock: testclock.NewFakeClock(time.Unix(1_000_000, 0)), memory: &syncer.Memory{}, reports: make(chan Report, 1000)}
	b.kernel = synctest.NewKernel(b.memory)
	return b
}

// run runs a Proxier until the test ends, with a kernel that may be the one of the bench.
func (b *bench) run(kernel syncer.Kernel, opts Options) {
	b.t.Helper()
	t := b.t
	opts.Clock = b.clock
	if opts.Log == nil {
		opts.Log = zaptest.NewLogger(t)
	}
	opts.OnSync = func(r Report) { b.reports <- r }
	handlers := make(chan Handler)
	source := sourceFunc(func(ctx context.Context, h Handler) error {
		handlers <- h
		<-ctx.Done()
		return nil
	})
	p, err := New(source, kernel, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	b.handler = <-handlers
}

// report returns the next sync, and fails if it does not come.
func (b *bench) report() Report {
	b.t.Helper()
	select {
	case r := <-b.reports:
		return r
	case <-time.After(time.Minute):
		b.t.Fatal("no sync")
		return Report{}
	}
}

// quiet fails if there was a sync that was not asked for.
func (b *bench) quiet() {
	b.t.Helper()
	select {
	case r := <-b.reports:
		b.t.Fatalf("a sync: %+v", r)
	case <-time.After(50 * time.Millisecond):
	}
}

// pass lets time pass once the loop waits for n timers.
func (b *bench) pass(d time.Duration, n int) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); b.clock.Waiters() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("the loop waits for %d timers, not %d", b.clock.Waiters(), n)
		}
	}
	b.clock.Step(d)
}

func (b *bench) web(n int) Changes {
	return services(newService(b.t, fmt.Sprintf("default/web-%d", n), fmt.Sprintf("10.96.0.%d", n), "http:80"))
}

func TestFirstSyncWaitsForTheFirstLists(t *testing.T) {
	b := start(t, Options{})
	b.handler.Apply(b.web(1))
	b.quiet()
	if state, _ := b.kernel.State(t.Context(), rules.Families()); len(state) != 0 {
		t.Error("the kernel was touched")
	}
	b.handler.Synced()
	if r := b.report(); !r.Full || r.Err != nil || len(b.memory.Elements(rules.IPv4)) != 2 {
		t.Errorf("first sync: %+v", r)
	}
}

func TestChangesAreSyncedAtOnce(t *testing.T) {
	b := start(t, Options{})
	b.handler.Synced()
	b.report()
	for n := range 5 {
		b.handler.Apply(b.web(n + 1))
		if r := b.report(); r.Full || r.Counts.Elements != 2 {
			t.Errorf("sync %d: %+v", n, r)
		}
		b.handler.Apply(b.web(n + 1)) // nothing new
		b.quiet()
	}
}

func TestChangesDuringASyncAreMerged(t *testing.T) {
	b := start(t, Options{})
	b.handler.Synced()
	b.report()
	release := b.kernel.Hold()
	b.handler.Apply(b.web(1))
	b.kernel.WaitHeld()
	const n = 50
	for i := range n {
		b.handler.Apply(b.web(i + 2))
	}
	release()
	for i, want := range []int{2, 2 * n} {
		if r := b.report(); r.Counts.Elements != want {
			t.Errorf("sync %d: %+v, want %d elements", i, r, want)
		}
	}
	b.quiet()
}

func TestMinSyncPeriod(t *testing.T) {
	b := start(t, Options{MinSyncPeriod: time.Second})
	b.handler.Synced()
	b.report()
	b.handler.Apply(b.web(1))
	b.pass(900*time.Millisecond, 2)
	b.quiet()
	b.handler.Apply(b.web(2))
	b.pass(100*time.Millisecond, 2)
	if r := b.report(); r.Counts.Elements != 4 || r.Queued != time.Second {
		t.Errorf("after the period: %+v", r)
	}
	b.pass(time.Second, 2)
	b.quiet() // nothing to do
	b.handler.Apply(b.web(3))
	b.report() // at once
}

func TestRetryWithBackOff(t *testing.T) {
	b := start(t, Options{})
	b.kernel.Inject(synctest.LoseBatch, synctest.LoseAnswer, synctest.LoseBatch, synctest.LoseBatch)
	b.handler.Apply(b.web(1))
	b.handler.Synced()
	for i, wait := range []time.Duration{firstRetry, 2 * firstRetry, 4 * firstRetry, 8 * firstRetry} {
		if r := b.report(); r.Err == nil {
			t.Fatalf("try %d did not fail", i)
		}
		b.handler.Apply(b.web(i + 2)) // does not hurry it
		b.pass(wait-time.Millisecond, 2)
		b.quiet()
		b.pass(time.Millisecond, 2)
	}
	if r := b.report(); r.Err != nil || !r.Full || len(b.memory.Elements(rules.IPv4)) != 2*5 {
		t.Errorf("the last try: %+v", r)
	}
}

func TestRetryIsBounded(t *testing.T) {
	b := start(t, Options{})
	for range 20 {
		b.kernel.Inject(synctest.LoseBatch)
	}
	b.handler.Synced()
	for range 20 {
		if r := b.report(); r.Err == nil {
			t.Fatal("did not fail")
		}
		b.pass(lastRetry, 2)
	}
	if r := b.report(); r.Err != nil {
		t.Errorf("the last try: %v", r.Err)
	}
}

func TestPeriodicResync(t *testing.T) {
	b := start(t, Options{ResyncPeriod: time.Hour})
	b.handler.Apply(b.web(1))
	b.handler.Synced()
	b.report()
	// Somebody else empties the kernel.
	*b.memory = syncer.Memory{}
	for range 3 {
		b.pass(time.Hour, 1)
		if r := b.report(); !r.Full || r.Err != nil || len(b.memory.Elements(rules.IPv4)) != 2 {
			t.Errorf("resync: %+v", r)
		}
	}
}

func TestChangesDoNotPutOffTheResync(t *testing.T) {
	b := start(t, Options{ResyncPeriod: time.Hour})
	b.handler.Synced()
	b.report()
	b.pass(59*time.Minute, 1)
	b.handler.Apply(b.web(1))
	b.report()
	b.pass(time.Minute, 1)
	if r := b.report(); !r.Full {
		t.Errorf("an hour after the start: %+v", r)
	}
}

func TestRefusedServicePortIsReported(t *testing.T) {
	b := start(t, Options{})
	b.kernel.RefuseElements(func(e rules.Element) bool { return e.Comment == "default/web-1:http" })
	b.handler.Apply(b.web(1))
	b.handler.Apply(b.web(2))
	b.handler.Synced()
	if r := b.report(); r.Err != nil || len(r.Refused) != 1 || len(b.memory.Elements(rules.IPv4)) != 2 {
		t.Errorf("%+v", r)
	}
}

func TestRunReturnsTheSourcesError(t *testing.T) {
	broken := errors.New("broken")
	p, err := New(sourceFunc(func(context.Context, Handler) error { return broken }), &syncer.Memory{}, Options{Log: zaptest.NewLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("Run: %v", err)
	}
}

func TestBadOptions(t *testing.T) {
	_, err := New(nil, &syncer.Memory{}, Options{Rules: rules.Config{MasqueradeMark: 3}})
	if err == nil {
		t.Error("a mark of two bits is taken")
	}
}
