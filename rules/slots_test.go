package rules

import (
	"errors"
	"fmt"
	"math/rand"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// slotEndpoint returns the address that the tests know as a letter.
func slotEndpoint(letter byte) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 0, letter}), 8080)
}

// parseSlots reads a table such as "A.B": a letter is the endpoint in a slot, a
// dot an empty slot.
func parseSlots(s string) Slots {
	table := make(Slots, len(s))
	for i := range len(s) {
		if s[i] != '.' {
			table[i] = slotEndpoint(s[i])
		}
	}
	return table
}

// formatSlots is the inverse of parseSlots.
func formatSlots(s Slots) string {
	letters := make([]byte, len(s))
	for i, a := range s {
		letters[i] = '.'
		if a.IsValid() {
			letters[i] = a.Addr().As4()[3]
		}
	}
	return string(letters)
}

// parseWanted reads the wanted slots such as "AAB": two for A, one for B.
func parseWanted(s string) (endpoints []Endpoint, counts []int) {
	letters := []byte(s)
	slices.Sort(letters)
	for _, letter := range slices.Compact(slices.Clone(letters)) {
		endpoints = append(endpoints, Endpoint{Addr: slotEndpoint(letter)})
		counts = append(counts, strings.Count(s, string(letter)))
	}
	return endpoints, counts
}

func TestAssign(t *testing.T) {
	for _, c := range []struct{ name, before, wanted, after string }{
		{"nothing stays nothing", "", "", ""},
		{"the first endpoint", "", "A", "A"},
		{"a fresh table is filled in order", "", "CABED", "ABCDE"},
		{"a fresh table has a capacity of the ladder", "", "ABCDEFGHI", "ABCDEFGHI."},
		{"a weight is a number of slots", "", "ABBBC", "ABBBC"},
		{"nothing changes", "A.BC", "ABC", "A.BC"},
		{"a newcomer takes an empty slot", "A.BC", "ABCD", "ADBC"},
		{"a newcomer takes the first empty slot", "A..BC..", "ABCD", "AD.BC.."},
		{"one leaves a hole", "ABCD", "ABD", "AB.D"},
		{"one leaves the end", "ABCD", "ABC", "ABC."},
		{"a newcomer takes over the slot of one that goes", "A.CD", "ADE", "A.ED"},
		{"slot 0 is taken over by the newcomer", "ABCD", "BCDE", "EBCD"},
		{"slot 0 without a successor gets the last filled slot", "ABCD.", "BCD", "DBC.."},
		{"slot 0 is the only one left", "A.", "A", "A."},
		{"the last one moves to slot 0", "AB", "B", "B."},
		{"the last endpoint goes", "A.", "", ""},
		{"more than the capacity", "ABCD", "ABCDE", "ABCDE"},
		{"growing moves nothing, not even into holes", "AB.D.FG", "ABDFGHIJ", "ABHDIFGJ"},
		{"growing onto the next step", "ABCDEFGH", "ABCDEFGHI", "ABCDEFGHI."},
		{"half filled nothing moves", "A.......HI", "ABCHI", "ABC.....HI"},
		{"under 48 % what lies beyond moves", "AB....GH", "AGH", "AGH"},
		{"under 48 % what lies within stays", "A.C....H", "ACH", "AHC"},
		{"a weight grows", "AB..", "AAB", "ABA."},
		{"a weight shrinks: the lowest slots stay", "AABB", "AAB", "AAB."},
		{"slots go from one endpoint to the other", "AABB", "AAAB", "AABA"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := parseSlots(c.before)
			endpoints, counts := parseWanted(c.wanted)
			after := before.assign(endpoints, counts)
			if got := formatSlots(after); got != c.after {
				t.Errorf("%q wants %q: got %q, want %q", c.before, c.wanted, got, c.after)
			}
			if err := checkAssignment(before, after, endpoints, counts); err != nil {
				t.Error(err)
			}
			if got := formatSlots(before); got != c.before {
				t.Errorf("the table before was changed to %q", got)
			}
		})
	}
}

// A change is what an assignment has to do, whatever the algorithm.
type change struct {
	gone  int // slots that endpoints lose because they are wanted in fewer
	come  int // slots that endpoints gain because they are wanted in more
	moved int // slots beyond the new capacity whose endpoints keep them elsewhere
	// zero is 1 if slot 0 loses its endpoint and there is no other to place, so
	// that one has to move there.
	zero int
}

// countSlots returns how many slots each endpoint has.
func countSlots(s Slots) map[netip.AddrPort]int {
	n := map[netip.AddrPort]int{}
	for _, a := range s {
		if a.IsValid() {
			n[a]++
		}
	}
	return n
}

