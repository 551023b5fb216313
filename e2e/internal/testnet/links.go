package testnet

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
)

// attributes returns a link's defaults with a name.
func attributes(name string) netlink.LinkAttrs {
	a := netlink.NewLinkAttrs()
	a.Name = name
	return a
}

// connect lays a veth pair between two namespaces; both ends are made where
// they belong, and brought up.
func connect(a *namespace.Namespace, endA string, b *namespace.Namespace, endB string) error {
	links, err := a.Netlink()
	if err != nil {
		return err
	}
	defer links.Close()
	veth := &netlink.Veth{LinkAttrs: attributes(endA), PeerName: endB, PeerNamespace: b.LinkNamespace()}
	if err := links.LinkAdd(veth); err != nil {
		return fmt.Errorf("add the link %s - %s: %w", endA, endB, err)
	}
	for end, ns := range map[string]*namespace.Namespace{endA: a, endB: b} {
		if err := withLink(ns, end, (*netlink.Handle).LinkSetUp); err != nil {
			return fmt.Errorf("bring up %s: %w", end, err)
		}
	}
	return nil
}

// plugIn makes a link a port of the switch.
func plugIn(lan *namespace.Namespace, port string) error {
	return withLink(lan, port, func(links *netlink.Handle, link netlink.Link) error {
		br, err := links.LinkByName(bridge)
		if err != nil {
			return fmt.Errorf("find the bridge: %w", err)
		}
		if err := links.LinkSetMaster(link, br); err != nil {
			return fmt.Errorf("plug in %s: %w", port, err)
		}
		return nil
	})
}

// configure gives a link its addresses and routes.
func configure(ns *namespace.Namespace, name string, addresses []netip.Prefix, routes []route) error {
	return withLink(ns, name, func(links *netlink.Handle, link netlink.Link) error {
		for _, address := range addresses {
			a := &netlink.Addr{IPNet: ipNet(address)}
			if address.Addr().Is6() {
				a.Flags = unix.IFA_F_NODAD
			}
			if err := links.AddrAdd(link, a); err != nil {
				return fmt.Errorf("add %s to %s: %w", address, name, err)
			}
		}
		for _, route := range routes {
			if err := addRoute(links, link, route); err != nil {
				return fmt.Errorf("route %+v over %s: %w", route, name, err)
			}
		}
		return nil
	})
}

func addRoute(links *netlink.Handle, link netlink.Link, r route) error {
	to, err := netip.ParsePrefix(r.to)
	if err != nil {
		return fmt.Errorf("parse destination: %w", err)
	}
	entry := &netlink.Route{Dst: ipNet(to)}
	switch {
	case r.nowhere:
		entry.Type = unix.RTN_BLACKHOLE
	case r.via == "":
		entry.LinkIndex, entry.Scope = link.Attrs().Index, netlink.SCOPE_LINK
	default:
		via, err := netip.ParseAddr(r.via)
		if err != nil {
			return fmt.Errorf("parse next hop: %w", err)
		}
		entry.LinkIndex, entry.Gw = link.Attrs().Index, via.AsSlice()
	}
	return links.RouteAdd(entry)
}

// withLink runs fn with a namespace's netlink handle and a link of it.
func withLink(ns *namespace.Namespace, name string, fn func(*netlink.Handle, netlink.Link) error) error {
	links, err := ns.Netlink()
	if err != nil {
		return err
	}
	defer links.Close()
	link, err := links.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s in %s: %w", name, ns.Name(), err)
	}
	return fn(links, link)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// parsePrefixes parses an address of each family with its prefix length.
func parsePrefixes(p pair) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for _, s := range []string{p.v4, p.v6} {
		prefix, err := netip.ParsePrefix(s)
		if err != nil {
			return nil, fmt.Errorf("parse address: %w", err)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

// parseAddresses parses an address of each family.
func parseAddresses(p pair) ([]netip.Addr, error) {
	var addresses []netip.Addr
	for _, s := range []string{p.v4, p.v6} {
		address, err := netip.ParseAddr(s)
		if err != nil {
			return nil, fmt.Errorf("parse address: %w", err)
		}
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// singles returns the networks that have one of the addresses each.
func singles(addresses []netip.Addr) []netip.Prefix {
	var prefixes []netip.Prefix
	for _, address := range addresses {
		prefixes = append(prefixes, single(address))
	}
	return prefixes
}
