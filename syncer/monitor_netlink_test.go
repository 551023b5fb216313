package syncer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// addrPortOf returns the n-th address after the first one.
func addrPortOf(first string, n int, port uint16) netip.AddrPort {
	a := netip.MustParseAddr(first).As4()
	binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+uint32(n))
	return netip.AddrPortFrom(netip.AddrFrom4(a), port)
}

// runMonitor runs a Monitor until the test ends, and waits until it has subscribed.
func runMonitor(tb testing.TB, m *Monitor) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	<-m.Subscribed()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
}

// ruledHost is a namespace with our tables, that is watched.
type ruledHost struct {
	tb      testing.TB
	ns      *nstest.NS
	kernel  *Netlink
	monitor *Monitor
	events  chan any      // a ForeignChange, or "lost"
	release chan struct{} // ends what unread began
}

// newRuledHost begins to watch when the tables are there. open is how, nil for as usual.
func newRuledHost(tb testing.TB, open func(ns *nstest.NS) (changeFeed, error)) *ruledHost {
	tb.Helper()
	ns := nstest.New(tb)
	h := &ruledHost{tb: tb, ns: ns, kernel: newNetlinkWithTable(tb, ns), events: make(chan any, 1000), release: make(chan struct{})}
	apply(tb, h.kernel, Op{Verb: AddTable, Family: rules.IPv6}, Op{Verb: AddSet, Family: rules.IPv6, Decl: rules.Endpoints.Set()},
		Op{Verb: AddChain, Family: rules.IPv4, Chain: rules.Chain{Name: "services"}})
	m := NewMonitor(ns.FD(), func(c ForeignChange) { h.tell(c) }, func() { h.tell("lost") }, func(err error) { tb.Error(err) })
	h.monitor = m
	if open != nil {
		m.open = func() (changeFeed, error) { return open(ns) }
	}
	runMonitor(tb, m)
	return h
}

func (h *ruledHost) tell(event any) {
	h.events <- event
	if c, ok := event.(ForeignChange); ok && c.Added == 2 && c.Deleted == 2 { // from unread
		<-h.release
	}
}

// unread does something while the Monitor does not receive.
func (h *ruledHost) unread(do func() error) {
	h.tb.Helper()
	h.ns.MustNFT(h.tb, "", strings.Repeat("add chain ip6 nftproxy marker; delete chain ip6 nftproxy marker;", 2))
	h.want("nothing happened yet", byNFT(2, 2, rules.IPv6))
	defer func() { h.release <- struct{}{} }()
	if err := do(); err != nil {
		h.tb.Error(err)
	}
}

// want waits for the next events: those that were not expected would come first.
func (h *ruledHost) want(what string, want ...any) {
	h.tb.Helper()
	for _, w := range want {
		select {
		case got := <-h.events:
			ignorePID := cmpopts.IgnoreFields(ForeignChange{}, "PID")
			if diff := cmp.Diff(w, got, ignorePID); diff != "" {
				h.tb.Errorf("%s: wanted (-), told (+):\n%s", what, diff)
			}
			if c, ok := got.(ForeignChange); ok && (c.PID <= 0 || c.PID == os.Getpid()) {
				h.tb.Errorf("%s: %s", what, c)
			}
		case <-time.After(20 * time.Second):
			h.tb.Fatalf("%s: not told: %v", what, w)
		}
	}
}

// wantNothing has a stranger do something that is told, after what must not be.
func (h *ruledHost) wantNothing(what string) {
	h.tb.Helper()
	h.ns.MustNFT(h.tb, "", "add chain ip6 nftproxy marker; delete chain ip6 nftproxy marker")
	h.want(what, byNFT(1, 1, rules.IPv6))
}

func byNFT(added, deleted int, families ...rules.Family) ForeignChange {
	return ForeignChange{Process: "nft", Families: families, Added: added, Deleted: deleted}
}

