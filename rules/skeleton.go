package rules

import (
	"strconv"
	"strings"
)

// Priorities of the base chains: those of kube-proxy, since other software on a
// node (CNI plugins, firewalls) is ordered around them.
const (
	priorityDNAT   int32 = -100
	priorityFilter int32 = 0
	prioritySNAT   int32 = 100
)

// Names of the regular chains of the skeleton.
const (
	chainServices     = "services"
	chainMasquerading = "masquerading"
	chainNoEndpoints  = "no-endpoints-check"
	chainClusterIPs   = "cluster-ips-check"
	randomChainPrefix = "random-"
)

// Skeleton returns the chains that exist whatever Services there are, regular
// chains first, so that every chain comes after the ones it jumps to.
func Skeleton(cfg Config, f Family) []Chain {
	cfg = cfg.WithDefaults()
	base := func(name string, t ChainType, p HookPoint, priority int32, rules ...Rule) Chain {
		return Chain{Name: name, Base: &Hook{t, p, priority}, Rules: rules}
	}
	checkNoEndpoints := Rule{MatchNew{}, Jump{chainNoEndpoints}}
	checkClusterIPs := Rule{MatchNew{}, Jump{chainClusterIPs}}
	return []Chain{
		{Name: chainServices, Rules: append(markRules(cfg, f), Rule{Dispatch{ServiceIPs}})},
		{Name: chainMasquerading, Rules: []Rule{
			{MatchMark{cfg.MasqueradeMark}, FlipMark{cfg.MasqueradeMark}, Masquerade{}},
			{MatchDNATed{}, MatchSet{Hairpin}, Masquerade{}},
		}},
		{Name: chainNoEndpoints, Rules: []Rule{{MatchSet{NoEndpointsReject}, Reject{}}}},
		{Name: chainClusterIPs, Rules: []Rule{{MatchSet{ClusterIPs}, Reject{}}}},

		base("nat-prerouting", NATChain, Prerouting, priorityDNAT, Rule{Jump{chainServices}}),
		base("nat-output", NATChain, Output, priorityDNAT, Rule{Jump{chainServices}}),
		base("filter-input", FilterChain, Input, priorityFilter, checkNoEndpoints),
		base("filter-forward", FilterChain, Forward, priorityFilter, checkNoEndpoints, checkClusterIPs),
		base("filter-output", FilterChain, Output, priorityFilter, checkNoEndpoints, checkClusterIPs),
		base("nat-postrouting", NATChain, Postrouting, prioritySNAT, Rule{Jump{chainMasquerading}}),
	}
}

// markRules returns the rules that request masquerading for packets to
// ClusterIPs: all of them, or those from outside the cluster.
func markRules(cfg Config, f Family) []Rule {
	rule := Rule{MatchSet{ClusterIPs}}
	if !cfg.MasqueradeAll {
		cidrs := cfg.clusterCIDRs(f)
		if len(cidrs) == 0 {
			return nil
		}
		for _, p := range cidrs {
			if p.Bits() == 0 {
				return nil // nothing is outside
			}
			rule = append(rule, MatchSourceOutside{p})
		}
	}
	return []Rule{append(rule, SetMark{cfg.MasqueradeMark})}
}

// RandomChain returns the chain that translates a packet to the endpoint in a
// random filled slot of a table of the given capacity: it draws until it hits
// one, and takes slot 0 after tries(capacity) misses.
func RandomChain(capacity int) Chain {
	draw := Rule{DrawEndpoint{Endpoints, uint32(capacity)}}
	c := Chain{Name: randomChainName(capacity)}
	for range tries(capacity) {
		c.Rules = append(c.Rules, draw)
	}
	c.Rules = append(c.Rules, Rule{DrawEndpoint{Endpoints, 1}})
	return c
}

// ChainByName returns the chain that elements refer to by this name, which is
// made when the first of them appears.
func ChainByName(name string) (Chain, bool) {
	digits, ok := strings.CutPrefix(name, randomChainPrefix)
	if !ok {
		return Chain{}, false
	}
	capacity, err := strconv.ParseUint(digits, 10, 31)
	if err != nil || capacity == 0 || digits[0] == '0' { // no other way to write the same
		return Chain{}, false
	}
	return RandomChain(int(capacity)), true
}

func randomChainName(capacity int) string {
	return randomChainPrefix + strconv.Itoa(capacity)
}
