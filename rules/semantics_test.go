package rules_test

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/rules"
)

// This file says what a Kubernetes node does with a packet, from the tables of how
// kube-proxy behaves and without a look at our rules: it knows service ports and what
// the node is told, and neither sets nor chains nor hooks.

// cluster is everything that the fate of a packet depends on.
type cluster struct {
	config   rules.Config
	host     rules.Host
	nodes    map[rules.Family]rules.Node
	services []rules.ServicePort
	clients  map[client]netip.AddrPort // with which endpoint they are remembered
}

// client is whom a service port remembers, for each traffic policy apart.
type client struct {
	service rules.ServicePortKey
	local   bool
	addr    netip.Addr
}

// fate is what becomes of a packet.
type fate struct {
	because string // the row of the tables
	outcome rules.Outcome
	// shares is to which endpoints it may be translated, and how likely.
	shares map[netip.AddrPort]float64
	// masquerade is true if the answer has to come back through this node, whatever the
	// endpoint.
	masquerade bool
	// local are the endpoints on this node; one that reaches itself is masqueraded.
	local map[netip.AddrPort]bool
}

// fate is the verdict table.
func (c *cluster) fate(p rules.Packet) fate {
	sp, kind := c.frontend(p)
	switch {
	case kind == rules.LoadBalancerIP && sp.Restricted && !containsAddr(sp.SourceRanges, p.Source.Addr()):
		return fate{because: "load balancer: not from an allowed source", outcome: rules.Dropped}
	case kind == rules.ClusterIP && sp.InternalLocal:
		return c.serve("ClusterIP, policy Local", p, sp, true, c.fromOutside(p))
	case kind == rules.ClusterIP:
		return c.serve("ClusterIP, policy Cluster", p, sp, false, c.fromOutside(p))
	case kind != 0 && !sp.ExternalLocal:
		return c.serve("external, policy Cluster", p, sp, false, true)
	case kind != 0 && c.fromPod(p):
		return c.serve("external, policy Local, from a pod", p, sp, false, false)
	case kind != 0 && c.isLocal(p.Source.Addr()):
		return c.serve("external, policy Local, from the node", p, sp, false, true)
	case kind != 0:
		return c.serve("external, policy Local, from elsewhere", p, sp, true, false)
	case c.isClusterIP(p.Dest.Addr()):
		return fate{because: "ClusterIP: undefined port", outcome: rules.Rejected}
	case containsAddr(c.nodes[familyOf(p)].ServiceCIDRs, p.Dest.Addr()):
		return fate{because: "unallocated ClusterIP", outcome: rules.Dropped}
	default:
		return fate{because: "nothing of ours", outcome: rules.Untouched}
	}
}

// serve is what happens to a packet to a frontend, over the endpoints of a policy.
func (c *cluster) serve(row string, p rules.Packet, sp rules.ServicePort, local, masquerade bool) fate {
	endpoints := sp.Endpoints
	if local {
		endpoints = sp.LocalEndpoints
	}
	switch {
	case len(endpoints) > 0:
	case sp.Served || len(sp.Endpoints)+len(sp.LocalEndpoints) > 0:
		return fate{because: row + ": served elsewhere", outcome: rules.Dropped}
	default:
		return fate{because: row + ": nobody serves", outcome: rules.Rejected}
	}
	f := fate{
		because: row, outcome: rules.Translated, masquerade: masquerade,
		shares: shares(endpoints), local: map[netip.AddrPort]bool{},
	}
	for _, e := range endpoints {
		f.local[e.Addr] = e.Local
	}
	if endpoint, ok := c.clients[client{sp.ServicePortKey, local, p.Source.Addr()}]; ok && sp.Affinity > 0 {
		f.because += ", remembered"
		f.shares = map[netip.AddrPort]float64{endpoint: 1}
	}
	return f
}

// shares divides new connections among endpoints in proportion to their weights. Those
// of weight 0 are used only if there are no others.
func shares(endpoints []rules.Endpoint) map[netip.AddrPort]float64 {
	sum := 0.0
	for _, e := range endpoints {
		sum += float64(e.Weight)
	}
	of := map[netip.AddrPort]float64{}
	for _, e := range endpoints {
		switch {
		case sum == 0:
			of[e.Addr] = 1 / float64(len(endpoints))
		case e.Weight > 0:
			of[e.Addr] = float64(e.Weight) / sum
		}
	}
	return of
}

