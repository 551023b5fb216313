package proxier

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"unique"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/synctest"
)

// withDelta returns a service port with a difference.
func withDelta(sp *rules.ServicePort, d rules.Delta) *rules.ServicePort {
	next := *sp
	next.Endpoints = slices.DeleteFunc(slices.Clone(sp.Endpoints), func(e rules.Endpoint) bool { return slices.Contains(d.Removed, e.Addr) })
	for _, a := range d.Added {
		next.Endpoints = append(next.Endpoints, rules.Endpoint{Addr: a, Weight: DefaultWeight})
	}
	slices.SortFunc(next.Endpoints, func(a, b rules.Endpoint) int { return a.Addr.Compare(b.Addr) })
	return &next
}

// TestLargeServicePort says which changes of slices are told as a difference. Each begins
// with three endpoints in two slices, where two make a service port large.
func TestLargeServicePort(t *testing.T) {
	const web = "default/web:http (tcp, IPv4): "
	one := func(endpoints ...string) *EndpointSlice {
		return newSlice(t, "default/web-1", "web", "http:8080", endpoints...)
	}
	two := func(endpoints ...string) *EndpointSlice {
		return newSlice(t, "default/web-2", "web", "http:8080", endpoints...)
	}
	weighted, moved, twice, other := one("10.1.0.1", "10.1.0.2"), one("10.1.0.1", "10.1.0.2"), one("10.1.0.1", "10.1.0.2"), one("10.1.0.1", "10.1.0.2")
	weighted.Weight, moved.Service, other.Ports = 2, "other", []Port{port(t, "http:9090")}
	twice.Ports = append(twice.Ports, port(t, "http:8081"))
	const all = web + "10.96.0.1:80 -> "
	for name, c := range map[string]struct {
		changes []Changes // taken together
		want    []string
	}{
		"one comes": {[]Changes{endpointSlices(two("10.1.0.3", "10.1.0.4"))}, []string{web + "without [], with [10.1.0.4:8080]"}},
		"one goes":  {[]Changes{endpointSlices(one("10.1.0.2"))}, []string{web + "without [10.1.0.1:8080], with []"}},
		"one is replaced in each slice": {
			[]Changes{endpointSlices(one("10.1.0.2", "10.1.0.9"), two("10.1.0.8"))},
			[]string{web + "without [10.1.0.1:8080 10.1.0.3:8080], with [10.1.0.8:8080 10.1.0.9:8080]"},
		},
		"another order":     {[]Changes{endpointSlices(one("10.1.0.2", "10.1.0.1"))}, []string{web + "without [], with []"}},
		"another pod":       {[]Changes{endpointSlices(one("10.1.0.1 pod=x", "10.1.0.2"))}, []string{web + "without [], with []"}},
		"there and back":    {[]Changes{endpointSlices(one("10.1.0.2")), endpointSlices(one("10.1.0.1", "10.1.0.2"))}, []string{web + "without [], with []"}},
		"one is not ready":  {[]Changes{endpointSlices(one("10.1.0.1 n", "10.1.0.2"))}, []string{web + "without [10.1.0.1:8080], with []"}},
		"one terminates":    {[]Changes{endpointSlices(one("10.1.0.1 t", "10.1.0.2"))}, []string{web + "without [10.1.0.1:8080], with []"}},
		"one comes unready": {[]Changes{endpointSlices(two("10.1.0.3", "10.1.0.4 nd"))}, []string{web + "without [], with []"}},
		"a slice goes":      {[]Changes{{Slices: []SliceChange{{Name: objectName("default/web-2")}}}}, []string{web + "without [10.1.0.3:8080], with []"}},
		"another slice":     {[]Changes{endpointSlices(newSlice(t, "default/web-3", "web", "http:8080", "10.1.0.5"))}, []string{web + "without [], with [10.1.0.5:8080]"}},
		"another slice of another family": {
			[]Changes{endpointSlices(newSlice(t, "default/web-3", "web", "http:8080", "fd00::1"))}, []string{"default/web:http (tcp, IPv6): gone"},
		},
		"another number": {
			[]Changes{endpointSlices(other)}, []string{web + "without [10.1.0.1:8080 10.1.0.2:8080], with [10.1.0.1:9090 10.1.0.2:9090]"},
		},
		"one moves to the other slice": {[]Changes{endpointSlices(one("10.1.0.1"), two("10.1.0.2", "10.1.0.3"))}, []string{web + "without [], with []"}},
		"one is in both for a while":   {[]Changes{endpointSlices(two("10.1.0.2", "10.1.0.3"), one("10.1.0.1"))}, []string{all + "10.1.0.1:8080 10.1.0.2:8080 10.1.0.3:8080"}},
		"one is in both":               {[]Changes{endpointSlices(two("10.1.0.2", "10.1.0.3"))}, []string{all + "10.1.0.1:8080 10.1.0.2:8080 10.1.0.3:8080"}},
		"one comes that is here":       {[]Changes{endpointSlices(two("10.1.0.3", "10.1.0.4 l"))}, []string{all + "10.1.0.1:8080 10.1.0.2:8080 10.1.0.3:8080 10.1.0.4:8080*"}},
		"one comes with hints":         {[]Changes{endpointSlices(two("10.1.0.3", "10.1.0.4 for-zones=a"))}, []string{all + "10.1.0.1:8080 10.1.0.2:8080 10.1.0.3:8080 10.1.0.4:8080"}},
		"weights":                      {[]Changes{endpointSlices(weighted)}, []string{all + "10.1.0.1:8080=2 10.1.0.2:8080=2 10.1.0.3:8080"}},
		"a port is listed twice":       {[]Changes{endpointSlices(twice)}, []string{all + "10.1.0.1:8080 10.1.0.1:8081 10.1.0.2:8080 10.1.0.2:8081 10.1.0.3:8080"}},
		"a slice goes to another Service": {[]Changes{endpointSlices(moved)}, []string{
			"default/other:http (tcp, IPv4): gone", web + "without [10.1.0.1:8080 10.1.0.2:8080], with []",
		}},
		"none is ready": {[]Changes{endpointSlices(one("10.1.0.1 t", "10.1.0.2 n"), two("10.1.0.3 n"))}, []string{all + "10.1.0.1:8080"}},
		"too few":       {[]Changes{{Slices: []SliceChange{{Name: objectName("default/web-1")}}}, endpointSlices(two())}, []string{web + "10.96.0.1:80 ->"}},
		"another port of the Service, too": {
			[]Changes{endpointSlices(one("10.1.0.2")), services(newService(t, "default/web", "10.96.0.1", "http:80", "x:81"))},
			[]string{all + "10.1.0.2:8080 10.1.0.3:8080", "default/web:x (tcp, IPv4): 10.96.0.1:81 ->"},
		},
		"an address of the Service, too": {
			[]Changes{endpointSlices(one("10.1.0.2")), services(newService(t, "default/web", "10.96.0.9", "http:80"))},
			[]string{web + "10.96.0.9:80 -> 10.1.0.2:8080 10.1.0.3:8080"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tracker := NewTracker(rules.Families())
			tracker.largeEndpoints = 2
			tracker.Apply(services(newService(t, "default/web", "10.96.0.1", "http:80")))
			for _, begin := range []*EndpointSlice{one("10.1.0.1"), two("10.1.0.3"), one("10.1.0.1", "10.1.0.2")} {
				tracker.Apply(endpointSlices(begin))
				tracker.TakeChanges()
			}
			for _, change := range c.changes {
				tracker.Apply(change)
			}
			if diff := cmp.Diff(c.want, describeAll(tracker.TakeChanges())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// twins are two proxies of the same cluster, without their loops: one in which service
// ports are large from a few endpoints on, and whose kernel fails now and then, and one in
// which none is.
type twins struct {
	t          *testing.T
	random     *rand.Rand
	large, all *Tracker
	kernels    [2]*syncer.Memory
	faulty     *synctest.Kernel
	syncers    [2]*syncer.Syncer
	slices     map[types.NamespacedName]*EndpointSlice
	behind     bool // something was refused and is not tried again yet
	deltas     int  // how many differences were told
}

func newTwins(t *testing.T, seed uint64) *twins {
	t.Helper()
	w := &twins{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), large: NewTracker(rules.Families()), all: NewTracker(rules.Families()),
		kernels: [2]*syncer.Memory{{}, {}}, slices: map[types.NamespacedName]*EndpointSlice{},
	}
	w.large.largeEndpoints, w.all.largeEndpoints = 10, math.MaxInt
	w.faulty = synctest.NewKernel(w.kernels[0])
	for i, k := range []syncer.Kernel{w.faulty, w.kernels[1]} {
		var err error
		if w.syncers[i], err = syncer.New(k, rules.Config{}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (w *twins) apply(c Changes) {
	w.large.Apply(c)
	w.all.Apply(c)
}

// TestLargeEqualsAll lets a Service with many slices change at random, and asks after every
// sync that what is wanted and what the kernel holds is, slot by slot, what comes of looking
// at all endpoints each time.
func TestLargeEqualsAll(t *testing.T) {
	deltas := 0
	for seed := range uint64(20) {
		w := newTwins(t, seed)
		w.apply(services(w.service()))
		for i := range 6 {
			w.changeSlice(i, true)
		}
		for range 200 {
			w.step()
		}
		deltas += w.deltas
	}
	if deltas < 500 {
		t.Errorf("only %d differences were told", deltas)
	}
}

func (w *twins) step() {
	for range 1 + w.random.IntN(3) {
		switch w.random.IntN(60) {
		case 0:
			w.apply(services(w.service()))
		case 1:
			w.apply(Changes{Services: []ServiceChange{{Name: objectName("ns/web")}}})
			if w.random.IntN(2) == 0 {
				w.sync()
			}
			w.apply(services(w.service()))
		case 2:
			w.apply(inZone([]string{"a", "b"}[w.random.IntN(2)], "192.0.2.1"))
		case 3:
			w.apply(services(newService(w.t, "ns/rival", "10.96.0.1", "http:80").at(w.random.Int64N(3))))
		case 4:
			w.apply(Changes{Services: []ServiceChange{{Name: objectName("ns/rival")}}})
		case 5:
			w.forAWhile(func(e *SliceEndpoint) { e.ZoneHints = unique.Make([]string{"a", "b"}[w.random.IntN(2)]) })
		case 6:
			w.forAWhile(func(e *SliceEndpoint) { e.Ready, e.Terminating = false, true })
		default:
			w.changeSlice(w.random.IntN(6), w.random.IntN(10) == 0)
		}
	}
	if w.random.IntN(3) > 0 {
		w.sync()
	}
}

// forAWhile changes all endpoints, slice by slice, syncs, and changes them back.
func (w *twins) forAWhile(change func(e *SliceEndpoint)) {
	var before []*EndpointSlice
	for i := range 6 {
		prev := w.slices[objectName(fmt.Sprintf("ns/web-%d", i))]
		if prev == nil {
			continue
		}
		before = append(before, prev)
		next := *prev
		next.Endpoints = slices.Clone(prev.Endpoints)
		for i := range next.Endpoints {
			change(&next.Endpoints[i])
		}
		w.apply(endpointSlices(&next))
		if w.random.IntN(3) == 0 {
			w.sync()
		}
	}
	w.sync()
	w.apply(endpointSlices(before...))
}

// service returns the Service, mostly a plain one.
func (w *twins) service() *Service {
	addrs := "10.96.0.1 lb=203.0.113.1"
	switch w.random.IntN(20) {
	case 0:
		addrs += " external-local"
	case 1:
		addrs += " internal-local"
	case 2:
		addrs += " affinity=1h"
	case 3:
		addrs += " from=192.0.2.0/24"
	}
	s := newService(w.t, "ns/web", addrs, "http:80+30080", []string{"metrics:90", "dns:53/udp"}[w.random.IntN(2)]).at(1)
	if w.random.IntN(20) == 0 {
		s.Weights = []Weight{{By: SelectByZone, Pattern: "a", Weight: 4}}
	}
	return s
}

// changeSlice changes a few endpoints of a slice, or makes it anew.
func (w *twins) changeSlice(i int, anew bool) {
	s := newSlice(w.t, fmt.Sprintf("ns/web-%d", i), "web", "http:8080")
	s.Ports = append(s.Ports, port(w.t, "metrics:9090"), port(w.t, "dns:53/udp"))
	if prev := w.slices[s.Name]; prev != nil && !anew {
		*s = *prev
	}
	s.Endpoints = slices.Clone(s.Endpoints)
	if anew {
		for range w.random.IntN(15) {
			s.Endpoints = append(s.Endpoints, w.endpoint(i))
		}
		w.oddSlice(s)
	}
	for range w.random.IntN(3) {
		switch n := len(s.Endpoints); {
		case n == 0 || w.random.IntN(3) == 0:
			s.Endpoints = slices.Insert(s.Endpoints, w.random.IntN(n+1), w.endpoint(i))
		case w.random.IntN(2) == 0:
			s.Endpoints[w.random.IntN(n)] = w.endpoint(i)
		default:
			at := w.random.IntN(n)
			s.Endpoints = slices.Delete(s.Endpoints, at, at+1)
		}
	}
	if w.random.IntN(10) == 0 {
		w.random.Shuffle(len(s.Endpoints), func(a, b int) { s.Endpoints[a], s.Endpoints[b] = s.Endpoints[b], s.Endpoints[a] })
	}
	change := SliceChange{s.Name, s}
	if w.random.IntN(60) == 0 {
		change.Slice = nil
	}
	w.slices[s.Name] = change.Slice
	w.apply(Changes{Slices: []SliceChange{change}})
}

// oddSlice makes a slice another one than most, now and then.
func (w *twins) oddSlice(s *EndpointSlice) {
	switch w.random.IntN(60) {
	case 0:
		s.Weight = 2
	case 1:
		s.Service = "rival"
	case 2:
		s.Ports[0].Number = 8081
	case 3:
		s.Ports = append(s.Ports, port(w.t, "http:8082"))
	case 4:
		for i := range s.Endpoints {
			s.Endpoints[i].Ready = false
		}
	case 5:
		s.Ports = s.Ports[1:]
	}
}

// endpoint returns an endpoint of a slice, or now and then of the next one, and mostly one
// like any other. Addresses are used again, so that some are listed twice.
func (w *twins) endpoint(slice int) SliceEndpoint {
	host := 100*slice + w.random.IntN(101)
	e := SliceEndpoint{Addr: netip.AddrFrom4([4]byte{10, 1, byte(host >> 8), byte(host)}), Ready: true, Serving: true}
	switch w.random.IntN(300) {
	case 0:
		e.Local = true
	case 1:
		e.ZoneHints = unique.Make("a")
	case 2:
		e.NodeHinted, e.HintsHere = true, true
	case 3:
		e.Terminating = true
	case 4, 5, 6, 7, 8, 9, 10, 11, 12:
		e.Ready = false
	case 13, 14, 15, 16, 17, 18:
		e.Ready, e.Terminating = false, true
	case 19, 20, 21:
		e.Ready, e.Terminating, e.Serving = false, true, false
	case 22:
		e.Pod = "renamed"
	}
	return e
}

// sync syncs both, one of them with faults, and compares them.
func (w *twins) sync() {
	w.t.Helper()
	if _, err := w.syncers[1].Sync(w.t.Context(), w.all.TakeChanges()); err != nil {
		w.t.Fatal(err)
	}
	changes := w.large.TakeChanges()
	for _, c := range changes {
		if c.Delta != nil {
			w.deltas++
		}
	}
	switch w.random.IntN(15) {
	case 0:
		w.faulty.Inject(synctest.LoseBatch)
	case 1:
		w.faulty.Inject(synctest.LoseAnswer)
	case 2:
		w.faulty.Inject(synctest.Refuse)
	case 3:
		w.faulty.RefuseElements(func(e rules.Element) bool { return e.Endpoint.Port() == 8080 })
	}
	write := w.syncers[0].Sync
	if w.random.IntN(20) == 0 {
		write = w.syncers[0].Resync
	}
	res, err := write(w.t.Context(), changes)
	w.faulty.RefuseElements(nil)
	for err != nil {
		w.behind = false
		res, err = w.syncers[0].Sync(w.t.Context(), nil)
	}
	w.behind = w.behind || len(res.Refused) > 0
	for retry := w.random.IntN(2) == 0; w.behind && retry; { // faults are injected for once
		res, err = w.syncers[0].Resync(w.t.Context(), nil)
		w.behind = err != nil || len(res.Refused) > 0
	}
	w.compare()
}

// compare compares what both want and what their kernels hold.
func (w *twins) compare() {
	w.t.Helper()
	large, all := w.syncers[0].Wanted(), w.syncers[1].Wanted()
	for _, f := range rules.Families() {
		if want, got := all.Elements(f), large.Elements(f); !slices.Equal(want, got) {
			w.t.Fatalf("what is wanted (+) is not what comes of all endpoints (-):\n%s", cmp.Diff(texts(want), texts(got)))
		}
		if want, got := w.kernels[1].Elements(f), w.kernels[0].Elements(f); !w.behind && !slices.Equal(want, got) {
			w.t.Fatalf("what the kernel holds (+) is not what comes of all endpoints (-):\n%s", cmp.Diff(texts(want), texts(got)))
		}
	}
}

func texts(elements []rules.Element) []string {
	lines := make([]string, len(elements))
	for i, e := range elements {
		lines[i] = e.Set.Set().Name + " " + string(e.AppendText(nil))
	}
	return lines
}

// A difference that is refused is followed by a look at the whole service port, and that
// one is not repeated.
func TestRefusedDifference(t *testing.T) {
	kernel := synctest.NewKernel(&syncer.Memory{})
	kernel.RefuseElements(func(e rules.Element) bool { return e.Endpoint == netip.MustParseAddrPort("10.1.0.5:8080") })
	var report Report
	p, err := New(nil, kernel, Options{Log: zap.NewNop(), OnSync: func(r Report) { report = r }})
	must(t, err)
	p.cluster.tracker.largeEndpoints = 2
	p.Synced()
	p.Apply(services(newService(t, "default/web", "10.96.0.1", "http:80")))
	endpoints := []string{"10.1.0.1", "10.1.0.2"}
	for _, c := range []struct {
		another        string // endpoint, none for no change
		delta, refused bool
	}{{"10.1.0.3", false, false}, {"10.1.0.4", false, false}, {"10.1.0.5", true, true}, {"", false, true}} {
		if c.another != "" {
			endpoints = append(endpoints, c.another)
			p.Apply(endpointSlices(newSlice(t, "default/web-1", "web", "http:8080", endpoints...)))
		}
		w := p.take()
		if len(w.Changes) != 1 || (w.Changes[0].Delta != nil) != c.delta {
			t.Fatalf("with %d endpoints: changes %+v", len(endpoints), w.Changes)
		}
		p.sync(t.Context(), w)
		if report.Err != nil || (len(report.Refused) > 0) != c.refused {
			t.Errorf("with %d endpoints: %+v", len(endpoints), report)
		}
	}
	if w := p.take(); len(w.Changes) > 0 {
		t.Errorf("the refused service port is tried once more: %+v", w.Changes)
	}
}
