package healthcheck_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nftproxy/nftproxy/proxier/healthcheck"
	"github.com/nftproxy/nftproxy/rules"
)

const timeout = time.Minute

// probe is what a probe found out, in short.
type probe struct {
	Code    int
	Healthy bool
	V4, V6  bool
	// NodeEligible is "true", "false" or "" if the answer does not say.
	NodeEligible string
}

// ask asks a handler and checks what is the same for all answers.
func ask(t *testing.T, h http.Handler, path string) (int, http.Header, map[string]any) {
	t.Helper()
	response := httptest.NewRecorder()
	h.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	for name, want := range map[string]string{"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"} {
		if got := response.Header().Get(name); got != want {
			t.Errorf("%s: header %s is %q, want %q", path, name, got, want)
		}
	}
	var body map[string]any
	if err := json.Unmarshal(response.Body.Bytes(), &body); err != nil {
		t.Fatalf("%s: %v in %s", path, err, response.Body)
	}
	return response.Code, response.Header(), body
}

func askProxy(t *testing.T, h *healthcheck.ProxyHealth, path string) probe {
	t.Helper()
	code, _, body := ask(t, h.Handler(), path)
	p := probe{Code: code, Healthy: body["healthy"] == true}
	if eligible, found := body["nodeEligible"]; found {
		p.NodeEligible = fmt.Sprint(eligible)
	}
	status, _ := body["status"].(map[string]any)
	family := func(name string) bool {
		f, _ := status[name].(map[string]any)
		return f["healthy"] == true
	}
	p.V4, p.V6 = family("IPv4"), family("IPv6")
	return p
}

// TestProxyHealth goes through the life of a proxy: each step happens at once after
// the one before, unless it takes time.
func TestProxyHealth(t *testing.T) {
	both, v4, v6 := rules.Families(), rules.IPv4, rules.IPv6
	clock := testingclock.NewFakeClock(time.Unix(1_700_000_000, 0))
	h := healthcheck.NewProxyHealth(healthcheck.ProxyOptions{Families: both, Timeout: timeout, Clock: clock})
	h.SetNode(&healthcheck.Node{})
	steps := []struct {
		name   string
		do     func()
		v4, v6 bool
	}{
		{"nothing has been synced", func() {}, false, false},
		{"changes have come", func() { h.Queued(both...) }, false, false},
		{"the first sync runs", func() { h.Began(both...) }, false, false},
		{"it failed, and the next one runs", func() { h.Began(both...) }, false, false},
		{"it succeeded", func() { h.Updated(both...) }, true, true},
		{"nothing to do for a day", func() { clock.Step(24 * time.Hour) }, true, true},
		{"a change comes", func() { h.Queued(v4) }, true, true},
		{"it waits for almost too long", func() { clock.Step(timeout - 1) }, true, true},
		{"another one comes", func() { h.Queued(v4) }, true, true},
		{"the first has waited for too long", func() { clock.Step(1) }, false, true},
		{"the other family is synced", func() { h.Began(v6); h.Updated(v6) }, false, true},
		{"the sync runs", func() { h.Began(v4) }, false, true},
		{"and succeeds", func() { h.Updated(v4) }, true, true},
		{"a change comes during a sync", func() { h.Queued(v6); h.Began(v6); clock.Step(timeout / 2); h.Queued(v6); h.Updated(v6) }, true, true},
		{"it waits for too long too", func() { clock.Step(timeout) }, true, false},
		{"syncs fail", func() { h.Began(v6); h.Began(v6) }, true, false},
		{"one succeeds", func() { h.Began(v6); h.Updated(v6) }, true, true},
		{"a failing sync goes on", func() {
			h.Queued(both...)
			h.Began(both...)
			clock.Step(timeout / 2)
			h.Queued(both...)
			h.Began(both...)
		}, true, true},
		{"its oldest change counts", func() { clock.Step(timeout / 2) }, false, false},
		{"all is in force", func() { h.Began(both...); h.Updated(both...) }, true, true},
	}
	for _, step := range steps {
		step.do()
		want := probe{Code: http.StatusServiceUnavailable, V4: step.v4, V6: step.v6}
		if step.v4 && step.v6 {
			want.Code, want.Healthy = http.StatusOK, true
		}
		if got := askProxy(t, h, "/livez"); got != want {
			t.Errorf("%s: livez: got %+v, want %+v", step.name, got, want)
		}
		want.NodeEligible = "true"
		if got := askProxy(t, h, "/healthz"); got != want {
			t.Errorf("%s: healthz: got %+v, want %+v", step.name, got, want)
		}
		if h.Healthy() != want.Healthy {
			t.Errorf("%s: Healthy is %t", step.name, h.Healthy())
		}
	}
}

