package proxier

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// host is a namespace with a running Proxier and endpoints that count their
// connections.
type host struct {
	tb      testing.TB
	ns      *nstest.NS
	handler Handler
	reports <-chan Report

	mu      sync.Mutex
	servers map[string]*server
}

type server struct {
	listener net.Listener
	accepted *atomic.Int64
	done     chan struct{}
}

const frontendAddr = "10.96.0.1:80"

// newPodNet makes a namespace in which all pods are at home: their addresses are local,
// so that any can be listened on. ClusterIPs have a route and nothing more:
// untranslated packets lead nowhere.
func newPodNet(tb testing.TB) *nstest.NS {
	tb.Helper()
	ns := nstest.New(tb)
	err := ns.Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find lo: %w", err)
		}
		for _, cidr := range []string{"10.244.0.0/16", "fd00:244::/32"} {
			_, pods, _ := net.ParseCIDR(cidr)
			err = errors.Join(err, netlink.RouteAdd(&netlink.Route{
				LinkIndex: lo.Attrs().Index, Dst: pods, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
			}))
		}
		for _, cidr := range []string{"10.96.0.0/16", "fd00:96::/32"} {
			_, services, _ := net.ParseCIDR(cidr)
			err = errors.Join(err, netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: services, Scope: netlink.SCOPE_LINK}))
		}
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return ns
}

// newHost makes a host whose Service has the ClusterIP frontendAddr.
func newHost(tb testing.TB) *host {
	tb.Helper()
	ns := newPodNet(tb)
	h := &host{tb: tb, ns: ns, servers: map[string]*server{}}
	h.handler, h.reports = startReal(tb, ns)
	h.handler.Apply(services(newService(tb, "default/web", "10.96.0.1", "http:80")))
	h.handler.Synced()
	h.committed()
	return h
}

// committed waits for the next sync.
func (h *host) committed() {
	h.tb.Helper()
	select {
	case r := <-h.reports:
		if r.Err != nil || len(r.Refused) > 0 {
			h.tb.Fatalf("sync: %+v", r)
		}
	case <-time.After(10 * time.Second):
		h.tb.Fatal("no sync")
	}
}

// serve starts an endpoint.
func (h *host) serve(addr string) {
	h.tb.Helper()
	s := &server{accepted: &atomic.Int64{}, done: make(chan struct{})}
	err := h.ns.Do(func() (err error) {
		s.listener, err = (&net.ListenConfig{}).Listen(h.tb.Context(), "tcp", addr+":8080")
		return err
	})
	if err != nil {
		h.tb.Fatal(err)
	}
	go func() {
		defer close(s.done)
		for {
			conn, err := s.listener.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			_ = conn.Close()
		}
	}()
	h.mu.Lock()
	h.servers[addr] = s
	h.mu.Unlock()
}

// stop ends an endpoint.
func (h *host) stop(addr string) {
	h.mu.Lock()
	s := h.servers[addr]
	delete(h.servers, addr)
	h.mu.Unlock()
	_ = s.listener.Close()
	<-s.done
}

// accepted returns how many connections each endpoint has taken.
func (h *host) accepted(addrs []string) []float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	counts := make([]float64, len(addrs))
	for i, a := range addrs {
		counts[i] = float64(h.servers[a].accepted.Load())
	}
	return counts
}

// connect makes n connections to the Service from as many sources as it takes not
// to run out of ports.
func (h *host) connect(ctx context.Context, n int) error {
	return h.ns.Do(func() error {
		for i := range n {
			source := netip.AddrFrom4([4]byte{10, 244, 200, byte(i % 200)})
			dialer := net.Dialer{
				LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0)), Timeout: 5 * time.Second,
			}
			conn, err := dialer.DialContext(ctx, "tcp", frontendAddr)
			if err != nil {
				return fmt.Errorf("connection %d: %w", i, err)
			}
			tcp, ok := conn.(*net.TCPConn)
			if !ok {
				return fmt.Errorf("connection %d is a %T", i, conn)
			}
			_ = tcp.SetLinger(0) // no TIME_WAIT
			if err := tcp.Close(); err != nil {
				return fmt.Errorf("close connection %d: %w", i, err)
			}
		}
		return nil
	})
}

