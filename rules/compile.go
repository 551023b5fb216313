package rules

import (
	"fmt"
	"net/netip"
	"slices"
)

// Compiled is what one service port puts into the table of its family. It is
// never changed after Compile returned it.
type Compiled struct {
	ServicePortKey
	Frontends []Frontend       // sorted by address
	Slots     Slots            // shared by all frontends; empty without endpoints
	Local     []netip.AddrPort // the usable endpoints on this node, sorted
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
	counts := slotCounts(sp.Endpoints, cfg.MaxSlots)
	c := &Compiled{
		ServicePortKey: sp.ServicePortKey,
		Frontends:      sp.Frontends,
		Slots:          prev.Slots.assign(sp.Endpoints, counts),
	}
	for i, e := range sp.Endpoints {
		if e.Local && counts[i] > 0 {
			c.Local = append(c.Local, e.Addr)
		}
	}
	if c.equal(prev) {
		return prev, nil
	}
	return c, nil
}

func (c *Compiled) equal(d *Compiled) bool {
	return c.ServicePortKey == d.ServicePortKey && slices.Equal(c.Frontends, d.Frontends) &&
		slices.Equal(c.Slots, d.Slots) && slices.Equal(c.Local, d.Local)
}

// NumElements returns how many elements AppendElements appends at most.
func (c *Compiled) NumElements() int {
	if c == nil {
		return 0
	}
	return len(c.Frontends)*(2+len(c.Slots)) + len(c.Local)
}

// AppendElements appends the elements of the service port, in the order of
// Element.Compare. A nil Compiled has none.
func (c *Compiled) AppendElements(dst []Element) []Element {
	if c == nil || len(c.Frontends) == 0 {
		return dst
	}
	comment := clipComment(c.ServicePortName.String())
	for i, f := range c.Frontends {
		// Frontends are sorted, so equal addresses are neighbours.
		if i == 0 || c.Frontends[i-1].Addr.Addr() != f.Addr.Addr() {
			dst = append(dst, Element{Set: ClusterIPs, Key: Key{Addr: f.Addr.Addr()}})
		}
	}
	if len(c.Slots) == 0 {
		for _, f := range c.Frontends {
			dst = append(dst, Element{Set: NoEndpointsReject, Key: c.key(f.Addr), Comment: comment})
		}
		return dst
	}
	for _, a := range c.Local {
		dst = append(dst, Element{Set: Hairpin, Key: c.key(a)})
	}
	chain := randomChainName(len(c.Slots))
	for _, f := range c.Frontends {
		dst = append(dst, Element{Set: ServiceIPs, Key: c.key(f.Addr), Chain: chain, Comment: comment})
	}
	for _, f := range c.Frontends {
		key := c.key(f.Addr)
		for slot, endpoint := range c.Slots {
			if endpoint.IsValid() {
				key.Slot = uint32(slot)
				dst = append(dst, Element{Set: Endpoints, Key: key, Endpoint: endpoint})
			}
		}
	}
	return dst
}

// key returns the key of an address and port of this service port's protocol.
func (c *Compiled) key(a netip.AddrPort) Key {
	return Key{Addr: a.Addr(), Protocol: c.Protocol, Port: a.Port()}
}
