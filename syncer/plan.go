package syncer

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/rules"
)

// mirror is what the kernel is known to hold.
type mirror struct {
	services map[rules.ServicePortKey]*rules.Compiled
	// holders says which service port has a frontend. No two can.
	holders map[heldFrontend]rules.ServicePortKey
	// owners counts the service ports that want an element of a shared set.
	owners map[sharedElement]int
	// chains holds the names of the chains that were added for elements.
	chains map[familyName]bool
	// counts says how much there is.
	counts map[rules.Family]Installed
}

// heldFrontend is an address and port of a protocol.
type heldFrontend struct {
	addr     netip.AddrPort
	protocol rules.Protocol
}

type sharedElement struct {
	family rules.Family
	set    rules.SetID
	key    rules.Key
}

// familyName names a chain or set.
type familyName struct {
	family rules.Family
	name   string
}

// compare orders names by family, and the chains of capacities by capacity.
func (n familyName) compare(m familyName) int {
	return cmp.Or(cmp.Compare(n.family, m.family), cmp.Compare(len(n.name), len(m.name)), cmp.Compare(n.name, m.name))
}

// newMirror returns the mirror of a kernel that holds nothing, with room for service
// ports.
func newMirror(servicePorts int) *mirror {
	return &mirror{
		services: make(map[rules.ServicePortKey]*rules.Compiled, servicePorts),
		holders:  make(map[heldFrontend]rules.ServicePortKey, servicePorts),
		owners:   make(map[sharedElement]int, servicePorts),
		chains:   map[familyName]bool{},
		counts:   map[rules.Family]Installed{},
	}
}

// change is a service port that shall be different; next is nil if it goes.
type change struct {
	key  rules.ServicePortKey
	next *rules.Compiled
}

// plan is a batch and what the mirror becomes once it is committed.
type plan struct {
	batch   *Batch
	changes []change
	// conflicts are the changes left out, since another service port has one of their
	// frontends.
	conflicts []change
	owners    map[sharedElement]int      // changes of mirror.owners
	chains    []familyName               // additions to mirror.chains
	counts    map[rules.Family]Installed // what they change in mirror.counts
}

// elementGroup collects the elements of one operation.
type elementGroup struct {
	verb   Verb
	family rules.Family
	set    rules.SetID
}

// planner makes plans. Its buffers are used again and again, so that a small
// change allocates little.
type planner struct {
	old, new []rules.Element
	groups   map[elementGroup]*elementParts
	// last is the group that was added to last: neighbours are mostly of one.
	last struct {
		group elementGroup
		parts *elementParts
	}
}

// elementParts are elements in parts of one message.
type elementParts [][]rules.Element

// add adds an element. A part that is full is never copied again: the first one grows as
// it must, since most groups are small, the others are made whole.
func (p *elementParts) add(e *rules.Element) {
	last := len(*p) - 1
	if last < 0 || len((*p)[last]) == elementsPerMessage {
		var part []rules.Element
		if last >= 0 {
			part = make([]rules.Element, 0, elementsPerMessage)
		}
		*p = append(*p, part)
		last++
	}
	(*p)[last] = append((*p)[last], *e)
}

// plan returns the batch that brings the changes to what the mirror describes.
// It comes after prefix in the same batch, if there is one.
func (p *planner) plan(m *mirror, prefix *Batch, changes []change) *plan {
	pl := &plan{batch: prefix, owners: make(map[sharedElement]int, len(changes)), counts: map[rules.Family]Installed{}}
	if pl.batch == nil {
		pl.batch = &Batch{}
	}
	pl.changes, pl.conflicts = m.claim(changes)
	p.groups, p.last.parts = map[elementGroup]*elementParts{}, nil
	var own ownObjects
	for _, c := range pl.changes {
		prev := m.services[c.key]
		p.old, p.new = rules.AppendDiffering(p.old[:0], p.new[:0], prev, c.next)
		p.diff(pl, c.key.Family)
		own.diff(c.key.Family, prev, c.next)
		pl.count(c.key.Family, Installed{ServicePorts: present(c.key, c.next) - present(c.key, prev)})
	}
	p.addShared(pl, m)
	pl.batch.Add(own.before...)
	p.addChains(pl, m)
	p.addElements(pl)
	pl.batch.Add(own.flush...)
	pl.batch.Add(own.after...)
	p.groups, p.last.parts = nil, nil // those of a whole ruleset are large
	return pl
}

