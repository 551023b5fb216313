package rules_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/rules"
)

// TestWalkAgreesWithSemantics compares the walk over the rules of random clusters with
// what Kubernetes says of the packet. Every row of the tables is met many times.
func TestWalkAgreesWithSemantics(t *testing.T) {
	const clusters, packets, fewest = 250, 40, 10
	met := map[string]int{}
	for seed := range uint64(clusters) {
		g := newGenerator(seed)
		c := g.cluster()
		ruleset := g.compile(t, c)
		remembered := c.remembered(ruleset)
		for _, f := range rules.Families() {
			walker := rules.NewWalker(ruleset, f, c.host)
			for range packets {
				p := g.packet(c, f)
				want := c.fate(p)
				trace := walker.Walk(p, remembered)
				if problem := disagreement(c, p, want, trace); problem != "" {
					t.Fatalf("seed %d: %s\n%s", seed, problem, describe(c, p, f, want, trace))
				}
				for _, what := range meetings(c, p, want) {
					met[fmt.Sprintf("%s: %s", f, what)]++
				}
			}
		}
	}
	for _, f := range rules.Families() {
		for _, what := range wantMet() {
			if n := met[fmt.Sprintf("%s: %s", f, what)]; n < fewest {
				t.Errorf("%s: %q was met %d times", f, what, n)
			}
		}
	}
	t.Logf("met:\n%s", listCounts(met))
}

// wantMet lists what a random test has to meet to be worth anything.
func wantMet() []string {
	list := []string{
		"load balancer: not from an allowed source", "ClusterIP: undefined port", "unallocated ClusterIP", "nothing of ours",
		"masqueraded", "not masqueraded", "hairpin", "hairpin, and marked", "delivered to the node though marked",
		"marked by others", "several endpoints",
	}
	for _, row := range []string{
		"ClusterIP, policy Local", "ClusterIP, policy Cluster", "external, policy Cluster",
		"external, policy Local, from a pod", "external, policy Local, from the node", "external, policy Local, from elsewhere",
	} {
		list = append(list, row, row+", remembered", row+": served elsewhere", row+": nobody serves")
	}
	return list
}

// meetings returns which of wantMet a packet is.
func meetings(c *cluster, p rules.Packet, f fate) []string {
	list := []string{f.because}
	if p.Mark&c.mark() != 0 {
		list = append(list, "marked by others")
	}
	if len(f.shares) > 1 {
		list = append(list, "several endpoints")
	}
	for e := range f.shares {
		hairpin := f.local[e] && e.Addr() == p.Source.Addr()
		switch {
		case hairpin && f.masquerade:
			list = append(list, "hairpin, and marked")
		case hairpin:
			list = append(list, "hairpin")
		case c.masqueraded(f, p, e):
			list = append(list, "masqueraded")
		case f.masquerade:
			list = append(list, "delivered to the node though marked")
		default:
			list = append(list, "not masqueraded")
		}
	}
	return list
}

// disagreement compares a walk with what has to become of the packet, and says what
// differs, if anything.
func disagreement(c *cluster, p rules.Packet, want fate, trace rules.Trace) string {
	// Slot 0 of a table is the last resort: see the package's documentation.
	const maxBias = 0.001
	sum := 0.0
	for _, r := range trace.Results {
		sum += r.Probability
		share, dest := 1.0, p.Dest
		if want.outcome == rules.Translated {
			share, dest = want.shares[r.Dest], r.Dest
		}
		switch {
		case r.Outcome != want.outcome:
			return fmt.Sprintf("the packet is %s, want %s", r.Outcome, want.outcome)
		case r.Dest != dest:
			return fmt.Sprintf("the packet goes to %s", r.Dest)
		case math.Abs(r.Probability-share) > maxBias*share:
			return fmt.Sprintf("%s with a probability of %g, want %g", r.Dest, r.Probability, share)
		case r.Outcome == rules.Dropped || r.Outcome == rules.Rejected: // nothing is left of it
		case r.Masqueraded != c.masqueraded(want, p, dest):
			return fmt.Sprintf("to %s, masqueraded: %t", dest, r.Masqueraded)
		case r.Mark != c.markAfter(want, p, dest):
			return fmt.Sprintf("to %s, its mark is %#x, want %#x", dest, r.Mark, c.markAfter(want, p, dest))
		}
	}
	if want.outcome == rules.Translated && len(trace.Results) != len(want.shares) {
		return fmt.Sprintf("it goes to %d endpoints, want %d", len(trace.Results), len(want.shares))
	}
	if math.Abs(sum-1) > 1e-9 {
		return fmt.Sprintf("the probabilities add up to %g", sum)
	}
	return ""
}

// describe prints a case: what the packet meets, what becomes of it and by which rules.
func describe(c *cluster, p rules.Packet, f rules.Family, want fate, trace rules.Trace) string {
	var b strings.Builder
	fmt.Fprintf(&b, "packet %+v\nconfig %+v\nnode %+v, addresses %v\nwant %+v\ngot\n", p, c.config, c.nodes[f], c.host.Addresses, want)
	for _, r := range trace.Results {
		fmt.Fprintf(&b, "  %+v\n", r)
	}
	for _, s := range trace.Steps {
		fmt.Fprintf(&b, "  %s %d %s %d: %s (%g)\n", s.Hook.Point, s.Hook.Priority, s.Chain, s.Index, s.Rule.AppendText(nil, f), s.Probability)
	}
	for _, sp := range c.services {
		if slices.ContainsFunc(sp.Frontends, func(f rules.Frontend) bool {
			return f.Addr.Addr() == p.Dest.Addr() || f.Kind == rules.NodePort && f.Addr.Port() == p.Dest.Port()
		}) {
			fmt.Fprintf(&b, "service port %s: frontends %v, endpoints %v, local %v, internal local %t, external local %t, served %t, restricted %t %v\n",
				sp.ServicePortKey, sp.Frontends, sp.Endpoints, sp.LocalEndpoints, sp.InternalLocal, sp.ExternalLocal, sp.Served, sp.Restricted, sp.SourceRanges)
		}
	}
	return b.String()
}

func listCounts(counts map[string]int) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "%6d %s\n", counts[key], key)
	}
	return b.String()
}
