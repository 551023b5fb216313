package proxier

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/nstest"
	"github.com/nftproxy/nftproxy/syncer/synctest"
)

// recorder is a Flows that notes what it is told, and what the kernel had taken by
// then.
type recorder struct {
	kernel *synctest.Kernel
	events chan string
	ended  chan struct{}
}

func (r *recorder) Prepare(changes []syncer.Change) {
	if len(r.kernel.Applied()) > 0 {
		r.events <- "prepared too late"
	}
	r.events <- fmt.Sprintf("prepare %d", len(changes))
}

func (r *recorder) Commit(full bool) {
	r.events <- fmt.Sprintf("commit after %d batches, full: %t", len(r.kernel.Applied()), full)
}

func (r *recorder) SetNodePortIPs(rules.Family, []netip.Addr) {}

func (r *recorder) Run(ctx context.Context) error {
	<-ctx.Done()
	close(r.ended)
	return nil
}

// startRecorded is start with a recorder.
func startRecorded(t *testing.T) (*bench, *recorder) {
	r := &recorder{events: make(chan string, 100), ended: make(chan struct{})}
	t.Cleanup(func() { // after Run has returned
		select {
		case <-r.ended:
		default:
			t.Error("Flows still runs")
		}
	})
	// The first sync waits for Synced, so nothing uses the kernel before it is set.
	b := start(t, Options{Flows: r})
	r.kernel = b.kernel
	return b, r
}

func (r *recorder) take() []string {
	var all []string
	for len(r.events) > 0 {
		all = append(all, <-r.events)
	}
	return all
}

// TestFlowsAreToldOfEverySync: before it, what changes; after it, that it is in force,
// only if it is. Changes of failed syncs are not prepared again.
func TestFlowsAreToldOfEverySync(t *testing.T) {
	b, r := startRecorded(t)
	b.handler.Apply(b.web(1))
	b.kernel.Inject(synctest.LoseBatch, synctest.LoseBatch)
	b.handler.Synced()
	b.report()
	b.handler.Apply(b.web(2))
	b.pass(firstRetry, 2)
	b.report()
	b.pass(2*firstRetry, 2)
	b.report()
	b.handler.Apply(b.web(3))
	b.report()
	want := []string{"prepare 1", "prepare 1", "prepare 0", "commit after 1 batches, full: true", "prepare 1", "commit after 1 batches, full: false"}
	if diff := cmp.Diff(want, r.take()); diff != "" {
		t.Error(diff)
	}
}

// TestServing says which endpoints keep their flows.
func TestServing(t *testing.T) {
	tests := map[string]struct {
		endpoints []string
		want      []string
	}{
		"ready ones":                 {[]string{"10.1.0.2", "10.1.0.1"}, []string{"10.1.0.1:53", "10.1.0.2:53"}},
		"beside ready ones":          {[]string{"10.1.0.1", "10.1.0.2 t", "10.1.0.3 n"}, []string{"10.1.0.1:53", "10.1.0.2:53", "10.1.0.3:53"}},
		"not those that do not":      {[]string{"10.1.0.1", "10.1.0.2 td", "10.1.0.3 nd"}, []string{"10.1.0.1:53"}},
		"ready without serving":      {[]string{"10.1.0.1 d"}, []string{"10.1.0.1:53"}},
		"none":                       {[]string{"10.1.0.1 td"}, nil},
		"not terminating one counts": {[]string{"10.1.0.1 td", "10.1.0.1"}, []string{"10.1.0.1:53"}},
	}
	for name, test := range tests {
		for _, protocol := range []rules.Protocol{rules.TCP, rules.UDP, rules.SCTP} {
			tracker := NewTracker(rules.Families())
			tracker.Apply(services(newService(t, "default/dns", "10.96.0.1", "dns:53/"+protocol.String())))
			tracker.Apply(endpointSlices(newSlice(t, "default/dns-1", "dns", "dns:53/"+protocol.String(), test.endpoints...)))
			var got, want []string
			for _, a := range tracker.TakeChanges()[0].ServicePort.Serving {
				got = append(got, a.String())
			}
			if protocol != rules.TCP { // its flows are left alone
				want = test.want
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, %s: %s", name, protocol, diff)
			}
		}
	}
}

// udpHost is a namespace with a Proxier that cleans up flows, endpoints that answer
// with their name, and a client that always sends from the same port.
type udpHost struct {
	*host
	family   rules.Family
	frontend netip.AddrPort
	client   netip.AddrPort
}

func newUDPHost(t *testing.T, f rules.Family) *udpHost {
	t.Helper()
	ns := newPodNet(t)
	h := &udpHost{host: &host{tb: t, ns: ns}, family: f}
	h.frontend = netip.MustParseAddrPort("10.96.0.1:53")
	h.client = netip.MustParseAddrPort("10.244.200.1:4001")
	if f == rules.IPv6 {
		h.frontend = netip.MustParseAddrPort("[fd00:96::1]:53")
		h.client = netip.MustParseAddrPort("[fd00:244::c001]:4001")
	}
	h.handler, h.reports = startWithFlows(t, ns, syncer.NewConntrack(ns.FD(), func(err error) { t.Error(err) }))
	addAddr(t, ns, h.client.Addr())
	for n := range 3 {
		addAddr(t, ns, h.endpoint(n+1))
		serveUDP(t, ns, netip.AddrPortFrom(h.endpoint(n+1), 5353))
	}
	return h
}

