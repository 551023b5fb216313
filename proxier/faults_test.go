package proxier

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/nftproxy/nftproxy/proxier/healthcheck"
	"github.com/nftproxy/nftproxy/proxier/metrics"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/synctest"
)

// healthTimeout is how long a change may wait before the proxy is unhealthy.
const healthTimeout = 30 * time.Second

// observed is a bench with metrics and health.
type observed struct {
	*bench
	metrics *metrics.Metrics
	health  *healthcheck.ProxyHealth
}

// newObserved returns a bench with observers on which nothing runs yet.
func newObserved(t *testing.T) *observed {
	t.Helper()
	b := newBench(t)
	return &observed{
		bench: b, metrics: metrics.New(rules.Families(), metrics.BuildInfo{}),
		health: healthcheck.NewProxyHealth(healthcheck.ProxyOptions{
			Families: rules.Families(), Timeout: healthTimeout, Clock: b.clock,
		}),
	}
}

func (o *observed) run(opts Options) {
	o.t.Helper()
	opts.Observers = Observers{Metrics: o.metrics, Health: o.health}
	o.bench.run(o.metrics.Kernel(o.kernel, o.clock), opts)
}

// series returns the values of the metrics whose name has one of the prefixes, but
// zeros.
func (o *observed) series(prefixes ...string) []string {
	o.t.Helper()
	answer := httptest.NewRecorder()
	o.metrics.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(o.t.Context(), http.MethodGet, "/metrics", nil))
	var found []string
	for line := range strings.Lines(answer.Body.String()) {
		line = strings.TrimSpace(line)
		if !strings.HasSuffix(line, " 0") && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(line, p) }) {
			found = append(found, line)
		}
	}
	return found
}

// wantSeries compares the metrics about errors, full writes and repairs.
func (o *observed) wantSeries(want ...string) {
	o.t.Helper()
	got := o.series("nftproxy_kernel_errors_total", "nftproxy_resyncs_total", "nftproxy_foreign_changes",
		"nftproxy_skipped_objects", "kubeproxy_sync_proxy_rules_nftables_sync_failures_total")
	if diff := cmp.Diff(want, got); diff != "" {
		o.t.Errorf("metrics (want -, got +):\n%s", diff)
	}
}

// started counts the first full write.
const started = `nftproxy_resyncs_total{reason="start"} 1`

// wantElements compares the number of elements of IPv4 in the kernel with that of n
// Services without endpoints, which have two each.
func (o *observed) wantElements(n int) {
	o.t.Helper()
	if got := len(o.memory.Elements(rules.IPv4)); got != 2*n {
		o.t.Errorf("%d elements, want those of %d Services", got, n)
	}
}

// TestFaultsHeal injects a fault into the sync of a change: less than a second later the
// change is in force with everything else, whatever became of the batch, and nobody has
// been told that the proxy is unhealthy.
func TestFaultsHeal(t *testing.T) {
	once := []string{
		`kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"} 1`,
		`nftproxy_kernel_errors_total{cause="unknown"} 1`,
		`nftproxy_resyncs_total{reason="failure"} 1`,
		started,
	}
	for name, test := range map[string]struct {
		inject func(*synctest.Kernel)
		failed int // syncs
		want   []string
	}{
		"a batch is refused for once": {
			func(k *synctest.Kernel) { k.Inject(synctest.Refuse) }, 0,
			[]string{`nftproxy_kernel_errors_total{cause="refused"} 1`, started},
		},
		"a batch is lost":                     {func(k *synctest.Kernel) { k.Inject(synctest.LoseBatch) }, 1, once},
		"a batch is applied, its answer lost": {func(k *synctest.Kernel) { k.Inject(synctest.LoseAnswer) }, 1, once},
		"then dumps are interrupted and answers dropped": {
			func(k *synctest.Kernel) {
				k.Inject(synctest.LoseAnswer, synctest.LoseBatch)
				k.FailStates(syscall.EINTR, syscall.ENOBUFS)
			}, 4,
			[]string{
				`kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"} 4`,
				`kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv6"} 3`,
				`nftproxy_kernel_errors_total{cause="unknown"} 4`,
				`nftproxy_resyncs_total{reason="failure"} 4`,
				started,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := newObserved(t)
			o.run(Options{})
			o.handler.Apply(o.web(1))
			o.handler.Synced()
			o.report()
			begin := o.clock.Now()
			test.inject(o.kernel)
			o.handler.Apply(o.web(2))
			for wait := firstRetry; test.failed > 0; wait *= 2 {
				if r := o.report(); r.Err == nil {
					t.Fatalf("no failure: %+v", r)
				}
				o.pass(wait, 2)
				test.failed--
			}
			if r := o.report(); r.Err != nil {
				t.Fatal(r.Err)
			}
			if took := o.clock.Since(begin); took >= time.Second {
				t.Errorf("healed after %s", took)
			}
			o.wantElements(2)
			o.wantSeries(test.want...)
			if !o.health.Healthy() {
				t.Error("unhealthy")
			}
		})
	}
}

