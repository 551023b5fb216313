package syncer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// flowHost is a namespace with a conntrack table and a running Conntrack.
type flowHost struct {
	tb        testing.TB
	ns        *nstest.NS
	conntrack *Conntrack
	socket    *rawSocket
}

func newFlowHost(tb testing.TB) *flowHost {
	tb.Helper()
	h := &flowHost{tb: tb, ns: nstest.New(tb)}
	var err error
	if h.socket, err = newRawSocket(h.ns.FD(), dumpBytes); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = h.socket.close() })
	h.restart()
	return h
}

// restart begins anew, as a daemon does that knows of nothing.
func (h *flowHost) restart() {
	h.conntrack = NewConntrack(h.ns.FD(), func(err error) { h.tb.Error(err) })
	run(h.tb, h.conntrack)
}

// run runs a Conntrack until the test ends.
func run(tb testing.TB, c *Conntrack) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
}

// inject makes entries in the kernel's table.
func (h *flowHost) inject(entries ...entry) {
	h.tb.Helper()
	for _, e := range entries {
		seq := h.socket.next()
		if err := h.socket.send(e.encode(seq)); err != nil {
			h.tb.Fatal(err)
		}
		if err := h.socket.answer(h.tb.Context(), seq); err != nil {
			h.tb.Fatalf("%+v: %v", e, err)
		}
	}
}

// commit tells the Conntrack of changes and waits until it has seen to them.
func (h *flowHost) commit(changes ...Change) {
	h.tb.Helper()
	before := h.conntrack.Stats().Passes
	h.conntrack.Prepare(changes)
	h.conntrack.Commit(false)
	for deadline := time.Now().Add(20 * time.Second); h.conntrack.Stats().Passes == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			h.tb.Fatalf("no pass: %+v", h.conntrack.Stats())
		}
	}
}

// left returns the entries that there are, as entry.String prints them, sorted.
func (h *flowHost) left() []string {
	h.tb.Helper()
	table := netlinkFlows{dumps: h.socket}
	var all []string
	for _, family := range rules.Families() {
		err := table.dumpWith(h.tb.Context(), query{family: family}, false, func(f *flow) error {
			_, tuple, _, _, _ := cutAttr(f.tuple)
			_, source, _ := parseTuple(tuple)
			all = append(all, entry{f.protocol, source.String(), f.destination.String(), f.replySource.String(), "", 0, false}.String())
			return nil
		})
		if err != nil {
			h.tb.Fatal(err)
		}
	}
	slices.Sort(all)
	return all
}

func (e entry) String() string {
	return fmt.Sprintf("%s %s > %s (%s)", e.protocol, e.source, e.destination, e.replySource)
}

func (h *flowHost) want(what string, entries ...entry) {
	h.tb.Helper()
	want := make([]string, len(entries))
	for i, e := range entries {
		want[i] = e.String()
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, h.left(), cmpopts.EquateEmpty()); diff != "" {
		h.tb.Errorf("%s: %s", what, diff)
	}
}

// world is one protocol in one family with made-up addresses.
type world struct {
	protocol rules.Protocol
	family   rules.Family
}

func (w world) addr(network, host, port int) string {
	if w.family == rules.IPv4 {
		return fmt.Sprintf("10.%d.0.%d:%d", network, host, port)
	}
	return fmt.Sprintf("[fd00:%d::%d]:%d", network, host, port)
}

func (w world) frontend(n int) string { return w.addr(96, n, 53) }
func (w world) endpoint(n int) string { return w.addr(244, n, 5353) }

// flow is the n-th client's flow to a frontend, translated to an endpoint; 0: to none.
func (w world) flow(n, frontend, endpoint int) entry {
	e := entry{protocol: w.protocol, source: w.addr(1, 1, 4000+n), destination: w.frontend(frontend), replySource: w.frontend(frontend)}
	if endpoint != 0 {
		e.replySource = w.endpoint(endpoint)
	}
	return e
}

func (w world) masqueraded(e entry) entry {
	e.replyDestination = w.addr(0, 1, int(netip.MustParseAddrPort(e.source).Port())+20000)
	return e
}

// service is a Service with the given frontends and endpoints.
func (w world) service(frontends []int, endpoints ...int) Change {
	f, e := make([]string, len(frontends)), make([]string, len(endpoints))
	for i, n := range frontends {
		f[i] = w.frontend(n)
	}
	for i, n := range endpoints {
		e[i] = w.endpoint(n)
	}
	return flowService(w.protocol, "dns", f, e...)
}

