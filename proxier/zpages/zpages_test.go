package zpages_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nftproxy/nftproxy/proxier/zpages"
)

const warning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees " +
	"and is for debugging purposes only.\n"

func options(t *testing.T) zpages.Options {
	t.Helper()
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	flags.String("config", "", "")
	flags.Int("v", 2, "")
	flags.String("token", "", "")
	if err := flags.SetAnnotation("token", "classified", []string{"true"}); err != nil {
		t.Fatal(err)
	}
	if err := flags.Parse([]string{"--config=/etc/proxy.yaml", "--token=secret"}); err != nil {
		t.Fatal(err)
	}
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return zpages.Options{
		Component: "nftproxy", Version: "v1.2.3", Started: started,
		Clock:   testingclock.NewFakePassiveClock(started.Add(26*time.Hour + 3*time.Minute + 4*time.Second + 5*time.Millisecond)),
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "metric 1\n") }),
		Config:  func() any { return map[string]any{"mode": "nftables"} },
		Flags:   flags,
	}
}

func get(t *testing.T, h http.Handler, path string) (code int, contentType, body string) {
	t.Helper()
	response := httptest.NewRecorder()
	h.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return response.Code, response.Header().Get("Content-Type"), response.Body.String()
}

func TestPages(t *testing.T) {
	const plain = "text/plain; charset=utf-8"
	h := zpages.Handler(options(t))
	tests := []struct{ path, contentType, body string }{
		{"/metrics", "", "metric 1\n"},
		{"/healthz", plain, "ok"},
		{"/healthz/ping", plain, "ok"},
		{"/proxyMode", plain, "nftables"},
		{"/configz", "application/json", `{"kubeproxy.config.k8s.io":{"mode":"nftables"}}`},
		{"/flagz", plain, "\nnftproxy flagz\n" + warning + "\nconfig=/etc/proxy.yaml\ntoken=CLASSIFIED\nv=2\n"},
		{"/statusz", plain, "\nnftproxy statusz\n" + warning + `
Started: Fri Jan  2 03:04:05 UTC 2026
Up: 26 hr 03 min 04 sec
Go version: ` + runtime.Version() + `
Binary version: v1.2.3
Paths: /configz /flagz /healthz /metrics /proxyMode /statusz
`},
	}
	for _, test := range tests {
		code, contentType, body := get(t, h, test.path)
		if code != http.StatusOK || contentType != test.contentType && test.contentType != "" {
			t.Errorf("%s: status %d, type %q", test.path, code, contentType)
		}
		if diff := cmp.Diff(test.body, body); diff != "" {
			t.Errorf("%s: want -, got +\n%s", test.path, diff)
		}
	}
	for _, path := range []string{"/", "/debug/pprof/", "/debug/pprof/heap", "/livez"} {
		if code, _, _ := get(t, h, path); code != http.StatusNotFound {
			t.Errorf("%s: status %d", path, code)
		}
	}
}

func TestProfiles(t *testing.T) {
	opts := options(t)
	opts.Profiling = true
	h := zpages.Handler(opts)
	for path, want := range map[string]string{
		"/debug/pprof/":                  "heap",
		"/debug/pprof/goroutine?debug=1": "goroutine profile: total",
		"/debug/pprof/symbol":            "num_symbols",
		"/statusz":                       "Paths: /configz /debug /flagz",
	} {
		if code, _, body := get(t, h, path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: status %d, without %q:\n%s", path, code, want, body)
		}
	}
}

// TestConfigThatCannotBeShown is an error to who asks, and not the end.
func TestConfigThatCannotBeShown(t *testing.T) {
	opts := options(t)
	opts.Config = func() any { return func() {} }
	if code, _, body := get(t, zpages.Handler(opts), "/configz"); code != http.StatusInternalServerError || !strings.Contains(body, "unsupported type") {
		t.Errorf("status %d: %s", code, body)
	}
}
