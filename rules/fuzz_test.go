package rules

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"
)

// FuzzCompile decodes arbitrary bytes into a sequence of service ports, good and
// bad, and compiles each after the one before.
func FuzzCompile(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x01\x03web...............\x00\x01\x03web........."))
	f.Add(bytes.Repeat([]byte{0, 0, 1, 'a', 1, 3, 0, 1, 0, 2, 0, 3, 1, 0, 0, 80, 1, 1, 1, 80, 0, 1, 2, 80, 9, 1}, 4))
	f.Add(bytes.Repeat([]byte{1, 1, 2, '"', '\n', 2, 2, 1, 1, 80, 1, 2, 80}, 6))
	f.Add(bytes.Repeat([]byte{2, 4, 0xff}, 60))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 2000 {
			return
		}
		r := reader{data}
		var prev *Compiled
		for range 8 {
			sp := r.servicePort()
			c, err := Compile(Config{MaxSlots: 200}, sp, prev)
			if err != nil {
				if sp.Validate() == nil {
					t.Fatalf("a valid service port has the error %v", err)
				}
				continue // prev stays installed
			}
			checkCompiled(t, sp, c)
			prev = c
		}
		if prev != nil {
			checkText(t, NewRuleset(Config{}, []*Compiled{prev}))
		}
	})
}

// checkCompiled checks what holds for every result: elements are sorted, unique,
// valid and no more than announced, and nothing is left to change.
func checkCompiled(t *testing.T, sp ServicePort, c *Compiled) {
	t.Helper()
	elements := c.AppendElements(nil)
	if n := c.NumElements(); len(elements) > n {
		t.Fatalf("%d elements, at most %d announced", len(elements), n)
	}
	for i, e := range elements {
		if i > 0 && elements[i-1].Compare(e) >= 0 {
			t.Fatalf("element %s comes after %s", e.AppendText(nil), elements[i-1].AppendText(nil))
		}
		checkElement(t, sp, e)
	}
	if again, err := Compile(Config{MaxSlots: 200}, sp, c); err != nil || again != c {
		t.Fatalf("compiling the same again returns %+v, %v", again, err)
	}
	if all := NewRuleset(Config{}, []*Compiled{c}).Elements(sp.Family); !slices.Equal(all, elements) {
		t.Fatal("the ruleset has other elements than its only service port")
	}
}

// checkText checks that the same ruleset is always printed the same.
func checkText(t *testing.T, r *Ruleset) {
	t.Helper()
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := errors.Join(r.WriteText(w), r.WriteJSON(w)); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Fatal("the same value is printed in two ways")
	}
}

// checkElement checks one element: it fits its set, and what it refers to exists.
func checkElement(t *testing.T, sp ServicePort, e Element) {
	t.Helper()
	text := e.AppendText(nil)
	if !e.Key.Addr.IsValid() || FamilyOf(e.Key.Addr) != sp.Family {
		t.Fatalf("element %s has no address of %s", text, sp.Family)
	}
	if quotes := bytes.Count(text, []byte(`"`)); len(e.Comment) > MaxComment || (e.Comment == "" && quotes != 0) || (e.Comment != "" && quotes != 2) {
		t.Fatalf("element %s has a bad comment", text)
	}
	if bytes.ContainsAny(text, "\n\\") {
		t.Fatalf("element %q breaks its line", text)
	}
	switch set := e.Set.Set(); {
	case (set.Value == VerdictValue) != (e.Chain != "") || (set.Value == EndpointValue) != e.Endpoint.IsValid():
		t.Fatalf("element %s has not the value of its set", text)
	case e.Endpoint.IsValid() && !slices.ContainsFunc(sp.Endpoints, func(p Endpoint) bool { return p.Addr == e.Endpoint }):
		t.Fatalf("element %s leads to no endpoint", text)
	case e.Chain != "":
		if ChainsByName(e.Chain) == nil {
			t.Fatalf("element %s leads to no chain", text)
		}
	}
}

// reader turns bytes into values; after the last byte come zeros.
type reader struct{ data []byte }

func (r *reader) byte() byte {
	if len(r.data) == 0 {
		return 0
	}
	b := r.data[0]
	r.data = r.data[1:]
	return b
}

// servicePort reads a service port. Most bytes make sense, so that most are
// valid: few different addresses and ports, an unknown value now and then.
func (r *reader) servicePort() ServicePort {
	var sp ServicePort
	sp.Family = []Family{IPv4, IPv6, IPv4, 0}[r.byte()%4]
	sp.Protocol = []Protocol{TCP, UDP, SCTP, TCP, 1}[r.byte()%5]
	sp.Namespace = "default"
	name := make([]byte, r.byte()%160)
	for i := range name {
		name[i] = r.byte()
	}
	sp.Name = string(name)
	for range r.byte() % 5 {
		kind := []FrontendKind{ClusterIP, ClusterIP, ExternalIP, LoadBalancerIP, LoadBalancerIP + 1}[r.byte()%5]
		sp.Frontends = append(sp.Frontends, Frontend{Kind: kind, Addr: r.addr(sp.Family, 96)})
	}
	policies := r.byte()
	sp.InternalLocal, sp.ExternalLocal, sp.Served = policies&1 != 0, policies&2 != 0, policies&4 != 0
	sp.Restricted = policies&8 != 0
	for range policies >> 4 {
		sp.SourceRanges = append(sp.SourceRanges, netip.PrefixFrom(r.addr(sp.Family, 10).Addr(), int(r.byte()%129)))
	}
	for range r.byte() % 40 {
		e := Endpoint{Addr: r.addr(sp.Family, 244)}
		b := r.byte()
		e.Local, e.Weight = b&1 != 0, []uint16{1, 1, 0, 2, 3, 100, MaxWeight, MaxWeight + 1}[b>>1%8]
		if b&16 == 0 {
			sp.Endpoints = append(sp.Endpoints, e)
		}
		if b&32 != 0 {
			sp.LocalEndpoints = append(sp.LocalEndpoints, e)
		}
	}
	return sp
}

func (r *reader) addr(f Family, network byte) netip.AddrPort {
	host, port := r.byte(), r.byte()
	a := netip.AddrFrom4([4]byte{10, network, 0, host})
	switch {
	case host == 255:
		a = netip.Addr{}
	case f == IPv6 && host != 254:
		a = netip.AddrFrom16([16]byte{0: 0xfd, 1: network, 15: host})
	}
	return netip.AddrPortFrom(a, uint16(port))
}
