package rules

import (
	"math/rand"
	"net/netip"
	"slices"
	"testing"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// significance is the probability with which a test would refuse a choice that is
// fair. The seeds are fixed, so the outcome is always the same.
const significance = 0.001

// TestRandomChainIsFair evaluates the rules of a random chain many times over a
// table's elements, as the kernel does, and compares how often each endpoint is
// chosen with its weight.
func TestRandomChainIsFair(t *testing.T) {
	for _, c := range []struct {
		name     string
		steps    []string // the last one is drawn from
		capacity int
	}{
		{"a full table", []string{"ABCDEFGH"}, 8},
		{"five left of eight", []string{"ABCDEFGH", "BDEGH"}, 8},
		{"as empty as it gets", []string{"ABCDEFGHIJ", "FGHIJ"}, 10},
		{"weights 1:3:6", []string{"ABBBCCCCCC"}, 10},
		{"weights 1:3:6 over holes", []string{"ABBBCCCCCCDDDD", "ABBBCCCCCC"}, 14},
		{"nine in a fresh table of ten", []string{"ABCDEFGHI"}, 10},
		{"one of two", []string{"AB", "B"}, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			var compiled *Compiled
			for _, letters := range c.steps {
				compiled = compile(t, service(1, letters), compiled)
			}
			if compiled.Slots.Capacity() != c.capacity {
				t.Fatalf("capacity %d, want %d", compiled.Slots.Capacity(), c.capacity)
			}
			if p := fairness(t, compiled, SlotChains(Endpoints, c.capacity), c.steps[len(c.steps)-1]); p < significance {
				t.Errorf("the choice is not fair: p = %g", p)
			}
		})
	}
}

// A chain with too few tries favours slot 0, and the test above would see that.
func TestFairnessTestSeesABias(t *testing.T) {
	compiled := compile(t, service(1, "BDEGH"), compile(t, service(1, "ABCDEFGH"), nil))
	chains := SlotChains(Endpoints, 8)
	last := &chains[len(chains)-1]
	last.Rules = last.Rules[len(last.Rules)-5:] // four tries and the last resort
	if p := fairness(t, compiled, chains, "BDEGH"); p >= significance {
		t.Errorf("four tries look fair: p = %g", p)
	}
}

// fairness returns the p-value of a chi-square test that the last chain chooses the
// endpoints in proportion to their letters.
func fairness(t *testing.T, c *Compiled, chains []Chain, letters string) float64 {
	t.Helper()
	const draws = 400_000
	slots := map[Key]netip.AddrPort{}
	for _, e := range c.AppendElements(nil) {
		if e.Set == Endpoints {
			slots[e.Key] = e.Endpoint
		}
	}
	rng := rand.New(rand.NewSource(1))
	chosen := map[netip.AddrPort]float64{}
	for range draws {
		chosen[evaluate(chains, slots, c.key(c.Frontends[0].Addr), rng)]++
	}
	var observed, expected []float64
	endpoints, counts := parseWanted(letters)
	for i, e := range endpoints {
		observed = append(observed, chosen[e.Addr])
		expected = append(expected, draws*float64(counts[i])/float64(len(letters)))
		delete(chosen, e.Addr)
	}
	if len(chosen) > 0 {
		t.Errorf("the chain led elsewhere: %v", chosen)
	}
	if len(endpoints) == 1 {
		return 1 // all draws led to the only one
	}
	return distuv.ChiSquared{K: float64(len(endpoints) - 1)}.Survival(stat.ChiSquare(observed, expected))
}

// evaluate runs a chain's rules for a packet to a frontend: a draw that hits an
// empty slot does not match, so the next rule is next. The zero AddrPort means
// that none matched.
func evaluate(chains []Chain, slots map[Key]netip.AddrPort, packet Key, rng *rand.Rand) netip.AddrPort {
	for _, rule := range chains[len(chains)-1].Rules {
		if len(rule) != 1 {
			panic("a chain that draws slots has rules of one statement")
		}
		switch s := rule[0].(type) {
		case Jump:
			to := slices.IndexFunc(chains, func(c Chain) bool { return c.Name == s.Chain })
			if endpoint := evaluate(chains[:to+1], slots, packet, rng); endpoint.IsValid() {
				return endpoint
			}
		case DrawEndpoint:
			packet.Slot = uint32(rng.Int63n(int64(s.Capacity)))
			if endpoint, ok := slots[packet]; ok {
				return endpoint
			}
		default:
			panic("a chain that draws slots does nothing but draw")
		}
	}
	return netip.AddrPort{}
}
