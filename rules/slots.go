package rules

import (
	"net/netip"
	"slices"
)

// Slots is a slot table: which endpoint each slot holds. Its length is the
// capacity; a slot with the zero AddrPort is empty. A Slots is never changed
// after it was made.
type Slots []netip.AddrPort

// holds reports whether the slot exists and holds an endpoint.
func (s Slots) holds(slot int) bool { return slot < len(s) && s[slot].IsValid() }

// assign returns the table for the endpoints, each with the number of slots in
// counts, starting from the table that is in use:
//
//   - An endpoint keeps the slots it has, as long as it is wanted in as many; if
//     it is wanted in fewer, it keeps the lowest.
//   - Slot 0 is filled if any is.
//   - The capacity stays while keepsCapacity says so. Then a newcomer takes over
//     the slot of an endpoint that goes, and only if there is none an empty one.
//     If the endpoint in slot 0 goes without a successor, the last filled slot
//     moves there. Nothing else changes.
//   - A larger capacity moves nothing, a smaller one only the slots beyond it.
//
// Endpoints are sorted by address and do not repeat: newcomers are placed in the
// order given, so equal inputs give equal tables.
func (s Slots) assign(endpoints []Endpoint, counts []int) Slots {
	total := 0
	for _, n := range counts {
		total += n
	}
	if total == 0 {
		return nil
	}
	capacity := len(s)
	if !keepsCapacity(capacity, total) {
		capacity = capacityFor(total)
	}
	table := make(Slots, capacity)
	missing := s.keep(table, endpoints, counts)
	s.place(table, endpoints, missing)
	if !table[0].IsValid() {
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
	for slot, addr := range s[:min(len(s), len(table))] {
		if !addr.IsValid() {
			continue
		}
		i, found := slices.BinarySearchFunc(endpoints, addr, func(e Endpoint, a netip.AddrPort) int {
			return e.Addr.Compare(a)
		})
		if found && missing[i] > 0 {
			table[slot] = addr
			missing[i]--
		}
	}
	return missing
}

// place gives the endpoints the slots that they lack: first those that lost their
// holder, from slot 0 on, then those that were empty.
func (s Slots) place(table Slots, endpoints []Endpoint, missing []int) {
	next := 0 // the first endpoint that may lack a slot
	for _, vacated := range []bool{true, false} {
		for slot := range table {
			for next < len(missing) && missing[next] == 0 {
				next++
			}
			if next == len(missing) {
				return
			}
			if !table[slot].IsValid() && s.holds(slot) == vacated {
				table[slot] = endpoints[next].Addr
				missing[next]--
			}
		}
	}
}

// endpoints returns the endpoints in the table, each once, sorted.
func (s Slots) endpoints() []netip.AddrPort {
	endpoints := slices.DeleteFunc(slices.Clone(s), func(a netip.AddrPort) bool { return !a.IsValid() })
	slices.SortFunc(endpoints, netip.AddrPort.Compare)
	return slices.Compact(endpoints)
}
