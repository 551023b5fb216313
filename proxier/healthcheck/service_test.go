package healthcheck_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/proxier/healthcheck"
)

type services = map[types.NamespacedName]healthcheck.Service

func name(s string) types.NamespacedName { return types.NamespacedName{Namespace: "default", Name: s} }

func TestServiceAnswers(t *testing.T) {
	healthy := true
	h := healthcheck.NewServiceHealth(healthcheck.ServiceOptions{Healthy: func() bool { return healthy }, Log: zap.NewNop()})
	handler := h.HandlerOf(name("web"), netip.MustParseAddrPort("127.0.0.1:30001"))
	steps := []struct {
		name      string
		do        func()
		code      int
		weight    string
		endpoints float64
		healthy   bool
	}{
		{"no endpoint", func() { h.Reconcile(services{name("web"): {Port: 30001}}, nil) }, 503, "0", 0, true},
		{"some", func() { h.Reconcile(services{name("web"): {Port: 30001, LocalEndpoints: 3}}, nil) }, 200, "3", 3, true},
		{"the proxy is late", func() { healthy = false }, 503, "3", 3, false},
		{"it has caught up", func() { healthy = true }, 200, "3", 3, true},
		{"the port has changed", func() { h.Reconcile(services{name("web"): {Port: 30002, LocalEndpoints: 3}}, nil) }, 503, "0", 0, true},
		{"the Service is gone", func() { h.Reconcile(services{name("other"): {Port: 30001, LocalEndpoints: 1}}, nil) }, 503, "0", 0, true},
	}
	for _, step := range steps {
		step.do()
		code, header, body := ask(t, handler, "/any/path")
		if code != step.code {
			t.Errorf("%s: status %d, want %d", step.name, code, step.code)
		}
		if got := header.Get("X-Load-Balancing-Endpoint-Weight"); got != step.weight {
			t.Errorf("%s: weight %q, want %q", step.name, got, step.weight)
		}
		want := map[string]any{
			"service":        map[string]any{"namespace": "default", "name": "web"},
			"localEndpoints": step.endpoints, "serviceProxyHealthy": step.healthy,
		}
		if diff := cmp.Diff(want, body); diff != "" {
			t.Errorf("%s: want -, got +\n%s", step.name, diff)
		}
	}
}

// failure is an address that could not be listened on.
type failure struct {
	service types.NamespacedName
	addr    netip.AddrPort
	err     error
}

// harness runs a ServiceHealth. Its addresses are ones of the loopback network that
// nothing else uses.
type harness struct {
	*healthcheck.ServiceHealth
	t        *testing.T
	failures chan failure
}

func newHarness(t *testing.T) *harness {
	t.Helper()
	h := &harness{t: t, failures: make(chan failure)}
	ctx, cancel := context.WithCancel(t.Context())
	h.ServiceHealth = healthcheck.NewServiceHealth(healthcheck.ServiceOptions{
		Healthy: func() bool { return true }, Log: zap.NewNop(),
		OnListenError: func(service types.NamespacedName, addr netip.AddrPort, err error) {
			select {
			case h.failures <- failure{service, addr, err}:
			case <-ctx.Done():
			}
		},
	})
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return h
}

// wait waits until a condition holds.
func (h *harness) wait(condition func() bool) {
	for !condition() {
		if h.t.Context().Err() != nil {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// answers waits until the address answers about the Service.
func (h *harness) answers(addr, service string) {
	h.t.Helper()
	h.wait(func() bool { return strings.Contains(fetch(h.t, addr), `"name":"`+service+`"`) })
}

// closed waits until nothing listens on the address.
func (h *harness) closed(addr string) {
	h.t.Helper()
	h.wait(func() bool {
		var dialer net.Dialer
		connection, err := dialer.DialContext(h.t.Context(), "tcp", addr)
		if err != nil {
			return errors.Is(err, syscall.ECONNREFUSED)
		}
		_ = connection.Close()
		return false
	})
}

// fetch returns the body of an answer, empty if there is none.
func fetch(t *testing.T, addr string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		return ""
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return string(body)
}

// Addresses to listen on.
const one, two, six = "127.83.0.1", "127.83.0.2", "::1"

// freePort returns a port that nothing listens on.
func freePort(t *testing.T) uint16 {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := netip.MustParseAddrPort(listener.Addr().String()).Port()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return port
}

func at(addr string, port uint16) string {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), port).String()
}

func addrs(list ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// TestListeners has the listeners follow Services, ports and addresses.
func TestListeners(t *testing.T) {
	h, a := newHarness(t), freePort(t)
	b := a
	for b == a {
		b = freePort(t)
	}
	h.Reconcile(services{name("web"): {Port: a}}, addrs(one))
	h.answers(at(one, a), "web")

	h.Reconcile(services{name("web"): {Port: a}}, addrs(one, "::ffff:"+two))
	h.answers(at(two, a), "web")
	h.answers(at(one, a), "web")

	h.Reconcile(services{name("web"): {Port: a}}, addrs(two))
	h.closed(at(one, a))
	h.answers(at(two, a), "web")

	// Two Services exchange their ports.
	h.Reconcile(services{name("web"): {Port: a}, name("dns"): {Port: b}}, addrs(one))
	h.closed(at(two, a))
	h.answers(at(one, b), "dns")
	h.Reconcile(services{name("web"): {Port: b}, name("dns"): {Port: a}}, addrs(one))
	h.answers(at(one, a), "dns")
	h.answers(at(one, b), "web")

	h.Reconcile(services{name("dns"): {Port: a}}, addrs(one))
	h.closed(at(one, b))
	h.Reconcile(nil, addrs(one))
	h.closed(at(one, a))
}

// TestAllAddresses listens on all addresses, of both families on the same port where the
// machine has both.
func TestAllAddresses(t *testing.T) {
	h, a := newHarness(t), freePort(t)
	h.Reconcile(services{name("web"): {Port: a}}, addrs("0.0.0.0"))
	h.answers(at(one, a), "web")
	connection, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp6", at(six, 0))
	if err != nil {
		return // the machine has no IPv6
	}
	if err := connection.Close(); err != nil {
		t.Fatal(err)
	}
	h.closed(at(six, a))
	h.Reconcile(services{name("web"): {Port: a}}, addrs("0.0.0.0", "::"))
	h.answers(at(one, a), "web")
	h.answers(at(six, a), "web")
	h.Reconcile(services{name("web"): {Port: a}}, addrs("0.0.0.0", six))
	h.answers(at(six, a), "web")
	h.Reconcile(services{name("web"): {Port: a}}, addrs("0.0.0.0"))
	h.closed(at(six, a))
	h.answers(at(one, a), "web")
}

// TestListenFailure reports an address that is in use each time that it is tried, and
// gets it once it is free. What can be listened on works meanwhile.
func TestListenFailure(t *testing.T) {
	a := freePort(t)
	other, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at(one, a))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	h := newHarness(t)
	wanted := services{name("web"): {Port: a}}
	for range 3 {
		h.Reconcile(wanted, addrs(one, two))
		f := <-h.failures
		if f.service != name("web") || f.addr.String() != at(one, a) || !errors.Is(f.err, syscall.EADDRINUSE) {
			t.Errorf("failure %+v", f)
		}
		h.answers(at(two, a), "web")
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	h.Reconcile(wanted, addrs(one, two))
	h.answers(at(one, a), "web")
}
