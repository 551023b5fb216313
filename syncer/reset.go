package syncer

import (
	"maps"
	"slices"

	"github.com/nftproxy/nftproxy/rules"
)

// resetBatch returns the operations that bring our tables, whatever is in them, to
// the skeleton without a single element. Base chains that are as wanted stay, so
// that no hook is ever without its chain, and so do the maps of clients that affinity
// needs, with what they remember; the rest is flushed, deleted where it is unknown or
// declared differently, and made again.
func resetBatch(cfg rules.Config, state State, wanted map[rules.ServicePortKey]*rules.Compiled) *Batch {
	b := &Batch{}
	clients := map[familyName]bool{}
	for key, c := range wanted {
		for _, set := range c.OwnSets() {
			clients[familyName{key.Family, set.Name}] = true
		}
	}
	for _, f := range cfg.Families {
		chains := rules.Skeleton(cfg, f)
		// Also for a table that exists: it may be dormant, and this wakes it.
		b.Add(Op{Verb: AddTable, Family: f})
		table, exists := state[f]
		if exists {
			table.Sets = maps.Clone(table.Sets)
			maps.DeleteFunc(table.Sets, func(name string, isMap bool) bool { return isMap && clients[familyName{f, name}] })
			emptyTable(b, f, table, chains)
		}
		for _, set := range rules.Sets() {
			b.Add(Op{Verb: AddSet, Family: f, Decl: set})
		}
		for _, c := range chains {
			if hook, ok := table.Chains[c.Name]; !ok || !sameHook(hook, c.Base) {
				addChain(b, f, c)
			}
		}
		for _, c := range chains {
			addRules(b, f, c)
		}
	}
	return b
}

// emptyTable deletes all rules, sets and elements, and the chains that are not
// wanted as they are. Sets are flushed first: that takes back the references that
// their verdicts hold on chains.
func emptyTable(b *Batch, f rules.Family, table TableState, wanted []rules.Chain) {
	b.Add(Op{Verb: FlushTable, Family: f})
	for _, name := range sortedKeys(table.Sets) {
		isMap := table.Sets[name]
		b.Add(Op{Verb: FlushSet, Family: f, Name: name, IsMap: isMap}, Op{Verb: DeleteSet, Family: f, Name: name, IsMap: isMap})
	}
	for _, name := range sortedKeys(table.Chains) {
		keep := slices.ContainsFunc(wanted, func(c rules.Chain) bool {
			return c.Name == name && sameHook(c.Base, table.Chains[name])
		})
		if !keep {
			b.Add(Op{Verb: DeleteChain, Family: f, Name: name})
		}
	}
}

func sameHook(a, b *rules.Hook) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func addChain(b *Batch, f rules.Family, c rules.Chain) {
	b.Add(Op{Verb: AddChain, Family: f, Chain: rules.Chain{Name: c.Name, Base: c.Base}})
}

func addRules(b *Batch, f rules.Family, c rules.Chain) { b.Add(ruleOps(f, c)...) }
