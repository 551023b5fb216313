package syncer_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/nstest"
	"github.com/nftproxy/nftproxy/syncer/synctest"
)

// TestUnknownOutcome loses a batch or its answer: the Sync fails, and the next one
// writes everything, with nothing lost.
func TestUnknownOutcome(t *testing.T) {
	for name, fault := range map[string]synctest.Fault{"batch lost": synctest.LoseBatch, "answer lost": synctest.LoseAnswer} {
		t.Run(name, func(t *testing.T) {
			memory := &syncer.Memory{}
			faulty := synctest.NewKernel(memory)
			s := newSyncer(t, faulty, rules.Config{})
			mustSync(t, s, set(service(1, rules.IPv4, 1, 2, 3)))

			faulty.Inject(fault)
			_, err := s.Sync(t.Context(), set(service(2, rules.IPv4, 4)))
			var kernelErr *syncer.Error
			if !errors.As(err, &kernelErr) || kernelErr.Cause != syncer.Unknown {
				t.Fatalf("error: %v", err)
			}
			if res := mustSync(t, s, nil); !res.Full {
				t.Errorf("the next sync is not a full one: %+v", res)
			}
			checkMemory(t, memory, s)
			if res := mustSync(t, s, nil); res.Full || res.Batches != 0 {
				t.Errorf("the one after that does something: %+v", res)
			}
		})
	}
}

// TestRefusedServices has the kernel refuse some of many Services: they alone are
// left out, at the first sync and later, and the work to find them is bounded.
func TestRefusedServices(t *testing.T) {
	const n = 1000
	bad := map[int]bool{0: true, 500: true, n - 1: true}
	isBad := func(e rules.Element) bool {
		for i := range bad {
			if e.Set == rules.Endpoints && e.Key.Addr == addrPort(rules.IPv4, 96, i, 80).Addr() {
				return true
			}
		}
		return false
	}
	var all []*rules.ServicePort
	var badKeys []rules.ServicePortKey
	for i := range n {
		sp := service(i, rules.IPv4, 1, 2)
		if all = append(all, sp); bad[i] {
			badKeys = append(badKeys, sp.ServicePortKey)
		}
	}
	checkRest := func(t *testing.T, m *syncer.Memory) {
		t.Helper()
		// The ClusterIP, the verdict and two slots each, and one shared hairpin.
		if got, want := len(m.Elements(rules.IPv4)), (n-len(bad))*4+1; got != want {
			t.Errorf("%d elements, want %d", got, want)
		}
	}
	for name, first := range map[string][]*rules.ServicePort{"at the first sync": all, "later": nil} {
		t.Run(name, func(t *testing.T) {
			memory := &syncer.Memory{}
			faulty := synctest.NewKernel(memory)
			faulty.RefuseElements(isBad)
			s := newSyncer(t, faulty, rules.Config{})
			res, err := s.Sync(t.Context(), set(first...))
			if first == nil {
				res, err = s.Sync(t.Context(), set(all...))
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(badKeys, refusedKeys(res)); diff != "" {
				t.Errorf("refused:\n%s", diff)
			}
			checkRest(t, memory)
			// Each bad one takes about 2*log2(n) checks, twice since they get another
			// chance.
			if checks := faulty.Checks(); checks > len(bad)*2*10*2 {
				t.Errorf("%d checks", checks)
			}
			if got := len(faulty.Applied()); got > 2 {
				t.Errorf("%d batches were applied", got)
			}
			// A change elsewhere does not try them again, a change of theirs does.
			if res := mustSync(t, s, set(service(5, rules.IPv4, 1, 2, 3))); res.Batches != 1 {
				t.Errorf("a change elsewhere: %+v", res)
			}
			faulty.RefuseElements(nil)
			if _, err := s.Resync(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			checkMemory(t, memory, s)
		})
	}
}

// TestRefusedChangeKeepsWhatIsInstalled refuses a change of an installed Service:
// what it was before stays in force.
func TestRefusedChangeKeepsWhatIsInstalled(t *testing.T) {
	memory := &syncer.Memory{}
	faulty := synctest.NewKernel(memory)
	s := newSyncer(t, faulty, rules.Config{})
	mustSync(t, s, set(service(1, rules.IPv4, 1, 2, 3)))
	before := memory.Elements(rules.IPv4)
	faulty.RefuseElements(func(e rules.Element) bool { return e.Endpoint == addrPort(rules.IPv4, 244, 4, 8080) })
	res, err := s.Sync(t.Context(), set(service(1, rules.IPv4, 1, 2, 4), service(2, rules.IPv6, 1)))
	if err != nil || len(res.Refused) != 1 {
		t.Fatalf("result %+v, error %v", res, err)
	}
	if diff := cmp.Diff(before, memory.Elements(rules.IPv4), cmp.Comparer(func(a, b rules.Element) bool { return a == b })); diff != "" {
		t.Errorf("the refused change left something behind:\n%s", diff)
	}
	if len(memory.Elements(rules.IPv6)) == 0 {
		t.Error("the other Service is missing")
	}
	mustSync(t, s, set(service(1, rules.IPv4, 1, 2, 3, 5)))
	checkMemory(t, memory, s)
}

// TestTwoServicesWithOneAddress is what validation upstream prevents: the one that
// sorts first has the address, the other is refused.
func TestTwoServicesWithOneAddress(t *testing.T) {
	kernels(t, func(t *testing.T, k syncer.Kernel) {
		s := newSyncer(t, k, rules.Config{})
		one, two := service(1, rules.IPv4, 1), service(2, rules.IPv4, 2)
		two.Frontends = one.Frontends
		res, err := s.Sync(t.Context(), set(two, one, service(3, rules.IPv4, 1)))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]rules.ServicePortKey{two.ServicePortKey}, refusedKeys(res)); diff != "" {
			t.Errorf("refused:\n%s", diff)
		}
	})
}

