package syncer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"syscall"

	"github.com/nftproxy/nftproxy/rules"
)

// Memory is a strict model of the kernel. It refuses what the kernel refuses
// (references to what does not exist, keys that exist, deletions of what is in
// use) and commits a batch as a whole or not at all. It serves dry runs and tests.
// The zero Memory is an empty kernel.
type Memory struct {
	tables map[rules.Family]*memoryTable
}

type memoryTable struct {
	chains map[string]*memoryChain
	sets   map[string]*memorySet
}

type memoryChain struct {
	base  *rules.Hook
	rules []rules.Rule
}

type memorySet struct {
	decl     rules.Set
	elements map[rules.Key]rules.Element
}

var _ Kernel = (*Memory)(nil)

// State returns which of our objects exist.
func (m *Memory) State(_ context.Context, families []rules.Family) (State, error) {
	state := State{}
	for _, f := range families {
		t, ok := m.tables[f]
		if !ok {
			continue
		}
		ts := TableState{Chains: map[string]*rules.Hook{}, Sets: map[string]bool{}}
		for name, s := range t.sets {
			ts.Sets[name] = s.decl.Value != rules.NoValue
		}
		for name, c := range t.chains {
			ts.Chains[name] = c.base
		}
		state[f] = ts
	}
	return state, nil
}

// Apply commits the batch; every error is Refused.
func (m *Memory) Apply(_ context.Context, b *Batch) error {
	next, err := m.after(b)
	if err != nil {
		return &Error{Op: "apply a batch", Cause: Refused, Err: err}
	}
	m.tables = next
	return nil
}

// Check returns what Apply would, and changes nothing.
func (m *Memory) Check(_ context.Context, b *Batch) error {
	if _, err := m.after(b); err != nil {
		return &Error{Op: "check a batch", Cause: Refused, Err: err}
	}
	return nil
}

// Limits returns a size that no batch reaches.
func (m *Memory) Limits() Size { return Size{Bytes: 1 << 40} }

// Close does nothing.
func (m *Memory) Close() error { return nil }

// Elements returns the elements of a family's table, sorted.
func (m *Memory) Elements(f rules.Family) []rules.Element {
	var elements []rules.Element
	if t, ok := m.tables[f]; ok {
		for _, s := range t.sets {
			elements = slices.AppendSeq(elements, maps.Values(s.elements))
		}
	}
	slices.SortFunc(elements, rules.Element.Compare)
	return elements
}

// Sets returns the sets and maps of a family's table, sorted by name.
func (m *Memory) Sets(f rules.Family) []rules.Set {
	var sets []rules.Set
	if t, ok := m.tables[f]; ok {
		for _, name := range sortedKeys(t.sets) {
			sets = append(sets, t.sets[name].decl)
		}
	}
	return sets
}

// Chains returns the chains of a family's table with their rules, sorted by name.
func (m *Memory) Chains(f rules.Family) []rules.Chain {
	var chains []rules.Chain
	if t, ok := m.tables[f]; ok {
		for _, name := range sortedKeys(t.chains) {
			chains = append(chains, rules.Chain{Name: name, Base: t.chains[name].base, Rules: t.chains[name].rules})
		}
	}
	return chains
}

// after returns the tables as they are after the batch.
func (m *Memory) after(b *Batch) (map[rules.Family]*memoryTable, error) {
	tables := map[rules.Family]*memoryTable{}
	for f, t := range m.tables {
		tables[f] = t.clone()
	}
	for i, op := range b.Ops() {
		if op.Verb == AddTable {
			if tables[op.Family] == nil {
				tables[op.Family] = &memoryTable{chains: map[string]*memoryChain{}, sets: map[string]*memorySet{}}
			}
			continue
		}
		t, ok := tables[op.Family]
		if !ok {
			return nil, fmt.Errorf("operation %d: %s: %w", i, op.appendText(nil), errMissing("table", rules.TableName))
		}
		if err := t.apply(op); err != nil {
			return nil, fmt.Errorf("operation %d: %s: %w", i, op.appendText(nil), err)
		}
	}
	return tables, nil
}

func (t *memoryTable) clone() *memoryTable {
	c := &memoryTable{chains: map[string]*memoryChain{}, sets: map[string]*memorySet{}}
	for name, chain := range t.chains {
		c.chains[name] = &memoryChain{base: chain.base, rules: slices.Clone(chain.rules)}
	}
	for name, s := range t.sets {
		c.sets[name] = &memorySet{decl: s.decl, elements: maps.Clone(s.elements)}
	}
	return c
}

func (t *memoryTable) apply(op Op) error {
	switch op.Verb {
	case FlushTable:
		for _, c := range t.chains {
			c.rules = nil
		}
	case AddSet:
		name := op.Decl.Name
		if s, ok := t.sets[name]; ok { // the same set again is taken
			if !sameSet(s.decl, op.Decl) {
				return errExists("set", name)
			}
			s.decl.Clients = op.Decl.Clients
			break
		}
		t.sets[name] = &memorySet{decl: op.Decl, elements: map[rules.Key]rules.Element{}}
	case FlushSet:
		s, ok := t.sets[op.Name]
		if !ok {
			return errMissing("set", op.Name)
		}
		clear(s.elements)
	case DeleteSet:
		if _, ok := t.sets[op.Name]; !ok {
			return errMissing("set", op.Name)
		}
		if t.setInUse(op.Name) {
			return errInUse("set", op.Name)
		}
		delete(t.sets, op.Name)
	case AddChain:
		if _, ok := t.chains[op.Chain.Name]; ok {
			return errExists("chain", op.Chain.Name)
		}
		t.chains[op.Chain.Name] = &memoryChain{base: op.Chain.Base}
	case FlushChain:
		c, ok := t.chains[op.Name]
		if !ok {
			return errMissing("chain", op.Name)
		}
		c.rules = nil
	case DeleteChain:
		return t.deleteChain(op.Name)
	case AddRule:
		return t.addRule(op)
	case AddElements:
		return t.addElements(op)
	case DeleteElements:
		return t.deleteElements(op)
	case AddTable:
	}
	return nil
}

