package syncer_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/synctest"
)

// manyEndpoints is enough for a slot table of many parts.
const manyEndpoints = 2000

// difference is the Change of Service 1 by endpoints that go and come.
func difference(f rules.Family, removed, added []int) syncer.Change {
	d := &rules.Delta{}
	for _, e := range removed {
		d.Removed = append(d.Removed, addrPort(f, 244, e, 8080))
	}
	for _, e := range added {
		d.Added = append(d.Added, addrPort(f, 244, e, 8080))
	}
	slices.SortFunc(d.Removed, netip.AddrPort.Compare)
	slices.SortFunc(d.Added, netip.AddrPort.Compare)
	return syncer.Change{Key: remote(f).ServicePortKey, Delta: d}
}

// TestDeltas tells one Syncer differences, also while its kernel fails, and another one all
// endpoints each time. Both want the same, slot by slot, and the kernel holds it.
func TestDeltas(t *testing.T) {
	for _, f := range rules.Families() {
		random := rand.New(rand.NewPCG(uint64(f), 0))
		memory := &syncer.Memory{}
		faulty := synctest.NewKernel(memory)
		s, all := newSyncer(t, faulty, rules.Config{}), newSyncer(t, &syncer.Memory{}, rules.Config{})
		in := random.Perm(2 * manyEndpoints)
		out := in[manyEndpoints:]
		in = in[:manyEndpoints:manyEndpoints]
		mustSync(t, s, set(remote(f, in...)))
		mustSync(t, all, set(remote(f, in...)))
		for range 60 {
			random.Shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
			random.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
			goes, comes := random.IntN(3), random.IntN(3)
			if random.IntN(10) == 0 {
				goes = random.IntN(len(in) / 2)
			}
			removed, added := slices.Clone(in[:goes]), slices.Clone(out[:comes])
			in, out = append(in[goes:], added...), append(out[comes:], removed...)
			faulty.Inject([]synctest.Fault{synctest.None, synctest.LoseBatch, synctest.LoseAnswer}[random.IntN(3)])

			_, err := s.Sync(t.Context(), []syncer.Change{difference(f, removed, added)})
			for err != nil {
				_, err = s.Sync(t.Context(), nil)
			}
			checkMemory(t, memory, s)
			mustSync(t, all, set(remote(f, in...)))
			if !slices.Equal(s.Wanted().Elements(f), all.Wanted().Elements(f)) {
				t.Fatal("the differences led elsewhere than all endpoints")
			}
		}
	}
}

// TestDeltaOfRefused: what the kernel has refused of differences comes with the next ones.
func TestDeltaOfRefused(t *testing.T) {
	memory := &syncer.Memory{}
	faulty := synctest.NewKernel(memory)
	s := newSyncer(t, faulty, rules.Config{})
	mustSync(t, s, set(remote(rules.IPv4, 1, 3, 5), service(2, rules.IPv4, 7)))
	bad := addrPort(rules.IPv4, 244, 9, 8080)
	faulty.RefuseElements(func(e rules.Element) bool { return e.Endpoint == bad })
	other := set(service(2, rules.IPv4, 7, 9999))
	res, err := s.Sync(t.Context(), append(other, difference(rules.IPv4, []int{1}, []int{9})))
	if want := remote(rules.IPv4).ServicePortKey; err != nil || len(res.Refused) != 1 || res.Refused[0].Key != want {
		t.Fatalf("%+v, %v; want %s to be refused", res, err, want)
	}
	res, err = s.Sync(t.Context(), []syncer.Change{difference(rules.IPv4, []int{9}, []int{11})})
	if err != nil || len(res.Refused) > 0 || res.Counts.Elements != 2 {
		t.Fatalf("%+v, %v; want one endpoint to replace another", res, err)
	}
	checkMemory(t, memory, s)
}

// TestDeltaCounts: one endpoint of very many is one operation, and a batch that other
// changes fit in.
func TestDeltaCounts(t *testing.T) {
	endpoints := make([]int, manyEndpoints)
	for i := range endpoints {
		endpoints[i] = 2*i + 1
	}
	faulty := synctest.NewKernel(&syncer.Memory{})
	s := newSyncer(t, faulty, rules.Config{})
	mustSync(t, s, set(remote(rules.IPv4, endpoints...), service(2, rules.IPv4, 1)))
	faulty.Limit(syncer.Size{Bytes: 128 << 10}) // a batch of all of them takes more
	changes := append(set(service(2, rules.IPv4, 1, 3)), difference(rules.IPv4, []int{7}, nil))
	if res := mustSync(t, s, changes); res.Batches != 1 {
		t.Errorf("%d batches, want one", res.Batches)
	}
	for name, c := range map[string]struct {
		removed, added []int
		want           int
	}{
		"one comes":       {nil, []int{7}, 1},
		"one is replaced": {[]int{9}, []int{5001}, 2},
		"nothing":         {nil, nil, 0},
	} {
		if res := mustSync(t, s, []syncer.Change{difference(rules.IPv4, c.removed, c.added)}); res.Counts != (syncer.Counts{Elements: c.want}) {
			t.Errorf("%s: %s, want %d element operations", name, res.Counts, c.want)
		}
	}
}

// TestWrongDelta is refused, and what was there stays.
func TestWrongDelta(t *testing.T) {
	memory := &syncer.Memory{}
	s := newSyncer(t, memory, rules.Config{})
	for name, c := range map[string]struct {
		before []syncer.Change
		want   string
	}{
		"not known":     {nil, "not known"},
		"gone":          {gone(remote(rules.IPv4)), "not known"},
		"not that one":  {set(remote(rules.IPv4, 1, 3)), "is not there"},
		"without any":   {set(remote(rules.IPv4)), "is not there"},
		"with affinity": {set(withAffinity(remote(rules.IPv4, 1, 3))), "affinity"},
	} {
		t.Run(name, func(t *testing.T) {
			mustSync(t, s, c.before)
			res, err := s.Sync(t.Context(), []syncer.Change{difference(rules.IPv4, []int{5}, nil)})
			if err != nil || len(res.Refused) != 1 || !strings.Contains(res.Refused[0].Err.Error(), c.want) {
				t.Errorf("%+v, %v; want a refusal with %q", res.Refused, err, c.want)
			}
			checkMemory(t, memory, s)
			mustSync(t, s, gone(remote(rules.IPv4)))
		})
	}
}

func withAffinity(sp *rules.ServicePort) *rules.ServicePort {
	sp.Affinity = rules.MaxAffinity
	return sp
}
