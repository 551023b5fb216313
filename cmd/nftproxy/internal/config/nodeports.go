package config

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/rules"
)

// The keywords of nodePortAddresses. They are case-sensitive.
const (
	keywordPrimary   = "primary"
	keywordLocalhost = "localhost"
	keywordAll       = "all"
)

// NodePortAddresses says on which addresses of a node NodePorts are open.
type NodePortAddresses struct {
	IPv4, IPv6 NodePortFamily
}

// NodePortFamily is NodePortAddresses for one family.
type NodePortFamily struct {
	// All opens them on every address of the node. Primary and CIDRs are empty then.
	All bool
	// Primary opens them on the node's own IP, the one that its Node has.
	Primary bool
	// CIDRs opens them on the addresses of the node in these ranges. They are sorted,
	// and no range is there twice.
	CIDRs []netip.Prefix
}

// Family returns what is said of one family.
func (n NodePortAddresses) Family(f rules.Family) NodePortFamily {
	if f == rules.IPv4 {
		return n.IPv4
	}
	return n.IPv6
}

// Open returns the addresses on which NodePorts of the family are open, sorted and
// each once, or all as true if they are open on every address. nodeIPs are the
// node's own IPs, none of a family if it is not known; local are the addresses of
// the node's interfaces. Addresses of the other family in them do not matter.
//
// It never returns a loopback address: the kernel does not route what comes from
// one. Where the node's own IP is not known, or no interface has it, "primary" opens
// nothing. (Without a known IP kube-proxy opens all addresses.)
func (n NodePortAddresses) Open(f rules.Family, nodeIPs, local []netip.Addr) (addrs []netip.Addr, all bool) {
	of := n.Family(f)
	if of.All {
		return nil, true
	}
	addrs = []netip.Addr{}
	for _, addr := range local {
		addr = addr.Unmap().WithZone("")
		if !addr.IsValid() || rules.FamilyOf(addr) != f || addr.IsLoopback() {
			continue
		}
		if of.contains(addr, nodeIPs) {
			addrs = append(addrs, addr)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), false
}

// contains reports whether NodePorts are open on an address of the node.
func (of NodePortFamily) contains(addr netip.Addr, nodeIPs []netip.Addr) bool {
	if of.Primary && slices.ContainsFunc(nodeIPs, func(ip netip.Addr) bool { return ip.Unmap().WithZone("") == addr }) {
		return true
	}
	return slices.ContainsFunc(of.CIDRs, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// nodePortAddresses reads the list. A range names its own family alone, a keyword
// names both; a family that nothing names is open on all addresses, as with
// kube-proxy.
func (r *resolver) nodePortAddresses(list []string) NodePortAddresses {
	var v4, v6 nodePortList
	for i, text := range list {
		field := indexed("nodePortAddresses", i)
		switch text {
		case keywordPrimary, keywordLocalhost, keywordAll:
			if slices.Contains(list[:i], text) {
				r.refuse(field, "%q is there twice", text)
			}
			v4.keyword(text, netip.MustParsePrefix("127.0.0.0/8"))
			v6.keyword(text, netip.MustParsePrefix("::1/128"))
			continue
		}
		prefix, ok := parsePrefix(text)
		switch {
		case !ok:
			r.refuse(field, "%q is neither a range of addresses such as 192.0.2.0/24 nor one of the keywords primary, localhost and all", text)
		case prefix.Addr().Is4():
			v4.add(prefix)
		default:
			v6.add(prefix)
		}
	}
	return NodePortAddresses{IPv4: v4.family(), IPv6: v6.family()}
}

// nodePortList collects what a list says of one family.
type nodePortList struct {
	named, all, primary bool
	cidrs               []netip.Prefix
}

func (l *nodePortList) keyword(word string, loopback netip.Prefix) {
	l.named = true
	switch word {
	case keywordAll:
		l.all = true
	case keywordPrimary:
		l.primary = true
	case keywordLocalhost:
		l.cidrs = append(l.cidrs, loopback)
	}
}

func (l *nodePortList) add(prefix netip.Prefix) {
	l.named = true
	l.all = l.all || prefix.Bits() == 0
	l.cidrs = append(l.cidrs, prefix)
}

func (l *nodePortList) family() NodePortFamily {
	if l.all || !l.named {
		return NodePortFamily{All: true}
	}
	slices.SortFunc(l.cidrs, netip.Prefix.Compare)
	return NodePortFamily{Primary: l.primary, CIDRs: slices.Compact(l.cidrs)}
}
