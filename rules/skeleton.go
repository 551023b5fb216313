package rules

import (
	"net/netip"
	"slices"
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
	chainServices             = "services"
	chainNodePorts            = "nodeports"
	chainMasquerading         = "masquerading"
	chainNoEndpoints          = "no-endpoints-check"
	chainNoEndpointsNodePorts = "no-endpoints-nodeports-check"
	chainClusterIPs           = "cluster-ips-check"
	chainFirewall             = "firewall-check"
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
	checkNodePorts := append(append(Rule{MatchNew{}}, toNodePorts(cfg, f)...), Jump{chainNoEndpointsNodePorts})
	return []Chain{
		{Name: chainNodePorts, Rules: nodePortRules(cfg, f)},
		{Name: chainServices, Rules: serviceRules(cfg, f)},
		{Name: chainMasquerading, Rules: []Rule{
			{MatchMark{cfg.MasqueradeMark}, FlipMark{cfg.MasqueradeMark}, Masquerade{}},
			{MatchDNATed{}, MatchSet{Set: Hairpin}, Masquerade{}},
		}},
		{Name: chainNoEndpoints, Rules: []Rule{
			{MatchSet{Set: NoEndpointsReject}, Reject{}},
			{MatchSet{Set: NoEndpointsDrop}, Drop{}},
		}},
		{Name: chainNoEndpointsNodePorts, Rules: []Rule{
			{MatchSet{Set: NoEndpointsRejectNodePorts}, Reject{}},
			{MatchSet{Set: NoEndpointsDropNodePorts}, Drop{}},
		}},
		{Name: chainClusterIPs, Rules: []Rule{
			{MatchSet{Set: ClusterIPs}, Reject{}},
			{MatchSet{Set: ServiceCIDRs}, Drop{}},
		}},

		{Name: chainFirewall, Rules: []Rule{
			{MatchSet{Set: Firewalled}, MatchSet{Set: AllowedSources, Not: true}, Drop{}},
		}},

		base("filter-prerouting-pre-dnat", FilterChain, Prerouting, priorityPreDNAT, checkFirewall),
		base("filter-output-pre-dnat", FilterChain, Output, priorityPreDNAT, checkFirewall),
		base("nat-prerouting", NATChain, Prerouting, priorityDNAT, Rule{Jump{chainServices}}),
		base("nat-output", NATChain, Output, priorityDNAT, Rule{Jump{chainServices}}),
		base("filter-input", FilterChain, Input, priorityFilter, checkNodePorts, checkNoEndpoints),
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
//   - all others, and all other frontends: over the endpoints of policy Cluster;
//   - packets to the node's own addresses that are to no frontend with an address:
//     NodePorts.
func serviceRules(cfg Config, f Family) []Rule {
	var rules []Rule
	outside, some := outsideNode(cfg, f)
	if some {
		rules = append(rules, append(slices.Clone(outside), Dispatch{Map: LocalServiceIPs}))
	}
	mark := SetMark{cfg.MasqueradeMark}
	switch {
	case cfg.MasqueradeAll:
		rules = append(rules, Rule{MatchSet{Set: ClusterIPs}, mark})
	case some && len(notPods(cfg, f)) > 0:
		rules = append(rules, append(append(Rule{MatchSet{Set: ClusterIPs}}, notPods(cfg, f)...), mark))
	}
	rules = append(rules, Rule{MatchSet{Set: MasqueradeIPs}, mark})
	if some {
		rules = append(rules, append(fromNode(cfg, f), MatchSet{Set: MasqueradeNodeIPs}, mark))
	}
	return append(rules, Rule{Dispatch{Map: ServiceIPs}}, append(toNodePorts(cfg, f), Jump{chainNodePorts}))
}

// nodePortRules returns the rules that do for NodePorts what serviceRules does for
// frontends with an address.
func nodePortRules(cfg Config, f Family) []Rule {
	var rules []Rule
	outside, some := outsideNode(cfg, f)
	if some {
		rules = append(rules, append(outside, Dispatch{Map: LocalServiceNodePorts}))
	}
	mark := SetMark{cfg.MasqueradeMark}
	rules = append(rules, Rule{MatchSet{Set: MasqueradeNodePorts}, mark})
	if some {
		rules = append(rules, append(fromNode(cfg, f), MatchSet{Set: MasqueradeNodeNodePorts}, mark))
	}
	return append(rules, Rule{Dispatch{Map: ServiceNodePorts}})
}

// toNodePorts returns the matches for packets to addresses on which NodePorts are open.
// Loopback is never one: an answer to 127.0.0.1 cannot come from elsewhere.
func toNodePorts(cfg Config, f Family) Rule {
	if !slices.Contains(cfg.NodePortsEverywhere, f) {
		return Rule{MatchSet{Set: NodePortIPs}}
	}
	loopback := netip.PrefixFrom(netip.IPv6Loopback(), 128)
	if f == IPv4 {
		loopback = netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)
	}
	return Rule{MatchLocal{Field: DestAddr}, MatchOutside{DestAddr, loopback}}
}

// outsideNode returns the matches for clients that are neither this node nor a pod. It
// reports whether there can be such clients.
func outsideNode(cfg Config, f Family) (matches Rule, some bool) {
	matches = append(Rule{MatchLocal{Field: SourceAddr, Not: true}}, notPods(cfg, f)...)
	return matches, !slices.ContainsFunc(cfg.clusterCIDRs(f), func(p netip.Prefix) bool { return p.Bits() == 0 })
}

// fromNode returns the matches for packets of this node, from an address that is not in
// the pods' ranges: kube-proxy takes a node's address among its pods for a pod's.
func fromNode(cfg Config, f Family) Rule {
	return append(Rule{MatchLocal{Field: SourceAddr}}, outsideRanges(cfg, f)...)
}

// notPods returns the matches for clients that are no pods, none if it is not known
// what is a pod.
func notPods(cfg Config, f Family) Rule {
	switch {
	case cfg.PodInterface != "":
		return Rule{MatchNotFrom{Interface: cfg.PodInterface}}
	case cfg.PodInterfacePrefix != "":
		return Rule{MatchNotFrom{Interface: cfg.PodInterfacePrefix, Prefix: true}}
	default:
		return outsideRanges(cfg, f)
	}
}

// outsideRanges returns the matches for clients that are not in the pods' ranges.
func outsideRanges(cfg Config, f Family) Rule {
	var matches Rule
	for _, p := range cfg.clusterCIDRs(f) {
		matches = append(matches, MatchOutside{SourceAddr, p})
	}
	return matches
}