// TestDistribution connects 60,000 times and compares the endpoints' parts with
// what they should be, by a chi-squared test at 0.001. A fair proxy exceeds its limit
// once in a thousand times, and only a second sample that does too is a failure.
func TestDistribution(t *testing.T) {
	const connections = 60_000
	equal := func(n int) []uint16 {
		weights := make([]uint16, n)
		for i := range weights {
			weights[i] = 1
		}
		return weights
	}
	tests := map[string]struct {
		before, weights []uint16 // by endpoint; 0 is none
	}{
		"7 endpoints":   {weights: equal(7)},
		"weights 1:3:6": {weights: []uint16{1, 3, 6}},
		"5 left of 8":   {before: equal(8), weights: []uint16{1, 0, 1, 1, 0, 1, 0, 1}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			var addrs []string
			var shares []float64
			sum := 0.0
			if test.before != nil {
				h.publish(test.before)
			}
			h.publish(test.weights)
			for i, w := range test.weights {
				if w > 0 {
					addr := fmt.Sprintf("10.244.0.%d", i+1)
					h.serve(addr)
					addrs, shares, sum = append(addrs, addr), append(shares, float64(w)), sum+float64(w)
				}
			}
			for i := range shares {
				shares[i] *= connections / sum
			}
			limit := distuv.ChiSquared{K: float64(len(addrs) - 1)}.Quantile(0.999)
			exceeded := 0
			for range 2 {
				got := h.sample(addrs, connections)
				chi2 := stat.ChiSquare(got, shares)
				t.Logf("got %v, expected %v, chi-square %.2f of at most %.2f", got, shares, chi2, limit)
				if chi2 <= limit {
					break
				}
				exceeded++
			}
			if exceeded == 2 {
				t.Error("the choice is not fair")
			}
			for _, a := range addrs {
				h.stop(a)
			}
		})
	}
}

// sample connects n times and returns how many connections each endpoint took.
func (h *host) sample(addrs []string, n int) []float64 {
	h.tb.Helper()
	before := h.accepted(addrs)
	if err := h.connect(h.tb.Context(), n); err != nil {
		h.tb.Fatal(err)
	}
	var got []float64
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		got = h.accepted(addrs)
		floats.Sub(got, before)
		if floats.Sum(got) == float64(n) {
			return got
		}
		if time.Now().After(deadline) {
			h.tb.Fatalf("%g connections were accepted, not %d", floats.Sum(got), n)
		}
	}
}

// publish makes endpoints with these weights those of the Service, one slice each.
func (h *host) publish(weights []uint16) {
	h.tb.Helper()
	var c Changes
	for i, w := range weights {
		s := newSlice(h.tb, fmt.Sprintf("default/web-%d", i), "web", "http:8080", fmt.Sprintf("10.244.0.%d", i+1))
		s.Weight = w
		if w == 0 {
			s = nil
		}
		c.Slices = append(c.Slices, SliceChange{objectName(fmt.Sprintf("default/web-%d", i)), s})
	}
	h.handler.Apply(c)
	h.committed()
}

// TestNoConnectionFails connects 50,000 times while the endpoints are replaced, and
// become more and fewer, as fast as the loop can. An endpoint serves before it is
// published, and until shortly after it is not any more, as a Pod does that ends
// gracefully; no connection may meet one that does not serve.
func TestNoConnectionFails(t *testing.T) {
	h := newHost(t)
	random := rand.New(rand.NewPCG(1, 1))
	next := 0
	start := func() string {
		next++
		addr := fmt.Sprintf("10.244.%d.%d", next/250%200, next%250+1)
		h.serve(addr)
		return addr
	}
	publish := func(addrs []string) {
		h.handler.Apply(endpointSlices(newSlice(t, "default/web-1", "web", "http:8080", addrs...)))
		h.committed()
	}
	// How long an endpoint takes what was already on its way to it.
	const grace = 200 * time.Millisecond
	current := []string{start(), start()}
	publish(current)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	connecting := make(chan error, 1)
	go func() { connecting <- h.connect(ctx, 50_000) }()
	var ending sync.WaitGroup
	defer ending.Wait()
	replacements := 0
	for {
		select {
		case err := <-connecting:
			if err != nil {
				t.Errorf("after %d replacements: %v", replacements, err)
			}
			if replacements < 1000 {
				t.Errorf("only %d replacements", replacements)
			}
			t.Logf("50,000 connections during %d replacements", replacements)
			ending.Wait()
			for _, addr := range current {
				h.stop(addr)
			}
			return
		default:
		}
		// Some stay, at least one goes, some come: 1 to 12 in all.
		random.Shuffle(len(current), func(i, j int) { current[i], current[j] = current[j], current[i] })
		keep := random.IntN(len(current))
		old := current[keep:]
		current = append([]string(nil), current[:keep]...)
		for size := 1 + random.IntN(12); len(current) < size; {
			current = append(current, start())
		}
		publish(current)
		replacements++
		ending.Go(func() {
			time.Sleep(grace)
			for _, addr := range old {
				h.stop(addr)
			}
		})
	}
}
