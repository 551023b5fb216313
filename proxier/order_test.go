package proxier

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/rules"
)

// TestOrderOfEventsDoesNotMatter lets random objects come, change and go in many
// orders, again and again, and asks that what comes out is what the newest ones alone
// would give, and has a place in a ruleset.
func TestOrderOfEventsDoesNotMatter(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(t, seed)
		for range 80 {
			w.step()
		}
		w.take()
		want := newWorld(t, seed)
		want.tracker.Apply(w.all())
		want.take()
		compare := []cmp.Option{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
			cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })}
		if diff := cmp.Diff(want.state, w.state, compare...); diff != "" {
			t.Fatalf("seed %d: service ports\n%s", seed, diff)
		}
		if diff := cmp.Diff(want.conflicts(), w.conflicts(), compare...); diff != "" {
			t.Fatalf("seed %d: conflicts\n%s", seed, diff)
		}
	}
}

// world is a cluster that changes at random, with what a Tracker has said of it.
type world struct {
	t        *testing.T
	random   *rand.Rand
	services map[types.NamespacedName]*Service
	slices   map[types.NamespacedName]*EndpointSlice
	node     *Node
	tracker  *Tracker
	state    map[rules.ServicePortKey]*rules.ServicePort
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), tracker: NewTracker(rules.Families()),
		services: map[types.NamespacedName]*Service{}, slices: map[types.NamespacedName]*EndpointSlice{},
		state: map[rules.ServicePortKey]*rules.ServicePort{},
	}
	w.tracker.largeEndpoints = 2
	return w
}

// step changes an object or says again what is known, and takes the outcome or not.
func (w *world) step() {
	switch w.random.IntN(10) {
	case 0, 1, 2:
		name := objectName(fmt.Sprintf("ns/svc-%d", w.random.IntN(5)))
		w.services[name] = w.changed(w.services[name], w.service(name))
		w.tracker.Apply(Changes{Services: []ServiceChange{{name, w.services[name]}}})
	case 3, 4, 5, 6:
		name := objectName(fmt.Sprintf("ns/slice-%d", w.random.IntN(8)))
		w.slices[name] = w.slice(name)
		w.tracker.Apply(Changes{Slices: []SliceChange{{name, w.slices[name]}}})
	case 7:
		w.node = w.newNode()
		w.tracker.Apply(Changes{Node: &NodeChange{w.node}})
	case 8:
		w.tracker.Apply(w.all())
	case 9:
		w.take()
		if w.tracker.Apply(w.all()) {
			w.t.Fatalf("what is known touches %s", describeAll(w.tracker.TakeChanges()))
		}
	}
}

// all returns all objects, and those that have gone, in the order of a map.
func (w *world) all() Changes {
	c := Changes{Node: &NodeChange{w.node}}
	for name, s := range w.services {
		c.Services = append(c.Services, ServiceChange{name, s})
	}
	for name, s := range w.slices {
		c.Slices = append(c.Slices, SliceChange{name, s})
	}
	return c
}

func (w *world) take() {
	for _, c := range w.tracker.TakeChanges() {
		if c.Delta != nil {
			c.ServicePort = withDelta(w.state[c.Key], *c.Delta)
		}
		if c.ServicePort == nil {
			delete(w.state, c.Key)
			continue
		}
		if err := c.ServicePort.Validate(); err != nil {
			w.t.Fatal(err)
		}
		w.state[c.Key] = c.ServicePort
	}
	w.tracker.TakeProblems()
}

// conflicts returns who was told to have an address, by the claim in vain.
func (w *world) conflicts() map[string]string {
	all := map[string]string{}
	for c, owner := range w.tracker.conflicts.told {
		all[c.key.String()+" "+c.addr.String()] = owner.String()
	}
	return all
}

// some returns some of the words, separated by spaces.
func (w *world) some(words ...string) string {
	var chosen []string
	for _, word := range words {
		if w.random.IntN(3) == 0 {
			chosen = append(chosen, word)
		}
	}
	return strings.Join(chosen, " ")
}

func (w *world) one(words ...string) string { return words[w.random.IntN(len(words))] }

func (w *world) service(name types.NamespacedName) *Service {
	if w.random.IntN(5) == 0 {
		return nil
	}
	addrs := w.one("10.96.0.1", "10.96.0.2", "fd00::1", "10.96.0.3 fd00::2") + " " + w.some(
		"lb=203.0.113.1", "lb=2001:db8::1", "external=203.0.113.2", "internal-local", "external-local", "from=192.0.2.0/24", "from=2001:db8:9::/64", "from=::/0")
	ports := strings.Fields(w.one("http:80", "http:80+30080", "http:81 dns:53+30080/udp", "http:80+30081 web:81+30080", "dns:80+30080/udp http:80"))
	s := newService(w.t, name.String(), addrs, ports...).at(w.random.Int64N(3))
	s.Affinity = time.Duration(w.random.IntN(2)) * time.Hour
	for _, weight := range []Weight{
		{By: SelectByPod, Pattern: "blue-*", Weight: uint16(w.random.IntN(3))},
		{By: SelectByZone, Pattern: "a", Weight: 4}, {By: SelectAll, Weight: 5},
	} {
		if w.random.IntN(3) == 0 {
			s.Weights = append(s.Weights, weight)
		}
	}
	return s
}

// changed returns the next state of a Service, or the previous one with one part of it.
func (w *world) changed(prev, next *Service) *Service {
	if prev == nil || next == nil {
		return next
	}
	s := *prev
	switch w.random.IntN(8) {
	case 0:
		s.Created = next.Created
	case 1:
		s.Addrs = next.Addrs
	case 2:
		s.Ports = next.Ports
	case 3:
		s.InternalLocal, s.ExternalLocal = next.InternalLocal, next.ExternalLocal
	case 4:
		s.Restricted, s.SourceRanges = next.Restricted, next.SourceRanges
	case 5:
		s.Affinity, s.Weights = next.Affinity, next.Weights
	default:
		return next
	}
	return &s
}

func (w *world) slice(name types.NamespacedName) *EndpointSlice {
	if w.random.IntN(5) == 0 {
		return nil
	}
	prefix := w.one("10.1.0.", "10.1.0.", "fd00::1:")
	hints := w.random.IntN(4) // of all endpoints but a few, since one without makes them void
	var endpoints []string
	for range w.random.IntN(5) {
		e := prefix + w.one("1", "2", "3") + " " + w.some("l", "n", "t", "d", "zone=a", "pod=blue-1")
		if w.random.IntN(10) > 0 {
			e += []string{"", " for-zones=" + w.one("a", "a,b", "b"), " for-node=" + w.one("here", "elsewhere"),
				" for-zones=" + w.one("a", "b") + " for-node=" + w.one("here", "elsewhere")}[hints]
		}
		endpoints = append(endpoints, e)
	}
	s := newSlice(w.t, name.String(), fmt.Sprintf("svc-%d", w.random.IntN(5)), w.one("http:8080", "http:8080", "dns:53/udp"), endpoints...)
	s.Weight = uint16(w.random.IntN(3))
	if w.random.IntN(3) == 0 {
		s.Ports = append(s.Ports, port(w.t, w.one("web:8081", "http:8082")))
	}
	return s
}

func (w *world) newNode() *Node {
	if w.random.IntN(5) == 0 {
		return nil
	}
	return inZone(w.one("", "a", "b"), w.some("198.51.100.1", "192.0.2.1", "2001:db8:9::1", "2001:db8:8::1")).Node.Node
}