// TestStrangersAreNoticed: whatever another program does to our tables is told, once a
// transaction.
func TestStrangersAreNoticed(t *testing.T) {
	h := newRuledHost(t, nil)
	const four, six = rules.IPv4, rules.IPv6
	add, _ := elementBatches(3)
	for _, step := range []struct {
		commands string
		want     ForeignChange
	}{
		{"add rule ip nftproxy services counter", byNFT(1, 0, four)},
		{"add rule ip nftproxy services tcp dport 1; add rule ip nftproxy services tcp dport 2", byNFT(2, 0, four)},
		{"flush chain ip nftproxy services", byNFT(0, 3, four)},
		{"add chain ip nftproxy stranger { type filter hook input priority 0; }", byNFT(1, 0, four)},
		{"add chain ip nftproxy stranger { policy drop; }", byNFT(1, 0, four)},
		{"delete chain ip nftproxy stranger", byNFT(0, 1, four)},
		{"delete element ip nftproxy endpoints { 10.96.0.0 . tcp . 80 . 0x1 }", byNFT(0, 1, four)},
		{"add element ip nftproxy endpoints { 10.96.0.0 . tcp . 80 . 0x1 : 10.244.0.9 . 80 }", byNFT(1, 0, four)},
		{"flush map ip nftproxy endpoints", byNFT(0, 3, four)},
		{"add set ip6 nftproxy stranger { type ipv6_addr; }", byNFT(1, 0, six)},
		{"add counter ip6 nftproxy stranger", byNFT(1, 0, six)},
		{"delete set ip6 nftproxy stranger; delete counter ip6 nftproxy stranger", byNFT(0, 2, six)},
		{"add table ip nftproxy { flags dormant; }", byNFT(1, 0, four)},
		{"add table ip nftproxy", byNFT(1, 0, four)},
		{"add table inet stranger; add rule ip nftproxy services counter; add chain inet stranger x", byNFT(1, 0, four)},
		{"delete table ip nftproxy", byNFT(0, 4, four)}, // table, chain, rule, map
		{"add table ip nftproxy; add chain ip nftproxy services", byNFT(2, 0, four)},
		{"flush ruleset", byNFT(0, 4, four, six)}, // table and chain, table and map
	} {
		if strings.HasPrefix(step.commands, "delete element") {
			if err := h.kernel.Apply(t.Context(), add); err != nil {
				t.Fatal(err)
			}
		}
		h.ns.MustNFT(t, "", step.commands)
		h.want(step.commands, step.want)
	}
}

// TestOwnBatchesAreNotForeign: by whatever thread and socket of this process, and however
// large.
func TestOwnBatchesAreNotForeign(t *testing.T) {
	h := newRuledHost(t, nil)
	add, remove := elementBatches(10_000)
	both := func(k *Netlink, what string) {
		t.Helper()
		if err := errors.Join(k.Apply(t.Context(), add), k.Apply(t.Context(), remove)); err != nil {
			t.Fatal(err)
		}
		h.wantNothing(what)
	}
	both(h.kernel, "a socket from before")

	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			if err := errors.Join(h.kernel.Apply(t.Context(), add), h.kernel.Apply(t.Context(), remove)); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
	}
	h.wantNothing("threads that end")

	k, err := NewNetlink(h.ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	both(k, "a new socket")
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	both(k, "another one")
	if err := k.Close(); err != nil {
		t.Fatal(err)
	}
	wrong := &Batch{}
	wrong.Add(Op{Verb: DeleteChain, Family: rules.IPv4, Name: "services"}, Op{Verb: DeleteChain, Family: rules.IPv4, Name: "missing"})
	if err := h.kernel.Apply(t.Context(), wrong); err == nil {
		t.Error("the wrong batch was taken")
	}
	h.wantNothing("a refused batch")
}

// TestOtherTablesAreNotOurs: what others do to their tables, and how much of it, is not
// told.
func TestOtherTablesAreNotOurs(t *testing.T) {
	h := newRuledHost(t, nil)
	for _, table := range []string{"ip other", "inet nftproxy", "arp nftproxy", "ip nftproxy2", "ip6 nftprox", "bridge nftproxy"} {
		h.ns.MustNFT(t, "", fmt.Sprintf("add table %[1]s; add chain %[1]s c; add rule %[1]s c counter; flush chain %[1]s c; delete table %[1]s", table))
	}
	h.wantNothing("small ones")
	var large strings.Builder
	large.WriteString("add table inet other\nadd set inet other s { type ipv4_addr; }\nadd element inet other s {\n")
	for i := range 50_000 {
		fmt.Fprintf(&large, "%s,\n", addrPortOf("10.0.0.0", i, 0).Addr())
	}
	large.WriteString("}\n")
	h.ns.MustNFT(t, large.String(), "-f", "-")
	h.ns.MustNFT(t, "", "delete table inet other")
	h.wantNothing("a large one")
}

