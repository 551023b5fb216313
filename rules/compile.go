package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Compiled is what one service port, or the node itself, puts into the table of its
// family. It is never changed after Compile or CompileNode returned it.
type Compiled struct {
	ServicePortKey
	Frontends     []Frontend       // sorted by address
	Slots         Slots            // of policy Cluster, shared by all frontends
	LocalSlots    Slots            // of policy Local, shared by all frontends
	Hairpin       []netip.AddrPort // the endpoints in use on this node, sorted
	InternalLocal bool
	ExternalLocal bool
	Served        bool // anywhere in the cluster
	Restricted    bool
	Sources       []netip.Prefix // that may use load-balancer IPs if Restricted; disjoint, sorted
	Affinity      time.Duration

	// Of the node itself.
	NodePortIPs  []netip.Addr   // sorted
	ServiceCIDRs []netip.Prefix // disjoint, sorted

	// chains, localChains hold the chain of the endpoint in each slot, with Affinity.
	chains, localChains []string
}

// Compile turns a service port into its part of the ruleset. prev is what Compile
// returned for the same service port before, or nil: endpoints keep the slots
// that they have there, and if nothing differs, prev itself is returned. An error
// says what Validate found; then there is nothing to install.
func Compile(cfg Config, sp ServicePort, prev *Compiled) (*Compiled, error) {
	sp = sp.sorted()
	if err := sp.validate(); err != nil {
		return nil, fmt.Errorf("service port %s: %w", sp.ServicePortKey, err)
	}
	cfg = cfg.WithDefaults()
	if prev == nil {
		prev = &Compiled{}
	}
	c := &Compiled{
		ServicePortKey: sp.ServicePortKey,
		Frontends:      sp.Frontends,
		InternalLocal:  sp.InternalLocal,
		ExternalLocal:  sp.ExternalLocal,
		Served:         sp.Served || len(sp.Endpoints)+len(sp.LocalEndpoints) > 0,
		Affinity:       sp.Affinity,
	}
	if sp.Restricted {
		c.Restricted, c.Sources = true, disjoint(sp.SourceRanges)
	}
	c.Slots = c.assign(cfg, prev.Slots, sp.Endpoints)
	c.LocalSlots = c.assign(cfg, prev.LocalSlots, sp.LocalEndpoints)
	slices.SortFunc(c.Hairpin, netip.AddrPort.Compare)
	c.Hairpin = slices.Compact(c.Hairpin)
	if c.equal(prev) {
		return prev, nil
	}
	if c.Affinity > 0 {
		c.chains = endpointChains(c.ServicePortKey, false, c.Slots)
		c.localChains = endpointChains(c.ServicePortKey, true, c.LocalSlots)
	}
	return c, nil
}

// assign returns the slot table of endpoints, and notes those on this node.
func (c *Compiled) assign(cfg Config, prev Slots, endpoints []Endpoint) Slots {
	counts := slotCounts(endpoints, cfg.MaxSlots)
	for i, e := range endpoints {
		if e.Local && counts[i] > 0 {
			c.Hairpin = append(c.Hairpin, e.Addr)
		}
	}
	return prev.assign(endpoints, counts)
}

// disjoint reduces ranges to those that are in no other one, sorted. Two ranges
// either are disjoint or one contains the other.
func disjoint(ranges []netip.Prefix) []netip.Prefix {
	var cover []netip.Prefix
	sorted := make([]netip.Prefix, len(ranges))
	for i, p := range ranges {
		sorted[i] = p.Masked()
	}
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	for _, p := range sorted {
		if len(cover) == 0 || !cover[len(cover)-1].Contains(p.Addr()) {
			cover = append(cover, p)
		}
	}
	return cover
}

func (c *Compiled) equal(d *Compiled) bool {
	return c.ServicePortKey == d.ServicePortKey && slices.Equal(c.Frontends, d.Frontends) &&
		slices.Equal(c.Slots, d.Slots) && slices.Equal(c.LocalSlots, d.LocalSlots) &&
		slices.Equal(c.Hairpin, d.Hairpin) && c.InternalLocal == d.InternalLocal &&
		c.ExternalLocal == d.ExternalLocal && c.Served == d.Served &&
		c.Restricted == d.Restricted && slices.Equal(c.Sources, d.Sources) && c.Affinity == d.Affinity
}

// NumElements returns how many elements AppendElements appends at most.
func (c *Compiled) NumElements() int {
	if c == nil {
		return 0
	}
	return len(c.Frontends)*(5+len(c.Slots)+len(c.LocalSlots)+len(c.Sources)) + len(c.Hairpin) +
		len(c.NodePortIPs) + len(c.ServiceCIDRs)
}

