package rules

import (
	"net/netip"
	"slices"
)

// Slots is a slot table: which endpoint each slot holds. Its length is the
// capacity; a slot with the zero AddrPort is empty. A Slots is never changed
// after it was made.
type Slots []netip.AddrPort

// filled returns the number of slots that hold an endpoint.
func (s Slots) filled() int {
	n := 0
	for _, a := range s {
		if a.IsValid() {
			n++
		}
	}
	return n
}

// assign returns the table for the endpoints, each with the number of slots in
// counts, starting from the table that is in use:
//
//   - An endpoint keeps the slots it has, as long as it is wanted in as many.
//   - Slot 0 is filled if any is.
//   - The capacity stays while keepsCapacity says so; then only the slots of
//     endpoints that come or go change, and if the one in slot 0 goes without a
//     successor, the last filled slot moves there.
//   - A larger capacity moves nothing, a smaller one only the slots beyond it.
//
// Endpoints must not repeat. Newcomers are placed in the order given, so the
// caller sorts them if equal inputs are to give equal tables.
func (s Slots) assign(endpoints []Endpoint, counts []int) Slots {
	total := 0
	for _, n := range counts {
		total += n
	}
	capacity := len(s)
	if !keepsCapacity(capacity, total) {
		capacity = capacityFor(total)
	}
	table := make(Slots, capacity)
	missing := s.keep(table, endpoints, counts)
	free := 0
	for i, e := range endpoints {
		for range missing[i] {
			for table[free].IsValid() {
				free++
			}
			table[free] = e.Addr
		}
	}
	if total > 0 && !table[0].IsValid() {
		last := len(table) - 1
		for !table[last].IsValid() {
			last--
		}
		table[0], table[last] = table[last], netip.AddrPort{}
	}
	return table
}

// keep copies into table what stays in its slot, and returns how many slots each
// endpoint still lacks.
func (s Slots) keep(table Slots, endpoints []Endpoint, counts []int) []int {
	missing := slices.Clone(counts)
	index := make(map[netip.AddrPort]int, len(endpoints))
	for i, e := range endpoints {
		index[e.Addr] = i
	}
	for slot, addr := range s[:min(len(s), len(table))] {
		if i, ok := index[addr]; ok && missing[i] > 0 {
			table[slot] = addr
			missing[i]--
		}
	}
	return missing
}
