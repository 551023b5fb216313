package rules_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/rules"
)

// impliedStatements are those that other rules imply, and why they are there.
func impliedStatements() map[string]string {
	const once = "clients elsewhere have been dispatched before, but the rule shall be understood alone"
	return map[string]string{
		"filter-input: MatchNew [MatchLocal] MatchOutside Jump no-endpoints-nodeports-check": "only what is to this node comes in, but these are the matches for NodePorts everywhere",
		"services: [MatchLocal] MatchOutside MatchSet masquerade-node-ips SetMark":           once,
		"nodeports: [MatchLocal] MatchOutside MatchSet masquerade-node-nodeports SetMark":    once,
	}
}

// TestEveryStatementMatters leaves out the statements of the skeleton's rules, one at a
// time: each is missed by some packet of a random cluster. So none is superfluous, and
// none could go without TestWalkAgreesWithSemantics seeing it.
func TestEveryStatementMatters(t *testing.T) {
	const clusters, packets = 80, 60
	missed := map[string]bool{} // by statement
	for seed := range uint64(clusters) {
		g := newGenerator(2_000_000 + seed)
		c := g.cluster()
		ruleset := g.compile(t, c)
		for _, f := range rules.Families() {
			walker := rules.NewWalker(ruleset, f, c.host)
			var sent []rules.Packet
			for range packets {
				sent = append(sent, g.packet(c, f))
			}
			for _, chain := range rules.Skeleton(c.config, f) {
				for i, rule := range chain.Rules {
					for j, statement := range rule {
						if _, ok := statement.(rules.MatchNew); ok {
							continue // only walks with the first packet of a connection
						}
						key := fmt.Sprintf("%s: %s", chain.Name, describeStatement(rule, j))
						missed[key] = missed[key] || isMissed(c, walker.WithoutStatement(chain.Name, i, j), sent)
					}
				}
			}
		}
	}
	for _, statement := range slices.Sorted(maps.Keys(missed)) {
		if reason, implied := impliedStatements()[statement]; missed[statement] == implied {
			t.Errorf("%s is missed: %t; it is implied: %t %s", statement, missed[statement], implied, reason)
		}
	}
	t.Logf("%d statements", len(missed))
}

// isMissed reports whether a broken walker disagrees with the semantics about a packet.
func isMissed(c *cluster, broken *rules.Walker, sent []rules.Packet) bool {
	return slices.ContainsFunc(sent, func(p rules.Packet) bool {
		f := c.fateOfNewClient(p)
		return disagreement(c, p, f, broken.Walk(p, nil)) != ""
	})
}

// fateOfNewClient is the fate of a packet while no client is remembered.
func (c *cluster) fateOfNewClient(p rules.Packet) fate {
	fresh := *c
	fresh.clients = nil
	return fresh.fate(p)
}

// describeStatement names a statement within its rule, whatever ranges, interfaces and
// marks are in it, and however many ranges.
func describeStatement(rule rules.Rule, i int) string {
	var words []string
	for j, statement := range rule {
		word := strings.TrimPrefix(fmt.Sprintf("%T", statement), "rules.")
		switch s := statement.(type) {
		case rules.MatchSet:
			word += " " + s.Set.Set().Name
		case rules.Dispatch:
			word += " " + s.Map.Set().Name
		case rules.Jump:
			word += " " + s.Chain
		}
		if j == i {
			word = "[" + word + "]"
		}
		words = append(words, word)
	}
	text := strings.Join(slices.Compact(words), " ")
	for _, again := range []string{"MatchOutside [MatchOutside]", "[MatchOutside] MatchOutside"} {
		text = strings.ReplaceAll(text, again, "[MatchOutside]")
	}
	return text
}
