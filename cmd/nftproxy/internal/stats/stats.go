// Package stats describes measured values.
package stats

import (
	"cmp"
	"math"
)

// Percentile returns the smallest value that at least p percent of all do not exceed,
// the zero value if there is none. The values have to be sorted.
func Percentile[T cmp.Ordered](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}