func (w world) gone() Change { return goneService(w.protocol, "dns", w.frontend(1)) }

// TestConntrack says, for UDP and SCTP in both families on the real kernel, which
// entries a change deletes: those whose number is in gone. The Service had the
// frontends 1 and 2, and the endpoints 1 and 2.
func TestConntrack(t *testing.T) {
	tests := map[string]struct {
		before []int // endpoints; nil: 1 and 2
		after  func(w world) Change
		flows  func(w world) []entry
		gone   []int
	}{
		"an endpoint is replaced": {
			after: func(w world) Change { return w.service([]int{1, 2}, 2, 3) },
			flows: func(w world) []entry {
				return []entry{w.flow(0, 1, 1), w.flow(1, 2, 1), w.flow(2, 1, 2), w.flow(3, 2, 2), w.flow(4, 1, 3)}
			},
			gone: []int{0, 1},
		},
		"none is left": {
			after: func(w world) Change { return w.service([]int{1, 2}) },
			flows: func(w world) []entry { return []entry{w.flow(0, 1, 1), w.flow(1, 2, 2), w.flow(2, 1, 0)} },
			gone:  []int{0, 1},
		},
		"one appears where there was none": {
			before: []int{},
			after:  func(w world) Change { return w.service([]int{1, 2}, 3) },
			flows:  func(w world) []entry { return []entry{w.flow(0, 1, 0), w.flow(1, 2, 0), w.flow(2, 3, 0)} },
			gone:   []int{0, 1},
		},
		"the Service goes": {
			after: world.gone,
			flows: func(w world) []entry { return []entry{w.flow(0, 1, 1), w.flow(1, 2, 2), w.flow(2, 2, 0)} },
			gone:  []int{0, 1},
		},
		"one of its addresses goes": {
			after: func(w world) Change { return w.service([]int{2}, 1, 2) },
			flows: func(w world) []entry {
				return []entry{w.flow(0, 1, 1), w.flow(1, 1, 2), w.flow(2, 2, 1), w.flow(3, 2, 2), w.flow(4, 1, 0)}
			},
			gone: []int{0, 1},
		},
		"it gets another address": {
			after: func(w world) Change { return w.service([]int{1, 2, 3}, 1, 2) },
			flows: func(w world) []entry { return []entry{w.flow(0, 3, 0), w.flow(1, 1, 1), w.flow(2, 2, 2)} },
			gone:  []int{0},
		},
		"masqueraded flows and hairpins": {
			after: func(w world) Change { return w.service([]int{1, 2}, 2) },
			flows: func(w world) []entry {
				own := func(n, endpoint int) entry { // an endpoint reaches itself
					e := w.masqueraded(w.flow(n, 1, endpoint))
					e.source = w.addr(244, endpoint, 7000+n)
					return e
				}
				return []entry{w.masqueraded(w.flow(0, 1, 1)), own(1, 1), w.masqueraded(w.flow(2, 1, 2)), own(3, 2)}
			},
			gone: []int{0, 1},
		},
		"any zone": {
			after: func(w world) Change { return w.service([]int{1, 2}, 2) },
			flows: func(w world) []entry {
				gone, stays := w.flow(0, 1, 1), w.flow(1, 1, 2)
				gone.zone, stays.zone = 7, 8
				return []entry{gone, stays}
			},
			gone: []int{0},
		},
		"a zone of one direction": {
			after: func(w world) Change { return w.service([]int{1, 2}, 2) },
			flows: func(w world) []entry {
				gone, stays := w.flow(0, 1, 1), w.flow(1, 1, 2)
				gone.zone, gone.oneWay, stays.zone, stays.oneWay = 7, true, 7, true
				return []entry{gone, stays}
			},
			gone: []int{0},
		},
		"unrelated flows": {
			after: func(w world) Change { return w.service([]int{1, 2}, 3) },
			flows: func(w world) []entry {
				toEndpoint := w.flow(1, 1, 1)
				toEndpoint.destination = toEndpoint.replySource
				otherPort := w.flow(2, 1, 1)
				otherPort.destination = w.addr(96, 1, 54)
				tcp := w.flow(3, 1, 1)
				tcp.protocol = rules.TCP
				reverse := w.flow(4, 1, 0)
				reverse.source, reverse.destination = reverse.destination, reverse.source
				reverse.replySource = reverse.destination
				return []entry{w.flow(0, 1, 1), toEndpoint, otherPort, tcp, reverse, w.flow(5, 4, 1)}
			},
			gone: []int{0},
		},
	}
	for name, test := range tests {
		for _, w := range []world{{rules.UDP, rules.IPv4}, {rules.UDP, rules.IPv6}, {rules.SCTP, rules.IPv4}, {rules.SCTP, rules.IPv6}} {
			t.Run(fmt.Sprintf("%s/%s/%s", name, w.protocol, w.family), func(t *testing.T) {
				h := newFlowHost(t)
				before := test.before
				if before == nil {
					before = []int{1, 2}
				}
				h.commit(w.service([]int{1, 2}, before...))
				flows := test.flows(w)
				h.inject(flows...)
				h.commit(test.after(w))
				var stay []entry
				for i, e := range flows {
					if !slices.Contains(test.gone, i) {
						stay = append(stay, e)
					}
				}
				h.want("afterwards", stay...)
				if s := h.conntrack.Stats(); s.Deleted != uint64(len(test.gone)) || s.Passes != 2 || s.Failed != 0 {
					t.Errorf("%+v", s)
				}
			})
		}
	}
}

