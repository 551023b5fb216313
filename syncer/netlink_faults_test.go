package syncer

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// manyServices returns Services with one endpoint each.
func manyServices(n int) []Change {
	var changes []Change
	for i := range n {
		sp := &rules.ServicePort{
			ServicePortKey: rules.ServicePortKey{
				ServicePortName: rules.ServicePortName{Namespace: "default", Name: fmt.Sprintf("web-%d", i), Protocol: rules.TCP},
				Family:          rules.IPv4,
			},
			Frontends: []rules.Frontend{{Kind: rules.ClusterIP, Addr: addrPortOf("10.96.0.0", i, 80)}},
			Endpoints: []rules.Endpoint{{Addr: addrPortOf("10.244.0.0", i, 8080), Weight: 1}},
		}
		changes = append(changes, Change{Key: sp.ServicePortKey, ServicePort: sp})
	}
	return changes
}

// TestBrokenSocket breaks the socket, so that nobody knows what became of a batch. The
// sync fails, and the next one writes everything through a new socket.
func TestBrokenSocket(t *testing.T) {
	ns := nstest.New(t)
	k := openNetlink(t, ns)
	s, err := New(k, rules.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sync(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Dup3(int(null.Fd()), k.socket.fd, unix.O_CLOEXEC), null.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err = s.Sync(t.Context(), manyServices(1)); causeOf(err) != Unknown || err == nil {
		t.Fatalf("error: %v", err)
	}
	res, err := s.Sync(t.Context(), nil)
	if err != nil || !res.Full {
		t.Fatalf("%+v, %v", res, err)
	}
	listing := ns.MustNFT(t, "", "list", "map", "ip", "nftproxy", "endpoints")
	if got := strings.Count(listing, " : 10.244."); got != 1 {
		t.Errorf("%d endpoints, want 1", got)
	}
}

// TestMoreRefusalsThanRoom has the kernel refuse more messages of a batch than its
// answers have room for: that some are lost does not make the outcome unknown.
func TestMoreRefusalsThanRoom(t *testing.T) {
	k := openNetlink(t, nstest.New(t))
	apply(t, k, Op{Verb: AddTable, Family: rules.IPv4})
	if err := unix.SetsockoptInt(k.socket.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	b := &Batch{}
	for i := range 1000 {
		b.Add(Op{Verb: DeleteChain, Family: rules.IPv4, Name: fmt.Sprintf("missing-%d", i)})
	}
	err := k.Apply(t.Context(), b)
	var refused *refusedError
	if causeOf(err) != Refused || !errors.Is(err, syscall.ENOENT) || !errors.As(err, &refused) {
		t.Fatalf("error: %v", err)
	}
	if n := len(refused.answers); n == 0 || n == 1000 {
		t.Errorf("%d answers: none was lost, or all", n)
	}
	if want := "delete chain ip nftproxy missing-0: no such file or directory"; !strings.Contains(err.Error(), want) {
		t.Errorf("error %q, want %q in it", err, want)
	}
}

// openNetlink opens a socket to a namespace for a test.
func openNetlink(tb testing.TB, ns *nstest.NS) *Netlink {
	tb.Helper()
	k, err := NewNetlink(ns.FD())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = k.Close() })
	return k
}

// TestListingWhileOthersCommit lists our tables while another program changes its own
// all the time, so that the kernel interrupts the listing (NLM_F_DUMP_INTR): what comes
// out is complete.
func TestListingWhileOthersCommit(t *testing.T) {
	ns := nstest.New(t)
	k := openNetlink(t, ns)
	s, err := New(k, rules.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Sync(t.Context(), manyServices(10)); err != nil {
		t.Fatal(err)
	}
	want, err := k.State(t.Context(), rules.Families())
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var rival sync.WaitGroup
	rival.Go(func() {
		commands := strings.Repeat("add table ip other\nadd chain ip other one\ndelete table ip other\n", 20)
		for {
			select {
			case <-stop:
				return
			default:
				ns.MustNFT(t, commands, "-f", "-")
			}
		}
	})
	defer rival.Wait()
	defer close(stop)
	for range 200 {
		got, err := k.State(t.Context(), rules.Families())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range rules.Families() {
			if len(got[f].Chains) != len(want[f].Chains) || len(got[f].Sets) != len(want[f].Sets) {
				t.Fatalf("%s: %d chains and %d sets, want %d and %d", f, len(got[f].Chains), len(got[f].Sets), len(want[f].Chains), len(want[f].Sets))
			}
		}
	}
}
