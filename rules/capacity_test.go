package rules

import (
	"math"
	"slices"
	"sort"
	"testing"
)

// largestCapacity is how far the tests below look: it is the slots that a service
// port with different weights may have by default, or 65,536 equal endpoints.
const largestCapacity = DefaultMaxSlots

// capacities returns the ladder up to a limit.
func capacities(limit int) []int {
	var ladder []int
	for c := 1; c <= limit; c = capacityFor(c + 1) {
		ladder = append(ladder, c)
	}
	return ladder
}

// fewestSlots returns the fewest slots with which a table keeps a capacity.
func fewestSlots(capacity int) int {
	return 1 + sort.Search(capacity, func(i int) bool { return keepsCapacity(capacity, i+1) })
}

func TestCapacityLadder(t *testing.T) {
	want := []int{
		1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96,
	}
	if got := capacities(100); !slices.Equal(got, want) {
		t.Errorf("the ladder up to 100 is\n%v, want\n%v", got, want)
	}
	if n := len(capacities(largestCapacity)); n != 60 {
		t.Errorf("%d capacities up to %d, want 60: four steps a doubling", n, largestCapacity)
	}
}

func TestCapacityForHoldsItsSlots(t *testing.T) {
	if got := capacityFor(0); got != 0 {
		t.Errorf("no slots need capacity %d", got)
	}
	for n := 1; n <= largestCapacity; n++ {
		c := capacityFor(n)
		switch {
		case c < n:
			t.Fatalf("capacity %d does not hold %d slots", c, n)
		case capacityFor(c) != c:
			t.Fatalf("capacity %d for %d slots is not on the ladder", c, n)
		case n > 1 && c < capacityFor(n-1):
			t.Fatalf("%d slots get less capacity than %d", n, n-1)
		case 10*n <= 8*c:
			t.Fatalf("a fresh table of %d slots fills 80 %% of capacity %d or less", n, c)
		}
	}
}

func TestKeepsCapacity(t *testing.T) {
	for _, c := range []struct {
		capacity, slots int
		want            bool
	}{
		{0, 0, true}, // no endpoints, no table
		{0, 1, false},
		{1, 0, false},
		{1, 1, true},
		{2, 1, true},
		{3, 1, false},
		{8, 9, false},
		{8, 8, true},
		{8, 4, true},
		{8, 3, false},
		{80, 39, true}, // 52 endpoints without a quarter, in the capacity for 65
		{80, 38, false},
		{100, 48, true},
		{100, 47, false},
	} {
		if got := keepsCapacity(c.capacity, c.slots); got != c.want {
			t.Errorf("keepsCapacity(%d, %d) = %t", c.capacity, c.slots, got)
		}
	}
}

// A Deployment's rolling update may go a quarter over its size (rounded up) and a
// quarter under it (rounded down). Once it was at its largest, no size between
// the two changes the capacity any more.
func TestRollingUpdateKeepsCapacity(t *testing.T) {
	for n := 2; n <= 20_000; n++ {
		largest, smallest := n+(n+3)/4, n-n/4
		capacity := capacityFor(largest)
		if !keepsCapacity(capacity, largest) || !keepsCapacity(capacity, smallest) {
			t.Fatalf("%d endpoints: capacity %d does not hold from %d to %d", n, capacity, smallest, largest)
		}
		if grown := capacityFor(n); !keepsCapacity(grown, smallest) {
			t.Fatalf("%d endpoints: capacity %d does not outlast %d", n, grown, smallest)
		}
	}
}

// bias returns by how much, relative to its share, the endpoint in slot 0 gets
// too much and every other endpoint too little, if filled slots of the capacity
// hold one endpoint each: with probability q all draws miss.
func bias(capacity, filled int) (tooMuch, tooLittle float64) {
	share := 1 / float64(filled)
	q := math.Pow(1-float64(filled)/float64(capacity), float64(tries(capacity)))
	first, other := (1-q)*share+q, (1-q)*share
	return (first - share) / share, (share - other) / share
}

func TestTriesBoundTheBias(t *testing.T) {
	check := func(capacity, filled int) {
		if much, little := bias(capacity, filled); much >= maxBias || little >= maxBias {
			t.Errorf("%d of %d slots filled: slot 0 gets %.4f %% too much, the others %.4f %% too little",
				filled, capacity, 100*much, 100*little)
		}
	}
	// From capacity 2 on: beside the only slot of a table there is none to lose.
	for capacity := 2; capacity <= largestCapacity; capacity++ {
		check(capacity, fewestSlots(capacity))
	}
	for _, capacity := range capacities(largestCapacity)[1:] {
		for filled := fewestSlots(capacity); filled <= capacity; filled += 1 + filled/50 {
			check(capacity, filled)
		}
	}
}

func TestTries(t *testing.T) {
	for capacity, want := range map[int]int{1: 0, 2: 11, 4: 12, 8: 13, 16: 14, 128: 17, 1024: 21, 65536: 27} {
		if got := tries(capacity); got != want {
			t.Errorf("%d draws in a chain of capacity %d, want %d", got, capacity, want)
		}
	}
}
