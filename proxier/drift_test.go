package proxier

import (
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// empty does what another program might, and nobody tells of it.
func (w *watched) empty() { *w.memory = syncer.Memory{} }

// endpoint changes the endpoint of the first Service.
func (w *watched) endpoint(n int) {
	w.handler.Apply(endpointSlices(newSlice(w.t, "default/web-1", "web-1", "http:8080",
		[]string{"10.244.0.1", "10.244.0.2"}[n%2])))
}

// startEndpoint runs a Proxier with one Service that has an endpoint.
func startEndpoint(t *testing.T) *watched {
	t.Helper()
	w := startWatched(t)
	w.endpoint(0)
	w.ready()
	w.report()
	return w
}

// drift has a sync fail since our tables are not what they were.
func (w *watched) drift(n int) {
	w.t.Helper()
	w.empty()
	w.endpoint(n)
	if r := w.report(); r.Full || !syncer.Drifted(r.Err) {
		w.t.Fatalf("no drift: %+v", r)
	}
}

const metDrift = "a sync has met what another program did"

// TestDriftIsRepaired: a sync that meets what another program did is followed by a
// repair, as if that had been noticed at once, and not by a retry after a failure.
func TestDriftIsRepaired(t *testing.T) {
	w := startEndpoint(t)
	w.drift(1)
	w.handler.Apply(w.web(2)) // waits for it
	w.pass(firstRetry, 2)
	if r := w.report(); !r.Full || r.Err != nil {
		t.Errorf("repair: %+v", r)
	}
	w.quiet()
	w.wantSeries(
		`kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"} 1`,
		"nftproxy_foreign_changes_repaired_total 1",
		`nftproxy_kernel_errors_total{cause="refused"} 1`,
		`nftproxy_resyncs_total{reason="foreign_change"} 1`, started,
	)
	if diff := cmp.Diff(map[string]int{metDrift: 1, repairedOnce: 1}, w.messages()); diff != "" {
		t.Errorf("logged:\n%s", diff)
	}
	if got := len(w.memory.Elements(rules.IPv4)); got != 2+2+1 {
		t.Errorf("%d elements, want those of two Services and an endpoint", got)
	}
}

// TestDriftIsTold by who watches other programs, a moment later: it is repaired once, and
// the log says which program it was.
func TestDriftIsTold(t *testing.T) {
	w := startEndpoint(t)
	w.drift(1)
	w.changed("process 7 (nft)")
	if r := w.report(); !r.Full || r.Err != nil {
		t.Errorf("repair: %+v", r)
	}
	w.pass(firstRetry, 1)
	w.quiet()
	entries := w.logs.FilterFieldKey("change").All()
	if len(entries) != 1 || entries[0].ContextMap()["change"] != "process 7 (nft)" {
		t.Errorf("logged: %v", entries)
	}
}

// TestRivalUnderChurn: repairs that syncs ask for are held off as others are, and changes
// wait with them.
func TestRivalUnderChurn(t *testing.T) {
	w := startEndpoint(t)
	for n := range freeRepairs + 1 {
		w.drift(n + 1)
		w.pass(firstRetry, 2)
		if r := w.report(); !r.Full || r.Err != nil {
			t.Fatalf("repair %d: %+v", n, r)
		}
	}
	n := freeRepairs
	for _, hold := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second} {
		n += 2
		w.drift(n)
		w.pass(firstRetry, 3)
		w.endpoint(n + 1)
		w.pass(hold-firstRetry-time.Millisecond, 2)
		w.quiet()
		w.pass(time.Millisecond, 2)
		if r := w.report(); !r.Full || r.Err != nil {
			t.Fatalf("repair after %s: %+v", hold, r)
		}
	}
	w.wantSeries(
		`kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"} 9`,
		"nftproxy_foreign_changes_repaired_total 9",
		`nftproxy_kernel_errors_total{cause="refused"} 9`,
		`nftproxy_resyncs_total{reason="foreign_change"} 9`, started,
	)
	if diff := cmp.Diff(map[string]int{metDrift: 9, repairedOnce: freeRepairs, repairedOft: 4}, w.messages()); diff != "" {
		t.Errorf("logged:\n%s", diff)
	}
}

// TestFailureAfterDrift: a repair that fails is tried again as after any failure, and
// counts once it succeeds.
func TestFailureAfterDrift(t *testing.T) {
	w := startEndpoint(t)
	w.drift(1)
	w.kernel.FailStates(syscall.EINTR)
	w.pass(firstRetry, 2)
	if r := w.report(); r.Err == nil {
		t.Fatal("no failure")
	}
	w.pass(firstRetry, 2)
	if r := w.report(); !r.Full || r.Err != nil {
		t.Errorf("repair: %+v", r)
	}
	got := w.series("nftproxy_foreign_changes")
	if diff := cmp.Diff([]string{"nftproxy_foreign_changes_repaired_total 1"}, got); diff != "" {
		t.Errorf("metrics:\n%s", diff)
	}
}

// TestMinimumPeriodIsExact: nothing is written before it is over, whatever the reason.
func TestMinimumPeriodIsExact(t *testing.T) {
	const period = 30 * time.Second
	for name, cause := range map[string]func(*watched){
		"a change":           func(w *watched) { w.endpoint(1) },
		"a foreign change":   func(w *watched) { w.flush() },
		"the periodic write": func(*watched) {},
	} {
		t.Run(name, func(t *testing.T) {
			w := &watched{observed: newObserved(t)}
			w.start(Options{MinSyncPeriod: period, ResyncPeriod: period - time.Second})
			w.ready()
			w.report()
			cause(w)
			w.pass(period-time.Millisecond, 2)
			w.quiet()
			w.pass(time.Millisecond, 1)
			if r := w.report(); r.Err != nil {
				t.Errorf("after the period: %+v", r)
			}
		})
	}
}