// TestPacketsAreNotForeign: they add elements to the maps of session affinity.
func TestPacketsAreNotForeign(t *testing.T) {
	h := newRuledHost(t, nil)
	commands := `add map ip nftproxy affinity { type ipv4_addr : ipv4_addr; size 100; flags dynamic,timeout; }
		add chain ip nftproxy out { type filter hook output priority 0; }
		add rule ip nftproxy out update @affinity { ip saddr timeout 1h : 10.0.0.1 }`
	h.ns.MustNFT(t, commands, "-f", "-")
	h.want("the rule", byNFT(3, 0, rules.IPv4))
	if err := h.ns.Do(func() error {
		c, err := net.Dial("udp4", "127.0.0.1:9") //nolint:noctx // no packet is waited for
		if err != nil {
			return err
		}
		_, err = c.Write([]byte("hello"))
		return errors.Join(err, c.Close())
	}); err != nil {
		t.Fatal(err)
	}
	if list := h.ns.MustNFT(t, "", "list map ip nftproxy affinity"); !strings.Contains(list, "127.0.0.1") {
		t.Fatal(list)
	}
	h.wantNothing("a packet")
}

// TestSmallReceiveBuffer: our own batches need no room in it, but for the first one of a
// socket that is not known yet. If a stranger's exceeds it, that is told.
func TestSmallReceiveBuffer(t *testing.T) {
	h := newRuledHost(t, func(ns *nstest.NS) (changeFeed, error) {
		return newNetlinkFeed(ns.FD(), 8<<10)
	})
	add, remove := elementBatches(10_000)
	h.unread(func() error {
		return errors.Join(h.kernel.Apply(t.Context(), add), h.kernel.Apply(t.Context(), remove))
	})
	h.wantNothing("our batch")

	var k *Netlink
	both := func() error { return errors.Join(k.Apply(t.Context(), add), k.Apply(t.Context(), remove)) }
	h.unread(func() (err error) {
		if k, err = NewNetlink(h.ns.FD()); err != nil {
			return err
		}
		return both()
	})
	defer k.Close()
	h.want("the first batches of a new socket", "lost")
	h.unread(both)
	h.wantNothing("the next ones")

	h.unread(func() error {
		_, err := h.ns.NFT(t.Context(), "", "add element ip nftproxy endpoints { "+strings.Join(strangersElements(1000), ", ")+" }")
		return err
	})
	h.want("a stranger's batch", "lost")
	h.wantNothing("after it")
}

// strangersElements are elements of the endpoints map as nft reads them.
func strangersElements(n int) []string {
	elements := make([]string, n)
	for i := range elements {
		elements[i] = fmt.Sprintf("%s . tcp . 80 . 0x1 : 10.0.0.1 . 80", addrPortOf("10.97.0.0", i, 80).Addr())
	}
	return elements
}

// TestOwnPorts: those of the netfilter sockets of this process, while they are open.
func TestOwnPorts(t *testing.T) {
	ns := nstest.New(t)
	p := ownPorts{list: listPorts, at: portAt}
	port := func(protocol int) (uint32, *subscription) {
		s, err := subscribe(ns.FD(), protocol, 0, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		var port uint32
		if err := s.raw.Control(func(fd uintptr) {
			address, err := unix.Getsockname(int(fd))
			if err != nil {
				t.Error(err)
				return
			}
			if a, ok := address.(*unix.SockaddrNetlink); ok {
				port = a.Pid
			}
		}); err != nil {
			t.Fatal(err)
		}
		return port, s
	}
	_, route := port(unix.NETLINK_ROUTE)
	defer route.close()
	first, a := port(unix.NETLINK_NETFILTER)
	second, b := port(unix.NETLINK_NETFILTER)
	defer b.close()
	if err := p.scan(); err != nil {
		t.Fatal(err)
	}
	if !p.owns(first) || !p.owns(second) || p.owns(strangersPort) || first == second {
		t.Errorf("%d %d: %v", first, second, p.known)
	}
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	if p.owns(first) || !p.had(first) || !p.owns(second) {
		t.Errorf("%d was closed: %v", first, p.known)
	}
	if err := p.scan(); err != nil || p.had(first) {
		t.Errorf("%d was closed: %v, %v", first, p.known, err)
	}
}
