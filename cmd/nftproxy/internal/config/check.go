package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/rules"
)

// NodeFacts is what a configuration can be compared with once the node is known.
type NodeFacts struct {
	// Families are those that the kernel has.
	Families []rules.Family
	// Addrs are the node's addresses, BindAddress first if there is one. The first one's
	// family is the primary one; it is IPv4 if there are none.
	Addrs []netip.Addr
	// PodCIDRs are those of the Node.
	PodCIDRs []netip.Prefix
}

func (n NodeFacts) primary() rules.Family {
	if len(n.Addrs) == 0 {
		return rules.IPv4
	}
	return rules.FamilyOf(n.Addrs[0])
}

// singleStack reports whether the kernel has one family alone.
func (n NodeFacts) singleStack() bool { return len(n.Families) == 1 }

// Check compares the configuration with the node, as kube-proxy does when it starts. The
// problems are sentences: the configuration may be incomplete or wrong, but works. The
// error says why this node cannot be served with it.
func (c *Config) Check(n NodeFacts) (problems []string, err error) {
	if primary := n.primary(); !slices.Contains(n.Families, primary) {
		return nil, fmt.Errorf("the kernel has no %s, but %s of this node is an %s address: "+
			"turn %[1]s on, or give an address of another family with --bind-address", primary, n.Addrs[0], primary)
	}
	problems = slices.Concat(c.checkNodePorts(n), c.checkServers(n))
	var fatal []string
	for _, ranges := range []struct {
		field string
		list  []netip.Prefix
		fatal bool
	}{
		{"clusterCIDR", c.LocalTraffic.ClusterCIDRs, n.singleStack()},
		{"spec.podCIDRs of the Node", n.PodCIDRs, c.LocalTraffic.Mode == LocalModeNodeCIDR},
	} {
		if len(ranges.list) == 0 || slices.ContainsFunc(ranges.list, func(p netip.Prefix) bool { return familyOf(p) == n.primary() }) {
			continue
		}
		problem := fmt.Sprintf("%s: no range is of %s, the node's primary family", ranges.field, n.primary())
		if ranges.fatal {
			fatal = append(fatal, problem)
		} else {
			problems = append(problems, problem)
		}
	}
	if len(fatal) > 0 {
		return problems, fmt.Errorf("correct the configuration, with it no pod of this node is known by its address: %s", strings.Join(fatal, "; "))
	}
	return append(problems, c.checkMissing(n)...), nil
}

// checkNodePorts looks for a family in use whose NodePorts are open on all addresses
// since nodePortAddresses has forgotten it.
func (c *Config) checkNodePorts(n NodeFacts) (problems []string) {
	dual := bothFamilies(c.LocalTraffic.ClusterCIDRs) || bothFamilies(n.PodCIDRs)
	for _, f := range n.Families {
		if (f == n.primary() || dual) && !namesFamily(c.Object.NodePortAddresses, f) {
			problems = append(problems, fmt.Sprintf("nodePortAddresses: no address is of %s, "+
				"so NodePorts are open on all %[1]s addresses of this node; add %s to keep them to the node's own", f, keywordPrimary))
		}
	}
	return problems
}

// checkServers looks for servers that listen where nobody can reach them.
func (c *Config) checkServers(n NodeFacts) (problems []string) {
	for _, server := range []struct {
		field string
		at    netip.AddrPort
	}{{"healthzBindAddress", c.HealthzAddress}, {"metricsBindAddress", c.MetricsAddress}} {
		addr := server.at.Addr()
		if n.singleStack() && addr.IsValid() && !addr.IsUnspecified() && !slices.Contains(n.Families, rules.FamilyOf(addr)) {
			problems = append(problems, fmt.Sprintf("%s: the kernel has no %s, so nothing can listen on %s", server.field, rules.FamilyOf(addr), server.at))
		}
	}
	return problems
}

// checkMissing looks for what the configuration needs and the node does not say.
func (c *Config) checkMissing(n NodeFacts) (problems []string) {
	if len(n.Addrs) == 0 && (c.NodePortAddresses.IPv4.Primary || c.NodePortAddresses.IPv6.Primary) {
		problems = append(problems, "nodePortAddresses: no address of this node is known, so NodePorts are closed on its own; "+
			"is the name of the node right (--hostname-override)? --bind-address gives an address too")
	}
	if len(n.PodCIDRs) == 0 && c.LocalTraffic.Mode == LocalModeNodeCIDR {
		problems = append(problems, "detectLocalMode: the Node has no spec.podCIDRs yet, so until then no traffic counts as that of this node's pods")
	}
	return problems
}

func familyOf(p netip.Prefix) rules.Family { return rules.FamilyOf(p.Addr()) }

func bothFamilies(list []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return familyOf(p) == rules.IPv4 }) &&
		slices.ContainsFunc(list, func(p netip.Prefix) bool { return familyOf(p) == rules.IPv6 })
}

// namesFamily reports whether a valid list of nodePortAddresses says anything about a
// family. Each keyword is about both.
func namesFamily(list []string, f rules.Family) bool {
	return slices.ContainsFunc(list, func(text string) bool {
		prefix, ok := parsePrefix(text)
		return !ok || familyOf(prefix) == f
	})
}
