package syncer

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// deaf is a feed that does not ignore what is ours.
type deaf struct{ changeFeed }

func (deaf) ignore([]uint32) error { return nil }

// BenchmarkMonitor measures batches of ours, without a Monitor, with one, and with one
// that receives all notifications of them. It reports the time of the threads of this
// process too, the Monitor's among them.
func BenchmarkMonitor(b *testing.B) {
	for _, elements := range []int{1, 10_000} {
		for _, monitor := range []string{"none", "running", "deaf"} {
			b.Run(fmt.Sprintf("elements=%d/monitor=%s", elements, monitor), func(b *testing.B) {
				ns := nstest.New(b)
				k := newNetlinkWithTable(b, ns)
				if monitor != "none" {
					m := NewMonitor(ns.FD(), func(c ForeignChange) { b.Error(c) }, func() { b.Error("lost") }, func(err error) { b.Error(err) })
					if monitor == "deaf" {
						open := m.open
						m.open = func() (changeFeed, error) {
							feed, err := open()
							return deaf{feed}, err
						}
					}
					runMonitor(b, m)
				}
				add, remove := elementBatches(elements)
				var times []time.Duration
				before := processTime(b)
				for b.Loop() {
					for _, batch := range []*Batch{add, remove} {
						start := time.Now()
						if err := k.Apply(b.Context(), batch); err != nil {
							b.Fatal(err)
						}
						times = append(times, time.Since(start))
					}
				}
				b.ReportMetric(float64(processTime(b)-before)/float64(2*b.N), "cpu-ns/batch")
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), "p50-ns/batch")
			})
		}
	}
}

// processTime returns how long the threads of this process have run, in nanoseconds.
func processTime(tb testing.TB) int64 {
	tb.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		tb.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// newNetlinkWithTable returns a kernel with our IPv4 table and its endpoints map.
func newNetlinkWithTable(tb testing.TB, ns *nstest.NS) *Netlink {
	tb.Helper()
	k, err := NewNetlink(ns.FD())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := k.Close(); err != nil {
			tb.Error(err)
		}
	})
	apply(tb, k, Op{Verb: AddTable, Family: rules.IPv4}, Op{Verb: AddSet, Family: rules.IPv4, Set: rules.Endpoints})
	return k
}

func apply(tb testing.TB, k *Netlink, ops ...Op) {
	tb.Helper()
	b := &Batch{}
	b.Add(ops...)
	// Batches are wanted in clean-ups too, when the test's context is done.
	if err := k.Apply(context.WithoutCancel(tb.Context()), b); err != nil {
		tb.Fatal(err)
	}
}

// elementBatches returns a batch that adds elements to the endpoints map and one that
// deletes them.
func elementBatches(n int) (add, remove *Batch) {
	elements := make([]rules.Element, n)
	for i := range elements {
		service, endpoint := addrPortOf("10.96.0.0", i/10, 80), addrPortOf("10.244.0.0", i, 8080)
		elements[i] = rules.Element{
			Set: rules.Endpoints, Endpoint: endpoint,
			Key: rules.Key{Addr: service.Addr(), Protocol: rules.TCP, Port: 80, Slot: uint32(i % 10)},
		}
	}
	add, remove = &Batch{}, &Batch{}
	add.Add(Op{Verb: AddElements, Family: rules.IPv4, Set: rules.Endpoints, Elements: elements})
	remove.Add(Op{Verb: DeleteElements, Family: rules.IPv4, Set: rules.Endpoints, Elements: elements})
	return add, remove
}
