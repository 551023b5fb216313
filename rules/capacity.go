package rules

import (
	"math"
	"math/bits"
)

// A slot table has one of a fixed ladder of capacities:
//
//	1 2 3 4 5 6 7 8 10 12 14 16 20 24 28 32 40 ...
//
// four steps a doubling from 4 on. The chain "random-<capacity>" draws slots of
// that capacity.

// maxBias bounds, relative to an endpoint's share, how much more than its share
// the endpoint in slot 0 may get for being the last resort after all tries.
const maxBias = 0.001

// capacityFor returns the smallest capacity of the ladder that holds n slots.
func capacityFor(n int) int {
	if n <= 4 {
		return max(n, 0)
	}
	// 2^k < n <= 2^(k+1); the steps in between are a quarter of 2^k apart.
	k := bits.Len(uint(n-1)) - 1
	step := 1 << (k - 2)
	return (n + step - 1) / step * step
}

// keepsCapacity is the hysteresis: a table keeps its capacity as long as its
// slots fit and at least half of them are filled. A rolling update that takes a
// Service 25 % under or over its size stays within, so no verdict changes.
func keepsCapacity(capacity, slots int) bool {
	return slots <= capacity && 2*slots >= capacity
}

// tries returns how many times a chain draws a slot before it takes slot 0.
// With at least half of the capacity filled each draw misses with a probability
// of at most 1/2, so all miss with at most 2^-tries. One slot in the whole table
// is the smallest share, 1/capacity: 2^-tries * capacity is what slot 0 can gain
// relative to it.
func tries(capacity int) int {
	if capacity <= 1 {
		return 0 // slot 0 is the only one
	}
	return int(math.Ceil(math.Log2(float64(capacity) / maxBias)))
}
