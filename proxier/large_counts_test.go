package proxier

import (
	"fmt"
	"runtime"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// What one endpoint may cost that comes, goes or is replaced in a slice of a Service with
// very many, whatever their number.
const (
	// 51, with the race detector, too.
	maxLargeAllocations = 52
	// 21 KiB: most is what is copied of the slot table, a part and the list of parts.
	maxLargeBytes = 32 << 10
)

// TestLargeServiceCounts bounds what a change of one endpoint of 20,000 costs, in counts and
// not in time. To look at all of them would take megabytes.
func TestLargeServiceCounts(t *testing.T) {
	const perSlice = 100
	slice := func(i int, endpoints ...int) *EndpointSlice {
		s := &EndpointSlice{
			Name:    types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("large-%03d", i)},
			Service: "large", Family: rules.IPv4, Weight: DefaultWeight, Ports: []Port{{Protocol: rules.TCP, Number: 8080}},
		}
		for _, e := range endpoints {
			s.Endpoints = append(s.Endpoints, SliceEndpoint{Addr: addrOf(128, e), Ready: true, Serving: true})
		}
		return s
	}
	numbers := func(from, to int) (all []int) {
		for n := from; n < to; n++ {
			all = append(all, n)
		}
		return all
	}
	for _, n := range []int{2_000, 20_000} {
		t.Run(fmt.Sprintf("%d endpoints", n), func(t *testing.T) {
			first := services(newService(t, "default/large", "10.96.0.1", ":80"))
			for i := range n / perSlice {
				s := slice(i, numbers(i*perSlice, (i+1)*perSlice)...)
				first.Slices = append(first.Slices, SliceChange{s.Name, s})
			}
			sync := countedSync(t, first)
			from, to := n/2, n/2+perSlice // of the slice in the middle
			rounds := []struct {
				slice *EndpointSlice
				want  int // element operations
			}{
				{slice(from/perSlice, numbers(from+1, to)...), 1},
				{slice(from/perSlice, numbers(from, to)...), 1},
				{slice(from/perSlice, append(numbers(from+1, to), n+1)...), 2}, // another slot takes both
				{slice(from/perSlice, numbers(from, to)...), 2},
			}
			round := func() {
				for _, r := range rounds {
					report, err := sync(Changes{Slices: []SliceChange{{r.slice.Name, r.slice}}})
					if err != nil || report.Batches != 1 || report.Counts != (syncer.Counts{Elements: r.want}) {
						t.Fatalf("%d batches, %s, %v; want one of %d element operations", report.Batches, report.Counts, err, r.want)
					}
				}
			}
			for range 2 { // the first change makes the indexes
				round()
			}
			const times = 20
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			allocations := testing.AllocsPerRun(times, round) / float64(len(rounds))
			runtime.ReadMemStats(&after)
			bytes := int(after.TotalAlloc-before.TotalAlloc) / (times + 1) / len(rounds)
			t.Logf("%g allocations, %d bytes", allocations, bytes)
			if allocations > maxLargeAllocations {
				t.Errorf("%g allocations for a change, at most %d", allocations, maxLargeAllocations)
			}
			if bytes > maxLargeBytes {
				t.Errorf("%d bytes for a change, at most %d", bytes, maxLargeBytes)
			}
		})
	}
}
