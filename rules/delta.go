package rules

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
)

// Delta is the difference between two states of a service port that differ in Endpoints
// only. It is for service ports of very many endpoints: what it costs does not depend on
// their number. It can say little: before and after, the service port has an endpoint, all
// of them are of the same weight, none of LocalEndpoints is there and no affinity, and no
// endpoint that comes or goes is on this node.
type Delta struct {
	// Removed and Added are sorted, each address is in one of them and once.
	Removed, Added []netip.AddrPort
}

// Validate returns an error that joins what is wrong with the addresses of a difference of
// the service port.
func (d Delta) Validate(key ServicePortKey) error {
	var errs []error
	sp := ServicePort{ServicePortKey: key}
	for _, list := range [][]netip.AddrPort{d.Removed, d.Added} {
		if !slices.IsSortedFunc(list, netip.AddrPort.Compare) {
			errs = append(errs, errors.New("a difference is not sorted"))
		}
		var prev netip.AddrPort
		for _, a := range list {
			if err := sp.validateAddr(a, prev); err != nil {
				errs = append(errs, fmt.Errorf("endpoint %s: %w", a, err))
			}
			prev = a
		}
	}
	return errors.Join(errs...)
}

// SlotIndex knows the slot of each endpoint of one Compiled, so that the next one can be
// made without a look at all of them. Unlike that it changes, and is used by one goroutine
// at a time.
type SlotIndex struct {
	of     *Compiled
	slots  map[netip.AddrPort]int
	filled []uint64 // a bit for each slot
}

// NewSlotIndex returns the index of a service port. An error says why there cannot be a
// Delta of it.
func NewSlotIndex(c *Compiled) (*SlotIndex, error) {
	switch {
	case c == nil:
		return nil, errors.New("a difference from a service port that is not known")
	case c.Affinity != 0 || len(c.LocalSlots) > 0 || c.InternalLocal || c.ExternalLocal:
		return nil, fmt.Errorf("service port %s: a difference from one with affinity or a traffic policy Local", c.ServicePortKey)
	}
	x := &SlotIndex{of: c, slots: make(map[netip.AddrPort]int, c.Slots.Capacity())}
	for i, part := range c.Slots {
		for j, a := range part {
			if _, twice := x.slots[a]; twice {
				return nil, fmt.Errorf("service port %s: a difference from one with different weights", c.ServicePortKey)
			}
			if a.IsValid() {
				x.fill(i*partSlots+j, a)
			}
		}
	}
	return x, nil
}

// Of returns the service port that the index is of.
func (x *SlotIndex) Of() *Compiled { return x.of }

// Apply returns what Compile would return for the service port with the difference, which
// is what the index is of from now on. With an error nothing has changed: the difference
// is not one from this service port.
func (x *SlotIndex) Apply(d Delta) (*Compiled, error) {
	if err := x.check(d); err != nil {
		return nil, fmt.Errorf("service port %s: %w", x.of.ServicePortKey, err)
	}
	if len(d.Removed)+len(d.Added) == 0 {
		return x.of, nil
	}
	next := *x.of
	if total := len(x.slots) + len(d.Added) - len(d.Removed); keepsCapacity(x.of.Slots.Capacity(), total) {
		next.Slots = x.replace(d)
	} else {
		next.Slots = x.resize(d)
	}
	x.of = &next
	return x.of, nil
}

func (x *SlotIndex) check(d Delta) error {
	if err := d.Validate(x.of.ServicePortKey); err != nil {
		return err
	}
	for _, a := range d.Removed {
		if _, ok := x.slots[a]; !ok {
			return fmt.Errorf("endpoint %s: is to go and is not there", a)
		}
		if _, local := slices.BinarySearchFunc(x.of.Hairpin, a, netip.AddrPort.Compare); local {
			return fmt.Errorf("endpoint %s: is to go by a difference and is on this node", a)
		}
	}
	for _, a := range d.Added {
		if _, ok := x.slots[a]; ok {
			return fmt.Errorf("endpoint %s: is to come and is there", a)
		}
	}
	if len(x.slots) == 0 || len(x.slots)+len(d.Added) == len(d.Removed) {
		return errors.New("a difference from no endpoint, or to none")
	}
	return nil
}

// replace is Slots.assign for a capacity that stays.
func (x *SlotIndex) replace(d Delta) SlotTable {
	e := slotEditor{before: x.of.Slots, table: slices.Clone(x.of.Slots)}
	vacated := make([]int, len(d.Removed))
	for i, a := range d.Removed {
		vacated[i] = x.slots[a]
		delete(x.slots, a)
	}
	slices.Sort(vacated)
	for _, a := range d.Added {
		slot := x.lowestEmpty() // those of the endpoints that go count as filled still
		if len(vacated) > 0 {
			slot, vacated = vacated[0], vacated[1:]
		}
		x.fill(slot, a)
		e.set(slot, a)
	}
	for _, slot := range vacated {
		x.filled[slot/64] &^= 1 << (slot % 64)
		e.set(slot, netip.AddrPort{})
	}
	if last := x.lastFilled(); x.filled[0]&1 == 0 {
		a := e.table[last/partSlots][last%partSlots]
		x.filled[last/64] &^= 1 << (last % 64)
		e.set(last, netip.AddrPort{})
		x.fill(0, a)
		e.set(0, a)
	}
	return e.table
}

// resize is Slots.assign for another capacity. It looks at all endpoints.
func (x *SlotIndex) resize(d Delta) SlotTable {
	for _, a := range d.Removed {
		delete(x.slots, a)
	}
	endpoints := make([]Endpoint, 0, len(x.slots)+len(d.Added))
	for a := range x.slots {
		endpoints = append(endpoints, Endpoint{Addr: a})
	}
	for _, a := range d.Added {
		endpoints = append(endpoints, Endpoint{Addr: a})
	}
	endpoints = sortedEndpoints(endpoints)
	slots := x.of.Slots.flat().assign(endpoints, slices.Repeat([]int{1}, len(endpoints)))
	x.slots, x.filled = make(map[netip.AddrPort]int, len(endpoints)), nil
	for slot, a := range slots {
		if a.IsValid() {
			x.fill(slot, a)
		}
	}
	return newSlotTable(slots, x.of.Slots)
}

// fill notes that a slot has an endpoint.
func (x *SlotIndex) fill(slot int, a netip.AddrPort) {
	x.slots[a] = slot
	if missing := slot/64 + 1 - len(x.filled); missing > 0 {
		x.filled = append(x.filled, make([]uint64, missing)...)
	}
	x.filled[slot/64] |= 1 << (slot % 64)
}

// lowestEmpty returns the lowest slot without an endpoint, which may be one beyond those
// that there are.
func (x *SlotIndex) lowestEmpty() int {
	for i, word := range x.filled {
		if word != ^uint64(0) {
			return 64*i + bits.TrailingZeros64(^word)
		}
	}
	return 64 * len(x.filled)
}

// lastFilled returns the highest slot with an endpoint. There is one.
func (x *SlotIndex) lastFilled() int {
	i := len(x.filled) - 1
	for x.filled[i] == 0 {
		i--
	}
	return 64*i + bits.Len64(x.filled[i]) - 1
}

// slotEditor makes a table that shares the parts with the one before in which nothing is
// set.
type slotEditor struct {
	before, table SlotTable // the same at first
}

func (e slotEditor) set(slot int, a netip.AddrPort) {
	i := slot / partSlots
	if e.table.shares(i, e.before) {
		e.table[i] = slices.Clone(e.table[i])
	}
	e.table[i][slot%partSlots] = a
}