// TestForeignChange has another program delete what is ours. The next change meets
// that, blames no service port, and the sync after it writes everything again.
func TestForeignChange(t *testing.T) {
	one, two := service(1, rules.IPv4, 1, 2, 3), service(1, rules.IPv4, 1, 2)
	for _, command := range []string{
		"flush ruleset", "delete table ip nftproxy", "flush map ip nftproxy endpoints",
		"delete element ip nftproxy endpoints { 10.96.0.1 . tcp . 80 . 2 }",
	} {
		t.Run(command, func(t *testing.T) {
			ns := nstest.New(t)
			s := newSyncer(t, newNetlink(t, ns), rules.Config{})
			mustSync(t, s, set(one, service(2, rules.IPv6, 1)))
			ns.MustNFT(t, command, "-f", "-")
			if res, err := s.Sync(t.Context(), set(two)); err == nil || len(res.Refused) > 0 {
				t.Fatalf("result %+v, error %v", res, err)
			}
			if res := mustSync(t, s, nil); !res.Full {
				t.Errorf("the next sync is not a full one: %+v", res)
			}
			checkListing(t, ns, s)
		})
	}
	t.Run("in memory", func(t *testing.T) {
		memory := &syncer.Memory{}
		s := newSyncer(t, memory, rules.Config{})
		mustSync(t, s, set(one))
		*memory = syncer.Memory{}
		if res, err := s.Sync(t.Context(), set(two)); err == nil || len(res.Refused) > 0 {
			t.Fatalf("result %+v, error %v", res, err)
		}
		mustSync(t, s, nil)
		checkMemory(t, memory, s)
	})
}

// TestConflictEnds gives the refused one its frontend as soon as the other lets go of
// it, though it did not change itself, and whatever fits into a batch.
func TestConflictEnds(t *testing.T) {
	one, two := service(1, rules.IPv4, 1), service(2, rules.IPv4, 2)
	two.Frontends = one.Frontends
	moved := service(1, rules.IPv4, 1)
	moved.Frontends = service(9, rules.IPv4).Frontends
	for name, release := range map[string][]syncer.Change{"the other goes": gone(one), "the other moves": set(moved)} {
		t.Run(name, func(t *testing.T) {
			memory := &syncer.Memory{}
			s := newSyncer(t, memory, rules.Config{})
			if res, err := s.Sync(t.Context(), set(one, two)); err != nil || len(res.Refused) != 1 {
				t.Fatalf("result %+v, error %v", res, err)
			}
			mustSync(t, s, set(service(3, rules.IPv4, 3))) // it is not reported again
			mustSync(t, s, release)
			checkMemory(t, memory, s)
		})
	}
}

