package syncer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// addressHost is a namespace whose addresses are followed.
type addressHost struct {
	tb   testing.TB
	ns   *nstest.NS
	told chan []netip.Addr
	last []netip.Addr
}

func newAddressHost(tb testing.TB) *addressHost {
	tb.Helper()
	h := &addressHost{tb: tb, ns: nstest.New(tb), told: make(chan []netip.Addr, 10_000)}
	a := NewAddresses(h.ns.FD(), func(addrs []netip.Addr) { h.told <- addrs }, func(err error) { tb.Error(err) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- a.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Errorf("Run: %v", err)
		}
	})
	h.want()
	return h
}

// do changes something in the namespace.
func (h *addressHost) do(change func() error) {
	h.tb.Helper()
	if err := h.ns.Do(change); err != nil {
		h.tb.Fatal(err)
	}
}

// add makes a link and gives it addresses, in CIDR notation.
func (h *addressHost) add(link netlink.Link, addrs ...string) {
	h.tb.Helper()
	h.do(func() error {
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		for _, a := range addrs {
			if err := netlink.AddrAdd(link, address(a)); err != nil {
				return err
			}
		}
		return nil
	})
}

// pair is a link that is down, with a peer in the same namespace.
func pair(name string) netlink.Link {
	return &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"}
}

func loopback() netlink.Link {
	return &netlink.Device{LinkAttrs: netlink.LinkAttrs{Name: "lo", Index: 1}}
}

// address does without duplicate address detection, which takes seconds.
func address(cidr string) *netlink.Addr {
	prefix := netip.MustParsePrefix(cidr)
	bits := prefix.Addr().BitLen()
	a := &netlink.Addr{IPNet: &net.IPNet{IP: prefix.Addr().AsSlice(), Mask: net.CIDRMask(prefix.Bits(), bits)}}
	if prefix.Addr().Is6() {
		a.Flags = unix.IFA_F_NODAD
	}
	return a
}

// want waits until these addresses were told.
func (h *addressHost) want(addrs ...string) {
	h.tb.Helper()
	want := make([]netip.Addr, len(addrs))
	for i, a := range addrs {
		want[i] = netip.MustParseAddr(a)
	}
	h.wantAddrs(want)
}

func (h *addressHost) wantAddrs(want []netip.Addr) {
	h.tb.Helper()
	slices.SortFunc(want, netip.Addr.Compare)
	deadline := time.After(20 * time.Second)
	for h.last == nil || !slices.Equal(want, h.last) {
		select {
		case h.last = <-h.told:
		case <-deadline:
			h.tb.Fatalf("wanted (-), told last (+):\n%s", cmp.Diff(want, h.last, cmpopts.EquateComparable(netip.Addr{})))
		}
	}
}

// TestAddressesOfAKernel: what counts as an address of this node.
func TestAddressesOfAKernel(t *testing.T) {
	h := newAddressHost(t) // the first set, without any but loopback
	eth := pair("eth0")
	h.add(eth, "192.0.2.1/24", "192.0.2.2/24", "198.51.100.1/32", "2001:db8::1/64")
	all := []string{"192.0.2.1", "192.0.2.2", "198.51.100.1", "2001:db8::1"}
	h.want(all...) // of a link that is down

	h.do(func() error { return netlink.AddrAdd(eth, address("fe80::1:1/64")) })
	all = append(all, "fe80::1:1")
	h.want(all...)

	h.do(func() error { return netlink.AddrDel(eth, address("192.0.2.2/24")) })
	all = slices.DeleteFunc(all, func(a string) bool { return a == "192.0.2.2" })
	h.want(all...)

	tun := pair("tun0")
	h.do(func() error {
		for _, a := range []string{"127.1.2.3/32", "203.0.113.9/32", "2001:db8::9/128"} {
			if err := netlink.AddrAdd(loopback(), address(a)); err != nil {
				return err
			}
		}
		return nil
	})
	all = append(all, "203.0.113.9", "2001:db8::9")
	h.want(all...) // of the loopback interface, but no loopback addresses

	h.add(tun)
	h.do(func() error {
		for own, peer := range map[string]string{"10.9.0.1/32": "10.9.0.2/32", "2001:db8:9::1/128": "2001:db8:9::2/128"} {
			a := address(own)
			a.Peer = address(peer).IPNet
			if err := netlink.AddrAdd(tun, a); err != nil {
				return err
			}
		}
		return nil
	})
	all = append(all, "10.9.0.1", "2001:db8:9::1")
	h.want(all...) // the own ends of point-to-point links

	h.add(pair("eth1"), "192.0.2.1/24", "192.0.2.77/24", "fe80::1:1/64")
	all = append(all, "192.0.2.77")
	h.want(all...) // the same address twice

	h.do(func() error { return netlink.LinkDel(tun) })
	h.want(slices.DeleteFunc(all, func(a string) bool { return a == "10.9.0.1" || a == "2001:db8:9::1" })...)
}

