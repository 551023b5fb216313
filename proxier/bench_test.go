package proxier

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

const endpointsPerService = 10

// cluster makes n Services with endpointsPerService endpoints each, every tenth of
// them on this node.
func cluster(n int) Changes {
	var c Changes
	for i := range n {
		name := types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("svc-%06d", i)}
		c.Services = append(c.Services, ServiceChange{name, &Service{
			Name: name, Addrs: []ServiceAddr{{rules.ClusterIP, addrOf(96, i)}}, Ports: []Port{{Protocol: rules.TCP, Number: 80}},
		}})
		slice := clusterSlice(i, endpointsPerService)
		c.Slices = append(c.Slices, SliceChange{slice.Name, slice})
	}
	return c
}

// clusterSlice makes the slice of the i-th Service with some of its endpoints.
func clusterSlice(i, endpoints int) *EndpointSlice {
	s := &EndpointSlice{
		Name:    types.NamespacedName{Namespace: "default", Name: fmt.Sprintf("svc-%06d-abcde", i)},
		Service: fmt.Sprintf("svc-%06d", i), Family: rules.IPv4, Weight: DefaultWeight,
		Ports: []Port{{Protocol: rules.TCP, Number: 8080}},
	}
	for e := range endpoints {
		s.Endpoints = append(s.Endpoints, SliceEndpoint{
			Addr: addrOf(128, i*endpointsPerService+e), Ready: true, Serving: true, Local: e == 0,
		})
	}
	return s
}

func addrOf(network byte, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, network + byte(n>>16), byte(n >> 8), byte(n)})
}

// startReal runs a Proxier on the real kernel in a namespace, without Flows.
func startReal(tb testing.TB, ns *nstest.NS) (Handler, <-chan Report) {
	tb.Helper()
	return startWithFlows(tb, ns, nil)
}

func startWithFlows(tb testing.TB, ns *nstest.NS, flows Flows) (Handler, <-chan Report) {
	tb.Helper()
	kernel, err := syncer.NewNetlink(ns.FD())
	if err != nil {
		tb.Fatal(err)
	}
	handlers, reports := make(chan Handler), make(chan Report, 100)
	source := sourceFunc(func(ctx context.Context, h Handler) error {
		handlers <- h
		<-ctx.Done()
		return nil
	})
	p, err := New(source, kernel, Options{Flows: flows, Log: zap.NewNop(), OnSync: func(r Report) { reports <- r }})
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
		if err := kernel.Close(); err != nil {
			tb.Error(err)
		}
	})
	return <-handlers, reports
}

// BenchmarkSlotUpdate measures one endpoint that comes or goes, from the changed
// slim object to the kernel's answer, through the whole loop.
func BenchmarkSlotUpdate(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("services=%d", n), func(b *testing.B) {
			handler, reports := startReal(b, nstest.New(b))
			handler.Apply(cluster(n))
			handler.Synced()
			if r := <-reports; r.Err != nil {
				b.Fatal(r.Err)
			}
			with, without := clusterSlice(n/2, endpointsPerService), clusterSlice(n/2, endpointsPerService-1)
			durations := make([]time.Duration, 0, 1<<16)
			// After this the kernel has resized the new tables in the background, and freed
			// those of the run before.
			runtime.GC()
			time.Sleep(2 * time.Second)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				slice := without
				if i%2 == 1 {
					slice = with
				}
				handler.Apply(Changes{Slices: []SliceChange{{slice.Name, slice}}})
				r := <-reports
				durations = append(durations, r.Queued+r.Took)
				if r.Err != nil || r.Counts != (syncer.Counts{Elements: 1}) {
					b.Fatalf("%+v", r)
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
	for name, percent := range map[string]int{"p50-µs": 50, "p99-µs": 99} {
		d := durations[min(len(durations)*percent/100, len(durations)-1)]
		b.ReportMetric(float64(d)/float64(time.Microsecond), name)
	}
}

// BenchmarkFirstSync measures the first sync of 10,000 Services with 100,000
// endpoints, from parsed objects to the kernel's answer.
func BenchmarkFirstSync(b *testing.B) {
	objects := cluster(10_000)
	for b.Loop() {
		b.StopTimer()
		handler, reports := startReal(b, nstest.New(b))
		b.StartTimer()
		handler.Apply(objects)
		handler.Synced()
		if r := <-reports; r.Err != nil || r.Counts.Elements < 120_000 {
			b.Fatalf("%+v", r)
		}
	}
}
