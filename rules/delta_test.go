package rules

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// numbered returns the n-th of very many endpoints.
func numbered(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 245, byte(n >> 8), byte(n)}), 8080)
}

// manyEndpoints is service 1 with frontends of all kinds and numbered endpoints.
func manyEndpoints(numbers ...int) ServicePort {
	sp := service(1, "")
	sp.Frontends = append(sp.Frontends, Frontend{Kind: NodePort, Addr: netip.MustParseAddrPort("0.0.0.0:30080")})
	for _, n := range numbers {
		sp.Endpoints = append(sp.Endpoints, Endpoint{Addr: numbered(n), Weight: 1, Local: n == 0})
	}
	return sp
}

// TestDeltaIsCompile takes a service port through random changes of few and many endpoints,
// also of that in slot 0, and asks that the differences make of it what Compile makes of
// all endpoints, and that comparing only what is not shared finds what has changed.
func TestDeltaIsCompile(t *testing.T) {
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 0))
		universe := 300 + random.IntN(1200)
		in := map[int]bool{0: true}
		for range universe {
			in[random.IntN(universe)] = true
		}
		full := compile(t, manyEndpoints(sortedNumbers(in)...), nil)
		index, err := NewSlotIndex(full)
		if err != nil {
			t.Fatal(err)
		}
		resized := 0
		for step := range 100 {
			prev := index.Of()
			before := prev.AppendElements(nil)
			next, err := index.Apply(randomDelta(random, in, universe, prev))
			if err != nil {
				t.Fatal(err)
			}
			full = compile(t, manyEndpoints(sortedNumbers(in)...), full)
			if !next.equal(full) {
				t.Fatalf("seed %d, step %d: the difference made\n%v, want\n%v", seed, step, next.Slots, full.Slots)
			}
			if !slices.Equal(before, prev.AppendElements(nil)) {
				t.Fatalf("seed %d, step %d: what was there before has changed", seed, step)
			}
			checkDiffering(t, prev, next)
			if prev.Slots.Capacity() != next.Slots.Capacity() {
				resized++
			}
		}
		if resized == 0 {
			t.Errorf("seed %d: the capacity never changed", seed)
		}
	}
}

// randomDelta changes which endpoints there are, but for number 0, which is on this node.
func randomDelta(random *rand.Rand, in map[int]bool, universe int, c *Compiled) Delta {
	var d Delta
	change := func(n int) {
		switch a := numbered(n); {
		case n == 0 || slices.Contains(d.Added, a) || slices.Contains(d.Removed, a):
		case in[n]:
			delete(in, n)
			d.Removed = append(d.Removed, a)
		default:
			in[n] = true
			d.Added = append(d.Added, a)
		}
	}
	times := random.IntN(3)
	if random.IntN(20) == 0 {
		times = universe // half of them change, more or less
	}
	for range times {
		change(random.IntN(universe))
	}
	if random.IntN(4) == 0 { // slot 0, the last resort
		a := c.Slots[0][0].Addr().As4()
		if c.Slots[0][0].Addr().As4()[1] == 245 {
			change(int(a[2])<<8 | int(a[3]))
		}
	}
	if random.IntN(30) == 0 { // almost all go
		for n := range in {
			if random.IntN(10) > 0 {
				change(n)
			}
		}
	}
	slices.SortFunc(d.Added, netip.AddrPort.Compare)
	slices.SortFunc(d.Removed, netip.AddrPort.Compare)
	return d
}