// TestConntrackRestart: entries of live endpoints survive, those of others do not.
func TestConntrackRestart(t *testing.T) {
	h := newFlowHost(t)
	udp4, udp6 := world{rules.UDP, rules.IPv4}, world{rules.UDP, rules.IPv6}
	sctp := world{rules.SCTP, rules.IPv4}
	for _, w := range []world{udp4, udp6, sctp} {
		h.commit(w.service([]int{1}, 1, 2))
		h.inject(w.flow(0, 1, 1), w.flow(1, 1, 2))
	}
	h.restart()
	h.want("nothing is committed yet", udp4.flow(0, 1, 1), udp4.flow(1, 1, 2), udp6.flow(0, 1, 1), udp6.flow(1, 1, 2), sctp.flow(0, 1, 1), sctp.flow(1, 1, 2))
	h.commit(udp4.service([]int{1}, 2, 3), udp6.service([]int{1}, 2), sctp.service([]int{1}, 2))
	h.want("after the first commit", udp4.flow(1, 1, 2), udp6.flow(1, 1, 2), sctp.flow(1, 1, 2))
}

// TestConntrackAmongMany has 50,000 unrelated flows, of which the kernel's filter keeps
// none away: they are all there afterwards, and what a pass allocates does not grow
// with them.
func TestConntrackAmongMany(t *testing.T) {
	const many = 50_000
	h := newFlowHost(t)
	w := world{rules.UDP, rules.IPv4}
	unrelated := func(from, to int) {
		for i := from; i < to; i++ {
			e := w.flow(0, 9, 9)
			e.source = fmt.Sprintf("10.2.%d.%d:%d", i>>8&255, i&255, 5000+i>>16)
			h.inject(e)
		}
	}
	pass := func() uint64 {
		h.commit(w.service([]int{1}, 1))
		h.inject(w.flow(0, 1, 1))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		h.commit(w.service([]int{1}))
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	unrelated(0, many/100)
	few := pass()
	unrelated(many/100, many)
	start := time.Now()
	all := pass()
	t.Logf("a pass over %d flows allocates %d bytes, one over %d %d; two took %s", many/100, few, many, all, time.Since(start))
	// The flows themselves are more than 10 MB.
	if all > few+many*10 {
		t.Errorf("%d bytes for %d flows, %d for %d: it grows with the table", few, many/100, all, many)
	}
	if s := h.conntrack.Stats(); s.Deleted != 2 {
		t.Errorf("%+v", s)
	}
	n := 0
	table := openTable(t, h)
	if err := table.dump(t.Context(), query{family: rules.IPv4, protocol: rules.UDP}, func(*flow) error { n++; return nil }); err != nil || n != many {
		t.Errorf("%d flows are left of %d, error %v", n, many, err)
	}
}

func openTable(tb testing.TB, h *flowHost) flowTable {
	tb.Helper()
	table, err := openNetlinkFlows(h.ns.FD())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := table.close(); err != nil {
			tb.Error(err)
		}
	})
	return table
}

