package rules

import (
	"fmt"
	"math/rand"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// service returns a service port with the endpoints named by letters, each as
// many times its weight as it is named. Frontends are 10.96.0.10:80 and on.
func service(frontends int, letters string) ServicePort {
	sp := ServicePort{ServicePortKey: ServicePortKey{ServicePortName{"default", "web", "http", TCP}, IPv4}}
	for i := range frontends {
		sp.Frontends = append(sp.Frontends, frontend(fmt.Sprintf("10.96.0.%d:80", 10+i)))
	}
	endpoints, counts := parseWanted(letters)
	for i, e := range endpoints {
		e.Weight = uint16(counts[i])
		sp.Endpoints = append(sp.Endpoints, e)
	}
	return sp
}

// compile compiles with the default configuration, but for fewer slots.
func compile(t *testing.T, sp ServicePort, prev *Compiled) *Compiled {
	t.Helper()
	c, err := Compile(Config{MaxSlots: 256}, sp, prev)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCompile(t *testing.T) {
	sp := service(2, "BBA")
	sp.Endpoints = append(sp.Endpoints,
		Endpoint{Addr: slotEndpoint('D'), Weight: 1, Local: true},
		Endpoint{Addr: slotEndpoint('C'), Weight: 1, Local: true},
		Endpoint{Addr: slotEndpoint('E'), Weight: 0, Local: true}, // a backup
	)
	slices.Reverse(sp.Frontends)
	got := compile(t, sp, nil)
	want := &Compiled{
		ServicePortKey: sp.ServicePortKey,
		Frontends:      []Frontend{frontend("10.96.0.10:80"), frontend("10.96.0.11:80")},
		Slots:          SlotTable{parseSlots("ABBCD")},
		Served:         true,
		Hairpin:        []netip.AddrPort{slotEndpoint('C'), slotEndpoint('D')},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
}

// Compile neither changes what it is given nor keeps any of it.
func TestCompileLeavesItsInput(t *testing.T) {
	sp := service(2, "CBA")
	slices.Reverse(sp.Frontends)
	frontends, endpoints := slices.Clone(sp.Frontends), slices.Clone(sp.Endpoints)
	c := compile(t, sp, nil)
	before := *c
	before.Frontends, before.Slots = slices.Clone(c.Frontends), SlotTable{slices.Clone(c.Slots.flat())}
	if !slices.Equal(sp.Frontends, frontends) || !slices.Equal(sp.Endpoints, endpoints) {
		t.Error("the service port was changed")
	}
	sp.Frontends[0], sp.Endpoints[0] = Frontend{}, Endpoint{}
	compile(t, service(1, "CDEFG"), c)
	if !reflect.DeepEqual(&before, c) {
		t.Errorf("a result became %+v, was %+v", c, &before)
	}
}

// If nothing that is in the ruleset differs, Compile returns prev itself.
func TestCompileReturnsPrev(t *testing.T) {
	sp := service(3, "AAABBCDEF")
	sp.Endpoints[1].Local = true
	prev := compile(t, sp, nil)
	sp.Endpoints = slices.DeleteFunc(sp.Endpoints, func(e Endpoint) bool { return e.Addr == slotEndpoint('C') })
	prev = compile(t, sp, prev) // with a hole
	rng := rand.New(rand.NewSource(1))
	for range 50 {
		shuffle(rng, &sp)
		if c := compile(t, sp, prev); c != prev {
			t.Fatalf("another order of the same made %+v of %+v", c, prev)
		}
	}
	for name, change := range map[string]func(*ServicePort){
		"a backup beside others": func(s *ServicePort) {
			s.Endpoints = append(s.Endpoints, Endpoint{Addr: slotEndpoint('Z'), Local: true})
		},
		"all weights doubled": func(s *ServicePort) {
			for i := range s.Endpoints {
				s.Endpoints[i].Weight *= 2
			}
		},
	} {
		same := sp
		same.Endpoints = slices.Clone(sp.Endpoints)
		change(&same)
		if c := compile(t, same, prev); c != prev {
			t.Errorf("%s made %+v of %+v", name, c, prev)
		}
	}
	for name, change := range map[string]func(*ServicePort){
		"another name":      func(s *ServicePort) { s.Name = "x" },
		"another family":    func(s *ServicePort) { *s = ServicePort{ServicePortKey: ServicePortKey{s.ServicePortName, IPv6}} },
		"one frontend less": func(s *ServicePort) { s.Frontends = s.Frontends[1:] },
		"one endpoint less": func(s *ServicePort) { s.Endpoints = s.Endpoints[1:] },
		"an endpoint is near": func(s *ServicePort) {
			s.Endpoints = slices.Clone(s.Endpoints)
			s.Endpoints[0].Local = !s.Endpoints[0].Local
		},
	} {
		other := sp
		change(&other)
		if c := compile(t, other, prev); c == prev {
			t.Errorf("%s is not in the result", name)
		}
	}
}

func shuffle(rng *rand.Rand, sp *ServicePort) {
	sp.Frontends, sp.Endpoints = slices.Clone(sp.Frontends), slices.Clone(sp.Endpoints)
	rng.Shuffle(len(sp.Frontends), func(i, j int) { sp.Frontends[i], sp.Frontends[j] = sp.Frontends[j], sp.Frontends[i] })
	rng.Shuffle(len(sp.Endpoints), func(i, j int) { sp.Endpoints[i], sp.Endpoints[j] = sp.Endpoints[j], sp.Endpoints[i] })
}

// The result depends on the sets of frontends and endpoints, not on their order:
// two histories of the same sets in different orders are equal at every step,
// down to the bytes of the text.
func TestCompileIsIndependentOfOrder(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	for range 20 {
		var a, b *Compiled
		for step := range 20 {
			sp := service(1+rng.Intn(3), "")
			for i := range 60 {
				if w := randomWeight(rng); w >= 0 {
					sp.Endpoints = append(sp.Endpoints, Endpoint{Addr: slotEndpoint(byte(i)), Weight: uint16(w), Local: i%7 == 0})
				}
			}
			a = compile(t, sp, a)
			shuffle(rng, &sp)
			b = compile(t, sp, b)
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("seed %d, step %d: two orders lead to\n%+v and\n%+v", seed, step, a, b)
			}
			if writeText(t, a) != writeText(t, b) {
				t.Fatalf("seed %d, step %d: equal values have different text", seed, step)
			}
		}
	}
}

func writeText(t *testing.T, services ...*Compiled) string {
	t.Helper()
	var text strings.Builder
	if err := NewRuleset(Config{}, services).WriteText(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// TestCostOfAChange is the table in the package documentation: how many elements
// the last of several steps adds and deletes. The service port has two frontends.
func TestCostOfAChange(t *testing.T) {
	local := service(2, "ABC")
	local.Endpoints[0].Local = true
	for _, c := range []struct {
		name  string
		steps []ServicePort
		want  cost
	}{
		{"nothing", []ServicePort{service(2, "ABC"), service(2, "ABC")}, cost{}},
		{"an endpoint comes", []ServicePort{service(2, "ABCD"), service(2, "ABC"), service(2, "ABCE")}, cost{added: 2}},
		{"an endpoint goes", []ServicePort{service(2, "ABCD"), service(2, "ABC")}, cost{deleted: 2}},
		{"an endpoint goes that is in slot 0", []ServicePort{service(2, "ABCD"), service(2, "BCD")}, cost{added: 2, deleted: 4}},
		{"an endpoint replaces another", []ServicePort{service(2, "ABCD"), service(2, "ABCE")}, cost{added: 2, deleted: 2}},
		{"three replace three", []ServicePort{service(2, "ABCDE"), service(2, "CDXYZ")}, cost{added: 6, deleted: 6}},
		{"a weight grows by two", []ServicePort{service(2, "ABCDE"), service(2, "ABC"), service(2, "AAABC")}, cost{added: 4}},
		{"an endpoint is on this node now", []ServicePort{service(2, "ABC"), local}, cost{added: 1}},
		{"the capacity grows", []ServicePort{service(2, "ABCD"), service(2, "ABCDE")}, cost{added: 4, deleted: 2, verdicts: 2}},
		{"the capacity shrinks and two slots move", []ServicePort{service(2, "ABCDEFGH"), service(2, "AGH")}, cost{added: 6, deleted: 16, verdicts: 2}},
		{"the first endpoint comes", []ServicePort{service(2, ""), service(2, "A")}, cost{added: 4, deleted: 2, verdicts: 2}},
		{"the last endpoint goes", []ServicePort{service(2, "A"), service(2, "")}, cost{added: 2, deleted: 4}},
		{"a frontend comes", []ServicePort{service(1, "ABC"), service(2, "ABC")}, cost{added: 5, verdicts: 1}},
		{"a frontend goes", []ServicePort{service(2, "ABC"), service(1, "ABC")}, cost{deleted: 5}},
		{"the service port comes", []ServicePort{service(2, "ABC")}, cost{added: 10, verdicts: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after *Compiled
			for _, step := range c.steps {
				before, after = after, compile(t, step, after)
			}
			if got := costOf(before.AppendElements(nil), after.AppendElements(nil)); got != c.want {
				t.Errorf("%+v, want %+v; the slots are %s now", got, c.want, formatSlots(after.Slots.flat()))
			}
		})
	}
}

// cost counts what a diff sends: elements added and deleted, and how many of the
// added ones carry a verdict.
type cost struct{ added, deleted, verdicts int }

func costOf(before, after []Element) cost {
	var c cost
	old := map[Element]bool{}
	for _, e := range before {
		old[e] = true
	}
	for _, e := range after {
		if !old[e] {
			c.added++
			if e.Chain != "" {
				c.verdicts++
			}
		}
		delete(old, e)
	}
	c.deleted = len(old)
	return c
}
