package bench

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// percentile returns the smallest value that at least p percent of all do not exceed,
// the zero value if there is none. The values have to be sorted.
func percentile[T cmp.Ordered](sorted []T, p float64) T {
	if len(sorted) == 0 {
		var zero T
		return zero
	}
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// sample is what was measured of one change.
type sample struct {
	latency    time.Duration
	operations int
	verdicts   int
	bytes      int
}

// summarize returns what is told of the samples of one kind.
func summarize(samples []sample) ChangeResult {
	column := func(value func(sample) int) []int {
		all := make([]int, len(samples))
		for i, s := range samples {
			all[i] = value(s)
		}
		slices.Sort(all)
		return all
	}
	latencies := sortedLatencies(samples)
	operations := column(func(s sample) int { return s.operations })
	verdicts := column(func(s sample) int { return s.verdicts })
	bytes := column(func(s sample) int { return s.bytes })
	return ChangeResult{
		Count:         len(samples),
		P50:           microseconds(percentile(latencies, 50)),
		P90:           microseconds(percentile(latencies, 90)),
		P99:           microseconds(percentile(latencies, 99)),
		Max:           microseconds(percentile(latencies, 100)),
		OperationsP50: percentile(operations, 50),
		OperationsMax: percentile(operations, 100),
		VerdictsP50:   percentile(verdicts, 50),
		BytesP50:      percentile(bytes, 50),
		BytesMax:      percentile(bytes, 100),
	}
}

func sortedLatencies(samples []sample) []time.Duration {
	all := make([]time.Duration, len(samples))
	for i, s := range samples {
		all[i] = s.latency
	}
	slices.Sort(all)
	return all
}

// microseconds returns a duration in microseconds, to a tenth.
func microseconds(d time.Duration) float64 {
	return math.Round(float64(d)/100) / 10
}

// seconds returns a duration in seconds, to the microsecond.
func seconds(d time.Duration) float64 {
	return math.Round(d.Seconds()*1e6) / 1e6
}
