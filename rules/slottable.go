package rules

import (
	"net/netip"
	"slices"
)

// partSlots is how many slots a part of a SlotTable has. A change copies the parts that it
// touches, 8 KiB each, and the list of parts, 24 bytes each: with 256 slots in a part both
// are about the same for a table of 100,000.
const partSlots = 256

// SlotTable is Slots in parts of partSlots each, the last one of what is left. It is never
// changed after it was made, nor are its parts, so that tables that differ little share
// almost all of them. Almost every table has one part.
type SlotTable [][]netip.AddrPort

// newSlotTable returns the slots in parts. It shares those with prev that are the same, and
// may keep the slots themselves.
func newSlotTable(s Slots, prev SlotTable) SlotTable {
	switch {
	case len(s) == 0:
		return nil
	case len(s) <= partSlots:
		return SlotTable{s}
	}
	table := make(SlotTable, 0, (len(s)+partSlots-1)/partSlots)
	for part := range slices.Chunk(s, partSlots) {
		if i := len(table); i < len(prev) && slices.Equal(part, prev[i]) {
			table = append(table, prev[i])
		} else {
			table = append(table, slices.Clone(part)) // one part must not keep all others
		}
	}
	return table
}

// flat returns the slots; they must not be changed.
func (t SlotTable) flat() Slots {
	if len(t) == 1 {
		return t[0]
	}
	return slices.Concat(t...)
}

// Capacity returns how many slots there are.
func (t SlotTable) Capacity() int {
	if len(t) == 0 {
		return 0
	}
	return (len(t)-1)*partSlots + len(t[len(t)-1])
}

// shares reports whether the i-th part of both tables is the same one, which is a fast way
// to know that nothing in it differs.
func (t SlotTable) shares(i int, u SlotTable) bool {
	return i < len(u) && &t[i][0] == &u[i][0] && len(t[i]) == len(u[i])
}

func (t SlotTable) equal(u SlotTable) bool {
	if len(t) != len(u) {
		return false
	}
	for i := range t {
		if !t.shares(i, u) && !slices.Equal(t[i], u[i]) {
			return false
		}
	}
	return true
}

// numSlots returns how many slots there are in parts that like has not.
func (t SlotTable) numSlots(like SlotTable) int {
	n := 0
	for i, part := range t {
		if !t.shares(i, like) {
			n += len(part)
		}
	}
	return n
}
