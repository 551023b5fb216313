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
	Slots         SlotTable        // of policy Cluster, shared by all frontends
	LocalSlots    SlotTable        // of policy Local, shared by all frontends
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
func (c *Compiled) assign(cfg Config, prev SlotTable, endpoints []Endpoint) SlotTable {
	counts := slotCounts(endpoints, cfg.MaxSlots)
	for i, e := range endpoints {
		if e.Local && counts[i] > 0 {
			c.Hairpin = append(c.Hairpin, e.Addr)
		}
	}
	return newSlotTable(prev.flat().assign(endpoints, counts), prev)
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
		c.Slots.equal(d.Slots) && c.LocalSlots.equal(d.LocalSlots) &&
		slices.Equal(c.Hairpin, d.Hairpin) && c.InternalLocal == d.InternalLocal &&
		c.ExternalLocal == d.ExternalLocal && c.Served == d.Served &&
		c.Restricted == d.Restricted && slices.Equal(c.Sources, d.Sources) && c.Affinity == d.Affinity
}

// NumElements returns how many elements AppendElements appends at most.
func (c *Compiled) NumElements() int { return c.numElements(nil) }

// numElements leaves the slots in parts out that like has, too.
func (c *Compiled) numElements(like *Compiled) int {
	if c == nil {
		return 0
	}
	slots := c.Slots.numSlots(like.slotsOf(false)) + c.LocalSlots.numSlots(like.slotsOf(true))
	return len(c.Frontends)*(5+slots+len(c.Sources)) + len(c.Hairpin) + len(c.NodePortIPs) + len(c.ServiceCIDRs)
}

// AppendElements appends the elements of the service port or node, in the order of
// Element.Compare. A nil Compiled has none.
func (c *Compiled) AppendElements(dst []Element) []Element { return c.appendElements(dst, nil) }

// appendElements leaves out what is the very same in like: parts of slots, and the list of
// endpoints on this node.
func (c *Compiled) appendElements(dst []Element, like *Compiled) []Element {
	if c == nil {
		return dst
	}
	if len(c.Frontends) == 0 {
		return c.appendNode(c.appendNode(dst, ServiceCIDRs), NodePortIPs)
	}
	comment := clipComment(c.ServicePortName.String())
	for id := range numSets {
		if id == Hairpin {
			if like != nil && len(c.Hairpin) > 0 && len(c.Hairpin) == len(like.Hairpin) && &c.Hairpin[0] == &like.Hairpin[0] {
				continue
			}
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
			dst = c.appendOf(dst, id, f, comment, like)
		}
	}
	return dst
}

// AppendDiffering appends the elements of two states of a service port, in the order of
// Element.Compare, to a list each, but may leave out some that are the same in both: those
// of what one has from the other. NumDiffering returns how many these are together at
// most.
func AppendDiffering(dst, nextDst []Element, c, next *Compiled) (of, ofNext []Element) {
	if !c.alike(next) {
		return c.AppendElements(dst), next.AppendElements(nextDst)
	}
	return c.appendElements(dst, next), next.appendElements(nextDst, c)
}

// NumDiffering returns how many elements AppendDiffering appends at most.
func NumDiffering(c, next *Compiled) int {
	if !c.alike(next) {
		return c.NumElements() + next.NumElements()
	}
	return c.numElements(next) + next.numElements(c)
}

// alike reports whether the same slot is the same element in both.
func (c *Compiled) alike(d *Compiled) bool {
	return c != nil && d != nil && c.ServicePortKey == d.ServicePortKey && slices.Equal(c.Frontends, d.Frontends) &&
		c.InternalLocal == d.InternalLocal && c.ExternalLocal == d.ExternalLocal && (c.Affinity > 0) == (d.Affinity > 0)
}

// appendOf appends the elements of one set for one frontend, without the slots in parts
// that like has, too.
func (c *Compiled) appendOf(dst []Element, id SetID, f Frontend, comment string, like *Compiled) []Element {
	local := f.External() && c.ExternalLocal // has two tables: for clients outside, and on this node
	onlyLocal := !f.External() && c.InternalLocal
	slots := c.slotsOf(onlyLocal)
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
		e.Chain, e.Comment = chainName(c.slotSet(Endpoints, nodePort), slots.Capacity()), comment
		want = len(slots) > 0
	case LocalServiceIPs:
		e.Chain, e.Comment = chainName(c.slotSet(LocalEndpoints, nodePort), c.LocalSlots.Capacity()), comment
		want = local && c.Served
	case Endpoints, AffinityEndpoints:
		if id == c.slotSet(Endpoints, nodePort) {
			return appendSlots(dst, e, slots, like.slotsOf(onlyLocal), c.chainsOf(onlyLocal))
		}
	case LocalEndpoints, LocalAffinityEndpoints:
		if local && id == c.slotSet(LocalEndpoints, nodePort) {
			return appendSlots(dst, e, c.LocalSlots, like.slotsOf(true), c.chainsOf(true))
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

// appendSlots appends an element for every filled slot, but for those in parts that like
// has, too: it leads to the endpoint, or if there are chains, to the endpoint's chain.
func appendSlots(dst []Element, e Element, slots, like SlotTable, chains []string) []Element {
	for i, part := range slots {
		if slots.shares(i, like) {
			continue
		}
		for j, endpoint := range part {
			if !endpoint.IsValid() {
				continue
			}
			slot := i*partSlots + j
			e.Key.Slot = uint32(slot)
			if chains == nil {
				e.Endpoint = endpoint
			} else {
				e.Chain = chains[slot]
			}
			dst = append(dst, e)
		}
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
			for _, e := range c.appendOf(nil, id, f, "", nil) {
				names = append(names, e.Chain)
			}
		}
	}
	return names
}
