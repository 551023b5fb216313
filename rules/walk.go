package rules

import (
	"cmp"
	"net/netip"
	"slices"
)

// Packet is the first packet of a connection, of the family of its addresses.
type Packet struct {
	Protocol Protocol
	Source   netip.AddrPort
	Dest     netip.AddrPort
	// Interface is the one through which the packet comes in, empty if this node itself
	// sends it.
	Interface string
	// Mark is the packet's mark, not of the connection.
	Mark uint32
}

// Host is what a walk has to know of the node beside its ruleset.
type Host struct {
	// Addresses are those of this node, of either family; loopback ones go without
	// saying. What is to none of them is forwarded.
	Addresses []netip.Addr
}

// local reports whether an address is one of the node.
func (h Host) local(a netip.Addr) bool { return a.IsLoopback() || slices.Contains(h.Addresses, a) }

// Clients says with which endpoint each client is remembered in the maps of session
// affinity, by the names of AffinityTable.Map.
type Clients map[string]map[netip.Addr]netip.AddrPort

// Outcome is what the rules do about a packet's destination.
type Outcome uint8

// The outcomes.
const (
	// Untouched packets go where they were going.
	Untouched Outcome = iota + 1
	// Translated packets go to an endpoint.
	Translated
	// Rejected packets are answered with an ICMP error.
	Rejected
	// Dropped packets go nowhere.
	Dropped
)

// String returns the outcome in a word, such as "translated".
func (o Outcome) String() string {
	return [...]string{"unknown", "untouched", "translated", "rejected", "dropped"}[o]
}

// Result is one of the things that may become of a packet.
type Result struct {
	Outcome Outcome
	// Dest is where the packet goes: if Translated, the endpoint.
	Dest netip.AddrPort
	// Masqueraded is true if the source becomes an address of this node.
	Masqueraded bool
	// Mark is the packet's mark when it leaves the rules.
	Mark uint32
	// Probability is that of this result: above 0, up to 1.
	Probability float64
}

// Step is a rule that matched.
type Step struct {
	Hook  Hook   // where the packet was
	Chain string // the base chain of the hook, or one that it led to
	Index int    // of the rule in the chain, from 0
	Rule  Rule
	// Probability is that of the packet matching the rule: 1 up to the first random
	// draw. A rule that draws a slot matches if the slot is filled.
	Probability float64
}

// Trace is what becomes of a packet, and why.
type Trace struct {
	// Results are all that may become of it, each once, in the order of outcomes and
	// destinations. Their probabilities add up to 1. There is more than one only where a
	// slot is drawn.
	Results []Result
	// Steps are the rules that matched, in the order in which they are evaluated.
	Steps []Step
}

// Walker evaluates the rules of one family's table, as the kernel does, for one packet
// after another. It does not change, so several goroutines may use it.
type Walker struct {
	host     Host
	chains   map[string]Chain
	hooks    map[HookPoint][]Chain // the base chains, by priority
	elements elementIndex
}

// NewWalker returns the walker of a family's table on a host.
func NewWalker(r *Ruleset, f Family, h Host) *Walker {
	w := &Walker{host: h, chains: map[string]Chain{}, hooks: map[HookPoint][]Chain{}, elements: newElementIndex(r.Elements(f))}
	for _, c := range r.Chains(f) {
		w.chains[c.Name] = c
		if c.Base != nil {
			w.hooks[c.Base.Point] = append(w.hooks[c.Base.Point], c)
		}
	}
	for _, base := range w.hooks {
		slices.SortStableFunc(base, func(a, b Chain) int { return cmp.Compare(a.Base.Priority, b.Base.Priority) })
	}
	return w
}

// Walk says what becomes of a packet, which has to be of the walker's family. Random
// draws are evaluated with all their results. A client that is not among those
// remembered, of which there may be none, gets the endpoint drawn.
//
// The hooks are those of the kernel. A packet of this node to itself passes, after
// postrouting, prerouting and input too, when it comes out of the loopback interface;
// its nat chains are not evaluated again then, since a connection is translated once.
// Routes are taken to exist.
func (w *Walker) Walk(p Packet, remembered Clients) Trace {
	run := &walk{Walker: w, original: p, remembered: remembered, current: newBranches(), stepAt: map[place]int{}}
	run.current.add(branch{packet: p}, 1)
	toNode := func(b branch) bool { return w.host.local(b.packet.Dest.Addr()) }
	elsewhere := func(b branch) bool { return !toNode(b) }
	all := func(branch) bool { return true }
	if p.Interface == "" {
		run.hook(Output, all)
		run.hook(Postrouting, all)
		run.loopBack()
		run.hook(Prerouting, toNode)
		run.hook(Input, toNode)
	} else {
		run.hook(Prerouting, all)
		run.hook(Input, toNode)
		run.hook(Forward, elsewhere)
		run.hook(Postrouting, elsewhere)
	}
	return Trace{run.results(), run.steps}
}