// necessary computes the change from the wanted numbers of slots alone.
func necessary(before Slots, wanted map[netip.AddrPort]int, capacity int) change {
	var c change
	had, within := countSlots(before), countSlots(before[:min(capacity, len(before))])
	for a, n := range had {
		c.gone += max(0, n-wanted[a])
	}
	for a, n := range wanted {
		c.come += max(0, n-had[a])
		c.moved += max(0, min(n, had[a])-within[a])
	}
	if len(before) > 0 && len(wanted) > 0 && wanted[before[0]] == 0 && c.come+c.moved == 0 {
		c.zero = 1
	}
	return c
}

// elementOperations counts the additions and deletions of elements from one table
// to the other, and the slots that they are in: a slot that passes from one
// endpoint to another is a deletion and an addition.
func elementOperations(before, after Slots) (operations, positions int) {
	for slot := range max(len(before), len(after)) {
		was, is := before.holds(slot), after.holds(slot)
		switch {
		case was && is && before[slot] != after[slot]:
			operations += 2
		case was != is:
			operations++
		default:
			continue
		}
		positions++
	}
	return operations, positions
}

// checkAssignment checks everything that assign promises of one step.
func checkAssignment(before, after Slots, endpoints []Endpoint, counts []int) error {
	total, wanted := 0, map[netip.AddrPort]int{}
	for i, e := range endpoints {
		if counts[i] > 0 {
			wanted[e.Addr] = counts[i]
			total += counts[i]
		}
	}
	return errors.Join(
		checkContent(after, wanted, total),
		checkCapacity(len(before), len(after), total),
		checkOperations(before, after, wanted),
	)
}

// checkContent: the table holds the wanted endpoints in the wanted number of
// slots, no other, and one of them in slot 0.
func checkContent(after Slots, wanted map[netip.AddrPort]int, total int) error {
	has := countSlots(after)
	for a, n := range wanted {
		if has[a] != n {
			return fmt.Errorf("%s has %d slots, want %d", a, has[a], n)
		}
	}
	if len(has) != len(wanted) {
		return fmt.Errorf("the table holds %d endpoints, want %d", len(has), len(wanted))
	}
	if total > 0 && !after.holds(0) {
		return errors.New("slot 0 is empty")
	}
	return nil
}

// checkCapacity: the capacity changes only if the slots do not fit or fill less
// than minFilledPercent of it, and then to that of a fresh table.
func checkCapacity(before, after, total int) error {
	switch fresh := capacityFor(total); {
	case total > after || 100*total < minFilledPercent*after:
		return fmt.Errorf("capacity %d with %d slots filled", after, total)
	case total <= before && 100*total >= minFilledPercent*before && after != before:
		return fmt.Errorf("capacity %d became %d with %d slots filled", before, after, total)
	case after != before && after != fresh:
		return fmt.Errorf("capacity %d became %d, want %d", before, after, fresh)
	}
	return nil
}

// checkOperations: no more is done than any algorithm must do.
//
//   - A slot lost or gained is one operation, a slot that has to move is two: one
//     where it was, one where it goes. If one has to move into a vacated slot 0,
//     that is two more.
//   - While the capacity stays, max(gone, come) slots change, and one more if one
//     has to move to slot 0. So adding one endpoint is 1 operation, removing one
//     is 1 operation, or 3 if it was in slot 0; replacing one by another is 2
//     operations in 1 slot.
//   - A slot that keeps its endpoint does so in its place, unless it lay beyond
//     the new capacity or is the one that moves to slot 0.
func checkOperations(before, after Slots, wanted map[netip.AddrPort]int) error {
	c := necessary(before, wanted, len(after))
	operations, positions := elementOperations(before, after)
	if want := c.gone + c.come + 2*c.moved + 2*c.zero; operations != want {
		return fmt.Errorf("%d element operations for %+v, want %d", operations, c, want)
	}
	if want := max(c.gone, c.come) + c.zero; len(before) == len(after) && positions != want {
		return fmt.Errorf("%d slots changed for %+v, want %d", positions, c, want)
	}
	left := 0
	for slot := range before {
		if before.holds(slot) && (!after.holds(slot) || after[slot] != before[slot]) {
			left++
		}
	}
	if want := c.gone + c.moved + c.zero; left != want {
		return fmt.Errorf("%d slots lost their endpoint for %+v, want %d", left, c, want)
	}
	if len(after) > len(before) && c.moved+c.zero != 0 {
		return fmt.Errorf("growing from %d to %d slots moves some: %+v", len(before), len(after), c)
	}
	return nil
}

