package rules

import (
	"fmt"
	"io"
	"net/netip"
	"slices"
	"testing"
)

// benchService makes up a service port with one frontend and n endpoints of
// equal weight.
func benchService(n int) ServicePort {
	sp := ServicePort{
		ServicePortKey: ServicePortKey{ServicePortName{"default", "web", "http", TCP}, IPv4},
		Frontends:      []Frontend{{Kind: ClusterIP, Addr: netip.MustParseAddrPort("10.96.0.10:80")}},
	}
	for i := range n {
		addr := netip.AddrFrom4([4]byte{10, 244, byte(i >> 8), byte(i)})
		sp.Endpoints = append(sp.Endpoints, Endpoint{Addr: netip.AddrPortFrom(addr, 8080), Weight: 1, Local: i%100 == 0})
	}
	return sp
}

// BenchmarkCompile compiles a service port again after one of its endpoints was
// replaced by another.
func BenchmarkCompile(b *testing.B) {
	for _, n := range []int{10, 5000} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			sp := benchService(n)
			prev, err := Compile(Config{}, sp, nil)
			if err != nil {
				b.Fatal(err)
			}
			sp.Endpoints[n/2].Addr = netip.MustParseAddrPort("10.245.0.1:8080")
			b.ReportAllocs()
			for b.Loop() {
				if c, err := Compile(Config{}, sp, prev); err != nil || c == prev {
					b.Fatal("the change is not in the result: ", err)
				}
			}
		})
	}
}

// BenchmarkAppendElements lists the elements of one service port into a buffer
// that is large enough.
func BenchmarkAppendElements(b *testing.B) {
	c, err := Compile(Config{}, benchService(10), nil)
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]Element, 0, c.NumElements())
	b.ReportAllocs()
	for b.Loop() {
		buf = c.AppendElements(buf[:0])
	}
}

// BenchmarkWriteText prints the tables of one service port with 5,000 endpoints.
func BenchmarkWriteText(b *testing.B) {
	c, err := Compile(Config{}, benchService(5000), nil)
	if err != nil {
		b.Fatal(err)
	}
	ruleset := NewRuleset(Config{}, []*Compiled{c})
	b.ReportAllocs()
	for b.Loop() {
		if err := ruleset.WriteText(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkEncodeElements encodes the elements of the same service port.
func BenchmarkEncodeElements(b *testing.B) {
	c, err := Compile(Config{}, benchService(5000), nil)
	if err != nil {
		b.Fatal(err)
	}
	elements := c.AppendElements(nil)
	elements = elements[len(elements)-5000:]
	b.ReportAllocs()
	var buf []byte
	for b.Loop() {
		buf = buf[:0]
		for part := range slices.Chunk(elements, 200) {
			buf = EncodeElements(buf, part)
		}
	}
}

// BenchmarkSlotCounts is the worst case for weights: as many different ones as
// there are, over many endpoints, too many slots for an exact representation.
func BenchmarkSlotCounts(b *testing.B) {
	endpoints := make([]Endpoint, 5000)
	for i := range endpoints {
		endpoints[i].Weight = uint16(1 + i%MaxWeight)
	}
	b.ReportAllocs()
	for b.Loop() {
		slotCounts(endpoints, DefaultMaxSlots)
	}
}
