package rules_test

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// testNet is the node of random clusters, and everybody around it: its pods each have a
// namespace, clients elsewhere share one, and so do servers elsewhere, where untranslated
// packets to frontends end up too.
//
//	pod -- cni0 -+
//	pod -- veth1 +- node -+ eth0 -- clients
//	pod -- veth2 +        + eth1 -- servers
type testNet struct {
	node, clients, servers *nstest.NS
	pods                   []*nstest.NS
}

func newTestNet(t *testing.T) *testNet {
	t.Helper()
	n := &testNet{node: newNamespace(t), clients: newNamespace(t), servers: newNamespace(t)}
	for _, f := range rules.Families() {
		for _, a := range nodeAddrs(f) {
			n.must(t, n.node, func() error { return addAddr("lo", netip.PrefixFrom(a, a.BitLen())) })
		}
	}
	for i, name := range podInterfaces() {
		pod := newNamespace(t)
		n.pods = append(n.pods, pod)
		var own []netip.Prefix
		for _, f := range rules.Families() {
			a := address(f, podNet, localPod+i, 1).Addr()
			own = append(own, netip.PrefixFrom(a, a.BitLen()))
		}
		n.connect(t, i, name, pod, own)
	}
	var clients, servers []netip.Prefix
	for _, f := range rules.Families() {
		clients = append(clients, network(f, clientNet, 0, 0), network(f, podNet, remoteClient, 8))
		for _, net := range []int{serverNet, serviceNet, externalNet, loadBalancerNet} {
			servers = append(servers, network(f, net, 0, 0))
		}
		servers = append(servers, network(f, podNet, remoteServer, 8))
	}
	n.connect(t, len(n.pods), "eth0", n.clients, clients)
	n.connect(t, len(n.pods)+1, "eth1", n.servers, servers)
	return n
}

// newNamespace makes a namespace that forwards, answers at once and may use any address.
func newNamespace(t *testing.T) *nstest.NS {
	t.Helper()
	ns := nstest.New(t)
	err := ns.Do(func() error {
		var errs []error
		for key, value := range map[string]string{
			"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
			"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
			"ipv6/conf/all/accept_dad": "0", "ipv6/conf/default/accept_dad": "0",
			"ipv4/icmp_ratelimit": "0", "ipv6/icmp/ratelimit": "0",
			"ipv4/ip_nonlocal_bind": "1", "ipv6/ip_nonlocal_bind": "1",
		} {
			errs = append(errs, os.WriteFile("/proc/sys/net/"+key, []byte(value), 0))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// connect lays a cable from the node to a namespace, where these ranges are local.
func (n *testNet) connect(t *testing.T, i int, name string, peer *nstest.NS, own []netip.Prefix) {
	t.Helper()
	ends := func(host byte) []netip.Prefix { // the addresses of a cable's ends
		return []netip.Prefix{
			netip.PrefixFrom(netip.AddrFrom4([4]byte{169, 254, byte(i), host}), 24),
			netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0xfd, 1: 1, 7: byte(i), 15: host}), 64),
		}
	}
	n.must(t, n.node, func() error {
		link := &netlink.Veth{LinkAttrs: netlink.NewLinkAttrs(), PeerName: "eth0", PeerNamespace: netlink.NsFd(peer.FD())}
		link.Name = name
		return errors.Join(netlink.LinkAdd(link), addAddr(name, ends(1)...))
	})
	n.must(t, peer, func() error {
		err := addAddr("eth0", ends(2)...)
		for _, p := range own {
			err = errors.Join(err, addRoute("lo", netlink.Route{Dst: ipNet(p), Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}))
		}
		for _, end := range ends(1) {
			err = errors.Join(err, addRoute("eth0", netlink.Route{Dst: ipNet(everything(end.Addr())), Gw: end.Addr().AsSlice()}))
		}
		return err
	})
	if peer == n.servers { // and everybody else
		own = append(own, everything(netip.IPv4Unspecified()), everything(netip.IPv6Unspecified()))
	}
	n.must(t, n.node, func() error {
		var err error
		for _, p := range own {
			for _, end := range ends(2) {
				if end.Addr().BitLen() == p.Addr().BitLen() {
					err = errors.Join(err, addRoute(name, netlink.Route{Dst: ipNet(p), Gw: end.Addr().AsSlice()}))
				}
			}
		}
		return err
	})
}

func everything(like netip.Addr) netip.Prefix {
	p, _ := like.Prefix(0)
	return p
}

func (n *testNet) must(t *testing.T, ns *nstest.NS, f func() error) {
	t.Helper()
	if err := ns.Do(f); err != nil {
		t.Fatal(err)
	}
}

func addAddr(name string, addrs ...netip.Prefix) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	err = netlink.LinkSetUp(link)
	for _, a := range addrs {
		addr := &netlink.Addr{IPNet: ipNet(a)}
		if a.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		err = errors.Join(err, netlink.AddrAdd(link, addr))
	}
	return err
}

func addRoute(name string, r netlink.Route) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	r.LinkIndex = link.Attrs().Index
	if err := netlink.RouteAdd(&r); err != nil {
		return fmt.Errorf("add the route %s: %w", r, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// at returns the namespace in which an address is at home, as a server's or the source of
// a packet.
func (n *testNet) at(a netip.Addr, source bool) *nstest.NS {
	for i, pod := range n.pods {
		if a == address(rules.FamilyOf(a), podNet, localPod+i, 1).Addr() {
			return pod
		}
	}
	for _, own := range nodeAddrs(rules.FamilyOf(a)) {
		if a == own || a.IsLoopback() {
			return n.node
		}
	}
	if source {
		return n.clients
	}
	return n.servers
}