func TestNodeEligible(t *testing.T) {
	h := healthcheck.NewProxyHealth(healthcheck.ProxyOptions{Families: rules.Families(), Timeout: timeout})
	h.Updated(rules.Families()...)
	steps := []struct {
		name string
		do   func()
		want bool
	}{
		{"the node is not known", func() {}, false},
		{"the node is there", func() { h.SetNode(&healthcheck.Node{}) }, true},
		{"the autoscaler will delete it", func() { h.SetNode(&healthcheck.Node{ToBeDeleted: true}) }, false},
		{"or not", func() { h.SetNode(&healthcheck.Node{}) }, true},
		{"it is being deleted", func() { h.SetNode(&healthcheck.Node{Deleting: true}) }, false},
		{"it is gone", func() { h.SetNode(nil) }, false},
	}
	for _, step := range steps {
		step.do()
		want := probe{Code: http.StatusServiceUnavailable, Healthy: true, V4: true, V6: true, NodeEligible: strconv.FormatBool(step.want)}
		if step.want {
			want.Code = http.StatusOK
		}
		if got := askProxy(t, h, "/healthz"); got != want {
			t.Errorf("%s: healthz: got %+v, want %+v", step.name, got, want)
		}
		if got, want := askProxy(t, h, "/livez"), (probe{Code: http.StatusOK, Healthy: true, V4: true, V6: true}); got != want {
			t.Errorf("%s: livez: got %+v, want %+v", step.name, got, want)
		}
	}
}

// TestProxyAnswer compares whole answers: lastUpdated is the present while all is well.
func TestProxyAnswer(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	h := healthcheck.NewProxyHealth(healthcheck.ProxyOptions{Families: []rules.Family{rules.IPv4}, Timeout: timeout, Clock: clock})
	h.SetNode(&healthcheck.Node{})
	h.Updated(rules.IPv4)
	h.Updated(rules.IPv6) // is not programmed
	clock.Step(timeout)
	status := func(healthy bool) any {
		return map[string]any{"IPv4": map[string]any{"lastUpdated": "2026-01-02T03:04:05Z", "healthy": healthy}}
	}
	_, _, got := ask(t, h.Handler(), "/healthz")
	if diff := cmp.Diff(map[string]any{
		"lastUpdated": "2026-01-02T03:05:05Z", "currentTime": "2026-01-02T03:05:05Z",
		"nodeEligible": true, "healthy": true, "status": status(true),
	}, got); diff != "" {
		t.Errorf("healthy: want -, got +\n%s", diff)
	}
	h.Queued(rules.IPv4)
	clock.Step(timeout)
	_, _, got = ask(t, h.Handler(), "/livez")
	if diff := cmp.Diff(map[string]any{
		"lastUpdated": "2026-01-02T03:04:05Z", "currentTime": "2026-01-02T03:06:05Z",
		"healthy": false, "status": status(false),
	}, got); diff != "" {
		t.Errorf("late: want -, got +\n%s", diff)
	}
}

func TestCodesAreCounted(t *testing.T) {
	var healthz, livez []int
	h := healthcheck.NewProxyHealth(healthcheck.ProxyOptions{
		Families: rules.Families(), Timeout: timeout,
		OnHealthz: func(code int) { healthz = append(healthz, code) },
		OnLivez:   func(code int) { livez = append(livez, code) },
	})
	askProxy(t, h, "/livez")
	h.Updated(rules.Families()...)
	askProxy(t, h, "/livez")
	askProxy(t, h, "/healthz")
	h.SetNode(&healthcheck.Node{})
	askProxy(t, h, "/healthz")
	if diff := cmp.Diff([]int{503, 200}, healthz); diff != "" {
		t.Errorf("healthz: want -, got +\n%s", diff)
	}
	if diff := cmp.Diff([]int{503, 200}, livez); diff != "" {
		t.Errorf("livez: want -, got +\n%s", diff)
	}
}

func TestOtherPaths(t *testing.T) {
	h := healthcheck.NewProxyHealth(healthcheck.ProxyOptions{Families: rules.Families(), Timeout: timeout})
	response := httptest.NewRecorder()
	h.Handler().ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if response.Code != http.StatusNotFound {
		t.Errorf("status %d", response.Code)
	}
}