// TestAddressesAreThoseOfGo: tentative ones and those that the kernel makes too.
func TestAddressesAreThoseOfGo(t *testing.T) {
	h := newAddressHost(t)
	veth := pair("veth0")
	h.add(veth, "10.1.0.1/24")
	h.do(func() error {
		tentative := address("2001:db8::5/64")
		tentative.Flags = 0
		deprecated := address("2001:db8::6/64")
		deprecated.ValidLft = 3600
		if err := errors.Join(netlink.AddrAdd(veth, tentative), netlink.AddrAdd(veth, deprecated)); err != nil {
			return err
		}
		for _, name := range []string{"veth0", "veth0-peer"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(link); err != nil {
				return err
			}
		}
		return nil
	})
	var want []netip.Addr
	const all = 3 + 2 // with the link-local ones that the kernel makes when it sees the carrier
	for deadline := time.Now().Add(20 * time.Second); len(want) != all; time.Sleep(time.Millisecond) {
		want = h.interfaceAddrs()
		if time.Now().After(deadline) {
			t.Fatalf("net.InterfaceAddrs: %v", want)
		}
	}
	h.wantAddrs(want)
}

// interfaceAddrs returns what Go lists, but for loopback addresses.
func (h *addressHost) interfaceAddrs() []netip.Addr {
	h.tb.Helper()
	var addrs []netip.Addr
	h.do(func() error {
		list, err := net.InterfaceAddrs()
		for _, a := range list {
			if addr := netip.MustParsePrefix(a.String()).Addr(); !addr.IsLoopback() {
				addrs = append(addrs, addr)
			}
		}
		return err
	})
	return addrs
}

// TestAddressesAfterABurst: a thousand changes end in the right set.
func TestAddressesAfterABurst(t *testing.T) {
	h := newAddressHost(t)
	eth := pair("eth0")
	h.add(eth)
	var want []string
	h.do(func() error {
		for i := range 250 {
			four, six := fmt.Sprintf("10.2.%d.%d", i/100, i%100), fmt.Sprintf("2001:db8::2:%x", i+1)
			for addr, bits := range map[string]int{four: 32, six: 128} {
				if err := netlink.AddrAdd(eth, address(fmt.Sprintf("%s/%d", addr, bits))); err != nil {
					return err
				}
			}
			if i%2 == 0 {
				want = append(want, four, six)
			}
		}
		for i := range 250 {
			four, six := fmt.Sprintf("10.2.%d.%d/32", i/100, i%100), fmt.Sprintf("2001:db8::2:%x/128", i+1)
			for _, cidr := range []string{four, six} {
				change := netlink.AddrDel
				if i%2 == 0 { // changes that end where they began
					change = netlink.AddrReplace
				}
				if err := change(eth, address(cidr)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	h.want(want...)
	h.do(func() error { return netlink.AddrAdd(eth, address("10.3.0.1/32")) })
	h.want(append(want, "10.3.0.1")...)
}

// TestABurstIsOneWait: what is there already is not waited for again.
func TestABurstIsOneWait(t *testing.T) {
	h := &addressHost{tb: t, ns: nstest.New(t)}
	table, err := openNetlinkAddresses(h.ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	h.add(pair("eth0"), "192.0.2.1/24", "192.0.2.2/24", "192.0.2.3/24", "2001:db8::1/64", "2001:db8::2/64")
	if err := table.wait(t.Context()); err != nil {
		t.Error(err)
	}
	h.do(func() error { return netlink.LinkDel(pair("eth0")) })
	ctx, cancel := context.WithCancel(t.Context())
	if err := table.wait(ctx); err != nil {
		t.Errorf("deleted: %v", err)
	}
	time.AfterFunc(time.Millisecond, cancel)
	if err := table.wait(ctx); err == nil {
		t.Error("there was more")
	}
	if err := table.close(); err != nil {
		t.Error(err)
	}
}

// TestSubscriptionOverrun: the kernel says once that it has to drop notifications, not
// which and not how long.
func TestSubscriptionOverrun(t *testing.T) {
	h := &addressHost{tb: t, ns: nstest.New(t)}
	change := func(addrs int) {
		t.Helper()
		h.do(func() error {
			for i := range addrs {
				a := address(fmt.Sprintf("10.0.0.%d/32", i))
				if err := errors.Join(netlink.AddrAdd(loopback(), a), netlink.AddrDel(loopback(), a)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for name, read := range map[string]func(s *subscription) error{
		"receive": func(s *subscription) error { _, err := s.receive(); return err },
		"drain":   func(s *subscription) error { return s.drain() },
	} {
		t.Run(name, func(t *testing.T) {
			s, err := subscribe(h.ns.FD(), unix.NETLINK_ROUTE, unix.RTMGRP_IPV4_IFADDR, 1)
			if err != nil {
				t.Fatal(err)
			}
			change(1)
			if err := read(s); err != nil {
				t.Errorf("a change: %v", err)
			}
			change(200)
			if err := read(s); !errors.Is(err, errOverrun) || !errors.Is(err, unix.ENOBUFS) {
				t.Errorf("too many changes: %v", err)
			}
			if err := s.drain(); err != nil {
				t.Errorf("those before: %v", err)
			}
			change(1)
			if b, err := s.receive(); err != nil || len(b) == 0 {
				t.Errorf("a change after it: %d bytes, %v", len(b), err)
			}
			if err := s.close(); err != nil {
				t.Error(err)
			}
			if err := read(s); err == nil || errors.Is(err, errOverrun) {
				t.Errorf("after it was closed: %v", err)
			}
		})
	}
}
