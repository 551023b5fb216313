package syncer_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// BenchmarkApplySlot measures one changed endpoint from resolved service port to
// the kernel's answer.
func BenchmarkApplySlot(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			s := newSyncer(b, newNetlink(b, nstest.New(b)), rules.Config{})
			all := make([]*rules.ServicePort, n)
			for i := range all {
				all[i] = service(i, rules.IPv4, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19)
			}
			mustSync(b, s, set(all...))
			with, without := set(all[n/2]), set(service(n/2, rules.IPv4, 1, 3, 5, 7, 9, 11, 13, 15, 17))
			durations := make([]time.Duration, 0, b.N)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				changes := without
				if i%2 == 1 {
					changes = with
				}
				start := time.Now()
				res, err := s.Sync(b.Context(), changes)
				durations = append(durations, time.Since(start))
				if err != nil || res.Counts != (syncer.Counts{Elements: 1}) {
					b.Fatal(res, err)
				}
			}
			reportPercentiles(b, durations)
		})
	}
}

// reportPercentiles reports the median and the 99th percentile in microseconds.
func reportPercentiles(b *testing.B, durations []time.Duration) {
	b.Helper()
	slices.Sort(durations)
	for name, p := range map[string]int{"p50-µs": 50, "p99-µs": 99} {
		d := durations[min(len(durations)*p/100, len(durations)-1)]
		b.ReportMetric(float64(d)/float64(time.Microsecond), name)
	}
}

// BenchmarkFill measures the first sync, from resolved service ports to the
// kernel's answer.
func BenchmarkFill(b *testing.B) {
	const n = 10_000
	all := make([]*rules.ServicePort, n)
	for i := range all {
		all[i] = service(i, rules.IPv4, 10*i, 10*i+1, 10*i+2, 10*i+3, 10*i+4, 10*i+5, 10*i+6, 10*i+7, 10*i+8, 10*i+9)
		for j := range all[i].Endpoints {
			all[i].Endpoints[j].Local = j == 0
		}
	}
	for b.Loop() {
		b.StopTimer()
		k := newNetlink(b, nstest.New(b))
		b.StartTimer()
		mustSync(b, newSyncer(b, k, rules.Config{}), set(all...))
	}
}