// TestAssignProperties takes a table through random changes: endpoints of random
// weights come, go and change their weight, one at a time or many at once.
func TestAssignProperties(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	for range 30 {
		universe, maxSlots := 1+rng.Intn(80), 1+rng.Intn(200)
		weights := make([]int, universe) // less than 0: does not exist
		for i := range weights {
			weights[i] = -1
		}
		var table Slots
		for step := range 100 {
			for range 1 + rng.Intn(1+rng.Intn(universe)) {
				weights[rng.Intn(universe)] = randomWeight(rng)
			}
			var err error
			if table, err = assignWeights(table, weights, maxSlots); err != nil {
				t.Fatalf("seed %d, step %d, weights %v: %v", seed, step, weights, err)
			}
		}
	}
}

// randomWeight returns -1 for no endpoint, or a weight: mostly 1, as in most
// Services.
func randomWeight(rng *rand.Rand) int {
	switch rng.Intn(8) {
	case 0, 1, 2:
		return -1
	case 3:
		return 0
	case 4:
		return rng.Intn(MaxWeight + 1)
	case 5:
		return 1 + rng.Intn(10)
	default:
		return 1
	}
}

// assignWeights assigns endpoints with the given weights, and checks the step.
func assignWeights(before Slots, weights []int, maxSlots int) (Slots, error) {
	var endpoints []Endpoint
	for i, w := range weights {
		if w >= 0 {
			endpoints = append(endpoints, Endpoint{Addr: slotEndpoint(byte(i)), Weight: uint16(w)})
		}
	}
	counts := slotCounts(endpoints, maxSlots)
	after := before.assign(endpoints, counts)
	if err := checkAssignment(before, after, endpoints, counts); err != nil {
		return nil, err
	}
	if again := after.assign(endpoints, counts); !slices.Equal(again, after) {
		return nil, fmt.Errorf("assigning the same again changed\n%v to\n%v", after, again)
	}
	return after, nil
}

// FuzzAssign reads changes of two bytes, an endpoint and its weight, and assigns
// after each, or after several if the first byte's high bit is set.
func FuzzAssign(f *testing.F) {
	f.Add([]byte{0, 2, 1, 2, 2, 2, 1, 0, 3, 2})                   // one goes, one comes
	f.Add([]byte{0, 2, 1, 2, 2, 2, 0, 0, 1, 0, 2, 0})             // all go, slot 0 first
	f.Add([]byte{0x80, 4, 0x81, 5, 2, 6, 0x80, 6, 2, 4})          // weights change places
	f.Add([]byte{0x80, 1, 0x81, 1, 2, 1, 0, 7, 0, 0})             // only backups, one serves
	f.Add(slices.Repeat([]byte{0x83, 2, 0x85, 2, 7, 2, 5, 0}, 8)) // again and again
	weightOf := []int{-1, 0, 1, 2, 3, 6, 7, MaxWeight, 13, 95, 999}
	f.Fuzz(func(t *testing.T, changes []byte) {
		weights := slices.Repeat([]int{-1}, 48)
		var table Slots
		for ; len(changes) >= 2; changes = changes[2:] {
			weights[int(changes[0]&0x7f)%len(weights)] = weightOf[int(changes[1])%len(weightOf)]
			if changes[0]&0x80 != 0 && len(changes) >= 4 {
				continue
			}
			var err error
			if table, err = assignWeights(table, weights, 128); err != nil {
				t.Fatalf("weights %v: %v", weights, err)
			}
		}
	})
}

// TestRollingUpdates replaces all endpoints of a service port in waves of a
// quarter: after the first surge no capacity changes, so no
// element with a verdict does.
func TestRollingUpdates(t *testing.T) {
	for n := 2; n <= 200; n++ {
		surge, unavailable := (n+3)/4, n/4
		var table Slots
		set := func(endpoints []Endpoint) {
			table = table.assign(endpoints, slotCounts(endpoints, DefaultMaxSlots))
		}
		endpoints := make([]Endpoint, 0, 2*n)
		start := func(count int) {
			for range count {
				a := netip.AddrFrom4([4]byte{10, 244, byte(len(endpoints) >> 8), byte(len(endpoints))})
				endpoints = append(endpoints, Endpoint{Addr: netip.AddrPortFrom(a, 80), Weight: 1})
			}
		}
		start(n)
		set(endpoints)
		start(surge)
		set(endpoints)
		capacity := len(table)
		for stopped := 0; stopped < n; {
			stopped = min(n, stopped+surge+unavailable)
			set(endpoints[stopped:]) // at its smallest
			if len(table) != capacity {
				t.Fatalf("%d endpoints: capacity %d became %d at %d", n, capacity, len(table), len(endpoints)-stopped)
			}
			start(min(2*n-len(endpoints), surge+unavailable))
			set(endpoints[stopped:]) // at its largest
			if len(table) != capacity {
				t.Fatalf("%d endpoints: capacity %d became %d at %d", n, capacity, len(table), len(endpoints)-stopped)
			}
		}
	}
}
