package bench

import (
	"math"
	"slices"
	"time"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/stats"
)

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
		P50:           microseconds(stats.Percentile(latencies, 50)),
		P90:           microseconds(stats.Percentile(latencies, 90)),
		P99:           microseconds(stats.Percentile(latencies, 99)),
		Max:           microseconds(stats.Percentile(latencies, 100)),
		OperationsP50: stats.Percentile(operations, 50),
		OperationsMax: stats.Percentile(operations, 100),
		VerdictsP50:   stats.Percentile(verdicts, 50),
		BytesP50:      stats.Percentile(bytes, 50),
		BytesMax:      stats.Percentile(bytes, 100),
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
