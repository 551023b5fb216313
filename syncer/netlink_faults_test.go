package syncer

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"

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
		changes = append(changes, Change{sp.ServicePortKey, sp})
	}
	return changes
}

// TestBrokenSocket breaks the socket, so that nobody knows what became of a batch. The
// sync fails, and the next one writes everything through a new socket.
func TestBrokenSocket(t *testing.T) {
	for name, test := range map[string]struct {
		services int
		fault    func(*Netlink) error
		want     error
	}{
		"it is closed": {1, func(k *Netlink) error { return k.socket.Close() }, nil},
		"answers exceed its buffer": {
			3000,
			func(k *Netlink) error {
				k.limits.Messages = 1 << 20 // sends what Limits would not allow
				return k.socket.SetReadBuffer(1)
			},
			syscall.ENOBUFS,
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := nstest.New(t)
			k, err := NewNetlink(ns.FD())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = k.Close() })
			s, err := New(k, rules.Config{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Sync(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if err := test.fault(k); err != nil {
				t.Fatal(err)
			}
			changes := manyServices(test.services)
			_, err = s.Sync(t.Context(), changes)
			if causeOf(err) != Unknown || err == nil || test.want != nil && !errors.Is(err, test.want) {
				t.Fatalf("error: %v", err)
			}
			res, err := s.Sync(t.Context(), nil)
			if err != nil || !res.Full {
				t.Fatalf("%+v, %v", res, err)
			}
			listing := ns.MustNFT(t, "", "list", "map", "ip", "nftproxy", "endpoints")
			if got := strings.Count(listing, " : 10.244."); got != test.services {
				t.Errorf("%d endpoints, want %d", got, test.services)
			}
		})
	}
}

// TestListingWhileOthersCommit lists our tables while another program changes its own
// all the time, so that the kernel interrupts the listing (NLM_F_DUMP_INTR): what comes
// out is complete.
func TestListingWhileOthersCommit(t *testing.T) {
	ns := nstest.New(t)
	k, err := NewNetlink(ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
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
