package syncer

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/rules"
)

// ownObjects are the operations on maps and chains that service ports have of their
// own: those with session affinity have some. The other elements come in between.
type ownObjects struct {
	before []Op // makes what elements refer to
	flush  []Op // takes back what chains that go refer to
	after  []Op // deletes what elements do not refer to any more
}

// diff adds what brings a service port's own objects from prev to next.
func (o *ownObjects) diff(f rules.Family, prev, next *rules.Compiled) {
	oldSets, newSets := prev.OwnSets(), next.OwnSets()
	named := func(name string) func(rules.Set) bool {
		return func(s rules.Set) bool { return s.Name == name }
	}
	for _, s := range newSets {
		if !slices.ContainsFunc(oldSets, named(s.Name)) {
			o.before = append(o.before, Op{Verb: AddSet, Family: f, Decl: s})
		}
	}
	o.diffChains(f, prev.OwnChains(), next.OwnChains())
	for _, s := range oldSets {
		if !slices.ContainsFunc(newSets, named(s.Name)) {
			o.after = append(o.after, Op{Verb: DeleteSet, Family: f, Name: s.Name, IsMap: true})
		}
	}
}

// diffChains merges the two lists, which are sorted by name. The rules of a chain that
// stays with other rules are replaced.
func (o *ownObjects) diffChains(f rules.Family, old, next []rules.Chain) {
	for len(old) > 0 || len(next) > 0 {
		switch {
		case len(next) == 0 || len(old) > 0 && old[0].Name < next[0].Name:
			o.flush = append(o.flush, Op{Verb: FlushChain, Family: f, Name: old[0].Name})
			o.after = append(o.after, Op{Verb: DeleteChain, Family: f, Name: old[0].Name})
			old = old[1:]
		case len(old) == 0 || next[0].Name < old[0].Name:
			o.before = append(o.before, Op{Verb: AddChain, Family: f, Chain: rules.Chain{Name: next[0].Name}})
			o.before = append(o.before, ruleOps(f, next[0])...)
			next = next[1:]
		default:
			if !sameRules(old[0], next[0]) {
				o.before = append(o.before, Op{Verb: FlushChain, Family: f, Name: next[0].Name})
				o.before = append(o.before, ruleOps(f, next[0])...)
			}
			old, next = old[1:], next[1:]
		}
	}
}

// ruleOps returns the operations that add a chain's rules.
func ruleOps(f rules.Family, c rules.Chain) []Op {
	ops := make([]Op, len(c.Rules))
	for i, rule := range c.Rules {
		ops[i] = Op{Verb: AddRule, Family: f, Name: c.Name, Rule: rule}
	}
	return ops
}

func sameRules(a, b rules.Chain) bool {
	return slices.EqualFunc(a.Rules, b.Rules, slices.Equal)
}

// affinityTables returns the tables of clients whose endpoints in use change when prev
// becomes next. With kept, all that there are: what they remember from before nobody
// knows.
func affinityTables(prev, next *rules.Compiled, kept bool) []rules.AffinityTable {
	var changed []rules.AffinityTable
	before := prev.AffinityTables()
	for _, t := range next.AffinityTables() {
		i := slices.IndexFunc(before, func(b rules.AffinityTable) bool { return b.Map == t.Map })
		switch {
		case i < 0:
			t.Stale = kept
		case slices.Equal(before[i].Endpoints, t.Endpoints):
			continue
		default:
			t.Stale = slices.ContainsFunc(before[i].Endpoints, func(e netip.AddrPort) bool { return !containsEndpoint(t.Endpoints, e) })
		}
		changed = append(changed, t)
	}
	return changed
}
