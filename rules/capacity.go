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

const (
	// minFilledPercent is how much of a table's capacity is filled at least.
	//
	// It follows from what must not change a capacity: a rolling update that
	// takes a Service of n endpoints to at most n + n/4, rounded up, and back to
	// at least n - n/4, rounded down (the default of a Deployment). The ladder
	// has no capacity of more than 5/4 of what made it necessary, so at its
	// lowest the Service fills more than 3/4 of 4/5 of 4/5 = 48 %. The rounding
	// is in the table's favour: see TestRollingUpdateKeepsCapacity.
	minFilledPercent = 48
	// maxBias bounds, relative to an endpoint's share, how much more than its
	// share the endpoint in slot 0 may get for being the last resort after all
	// tries.
	maxBias = 0.001
)

// capacityFor returns the smallest capacity of the ladder that holds n slots. If
// n is not 0, more than 80 % of it are filled.
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
// slots fit and fill minFilledPercent of it.
func keepsCapacity(capacity, slots int) bool {
	return slots <= capacity && 100*slots >= minFilledPercent*capacity
}

// tries returns how many times a chain draws a slot before it takes slot 0.
//
// If m of the capacity's c slots are filled, a draw misses with a probability of
// 1 - m/c, and all t draws with q = (1 - m/c)^t. The endpoint in slot 0 gets
// (1-q)/m + q of the connections in place of 1/m: q*(m-1) too much, relative to
// its share. Every other endpoint gets q too little. With the fewest slots that
// keepsCapacity allows both are largest, and below maxBias.
func tries(capacity int) int {
	if capacity <= 1 {
		return 0 // slot 0 is the only one
	}
	const filled = minFilledPercent / 100.0
	return int(math.Ceil(math.Log(filled*float64(capacity)/maxBias) / -math.Log(1-filled)))
}