// count adds to what the plan changes in mirror.counts.
func (pl *plan) count(f rules.Family, n Installed) {
	pl.counts[f] = Installed{pl.counts[f].ServicePorts + n.ServicePorts, pl.counts[f].Elements + n.Elements}
}

// present is 1 for a service port that there is. The node is none.
func present(key rules.ServicePortKey, c *rules.Compiled) int {
	if c == nil || key == (rules.Node{Family: key.Family}).Key() {
		return 0
	}
	return 1
}

// claim separates the changes that can be made together from those whose frontends
// are another service port's. A frontend that a change gives up is free for the
// others; what a change that is left out would have given up is not.
func (m *mirror) claim(changes []change) (possible, conflicts []change) {
	possible = changes
	if !slices.ContainsFunc(changes, m.moves) {
		return possible, nil
	}
	for {
		holder := make(map[heldFrontend]rules.ServicePortKey, len(possible)) // zero: given up
		for _, c := range possible {
			for f := range frontendsOf(m.services[c.key]) {
				holder[f] = rules.ServicePortKey{}
			}
		}
		fits := func(c change) bool {
			for f := range frontendsOf(c.next) {
				by, changed := holder[f]
				if !changed {
					by = m.holders[f]
				}
				if by != (rules.ServicePortKey{}) && by != c.key {
					return false
				}
			}
			for f := range frontendsOf(c.next) {
				holder[f] = c.key
			}
			return true
		}
		first := slices.IndexFunc(possible, func(c change) bool { return !fits(c) })
		if first < 0 {
			return possible, conflicts
		}
		conflicts = append(conflicts, possible[first])
		possible = slices.Delete(slices.Clone(possible), first, first+1)
	}
}

// moves reports whether a change gives up frontends or wants others.
func (m *mirror) moves(c change) bool {
	prev := m.services[c.key]
	return prev == nil || c.next == nil || !slices.Equal(prev.Frontends, c.next.Frontends)
}

// frontendsOf yields the frontends that a service port holds.
func frontendsOf(c *rules.Compiled) iter.Seq[heldFrontend] {
	return func(yield func(heldFrontend) bool) {
		if c == nil {
			return
		}
		for _, f := range c.Frontends {
			if !yield(heldFrontend{f.Addr, c.Protocol}) {
				return
			}
		}
	}
}

// diff merges the two sorted lists and notes what differs.
func (p *planner) diff(pl *plan, f rules.Family) {
	i, j := 0, 0
	for i < len(p.old) || j < len(p.new) {
		var order int
		switch {
		case i == len(p.old):
			order = 1
		case j == len(p.new):
			order = -1
		default:
			order = p.old[i].Compare(p.new[j])
		}
		switch {
		case order < 0:
			p.note(pl, DeleteElements, f, &p.old[i])
			i++
		case order > 0:
			p.note(pl, AddElements, f, &p.new[j])
			j++
		default:
			if p.old[i] != p.new[j] {
				p.note(pl, DeleteElements, f, &p.old[i])
				p.note(pl, AddElements, f, &p.new[j])
			}
			i++
			j++
		}
	}
}

// note collects an element for an operation, or counts it if it is shared.
func (p *planner) note(pl *plan, verb Verb, f rules.Family, e *rules.Element) {
	if !e.Set.Shared() {
		p.add(elementGroup{verb, f, e.Set}, e)
		return
	}
	owners := 1
	if verb == DeleteElements {
		owners = -1
	}
	pl.owners[sharedElement{f, e.Set, e.Key}] += owners
}