// AppendElements appends the elements of the service port or node, in the order of
// Element.Compare. A nil Compiled has none.
func (c *Compiled) AppendElements(dst []Element) []Element {
	if c == nil {
		return dst
	}
	if len(c.Frontends) == 0 {
		return c.appendNode(c.appendNode(dst, ServiceCIDRs), NodePortIPs)
	}
	comment := clipComment(c.ServicePortName.String())
	for id := range numSets {
		if id == Hairpin {
			for _, a := range c.Hairpin {
				dst = append(dst, Element{Set: id, Key: c.key(a)})
			}
			continue
		}
		_, nodePort := id.twin()
		for i, f := range c.Frontends {
			if nodePort != (f.Kind == NodePort) {
				continue
			}
			// Frontends are sorted, so equal addresses are neighbours.
			if id == ClusterIPs && i > 0 && c.Frontends[i-1].Kind == ClusterIP && c.Frontends[i-1].Addr.Addr() == f.Addr.Addr() {
				continue
			}
			dst = c.appendOf(dst, id, f, comment)
		}
	}
	return dst
}

// appendOf appends the elements of one set for one frontend.
func (c *Compiled) appendOf(dst []Element, id SetID, f Frontend, comment string) []Element {
	local := f.External() && c.ExternalLocal // has two tables: for clients outside, and on this node
	slots := c.Slots
	if !f.External() && c.InternalLocal {
		slots = c.LocalSlots
	}
	e := Element{Set: id, Key: c.key(f.Addr)}
	want := false
	base, nodePort := id.twin()
	if nodePort {
		e.Key.Addr = netip.Addr{}
	}
	switch base {
	case ClusterIPs:
		e.Key = Key{Addr: f.Addr.Addr()}
		want = !f.External()
	case NoEndpointsReject:
		e.Comment = comment
		want = !c.Served
	case NoEndpointsDrop:
		e.Comment = comment
		want = c.Served && (len(slots) == 0 || local && len(c.LocalSlots) == 0)
	case MasqueradeIPs:
		want = f.External() && !c.ExternalLocal && len(slots) > 0
	case MasqueradeNodeIPs:
		want = local && len(slots) > 0
	case Firewalled:
		want = c.Restricted && f.Kind == LoadBalancerIP
	case AllowedSources:
		if c.Restricted && f.Kind == LoadBalancerIP {
			for _, e.Key.Range = range c.Sources {
				dst = append(dst, e)
			}
		}
	case ServiceIPs:
		e.Chain, e.Comment = chainName(c.slotSet(Endpoints, nodePort), len(slots)), comment
		want = len(slots) > 0
	case LocalServiceIPs:
		e.Chain, e.Comment = chainName(c.slotSet(LocalEndpoints, nodePort), len(c.LocalSlots)), comment
		want = local && c.Served
	case Endpoints, AffinityEndpoints:
		if id == c.slotSet(Endpoints, nodePort) {
			return appendSlots(dst, e, slots, c.chainsOf(!f.External() && c.InternalLocal))
		}
	case LocalEndpoints, LocalAffinityEndpoints:
		if local && id == c.slotSet(LocalEndpoints, nodePort) {
			return appendSlots(dst, e, c.LocalSlots, c.chainsOf(true))
		}
	default: // not of a frontend
	}
	if want {
		dst = append(dst, e)
	}
	return dst
}

// slotSet returns the map that has the slots of this service port's frontends:
// Endpoints or LocalEndpoints, or its twin for affinity and for NodePorts.
func (c *Compiled) slotSet(endpoints SetID, nodePort bool) SetID {
	if c.Affinity > 0 {
		endpoints += AffinityEndpoints - Endpoints
	}
	if nodePort {
		endpoints = endpoints.forNodePorts()
	}
	return endpoints
}

// chainsOf returns the chains of the endpoints in the slots of policy Local or Cluster,
// nil without affinity.
func (c *Compiled) chainsOf(local bool) []string {
	if local {
		return c.localChains
	}
	return c.chains
}

// appendSlots appends an element for every filled slot: it leads to the endpoint, or if
// there are chains, to the endpoint's chain.
func appendSlots(dst []Element, e Element, slots Slots, chains []string) []Element {
	for slot, endpoint := range slots {
		if !endpoint.IsValid() {
			continue
		}
		e.Key.Slot = uint32(slot)
		if chains == nil {
			e.Endpoint = endpoint
		} else {
			e.Chain = chains[slot]
		}
		dst = append(dst, e)
	}
	return dst
}

// key returns the key of an address and port of this service port's protocol.
func (c *Compiled) key(a netip.AddrPort) Key {
	return Key{Addr: a.Addr(), Protocol: c.Protocol, Port: a.Port()}
}

// SlotChains returns the names of the chains that draw slots which the elements refer to;
// one may be there more than once. See ChainsByName.
func (c *Compiled) SlotChains() []string {
	var names []string
	for _, f := range c.Frontends {
		for _, id := range []SetID{ServiceIPs, LocalServiceIPs} {
			if f.Kind == NodePort {
				id = id.forNodePorts()
			}
			for _, e := range c.appendOf(nil, id, f, "") {
				names = append(names, e.Chain)
			}
		}
	}
	return names
}