// masqueraded reports whether the source of a packet to dest becomes one of this node. A
// packet that comes in and is for this node itself is not sent anywhere.
func (c *cluster) masqueraded(f fate, p rules.Packet, dest netip.AddrPort) bool {
	if !c.sent(p, dest) {
		return false
	}
	hairpin := f.local[dest] && dest.Addr() == p.Source.Addr()
	return f.masquerade || hairpin || p.Mark&c.mark() != 0
}

// markAfter is the packet's mark in the end: the bit that asks for masquerading is
// private, and gone where it was heard.
func (c *cluster) markAfter(f fate, p rules.Packet, dest netip.AddrPort) uint32 {
	switch {
	case c.sent(p, dest):
		return p.Mark &^ c.mark()
	case f.masquerade:
		return p.Mark | c.mark()
	default:
		return p.Mark
	}
}

// sent reports whether this node sends the packet, as its own or as one that it forwards.
func (c *cluster) sent(p rules.Packet, dest netip.AddrPort) bool {
	return p.Interface == "" || !c.isLocal(dest.Addr())
}

func (c *cluster) mark() uint32 { return c.config.WithDefaults().MasqueradeMark }

// frontend returns the service port that has the packet's destination, and as what.
func (c *cluster) frontend(p rules.Packet) (rules.ServicePort, rules.FrontendKind) {
	for _, sp := range c.services {
		for _, f := range sp.Frontends {
			if sp.Protocol == p.Protocol && f.Kind != rules.NodePort && f.Addr == p.Dest {
				return sp, f.Kind
			}
		}
	}
	for _, sp := range c.services {
		for _, f := range sp.Frontends {
			if sp.Protocol == p.Protocol && sp.Family == familyOf(p) && f.Kind == rules.NodePort &&
				f.Addr.Port() == p.Dest.Port() && c.hasNodePorts(p.Dest.Addr()) {
				return sp, f.Kind
			}
		}
	}
	return rules.ServicePort{}, 0
}

// hasNodePorts reports whether NodePorts are open on an address.
func (c *cluster) hasNodePorts(a netip.Addr) bool {
	if slices.Contains(c.config.NodePortsEverywhere, rules.FamilyOf(a)) {
		return c.isLocal(a) && !a.IsLoopback()
	}
	return slices.Contains(c.nodes[rules.FamilyOf(a)].NodePortIPs, a)
}

// fromOutside reports whether a packet to a ClusterIP is masqueraded: if it is from
// outside of the cluster, as far as it is known what is inside.
func (c *cluster) fromOutside(p rules.Packet) bool {
	return c.config.MasqueradeAll || c.knowsPods(familyOf(p)) && !c.fromPod(p)
}

func (c *cluster) knowsPods(f rules.Family) bool {
	return c.config.PodInterface != "" || c.config.PodInterfacePrefix != "" || len(ofFamily(c.config.ClusterCIDRs, f)) > 0
}

func (c *cluster) fromPod(p rules.Packet) bool {
	switch {
	case c.config.PodInterface != "":
		return p.Interface == c.config.PodInterface
	case c.config.PodInterfacePrefix != "":
		return strings.HasPrefix(p.Interface, c.config.PodInterfacePrefix)
	default:
		return containsAddr(c.config.ClusterCIDRs, p.Source.Addr())
	}
}

func (c *cluster) isClusterIP(a netip.Addr) bool {
	return slices.ContainsFunc(c.services, func(sp rules.ServicePort) bool {
		return slices.ContainsFunc(sp.Frontends, func(f rules.Frontend) bool {
			return f.Kind == rules.ClusterIP && f.Addr.Addr() == a
		})
	})
}

func (c *cluster) isLocal(a netip.Addr) bool {
	return a.IsLoopback() || slices.Contains(c.host.Addresses, a)
}

func familyOf(p rules.Packet) rules.Family { return rules.FamilyOf(p.Dest.Addr()) }

func ofFamily(prefixes []netip.Prefix, f rules.Family) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return rules.FamilyOf(p.Addr()) != f })
}

func containsAddr(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}
