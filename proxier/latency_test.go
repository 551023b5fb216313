package proxier

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/synctest"
)

const programming = "kubeproxy_network_programming_duration_seconds"

// latencies is a bench whose slices say when what they follow has changed.
type latencies struct{ *observed }

// slice is a slice of the Service web-1 with a changed endpoint, and the time.
func (l latencies) slice(addr string, triggered time.Time) Changes {
	s := newSlice(l.t, "default/web-"+addr, "web-1", "http:8080", addr)
	s.Triggered = triggered
	return endpointSlices(s)
}

// wantLatencies compares how many latencies of a family there are, and their sum in
// seconds, with "count sum". Nothing is "0 0".
func (l latencies) wantLatencies(f rules.Family, want string) {
	l.t.Helper()
	got := []string{"0", "0"}
	for i, name := range []string{"_count", "_sum"} {
		prefix := programming + name + `{ip_family="` + f.String() + `"} `
		for _, line := range l.series(prefix) {
			got[i] = line[len(prefix):]
		}
	}
	if text := got[0] + " " + got[1]; text != want {
		l.t.Errorf("latencies of %s: %q, want %q", f, text, want)
	}
}

// TestNetworkProgrammingLatency is from the time that a slice names until its rules are
// in force, once for each change that needs a sync.
func TestNetworkProgrammingLatency(t *testing.T) {
	l := latencies{newObserved(t)}
	l.run(Options{})
	began := l.clock.Now()
	l.handler.Apply(l.web(1))
	l.handler.Apply(l.slice("10.244.0.1", began.Add(-time.Second))) // before there was this process
	l.handler.Apply(l.slice("10.244.0.2", time.Time{}))             // it does not say it
	l.handler.Synced()
	l.report()
	l.wantLatencies(rules.IPv4, "0 0")

	l.clock.Step(10 * time.Second)
	l.handler.Apply(l.slice("10.244.0.3", began.Add(7*time.Second)))
	l.report()
	l.wantLatencies(rules.IPv4, "1 3")
	l.wantLatencies(rules.IPv6, "0 0")

	l.handler.Apply(l.slice("fd00::1", began.Add(9*time.Second)))
	l.report()
	l.wantLatencies(rules.IPv4, "1 3")
	l.wantLatencies(rules.IPv6, "1 1")
}

// TestLatencyOfMergedChanges is counted for each of them.
func TestLatencyOfMergedChanges(t *testing.T) {
	l := latencies{newObserved(t)}
	l.run(Options{})
	began := l.clock.Now()
	l.handler.Apply(l.web(1))
	l.handler.Synced()
	l.report()
	l.clock.Step(10 * time.Second)
	release := l.kernel.Hold()
	l.handler.Apply(l.slice("10.244.0.1", began.Add(5*time.Second)))
	l.kernel.WaitHeld()
	l.handler.Apply(l.slice("10.244.0.2", began.Add(6*time.Second)))
	l.handler.Apply(l.slice("10.244.0.3", began.Add(8*time.Second)))
	release()
	l.report()
	l.report()
	l.wantLatencies(rules.IPv4, "3 11")
}

// TestLatencyEndsWithSuccess: a sync that fails is no end of it.
func TestLatencyEndsWithSuccess(t *testing.T) {
	l := latencies{newObserved(t)}
	l.run(Options{})
	began := l.clock.Now()
	l.handler.Apply(l.web(1))
	l.handler.Synced()
	l.report()
	l.clock.Step(time.Second)
	l.kernel.Inject(synctest.LoseBatch, synctest.LoseBatch)
	l.handler.Apply(l.slice("10.244.0.1", began.Add(time.Second)))
	for range 2 {
		if r := l.report(); r.Err == nil {
			t.Fatal("no failure")
		}
		l.wantLatencies(rules.IPv4, "0 0")
		l.pass(2*time.Second, 2)
	}
	if r := l.report(); r.Err != nil {
		t.Fatal(r.Err)
	}
	l.wantLatencies(rules.IPv4, "1 4")
}

// TestNoSyncNoLatency: a change that touches nothing waits for no sync, so that the next
// one, whenever that is, says nothing about it.
func TestNoSyncNoLatency(t *testing.T) {
	l := latencies{newObserved(t)}
	l.run(Options{})
	began := l.clock.Now()
	l.handler.Synced()
	l.report()
	empty := &EndpointSlice{Name: objectName("default/web-1-a"), Service: "web-1", Family: rules.IPv4, Triggered: began.Add(time.Second)}
	l.clock.Step(time.Second)
	l.handler.Apply(endpointSlices(empty))
	l.quiet()
	pending := "kubeproxy_sync_proxy_rules_endpoint_changes_"
	if diff := cmp.Diff([]string{pending + "total 1"}, l.series(pending)); diff != "" {
		t.Errorf("changes (want -, got +):\n%s", diff)
	}
	l.clock.Step(time.Hour)
	l.handler.Apply(l.web(1))
	l.report()
	l.wantLatencies(rules.IPv4, "0 0")
}

// TestTriggerTime reads the annotation of the controller of EndpointSlices.
func TestTriggerTime(t *testing.T) {
	for text, want := range map[string]time.Time{
		"":                               {},
		"2026-08-01T12:00:00Z":           time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC),
		"2026-08-01T12:00:00.123456789Z": time.Date(2026, 8, 1, 12, 0, 0, 123456789, time.UTC),
		"2026-08-01T14:00:00+02:00":      time.Date(2026, 8, 1, 12, 0, 0, 0, time.UTC),
		"yesterday":                      {},
		"1785585600":                     {},
	} {
		s, err := NewEndpointSlice(&discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
				Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: text},
			},
			AddressType: discoveryv1.AddressTypeIPv4,
		}, "node1")
		if err != nil {
			t.Fatal(err)
		}
		if !s.Triggered.Equal(want) {
			t.Errorf("%q is %s, want %s", text, s.Triggered, want)
		}
	}
}