func sortedNumbers(in map[int]bool) []int {
	var numbers []int
	for n := range in {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}

// checkDiffering compares the differences between the elements that AppendDiffering
// appends with those between all, and NumDiffering with their number.
func checkDiffering(t *testing.T, prev, next *Compiled) {
	t.Helper()
	without := func(a, b []Element) []Element {
		return slices.DeleteFunc(slices.Clone(a), func(e Element) bool {
			i, found := slices.BinarySearchFunc(b, e, Element.Compare)
			return found && b[i] == e
		})
	}
	old, all := prev.AppendElements(nil), next.AppendElements(nil)
	oldPart, newPart := AppendDiffering(nil, nil, prev, next)
	if !slices.Equal(without(old, all), without(oldPart, newPart)) || !slices.Equal(without(all, old), without(newPart, oldPart)) {
		t.Fatal("the differing elements hide a difference")
	}
	if n := len(oldPart) + len(newPart); n > NumDiffering(prev, next) {
		t.Fatalf("%d differing elements, said to be at most %d", n, NumDiffering(prev, next))
	}
}

// TestDifferingIsSmall: for one endpoint of very many, only the part of the table is
// compared that it is in, once for each frontend and state.
func TestDifferingIsSmall(t *testing.T) {
	numbers := make([]int, 20_000)
	for i := range numbers {
		numbers[i] = i
	}
	prev := compile(t, manyEndpoints(numbers...), nil)
	index, err := NewSlotIndex(prev)
	if err != nil {
		t.Fatal(err)
	}
	next, err := index.Apply(Delta{Removed: []netip.AddrPort{numbered(7_000)}})
	if err != nil {
		t.Fatal(err)
	}
	old, differing := AppendDiffering(nil, nil, prev, next)
	if n, most := len(old)+len(differing), 2*len(prev.Frontends)*(partSlots+5); n > most {
		t.Errorf("%d elements are compared, want at most %d", n, most)
	}
	if onNode := func(e Element) bool { return e.Set == Hairpin }; slices.ContainsFunc(old, onNode) || slices.ContainsFunc(differing, onNode) {
		t.Error("the endpoints on this node are compared")
	}
	again := compile(t, manyEndpoints(slices.Delete(slices.Clone(numbers), 7_000, 7_001)...), prev)
	if got, want := NumDiffering(prev, again), NumDiffering(prev, next); got != want {
		t.Errorf("compiled anew it shares other parts: %d elements differ, want %d", got, want)
	}
}

// Whoever differs in more than slots shares nothing, even where the parts are the same.
func TestDifferingOfOthersIsAll(t *testing.T) {
	numbers := make([]int, 2*partSlots)
	for i := range numbers {
		numbers[i] = i
	}
	sp := manyEndpoints(numbers...)
	prev := compile(t, sp, nil)
	for name, change := range map[string]func(*ServicePort){
		"another frontend": func(s *ServicePort) { s.Frontends = s.Frontends[:1] },
		"affinity":         func(s *ServicePort) { s.Affinity = MaxAffinity },
		"internal policy":  func(s *ServicePort) { s.InternalLocal = true },
		"external policy":  func(s *ServicePort) { s.ExternalLocal = true },
	} {
		changed := sp
		change(&changed)
		next := compile(t, changed, prev)
		if !prev.Slots.shares(0, next.Slots) {
			t.Errorf("%s: equal parts are not shared", name)
		}
		checkDiffering(t, prev, next)
	}
	checkDiffering(t, nil, prev)
	checkDiffering(t, prev, nil)
}

// TestDeltaErrors: what is no difference from the service port changes nothing.
func TestDeltaErrors(t *testing.T) {
	addr := netip.MustParseAddrPort
	for _, c := range []struct {
		name  string
		delta Delta
		want  string
	}{
		{"one goes that is not there", Delta{Removed: []netip.AddrPort{numbered(9)}}, "is not there"},
		{"one comes that is there", Delta{Added: []netip.AddrPort{numbered(2)}}, "is there"},
		{"one goes and comes", Delta{Removed: []netip.AddrPort{numbered(2)}, Added: []netip.AddrPort{numbered(2)}}, "is there"},
		{"one goes that is on this node", Delta{Removed: []netip.AddrPort{numbered(0)}}, "on this node"},
		{"all go", Delta{Removed: []netip.AddrPort{numbered(1), numbered(2), numbered(3)}}, "to none"},
		{"one goes twice", Delta{Removed: []netip.AddrPort{numbered(1), numbered(1)}}, "listed twice"},
		{"not sorted", Delta{Added: []netip.AddrPort{numbered(6), numbered(5)}}, "not sorted"},
		{"the other family", Delta{Added: []netip.AddrPort{addr("[fd00::1]:80")}}, "not IPv4"},
		{"port 0", Delta{Added: []netip.AddrPort{addr("10.0.0.1:0")}}, "port 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			numbers := []int{1, 2, 3}
			if strings.Contains(c.want, "this node") {
				numbers = append(numbers, 0)
			}
			prev := compile(t, manyEndpoints(numbers...), nil)
			index, err := NewSlotIndex(prev)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := index.Apply(c.delta); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if next, err := index.Apply(Delta{}); err != nil || next != prev {
				t.Errorf("an empty difference made %v of it after that, %v", next, err)
			}
			if next, err := index.Apply(Delta{Added: []netip.AddrPort{numbered(4)}}); err != nil || len(next.Slots.flat().endpoints()) != len(numbers)+1 {
				t.Errorf("a good difference made %v of it after that, %v", next, err)
			}
		})
	}
}

func TestNoSlotIndex(t *testing.T) {
	for name, change := range map[string]func(*ServicePort){
		"affinity":        func(s *ServicePort) { s.Affinity = MaxAffinity },
		"internal policy": func(s *ServicePort) { s.InternalLocal = true },
		"external policy": func(s *ServicePort) { s.ExternalLocal = true },
		"weights":         func(s *ServicePort) { s.Endpoints[0].Weight = 2 },
	} {
		sp := manyEndpoints(1, 2, 3)
		change(&sp)
		if _, err := NewSlotIndex(compile(t, sp, nil)); err == nil {
			t.Errorf("%s: an index", name)
		}
	}
	if _, err := NewSlotIndex(nil); err == nil {
		t.Error("an index of nothing")
	}
}
