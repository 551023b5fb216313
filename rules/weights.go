package rules

import (
	"math"
	"slices"
)

const (
	// exactSlots is up to how many slots weights are represented exactly.
	exactSlots = 256
	// MaxShareError bounds how far the share of an endpoint, after its weight
	// was scaled to a whole number of slots, is from its exact share, relative
	// to the exact share. It holds for every endpoint as long as Config.MaxSlots
	// allows for the slots this takes; see slotCounts.
	MaxShareError = 0.05
)

// slotCounts returns how many slots each endpoint gets, in the order given.
//
//   - Endpoints of weight 0 get none, unless all have weight 0: then one each.
//   - Equal weights: one slot each.
//   - If the weights, divided by their greatest common divisor, add up to at most
//     exactSlots and maxSlots, that is what they get: the shares are exact.
//   - Otherwise they are divided by the largest whole number for which every
//     endpoint's share stays within MaxShareError of the exact one, and rounded
//     to the nearest number of slots, but at least one.
//   - If that takes more than maxSlots, they are divided by the smallest whole
//     number that does not. Then small weights that were rounded up to one slot
//     may get a multiple of their share; heavier endpoints still never get fewer
//     slots than lighter ones.
//
// Whatever the divisor, a share p of n endpoints in s slots is never off by more
// than (1 + n*p) / s of all connections: rounding changes an endpoint's slots by
// less than one, and the number of all slots by less than n.
//
// The number of slots is at most max(maxSlots, number of endpoints). The result
// depends on the weights alone, not on their order.
func slotCounts(endpoints []Endpoint, maxSlots int) []int {
	counts := make([]int, len(endpoints))
	weights := weightHistogram(endpoints)
	if len(weights) == 0 { // only backups
		for i := range counts {
			counts[i] = 1
		}
		return counts
	}
	d := divisor(weights, maxSlots)
	for i, e := range endpoints {
		counts[i] = scale(e.Weight, d)
	}
	return counts
}

// scale divides a weight, rounding to the nearest whole number of slots. A
// weight above 0 gets at least one.
func scale(weight uint16, divisor int) int {
	if weight == 0 {
		return 0
	}
	return max(1, (2*int(weight)+divisor)/(2*divisor))
}

// weightCount is how many endpoints have a weight.
type weightCount struct {
	weight uint16
	n      int
}

// weightHistogram counts the weights above 0, in ascending order. There are few
// different ones, however many endpoints there are.
func weightHistogram(endpoints []Endpoint) []weightCount {
	var h []weightCount
	for _, e := range endpoints {
		if e.Weight == 0 {
			continue
		}
		i, found := slices.BinarySearchFunc(h, e.Weight, func(c weightCount, w uint16) int {
			return int(c.weight) - int(w)
		})
		if !found {
			h = slices.Insert(h, i, weightCount{weight: e.Weight})
		}
		h[i].n++
	}
	return h
}

// divisor chooses what the weights are divided by.
func divisor(weights []weightCount, maxSlots int) int {
	gcd := 0
	for _, w := range weights {
		gcd = greatestCommonDivisor(gcd, int(w.weight))
	}
	if totalSlots(weights, gcd) <= min(exactSlots, maxSlots) {
		return gcd
	}
	d := int(weights[len(weights)-1].weight) // the largest: one slot each
	sum := totalSlots(weights, 1)
	for d > gcd && !keepsShares(weights, d, sum) && totalSlots(weights, d-1) <= maxSlots {
		d--
	}
	return d
}

// totalSlots returns the number of slots that a divisor leads to. It falls, or
// stays, as the divisor grows.
func totalSlots(weights []weightCount, divisor int) int {
	total := 0
	for _, w := range weights {
		total += w.n * scale(w.weight, divisor)
	}
	return total
}

// keepsShares reports whether every endpoint's share stays within MaxShareError;
// sum is that of all endpoints' weights.
func keepsShares(weights []weightCount, divisor, sum int) bool {
	slots := totalSlots(weights, divisor)
	for _, w := range weights {
		got := float64(scale(w.weight, divisor)) / float64(slots)
		want := float64(w.weight) / float64(sum)
		if math.Abs(got-want) > MaxShareError*want {
			return false
		}
	}
	return true
}

func greatestCommonDivisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