// TestFailingKernel fails until the proxy is unhealthy: there is something to do, even
// if no change has come, but that the rules are to be written again.
func TestFailingKernel(t *testing.T) {
	for name, test := range map[string]struct {
		opts  Options
		cause func(*observed)
	}{
		"a change":           {Options{}, func(o *observed) { o.handler.Apply(o.web(2)) }},
		"the periodic write": {Options{}, func(o *observed) { o.pass(DefaultResyncPeriod, 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			o := newObserved(t)
			test.opts.LongestRetry = time.Second
			o.run(test.opts)
			o.handler.Apply(o.web(1))
			o.handler.Synced()
			o.report()
			faults := slices.Repeat([]synctest.Fault{synctest.LoseBatch}, 100)
			o.kernel.Inject(faults...)
			test.cause(o)
			begin := o.clock.Now()
			for range faults {
				if r := o.report(); r.Err == nil {
					t.Fatalf("no failure: %+v", r)
				}
				if healthy, want := o.health.Healthy(), o.clock.Since(begin) < healthTimeout; healthy != want {
					t.Errorf("healthy after %s: %t", o.clock.Since(begin), healthy)
				}
				o.pass(time.Second, 2)
			}
			if r := o.report(); r.Err != nil {
				t.Fatal(r.Err)
			}
			if !o.health.Healthy() {
				t.Error("unhealthy though it has recovered")
			}
		})
	}
}

// TestSlowKernel takes its time over a batch. The proxy is unhealthy meanwhile if it
// takes too long, misses nothing and fails nothing.
func TestSlowKernel(t *testing.T) {
	o := newObserved(t)
	o.run(Options{})
	o.handler.Synced()
	o.report()
	release := o.kernel.Hold()
	o.handler.Apply(o.web(1))
	o.kernel.WaitHeld()
	o.handler.Apply(o.web(2))
	o.clock.Step(healthTimeout - time.Second)
	if !o.health.Healthy() {
		t.Error("unhealthy too early")
	}
	o.clock.Step(time.Second)
	if o.health.Healthy() {
		t.Error("healthy though a change has waited for too long")
	}
	release()
	if r := o.report(); r.Err != nil || r.Took != healthTimeout {
		t.Errorf("the slow sync: %+v", r)
	}
	o.report()
	o.wantElements(2)
	o.wantSeries(started)
	if !o.health.Healthy() {
		t.Error("unhealthy though it has caught up")
	}
}

// TestOneBadServiceAmongMany has the kernel refuse one of 10,000 Services: at the first
// sync, and when it changes later with some others. It costs itself alone, it is counted,
// and it is back when it changes to what the kernel takes.
func TestOneBadServiceAmongMany(t *testing.T) {
	const n, bad = 10_000, 4_321
	web := func(i, port int) *Service {
		return newService(t, fmt.Sprintf("default/web-%d", i), fmt.Sprintf("10.96.%d.%d", i/250, i%250), fmt.Sprintf("http:%d", port))
	}
	webs := func(first, count, port int) (c Changes) {
		for i := first; i < first+count; i++ {
			c.Services = append(c.Services, services(web(i, port)).Services...)
		}
		return c
	}
	o := newObserved(t)
	o.kernel.RefuseElements(func(e rules.Element) bool {
		return e.Comment == fmt.Sprintf("default/web-%d:http", bad) && e.Key.Port != 82
	})
	o.run(Options{Log: zap.NewNop()})
	o.handler.Apply(webs(0, n, 80))
	o.handler.Synced()
	wantRefused := func() {
		t.Helper()
		r := o.report()
		if r.Err != nil || len(r.Refused) != 1 || r.Refused[0].Key.Name != fmt.Sprintf("web-%d", bad) {
			t.Fatalf("error %v, refused %v", r.Err, r.Refused)
		}
		o.wantElements(n - 1)
		if !o.health.Healthy() {
			t.Error("one Service makes the proxy unhealthy")
		}
	}
	wantRefused()
	o.handler.Apply(webs(bad-5, 10, 81))
	wantRefused()
	o.handler.Apply(services(web(bad, 82)))
	if r := o.report(); r.Err != nil || len(r.Refused) > 0 {
		t.Fatalf("error %v, refused %v", r.Err, r.Refused)
	}
	o.wantElements(n)
	o.wantSeries(
		`nftproxy_kernel_errors_total{cause="refused"} 2`,
		started,
		`nftproxy_skipped_objects_total{reason="Refused"} 2`,
	)
}
