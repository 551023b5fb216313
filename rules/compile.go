package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// Compiled is what one service port puts into the table of its family. It is
// never changed after Compile returned it.
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
		c.Restricted == d.Restricted && slices.Equal(c.Sources, d.Sources)
}

// NumElements returns how many elements AppendElements appends at most.
func (c *Compiled) NumElements() int {
	if c == nil {
		return 0
	}
	return len(c.Frontends)*(5+len(c.Slots)+len(c.LocalSlots)+len(c.Sources)) + len(c.Hairpin)
}

// AppendElements appends the elements of the service port, in the order of
// Element.Compare. A nil Compiled has none.
func (c *Compiled) AppendElements(dst []Element) []Element {
	if c == nil || len(c.Frontends) == 0 {
		return dst
	}
	comment := clipComment(c.ServicePortName.String())
	for id := range numSets {
		if id == Hairpin {
			for _, a := range c.Hairpin {
				dst = append(dst, Element{Set: id, Key: c.key(a)})
			}
			continue
		}
		for i, f := range c.Frontends {
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
	switch id {
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
			for _, e.Key.Source = range c.Sources {
				dst = append(dst, e)
			}
		}
	case ServiceIPs:
		e.Chain, e.Comment = randomChainName(Endpoints, len(slots)), comment
		want = len(slots) > 0
	case LocalServiceIPs:
		e.Chain, e.Comment = randomChainName(LocalEndpoints, len(c.LocalSlots)), comment
		want = local && c.Served
	case Endpoints:
		return appendSlots(dst, e, slots)
	case LocalEndpoints:
		if local {
			return appendSlots(dst, e, c.LocalSlots)
		}
	case Hairpin, numSets: // not of a frontend
	}
	if want {
		dst = append(dst, e)
	}
	return dst
}

// appendSlots appends an element for every filled slot.
func appendSlots(dst []Element, e Element, slots Slots) []Element {
	for slot, endpoint := range slots {
		if endpoint.IsValid() {
			e.Key.Slot, e.Endpoint = uint32(slot), endpoint
			dst = append(dst, e)
		}
	}
	return dst
}

// key returns the key of an address and port of this service port's protocol.
func (c *Compiled) key(a netip.AddrPort) Key {
	return Key{Addr: a.Addr(), Protocol: c.Protocol, Port: a.Port()}
}

// chains returns the names of the chains that the elements refer to.
func (c *Compiled) chains() []string {
	var names []string
	for _, f := range c.Frontends {
		for _, id := range []SetID{ServiceIPs, LocalServiceIPs} {
			for _, e := range c.appendOf(nil, id, f, "") {
				names = append(names, e.Chain)
			}
		}
	}
	return names
}
