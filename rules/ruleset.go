package rules

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Ruleset is everything that the kernel should hold: the skeleton and what each
// service port, and the node, adds to it.
type Ruleset struct {
	Config   Config
	Services []*Compiled
}

// NewRuleset returns the ruleset of a configuration and compiled service ports.
func NewRuleset(cfg Config, services []*Compiled) *Ruleset {
	return &Ruleset{Config: cfg.WithDefaults(), Services: services}
}

// Elements returns the elements of a family's table, sorted, each key once,
// whatever the order of Services. If several service ports want the same key
// with different contents, which the kernel cannot hold, the smallest is listed.
func (r *Ruleset) Elements(f Family) []Element {
	n := 0
	for _, c := range r.Services {
		n += c.NumElements()
	}
	elements := make([]Element, 0, n)
	for _, c := range r.Services {
		if c.Family == f {
			elements = c.AppendElements(elements)
		}
	}
	slices.SortFunc(elements, func(a, b Element) int {
		if c := a.Compare(b); c != 0 {
			return c
		}
		return cmp.Or(strings.Compare(a.Chain, b.Chain), a.Endpoint.Compare(b.Endpoint), strings.Compare(a.Comment, b.Comment))
	})
	return slices.CompactFunc(elements, func(a, b Element) bool { return a.Compare(b) == 0 })
}

// Sets returns the sets and maps of a family's table: those that every table has, and
// those of service ports, by name.
func (r *Ruleset) Sets(f Family) []Set {
	var own []Set
	for _, c := range r.Services {
		if c.Family == f {
			own = append(own, c.OwnSets()...)
		}
	}
	slices.SortFunc(own, func(a, b Set) int { return strings.Compare(a.Name, b.Name) })
	return append(Sets(), own...)
}

// Chains returns the chains of a family's table, every chain after the ones that
// it jumps to: those of endpoints with session affinity, those of capacities, by name,
// and the skeleton.
func (r *Ruleset) Chains(f Family) []Chain {
	var own []Chain
	names := map[string]bool{}
	for _, c := range r.Services {
		if c.Family == f {
			for _, name := range c.SlotChains() {
				names[name] = true
			}
			own = append(own, c.OwnChains()...)
		}
	}
	slices.SortFunc(own, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	chains, listed := own, map[string]bool{}
	for _, name := range slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	}) {
		for _, chain := range ChainsByName(name) {
			if !listed[chain.Name] {
				listed[chain.Name] = true
				chains = append(chains, chain)
			}
		}
	}
	return append(chains, Skeleton(r.Config, f)...)
}
