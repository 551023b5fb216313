package syncer_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// testNode is a node whose pods are all at home in its own namespace, with two links:
// clients are behind one, other hosts behind the other.
type testNode struct {
	tb               testing.TB
	ns, outside, far *nstest.NS
	port             uint16        // the last source port used: no two flows are alike
	patience         time.Duration // for an answer
}

// nodeAddr, clientAddr and farAddr are the addresses at the links.
func nodeAddr(f rules.Family) netip.Addr { return clientAddr(f, -9) }

func clientAddr(f rules.Family, n int) netip.Addr { return addrPort(f, 1, 10+n, 1).Addr() }

func farAddr(f rules.Family) netip.Addr { return addrPort(f, 2, 2, 1).Addr() }

// newNode makes a node with some clients and, of each family, the endpoints 1 to n.
func newNode(tb testing.TB, clients, endpoints int) *testNode {
	tb.Helper()
	n := &testNode{tb: tb, ns: nstest.New(tb), outside: nstest.New(tb), far: nstest.New(tb), port: 10_000, patience: 10 * time.Second}
	for _, ns := range []*nstest.NS{n.ns, n.outside, n.far} {
		// An address that is still being probed for duplicates does not ask for neighbours.
		n.sysctl(ns, "ipv6/conf/all/accept_dad", "0")
		n.sysctl(ns, "ipv6/conf/default/accept_dad", "0")
	}
	n.sysctl(n.ns, "ipv4/ip_forward", "1")
	n.sysctl(n.ns, "ipv6/conf/all/forwarding", "1")
	n.do(n.ns, func() error {
		return errors.Join(
			netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "clients"}, PeerName: "node", PeerNamespace: netlink.NsFd(n.outside.FD())}),
			netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "far"}, PeerName: "node", PeerNamespace: netlink.NsFd(n.far.FD())}),
		)
	})
	for _, f := range rules.Families() {
		n.addAddr(n.ns, "clients", nodeAddr(f))
		n.addAddr(n.ns, "far", addrPort(f, 2, 1, 1).Addr())
		n.addAddr(n.far, "node", farAddr(f))
		for c := range clients {
			n.addAddr(n.outside, "node", clientAddr(f, c))
		}
		n.do(n.outside, func() error { return defaultRoute("node", nodeAddr(f)) })
		n.do(n.far, func() error { return defaultRoute("node", addrPort(f, 2, 1, 1).Addr()) })
		for e := range endpoints {
			addr := addrPort(f, 244, e+1, 8080)
			n.addAddr(n.ns, "lo", addr.Addr())
			n.serve(n.ns, addr)
		}
	}
	return n
}

func (n *testNode) sysctl(ns *nstest.NS, name, value string) {
	n.tb.Helper()
	n.do(ns, func() error { return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0) })
}

// do runs f in a namespace.
func (n *testNode) do(ns *nstest.NS, f func() error) {
	n.tb.Helper()
	if err := ns.Do(f); err != nil {
		n.tb.Fatal(err)
	}
}

// addAddr gives an address to a link, which is up then. Those of one network are 256.
func (n *testNode) addAddr(ns *nstest.NS, link string, addr netip.Addr) {
	n.tb.Helper()
	n.do(ns, func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return fmt.Errorf("find %s: %w", link, err)
		}
		network := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen()-8, addr.BitLen())}
		return errors.Join(netlink.LinkSetUp(l), netlink.AddrAdd(l, &netlink.Addr{IPNet: network, Flags: unix.IFA_F_NODAD}))
	})
}

func defaultRoute(link string, gateway netip.Addr) error {
	l, err := netlink.LinkByName(link)
	if err != nil {
		return fmt.Errorf("find %s: %w", link, err)
	}
	return netlink.RouteAdd(&netlink.Route{LinkIndex: l.Attrs().Index, Gw: gateway.AsSlice()})
}

// serve answers at an address, of TCP and UDP, with that address, until the test ends.
func (n *testNode) serve(ns *nstest.NS, addr netip.AddrPort) {
	n.tb.Helper()
	var listener net.Listener
	var conn *net.UDPConn
	n.do(ns, func() (err error) {
		if listener, err = (&net.ListenConfig{}).Listen(n.tb.Context(), "tcp", addr.String()); err != nil {
			return err
		}
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(addr))
		return err
	})
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, addr.String())
			_ = c.Close()
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		for buf := make([]byte, 64); ; {
			_, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort([]byte(addr.String()), from)
		}
	}()
	n.tb.Cleanup(func() {
		_ = listener.Close()
		_ = conn.Close()
		<-done
		<-done
	})
}

// ask begins a new flow from a client and returns the address of what answers.
func (n *testNode) ask(from netip.Addr, p rules.Protocol, to netip.AddrPort) string {
	n.tb.Helper()
	n.port++
	return n.askFrom(netip.AddrPortFrom(from, n.port), p, to)
}

// askFrom is ask from a certain port: of UDP it goes on with the flow from there, if
// there is one. It returns "no answer", or "refused", if there is none.
func (n *testNode) askFrom(from netip.AddrPort, p rules.Protocol, to netip.AddrPort) string {
	n.tb.Helper()
	answer := "no answer"
	n.do(n.outside, func() error {
		dialer := net.Dialer{Timeout: n.patience, LocalAddr: net.TCPAddrFromAddrPort(from)}
		if p == rules.UDP {
			dialer.LocalAddr = net.UDPAddrFromAddrPort(from)
		}
		conn, err := dialer.DialContext(n.tb.Context(), p.String(), to.String())
		if err != nil {
			return fmt.Errorf("dial: %w", err)
		}
		defer func() { _ = conn.Close() }()
		if err := conn.SetDeadline(time.Now().Add(n.patience)); err != nil {
			return fmt.Errorf("set the deadline: %w", err)
		}
		buf := make([]byte, 64)
		size := 0
		if p == rules.UDP {
			_, err = conn.Write([]byte("who?"))
		}
		if err == nil {
			size, err = conn.Read(buf)
		}
		var timeout net.Error
		switch {
		case err == nil:
			answer = string(buf[:size])
		case errors.Is(err, syscall.ECONNREFUSED):
			answer = "refused"
		case !errors.As(err, &timeout) || !timeout.Timeout():
			return fmt.Errorf("ask: %w", err)
		}
		return nil
	})
	return answer
}

// forEachTransport runs a test for TCP and UDP in both families.
func forEachTransport(t *testing.T, test func(t *testing.T, f rules.Family, p rules.Protocol)) {
	for _, f := range rules.Families() {
		for _, p := range []rules.Protocol{rules.TCP, rules.UDP} {
			t.Run(f.String()+"/"+strings.ToUpper(p.String()), func(t *testing.T) { test(t, f, p) })
		}
	}
}