// addAddr gives an IPv6 address to the namespace. One of IPv4 can be used where there
// is a local route.
func addAddr(t *testing.T, ns *nstest.NS, addr netip.Addr) {
	t.Helper()
	if addr.Is4() {
		return
	}
	err := ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find lo: %w", err)
		}
		host := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(128, 128)}
		return netlink.AddrAdd(lo, &netlink.Addr{IPNet: host, Flags: unix.IFA_F_NODAD})
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (h *udpHost) endpoint(n int) netip.Addr {
	if h.family == rules.IPv4 {
		return netip.AddrFrom4([4]byte{10, 244, 0, byte(n)})
	}
	return netip.AddrFrom16([16]byte{0: 0xfd, 2: 2, 3: 0x44, 15: byte(n)})
}

// serveUDP answers every packet with the server's address, until the test ends.
func serveUDP(t *testing.T, ns *nstest.NS, addr netip.AddrPort) {
	t.Helper()
	var conn *net.UDPConn
	err := ns.Do(func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 64); ; {
			_, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort([]byte(addr.Addr().String()), from)
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
}

const noAnswer = "no answer"

// How long an answer is waited for: one that may not come, and one that has to.
const (
	shortPatience = 100 * time.Millisecond
	longPatience  = 10 * time.Second
)

// ask sends a packet to the Service from a port of the client and returns the address
// of the endpoint that answers, "refused", or noAnswer.
func (h *udpHost) ask(port uint16, patience time.Duration) string {
	h.tb.Helper()
	answer := noAnswer
	err := h.ns.Do(func() error {
		conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(h.client.Addr(), port)), net.UDPAddrFromAddrPort(h.frontend))
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		defer func() { _ = conn.Close() }()
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			return fmt.Errorf("set the deadline: %w", err)
		}
		buf := make([]byte, 64)
		n := 0
		if _, err = conn.Write([]byte("who?")); err == nil {
			n, err = conn.Read(buf)
		}
		var timeout net.Error
		switch {
		case err == nil:
			answer = string(buf[:n])
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EPERM): // the latter at once, the former later
			answer = "refused"
		case !errors.As(err, &timeout) || !timeout.Timeout():
			return fmt.Errorf("ask: %w", err)
		}
		return nil
	})
	if err != nil {
		h.tb.Fatal(err)
	}
	return answer
}

// want asks until the answer is the wanted one, which must then stay. An entry that is
// not deleted would be renewed by each question and the answer would never change.
func (h *udpHost) want(what, answer string) {
	h.tb.Helper()
	ask := func(patience time.Duration) string { return h.ask(h.client.Port(), patience) }
	got := ask(shortPatience)
	for deadline := time.Now().Add(10 * time.Second); got != answer && time.Now().Before(deadline); got = ask(shortPatience) {
		time.Sleep(time.Millisecond)
	}
	patience := longPatience
	if answer == noAnswer {
		patience = shortPatience
	}
	for range 5 {
		if got != answer {
			h.tb.Fatalf("%s: %s, not %s", what, got, answer)
		}
		got = ask(patience)
	}
}

// publish makes these the endpoints of the Service, with letters as newSlice has them.
func (h *udpHost) publish(flags string, endpoints ...int) {
	h.tb.Helper()
	texts := make([]string, len(endpoints))
	for i, n := range endpoints {
		texts[i] = h.endpoint(n).String()
		if i == 0 {
			texts[i] += flags
		}
	}
	slice := newSlice(h.tb, "default/dns-1", "dns", "dns:5353/udp", texts...)
	slice.Family = h.family
	h.handler.Apply(endpointSlices(slice))
	h.committed()
}

// TestUDPClientWithOnePort: a client that never changes its port, and never pauses, is
// where it should be after every change, and stays where it is otherwise.
func TestUDPClientWithOnePort(t *testing.T) {
	for _, f := range rules.Families() {
		t.Run(f.String(), func(t *testing.T) {
			h := newUDPHost(t, f)
			h.handler.Synced()
			h.committed()
			h.want("there is no Service", noAnswer)
			h.handler.Apply(services(newService(t, "default/dns", h.frontend.Addr().String(), "dns:53/udp")))
			h.committed()

			h.publish("", 1)
			h.want("the first endpoint", h.endpoint(1).String())
			h.publish("", 2)
			h.want("replaced", h.endpoint(2).String())
			h.publish("")
			h.want("scaled to zero", "refused")
			h.publish("", 3)
			h.want("one is back", h.endpoint(3).String())

			h.publish("", 3, 1, 2)
			h.want("more endpoints: it stays", h.endpoint(3).String())
			h.publish(" t", 3, 1)
			h.want("its endpoint terminates and serves: it stays", h.endpoint(3).String())
			for port := range uint16(20) {
				if got := h.ask(10_000+port, longPatience); got != h.endpoint(1).String() {
					t.Errorf("a new flow is at %s", got)
				}
			}
			h.publish(" td", 3, 1)
			h.want("its endpoint serves no more", h.endpoint(1).String())

			h.handler.Apply(Changes{Services: []ServiceChange{{Name: objectName("default/dns")}}})
			h.committed()
			h.want("the Service is gone", noAnswer)
		})
	}
}
