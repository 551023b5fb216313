package proxier

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	testclock "k8s.io/utils/clock/testing"

	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/synctest"
)

// watched is a bench whose Proxier is told of what other programs do.
type watched struct {
	*observed
	ready   func()
	changed func(what string)
	logs    *observer.ObservedLogs
}

// startWatched runs a Proxier with one Service. The watch for other programs is not
// ready yet.
func startWatched(t *testing.T) *watched {
	t.Helper()
	w := &watched{observed: newObserved(t)}
	w.start(Options{})
	return w
}

func (w *watched) start(opts Options) {
	w.t.Helper()
	core, logs := observer.New(zapcore.WarnLevel)
	w.logs = logs
	began := make(chan struct{})
	opts.Log = zap.New(core)
	opts.WatchForeign = func(ctx context.Context, ready func(), changed func(string)) error {
		w.ready, w.changed = ready, changed
		close(began)
		<-ctx.Done()
		return nil
	}
	w.run(opts)
	<-began
	w.handler.Apply(w.web(1))
	w.handler.Synced()
}

// flush does what another program might.
func (w *watched) flush() {
	*w.memory = syncer.Memory{}
	w.changed("process 7 (nft) added 0 and deleted 9 objects")
}

// messages returns how often each message was logged, by its beginning.
func (w *watched) messages() map[string]int {
	counts := map[string]int{}
	for _, entry := range w.logs.All() {
		beginning, _, _ := strings.Cut(entry.Message, ";")
		beginning, _, _ = strings.Cut(beginning, ":")
		counts[beginning]++
	}
	return counts
}

// The messages about changes of other programs.
const (
	repairedOnce = "another program has changed our tables"
	repairedOft  = "another program keeps changing our tables"
)

// TestFirstSyncWaitsForTheWatch: what happens after the first sync is noticed, what
// happened before is written over.
func TestFirstSyncWaitsForTheWatch(t *testing.T) {
	w := startWatched(t)
	w.quiet()
	w.flush()
	w.quiet()
	w.ready()
	w.ready() // once more is nothing new
	if r := w.report(); !r.Full || r.Err != nil {
		t.Errorf("first sync: %+v", r)
	}
	w.quiet()
	w.wantSeries(started)
	if got := w.messages(); len(got) > 0 {
		t.Errorf("logged: %v", got)
	}
}

// TestForeignChangeIsUndone at once, with what else has changed, and said once.
func TestForeignChangeIsUndone(t *testing.T) {
	w := startWatched(t)
	w.ready()
	w.report()
	w.flush()
	if r := w.report(); !r.Full || r.Err != nil {
		t.Errorf("repair: %+v", r)
	}
	w.wantElements(1)
	w.wantSeries("nftproxy_foreign_changes_repaired_total 1", `nftproxy_resyncs_total{reason="foreign_change"} 1`, started)
	if diff := cmp.Diff(map[string]int{repairedOnce: 1}, w.messages()); diff != "" {
		t.Errorf("logged:\n%s", diff)
	}
	entry := w.logs.All()[0]
	if got := entry.ContextMap()["change"]; got != "process 7 (nft) added 0 and deleted 9 objects" {
		t.Errorf("change: %v", got)
	}
}

// TestRepairFails the first time: the next one counts.
func TestRepairFails(t *testing.T) {
	w := startWatched(t)
	w.ready()
	w.report()
	w.kernel.Inject(synctest.LoseBatch)
	w.flush()
	if r := w.report(); r.Err == nil {
		t.Fatal("no failure")
	}
	w.pass(firstRetry, 2)
	if r := w.report(); !r.Full || r.Err != nil {
		t.Errorf("repair: %+v", r)
	}
	w.wantElements(1)
	got := w.series("nftproxy_foreign_changes", "nftproxy_resyncs")
	want := []string{
		"nftproxy_foreign_changes_repaired_total 1",
		`nftproxy_resyncs_total{reason="failure"} 1`, `nftproxy_resyncs_total{reason="foreign_change"} 1`, started,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics:\n%s", diff)
	}
}

// TestRivalIsHeldOff changes our tables as soon as they are repaired: repairs come less
// and less often, it is said loudly, and changes of Services are synced meanwhile.
func TestRivalIsHeldOff(t *testing.T) {
	w := startWatched(t)
	w.ready()
	w.report()
	for range freeRepairs {
		w.flush()
		w.report()
	}
	w.flush()
	w.report()
	for _, hold := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second} {
		w.changed("again")
		w.pass(hold-time.Millisecond, 2)
		w.quiet()
		w.handler.Apply(w.web(int(hold / time.Millisecond / 10)))
		if r := w.report(); r.Full || r.Err != nil {
			t.Errorf("a change of a Service: %+v", r)
		}
		w.pass(time.Millisecond, 2)
		if r := w.report(); !r.Full || r.Err != nil {
			t.Errorf("repair after %s: %+v", hold, r)
		}
	}
	if diff := cmp.Diff(map[string]int{repairedOnce: freeRepairs, repairedOft: 4}, w.messages()); diff != "" {
		t.Errorf("logged:\n%s", diff)
	}
	if loud := w.logs.FilterLevelExact(zapcore.ErrorLevel).Len(); loud != 4 {
		t.Errorf("%d loud messages", loud)
	}
}

// TestRivalPauses says how long the repair after next has to wait, when one repair
// comes some time after the one before.
func TestRivalPauses(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		after []time.Duration
		want  []time.Duration
	}{
		"seldom": {slices.Repeat([]time.Duration{rivalTime + 1}, 10), make([]time.Duration, 10)},
		"in a row": {
			slices.Repeat([]time.Duration{ms}, 15),
			[]time.Duration{
				0, 0, 0, 0, 0, 500 * ms, 1000 * ms, 2000 * ms, 4000 * ms, 8000 * ms, 16_000 * ms,
				longestHold, longestHold, longestHold, longestHold,
			},
		},
		"not at once after a pause": {
			[]time.Duration{0, 0, 0, 0, 0, 0, rivalTime + 500*ms, rivalTime + 1000*ms + 1, 0},
			[]time.Duration{0, 0, 0, 0, 0, 500 * ms, 1000 * ms, 0, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := testclock.NewFakeClock(time.Unix(1_000_000, 0))
			r := newRival(clock)
			defer r.hold.Stop()
			var got []time.Duration
			for _, pause := range test.after {
				clock.Step(pause)
				select {
				case <-r.hold.C():
				default:
				}
				got = append(got, r.repaired())
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("pauses (want -, got +):\n%s", diff)
			}
		})
	}
}
