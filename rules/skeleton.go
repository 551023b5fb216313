package rules

import (
	"strconv"
	"strings"
)

// Priorities of the base chains: those of kube-proxy, since other software on a
// node (CNI plugins, firewalls) is ordered around them.
const (
	priorityPreDNAT int32 = -110
	priorityDNAT    int32 = -100
	priorityFilter  int32 = 0
	prioritySNAT    int32 = 100
)

// Names of the regular chains of the skeleton.
const (
	chainServices     = "services"
	chainMasquerading = "masquerading"
	chainNoEndpoints  = "no-endpoints-check"
	chainClusterIPs   = "cluster-ips-check"
	chainFirewall     = "firewall-check"

	randomChainPrefix      = "random-"
	localRandomChainPrefix = "local-random-"
)

// Skeleton returns the chains that exist whatever Services there are, regular
// chains first, so that every chain comes after the ones it jumps to.
func Skeleton(cfg Config, f Family) []Chain {
	cfg = cfg.WithDefaults()
	base := func(name string, t ChainType, p HookPoint, priority int32, rules ...Rule) Chain {
		return Chain{Name: name, Base: &Hook{t, p, priority}, Rules: rules}
	}
	checkNoEndpoints := Rule{MatchNew{}, Jump{chainNoEndpoints}}
	checkFirewall := Rule{MatchNew{}, Jump{chainFirewall}}
	checkClusterIPs := Rule{MatchNew{}, Jump{chainClusterIPs}}
	return []Chain{
		{Name: chainServices, Rules: serviceRules(cfg, f)},
		{Name: chainMasquerading, Rules: []Rule{
			{MatchMark{cfg.MasqueradeMark}, FlipMark{cfg.MasqueradeMark}, Masquerade{}},
			{MatchDNATed{}, MatchSet{Set: Hairpin}, Masquerade{}},
		}},
		{Name: chainNoEndpoints, Rules: []Rule{
			{MatchSet{Set: NoEndpointsReject}, Reject{}},
			{MatchSet{Set: NoEndpointsDrop}, Drop{}},
		}},
		{Name: chainClusterIPs, Rules: []Rule{{MatchSet{Set: ClusterIPs}, Reject{}}}},

		{Name: chainFirewall, Rules: []Rule{
			{MatchSet{Set: Firewalled}, MatchSet{Set: AllowedSources, Not: true}, Drop{}},
		}},

		base("filter-prerouting-pre-dnat", FilterChain, Prerouting, priorityPreDNAT, checkFirewall),
		base("filter-output-pre-dnat", FilterChain, Output, priorityPreDNAT, checkFirewall),
		base("nat-prerouting", NATChain, Prerouting, priorityDNAT, Rule{Jump{chainServices}}),
		base("nat-output", NATChain, Output, priorityDNAT, Rule{Jump{chainServices}}),
		base("filter-input", FilterChain, Input, priorityFilter, checkNoEndpoints),
		base("filter-forward", FilterChain, Forward, priorityFilter, checkNoEndpoints, checkClusterIPs),
		base("filter-output", FilterChain, Output, priorityFilter, checkNoEndpoints, checkClusterIPs),
		base("nat-postrouting", NATChain, Postrouting, prioritySNAT, Rule{Jump{chainMasquerading}}),
	}
}

// serviceRules returns the rules that translate packets to frontends, and mark what
// is to be masqueraded:
//
//   - clients that are neither this node nor one of its pods, to external frontends
//     of traffic policy Local: over the endpoints on this node, or nowhere;
//   - all others, and all other frontends: over the endpoints of policy Cluster.
func serviceRules(cfg Config, f Family) []Rule {
	var rules []Rule
	outside, some := outsidePods(cfg, f)
	if some {
		rules = append(rules, append(append(Rule{MatchSourceType{Not: true}}, outside...), Dispatch{LocalServiceIPs}))
	}
	mark := SetMark{cfg.MasqueradeMark}
	switch {
	case cfg.MasqueradeAll:
		rules = append(rules, Rule{MatchSet{Set: ClusterIPs}, mark})
	case some && len(outside) > 0:
		rules = append(rules, append(append(Rule{MatchSet{Set: ClusterIPs}}, outside...), mark))
	}
	return append(rules,
		Rule{MatchSet{Set: MasqueradeIPs}, mark},
		Rule{MatchSourceType{}, MatchSet{Set: MasqueradeNodeIPs}, mark},
		Rule{Dispatch{ServiceIPs}},
	)
}

// outsidePods returns the matches for clients that are no pods, none if pods are
// not known by their address. It reports whether there can be such clients.
func outsidePods(cfg Config, f Family) (matches Rule, some bool) {
	for _, p := range cfg.clusterCIDRs(f) {
		if p.Bits() == 0 {
			return nil, false
		}
		matches = append(matches, MatchSourceOutside{p})
	}
	return matches, true
}

// RandomChain returns the chain that translates a packet to the endpoint in a
// random filled slot of a table of the given capacity in a map, Endpoints or
// LocalEndpoints: it draws until it hits one, and takes slot 0 after
// tries(capacity) misses. With capacity 0 it does nothing: the packet goes on
// untranslated.
func RandomChain(endpoints SetID, capacity int) Chain {
	draw := Rule{DrawEndpoint{endpoints, uint32(capacity)}}
	c := Chain{Name: randomChainName(endpoints, capacity)}
	for range tries(capacity) {
		c.Rules = append(c.Rules, draw)
	}
	if capacity > 0 {
		c.Rules = append(c.Rules, Rule{DrawEndpoint{endpoints, 1}})
	}
	return c
}

// ChainByName returns the chain that elements refer to by this name, which is
// made when the first of them appears.
func ChainByName(name string) (Chain, bool) {
	endpoints := Endpoints
	digits, ok := strings.CutPrefix(name, randomChainPrefix)
	if !ok {
		endpoints = LocalEndpoints
		digits, ok = strings.CutPrefix(name, localRandomChainPrefix)
	}
	capacity, err := strconv.ParseUint(digits, 10, 31)
	if !ok || err != nil || randomChainName(endpoints, int(capacity)) != name { // there is one way to write it
		return Chain{}, false
	}
	return RandomChain(endpoints, int(capacity)), true
}

func randomChainName(endpoints SetID, capacity int) string {
	prefix := randomChainPrefix
	if endpoints == LocalEndpoints {
		prefix = localRandomChainPrefix
	}
	return prefix + strconv.Itoa(capacity)
}