// TestConflictOverBatches moves frontends between many Services though little fits
// into a batch.
func TestConflictOverBatches(t *testing.T) {
	const n = 500
	memory := &syncer.Memory{}
	small := synctest.NewKernel(memory)
	small.Limit(syncer.Size{Bytes: 160_000})
	s := newSyncer(t, small, rules.Config{})
	var before, after []*rules.ServicePort
	for i := range n {
		before = append(before, service(n+i, rules.IPv4, i))
		heir := service(i, rules.IPv4, i) // sorts before the one that has the frontend
		heir.Frontends = before[i].Frontends
		after = append(after, heir)
	}
	mustSync(t, s, set(before...))
	mustSync(t, s, append(set(after...), gone(before...)...))
	checkMemory(t, memory, s)
}

// TestInvalidServicePort does not even reach the kernel.
func TestInvalidServicePort(t *testing.T) {
	memory := &syncer.Memory{}
	s := newSyncer(t, memory, rules.Config{})
	bad := service(1, rules.IPv4, 1)
	bad.Endpoints[0].Weight = rules.MaxWeight + 1
	res, err := s.Sync(t.Context(), set(bad, service(2, rules.IPv4, 1)))
	if err != nil || len(res.Refused) != 1 || res.Refused[0].Key != bad.ServicePortKey {
		t.Fatalf("result %+v, error %v", res, err)
	}
	checkMemory(t, memory, s)
}

// TestSmallBuffers installs many Services though little fits into a batch.
func TestSmallBuffers(t *testing.T) {
	limits := syncer.Size{Bytes: 160_000}
	memory := &syncer.Memory{}
	small := synctest.NewKernel(memory)
	small.Limit(limits)
	s := newSyncer(t, small, rules.Config{})
	var all []*rules.ServicePort
	for i := range 2000 {
		all = append(all, service(i, rules.IPv4, i, i+1, i+2))
	}
	for range 2 { // from nothing, then as a restart
		mustSync(t, s, set(all...))
		checkMemory(t, memory, s)
		for _, b := range small.Applied() {
			if !b.Size().Fits(limits) {
				t.Errorf("a batch of %+v exceeds %+v", b.Size(), limits)
			}
		}
		s = newSyncer(t, small, rules.Config{})
	}
	// Incrementally as well.
	for i := range all {
		all[i] = service(i, rules.IPv4, i+1, i+2)
	}
	mustSync(t, s, nil)
	mustSync(t, s, set(all...))
	checkMemory(t, memory, s)
}

// TestSmallSocketBuffers sends batches of every size that Limits allows through
// socket buffers like those that a user namespace gets: an estimate that is too low
// would make the kernel refuse the message or lose answers.
func TestSmallSocketBuffers(t *testing.T) {
	ns := nstest.New(t)
	k, err := syncer.NewNetlinkWithBuffers(ns.FD(), 212_992, 212_992)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = k.Close() })
	s := newSyncer(t, k, rules.Config{})
	random := rand.New(rand.NewPCG(3, 3))
	var all []*rules.ServicePort
	for i := range 3000 {
		f := rules.Families()[i%2]
		sp := service(i, f, random.Perm(100)[:random.IntN(12)]...)
		sp.Name = strings.Repeat("n", random.IntN(63)+1)
		sp.Namespace = fmt.Sprintf("%s-%d", strings.Repeat("m", random.IntN(50)+1), i)
		all = append(all, sp)
	}
	if res := mustSync(t, s, set(all...)); res.Batches < 3 {
		t.Errorf("%d batches: the buffers are not small", res.Batches)
	}
	checkListing(t, ns, s)
	mustSync(t, s, gone(all...))
	if _, err := s.Resync(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	checkListing(t, ns, s)
}