// TestDumpIsFiltered: the kernel sends no flows of other protocols, families and
// ports (it compares ports for UDP only). Without the filter it sends all of the
// family.
func TestDumpIsFiltered(t *testing.T) {
	h := newFlowHost(t)
	for _, w := range []world{{rules.UDP, rules.IPv4}, {rules.UDP, rules.IPv6}, {rules.SCTP, rules.IPv4}, {rules.TCP, rules.IPv4}} {
		other := w.flow(1, 1, 1)
		other.destination = w.addr(96, 1, 54)
		h.inject(w.flow(0, 1, 1), other)
	}
	table, err := openNetlinkFlows(h.ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = table.close() }()
	raw, ok := table.(*netlinkFlows)
	if !ok {
		t.Fatalf("%T", table)
	}
	for _, test := range []struct {
		query  query
		filter bool
		want   int
	}{
		{query{rules.IPv4, rules.UDP, 0}, true, 2},
		{query{rules.IPv4, rules.UDP, 53}, true, 1},
		{query{rules.IPv6, rules.UDP, 53}, true, 1},
		{query{rules.IPv4, rules.SCTP, 53}, true, 2},
		{query{rules.IPv6, rules.SCTP, 0}, true, 0},
		{query{rules.IPv4, rules.UDP, 53}, false, 6},
	} {
		n := 0
		if err := raw.dumpWith(t.Context(), test.query, test.filter, func(*flow) error { n++; return nil }); err != nil || n != test.want {
			t.Errorf("%+v, filter %t: %d flows, not %d, error %v", test.query, test.filter, n, test.want, err)
		}
	}
}

// TestDeleteNamesOneEntry: an entry with another ID or in another zone is not hit.
func TestDeleteNamesOneEntry(t *testing.T) {
	h := newFlowHost(t)
	w := world{rules.UDP, rules.IPv4}
	here, there := w.flow(0, 1, 1), w.flow(0, 1, 1)
	there.zone = 7
	h.inject(here, there)
	table := openTable(t, h)
	visited := false
	err := table.dump(t.Context(), query{family: rules.IPv4, protocol: rules.UDP}, func(f *flow) error {
		if len(f.zone) == 0 {
			return nil
		}
		visited = true
		otherID, noZone := *f, *f
		otherID.id = slices.Clone(f.id)
		otherID.id[len(f.id)-1] ^= 1
		noZone.zone = nil
		for _, other := range []*flow{&otherID, &noZone} {
			if deleted, err := table.delete(t.Context(), other); deleted || err != nil {
				t.Errorf("%+v: deleted %t, error %v", other, deleted, err)
			}
		}
		return nil
	})
	if !visited || err != nil || len(h.left()) != 2 {
		t.Errorf("left %v, error %v", h.left(), err)
	}
}

// TestStopWaiting: the end of the context ends what a socket waits for, and what it
// would wait for later.
func TestStopWaiting(t *testing.T) {
	h := newFlowHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer h.socket.bind(ctx)()
	time.AfterFunc(20*time.Millisecond, cancel)
	for range 2 {
		if b, err := h.socket.receive(ctx); err == nil {
			t.Errorf("received %d bytes", len(b))
		}
	}
}

// powerless is a flowTable of a process without capabilities.
type powerless struct{ flowTable }

func (p powerless) dump(ctx context.Context, q query, visit func(f *flow) error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			done <- err
			return
		}
		done <- p.flowTable.dump(ctx, q, visit)
	}()
	return <-done
}

// TestConntrackWithoutRights reports once that it can do nothing, and does not mind.
func TestConntrackWithoutRights(t *testing.T) {
	ns := nstest.New(t)
	var reports atomic.Int32
	open := func() (flowTable, error) {
		table, err := openNetlinkFlows(ns.FD())
		return powerless{table}, err
	}
	c := newConntrack(open, func(err error) {
		if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
			t.Errorf("report: %v", err)
		}
		reports.Add(1)
	})
	run(t, c)
	w := world{rules.UDP, rules.IPv4}
	for i := range 50 {
		c.Prepare([]Change{w.service([]int{1}, i)})
		c.Commit(false)
		time.Sleep(time.Millisecond)
	}
	if n := reports.Load(); n != 1 || c.Stats() != (ConntrackStats{Failed: 1}) {
		t.Errorf("%d reports, %+v", n, c.Stats())
	}
}
