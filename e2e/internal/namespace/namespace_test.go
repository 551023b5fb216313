package namespace_test

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
	"github.com/nftproxy/nftproxy/e2e/internal/namespace/namespacetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// current names the namespace of the calling thread.
func current(t *testing.T) string {
	t.Helper()
	id, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestDo(t *testing.T) {
	host := current(t)
	a, b := namespacetest.New(t, "a"), namespacetest.New(t, "b")
	var inA, inB, backInA string
	err := a.Do(func() error {
		inA = current(t)
		err := b.Do(func() error { inB = current(t); return nil })
		backInA = current(t)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if inA == host || inB == host || inA == inB || backInA != inA {
		t.Errorf("host %s, in a %s, in b %s, back in a %s", host, inA, inB, backInA)
	}
	if after := current(t); after != host {
		t.Errorf("after Do in %s, want %s", after, host)
	}
	sentinel := errors.New("sentinel")
	if err := a.Do(func() error { return sentinel }); !errors.Is(err, sentinel) {
		t.Errorf("Do = %v, want what the function returned", err)
	}
}

func TestDoConcurrently(t *testing.T) {
	host := current(t)
	spaces := []*namespace.Namespace{namespacetest.New(t, "a"), namespacetest.New(t, "b"), namespacetest.New(t, "c")}
	want := make([]string, len(spaces))
	for i, ns := range spaces {
		if err := ns.Do(func() error { want[i] = current(t); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	var workers sync.WaitGroup
	for worker := range 12 {
		workers.Go(func() {
			for round := range 100 {
				i := (worker + round) % len(spaces)
				var got string
				if err := spaces[i].Do(func() error { got = current(t); return nil }); err != nil || got != want[i] {
					t.Errorf("in %s, %v; want %s", got, err, want[i])
				}
				if got := current(t); got != host {
					t.Errorf("between calls in %s, want %s", got, host)
				}
			}
		})
	}
	workers.Wait()
}

func TestSockets(t *testing.T) {
	a, b := namespacetest.New(t, "a"), namespacetest.New(t, "b")
	at := netip.MustParseAddrPort("127.0.0.1:8080")
	listener, err := a.ListenTCP(at)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := a.DialContext(t.Context(), "tcp", at.String())
	if err != nil {
		t.Fatalf("dial in the same namespace: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if conn, err := b.DialContext(t.Context(), "tcp", at.String()); err == nil {
		conn.Close()
		t.Error("dialed into another namespace")
	}
	if _, err := a.DialContext(t.Context(), "tcp", "localhost:8080"); err == nil {
		t.Error("dialed a name")
	}
	udp, err := b.ListenUDP(at)
	if err != nil {
		t.Fatal(err)
	}
	if err := udp.Close(); err != nil {
		t.Error(err)
	}
}

func TestSysctlAndCommand(t *testing.T) {
	a, b := namespacetest.New(t, "a"), namespacetest.New(t, "b")
	const key = "net/ipv4/icmp_echo_ignore_all"
	if err := a.SetSysctl(key, "1"); err != nil {
		t.Fatal(err)
	}
	for ns, want := range map[*namespace.Namespace]string{a: "1", b: "0"} {
		got, err := ns.Command(t.Context(), "", "cat", "/proc/sys/"+key)
		if err != nil || strings.TrimSpace(got) != want {
			t.Errorf("%s: %s = %q, %v; want %s", ns.Name(), key, got, err, want)
		}
	}
	if got, err := a.Command(t.Context(), "hello", "cat"); got != "hello" || err != nil {
		t.Errorf("cat = %q, %v", got, err)
	}
	if _, err := a.Command(t.Context(), "", "sh", "-c", "echo reason >&2; exit 1"); err == nil || !strings.Contains(err.Error(), "reason") {
		t.Errorf("a failing command gives %v", err)
	}
	if err := a.SetSysctl("net/no_such_setting", "1"); err == nil {
		t.Error("no error for an unknown setting")
	}
}
