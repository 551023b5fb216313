package syncer

import (
	"context"
	"fmt"
	"testing"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// willing is a kernel that takes everything at once.
type willing struct{ Kernel }

func (willing) Apply(context.Context, *Batch) error { return nil }

// benchService makes up a service port with a ClusterIP and n endpoints.
func benchService(service, n int) *rules.ServicePort {
	name := rules.ServicePortName{Namespace: "default", Name: fmt.Sprintf("service-%06d", service), Protocol: rules.TCP}
	sp := &rules.ServicePort{
		ServicePortKey: rules.ServicePortKey{ServicePortName: name, Family: rules.IPv4},
		Frontends:      []rules.Frontend{{Kind: rules.ClusterIP, Addr: addrPortOf("10.96.0.0", service, 80)}},
	}
	for i := range n {
		sp.Endpoints = append(sp.Endpoints, rules.Endpoint{Addr: addrPortOf("10.128.0.0", service*n+i, 8080), Weight: 1})
	}
	return sp
}

// BenchmarkDiff compiles a service port again after one of its endpoints went or came,
// compares it with what is installed, and makes the batch of the difference. What is
// compared grows with the service port, and not with the number of others.
func BenchmarkDiff(b *testing.B) {
	for _, size := range []struct{ services, endpoints int }{{1, 10}, {10_000, 10}, {1, 5000}} {
		b.Run(fmt.Sprintf("services=%d/endpoints=%d", size.services, size.endpoints), func(b *testing.B) {
			s, err := New(willing{&Memory{}}, rules.Config{})
			if err != nil {
				b.Fatal(err)
			}
			all := make([]Change, size.services)
			for i := range all {
				sp := benchService(i, size.endpoints)
				all[i] = Change{Key: sp.ServicePortKey, ServicePort: sp}
			}
			if _, err := s.Sync(b.Context(), all); err != nil {
				b.Fatal(err)
			}
			with := all[size.services/2]
			without := Change{Key: with.Key, ServicePort: &rules.ServicePort{}}
			*without.ServicePort = *with.ServicePort
			without.ServicePort.Endpoints = with.ServicePort.Endpoints[:size.endpoints-1]
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				change := []Change{without}
				if i%2 == 1 {
					change[0] = with
				}
				if r, err := s.Sync(b.Context(), change); err != nil || r.Counts.Elements == 0 {
					b.Fatal(r, err)
				}
			}
		})
	}
}

// BenchmarkCommit sends batches that add slots, and batches that delete them, to the real
// kernel: from the batch to its last answer.
func BenchmarkCommit(b *testing.B) {
	for _, elements := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("elements=%d", elements), func(b *testing.B) {
			k := newNetlinkWithTable(b, nstest.New(b))
			add, remove := elementBatches(elements)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				batch := add
				if i%2 == 1 {
					batch = remove
				}
				if err := k.Apply(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