func (t *memoryTable) deleteChain(name string) error {
	if _, ok := t.chains[name]; !ok {
		return errMissing("chain", name)
	}
	if t.chainInUse(name) {
		return errInUse("chain", name)
	}
	delete(t.chains, name)
	return nil
}

func (t *memoryTable) addRule(op Op) error {
	c, ok := t.chains[op.Name]
	if !ok {
		return errMissing("chain", op.Name)
	}
	for _, s := range op.Rule {
		if set, ok := setOf(s); ok && t.sets[set] == nil {
			return errMissing("set", set)
		}
		if j, ok := s.(rules.Jump); ok && t.chains[j.Chain] == nil {
			return errMissing("chain", j.Chain)
		}
	}
	c.rules = append(c.rules, op.Rule)
	return nil
}

func (t *memoryTable) addElements(op Op) error {
	s, ok := t.sets[op.Set.Set().Name]
	if !ok {
		return errMissing("set", op.Set.Set().Name)
	}
	for _, e := range op.Elements {
		// The same element again is taken, whatever its comment says.
		if old, ok := s.elements[e.Key]; ok && (old.Chain != e.Chain || old.Endpoint != e.Endpoint) {
			return errExists("element", string(e.AppendKey(nil)))
		} else if ok {
			continue
		}
		if e.Key.Range.IsValid() && s.overlaps(e.Key) {
			return errExists("range that overlaps", string(e.AppendKey(nil)))
		}
		if e.Set != op.Set || !fits(e.Key, op.Family) {
			return fmt.Errorf("element %s does not fit", e.AppendText(nil))
		}
		if op.Set.Value() == rules.VerdictValue && t.chains[e.Chain] == nil {
			return errMissing("chain", e.Chain)
		}
		s.elements[e.Key] = e
	}
	return nil
}

// fits reports whether the addresses in a key are of the family.
func fits(k rules.Key, f rules.Family) bool {
	return (!k.Addr.IsValid() || rules.FamilyOf(k.Addr) == f) && (!k.Range.IsValid() || rules.FamilyOf(k.Range.Addr()) == f)
}

// sameSet reports whether one set may be declared as the other again. The kernel
// compares types; where in a packet a key comes from, it does not know. Another size is
// taken, and counts from then on.
func sameSet(a, b rules.Set) bool {
	return a.Value == b.Value && (a.Clients > 0) == (b.Clients > 0) &&
		slices.EqualFunc(a.Key, b.Key, func(a, b rules.Field) bool { return typeOf(a) == typeOf(b) })
}

// typeOf returns the first field that has the type of a field.
func typeOf(f rules.Field) rules.Field {
	switch f {
	case rules.DestAddr:
		return rules.SourceAddr
	case rules.DestRange:
		return rules.SourceRange
	default:
		return f
	}
}

// overlaps reports whether a range of addresses overlaps another one for the same
// frontend.
func (s *memorySet) overlaps(k rules.Key) bool {
	for l := range s.elements {
		if l.Addr == k.Addr && l.Protocol == k.Protocol && l.Port == k.Port && l.Range.Overlaps(k.Range) {
			return true
		}
	}
	return false
}

func (t *memoryTable) deleteElements(op Op) error {
	s, ok := t.sets[op.Set.Set().Name]
	if !ok {
		return errMissing("set", op.Set.Set().Name)
	}
	for _, e := range op.Elements {
		if _, ok := s.elements[e.Key]; !ok {
			return errMissing("element", string(e.AppendKey(nil)))
		}
		delete(s.elements, e.Key)
	}
	return nil
}

// setOf returns the name of the set that a statement refers to.
func setOf(s rules.Statement) (string, bool) {
	switch s := s.(type) {
	case rules.MatchSet:
		return s.Set.Set().Name, true
	case rules.Dispatch:
		return s.Map.Set().Name, true
	case rules.DrawEndpoint:
		return s.Map.Set().Name, true
	case rules.RememberClient:
		return s.Map, true
	case rules.DNATRemembered:
		return s.Map, true
	default:
		return "", false
	}
}

func (t *memoryTable) setInUse(name string) bool {
	return t.anyStatement(func(s rules.Statement) bool {
		set, ok := setOf(s)
		return ok && set == name
	})
}

func (t *memoryTable) chainInUse(name string) bool {
	for _, s := range t.sets {
		for _, e := range s.elements {
			if e.Chain == name {
				return true
			}
		}
	}
	return t.anyStatement(func(s rules.Statement) bool {
		j, ok := s.(rules.Jump)
		return ok && j.Chain == name
	})
}

func (t *memoryTable) anyStatement(is func(rules.Statement) bool) bool {
	for _, c := range t.chains {
		for _, r := range c.rules {
			if slices.ContainsFunc(r, is) {
				return true
			}
		}
	}
	return false
}

func errMissing(what, name string) error {
	return fmt.Errorf("no such %s: %s: %w", what, name, syscall.ENOENT)
}

func errExists(what, name string) error { return fmt.Errorf("%s exists: %s", what, name) }
func errInUse(what, name string) error  { return fmt.Errorf("%s is in use: %s", what, name) }