// add collects an element.
func (p *planner) add(g elementGroup, e *rules.Element) {
	if p.last.parts == nil || p.last.group != g {
		parts := p.groups[g]
		if parts == nil {
			parts = &elementParts{}
			p.groups[g] = parts
		}
		p.last.group, p.last.parts = g, parts
	}
	p.last.parts.add(e)
}

// addShared notes the shared elements that get their first owner or lose the
// last one.
func (p *planner) addShared(pl *plan, m *mirror) {
	var shared []sharedElement
	for e, delta := range pl.owners {
		before := m.owners[e]
		if after := before + delta; (before == 0) != (after == 0) {
			shared = append(shared, e)
		}
	}
	slices.SortFunc(shared, func(a, b sharedElement) int { // a map has no order
		return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.set, b.set), a.key.Compare(b.key))
	})
	for _, e := range shared {
		verb := AddElements
		if m.owners[e] > 0 {
			verb = DeleteElements
		}
		p.add(elementGroup{verb, e.family, e.set}, &rules.Element{Set: e.set, Key: e.key})
	}
}

// addChains adds the chains that draw slots which new elements refer to and that do not
// exist yet. The chains that slots themselves lead to are service ports' own.
func (p *planner) addChains(pl *plan, m *mirror) {
	var wanted []familyName
	for g, parts := range p.groups {
		if g.verb != AddElements || g.set.Value() != rules.VerdictValue || slices.Contains(g.set.Set().Key, rules.Slot) {
			continue
		}
		for _, part := range *parts {
			for _, e := range part {
				if name := (familyName{g.family, e.Chain}); !m.chains[name] && !slices.Contains(wanted, name) {
					wanted = append(wanted, name)
				}
			}
		}
	}
	pl.addChains(m, wanted)
}

// addChains adds the chains that draw slots by these names, and those that they jump to,
// as far as they do not exist yet.
func (pl *plan) addChains(m *mirror, wanted []familyName) {
	slices.SortFunc(wanted, familyName.compare)
	for _, w := range wanted {
		for _, chain := range rules.ChainsByName(w.name) {
			name := familyName{w.family, chain.Name}
			if m.chains[name] || slices.Contains(pl.chains, name) {
				continue
			}
			pl.chains = append(pl.chains, name)
			addChain(pl.batch, name.family, chain)
			addRules(pl.batch, name.family, chain)
		}
	}
}

// addElements adds the collected operations, deletions first: an element may move
// from one service port to another in the same batch.
func (p *planner) addElements(pl *plan) {
	groups := make([]elementGroup, 0, len(p.groups))
	for g := range p.groups {
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(a, b elementGroup) int {
		return cmp.Or(cmp.Compare(b.verb, a.verb), cmp.Compare(a.family, b.family), cmp.Compare(a.set, b.set))
	})
	for _, g := range groups {
		for _, part := range *p.groups[g] {
			if g.verb == AddElements {
				pl.count(g.family, Installed{Elements: len(part)})
			} else {
				pl.count(g.family, Installed{Elements: -len(part)})
			}
			pl.batch.Add(Op{Verb: g.verb, Family: g.family, Set: g.set, Elements: part})
		}
	}
}

// commit brings the mirror to what the kernel holds after the plan's batch.
func (m *mirror) commit(pl *plan) {
	for _, c := range pl.changes {
		for f := range frontendsOf(m.services[c.key]) {
			if m.holders[f] == c.key {
				delete(m.holders, f)
			}
		}
		for f := range frontendsOf(c.next) {
			m.holders[f] = c.key
		}
		if c.next == nil {
			delete(m.services, c.key)
		} else {
			m.services[c.key] = c.next
		}
	}
	for e, delta := range pl.owners {
		if m.owners[e] += delta; m.owners[e] == 0 {
			delete(m.owners, e)
		}
	}
	for _, c := range pl.chains {
		m.chains[c] = true
	}
	for f, change := range pl.counts {
		m.counts[f] = Installed{m.counts[f].ServicePorts + change.ServicePorts, m.counts[f].Elements + change.Elements}
	}
}
