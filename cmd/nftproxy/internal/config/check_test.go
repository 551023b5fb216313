package config

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/rules"
)

// TestCheck compares configurations with nodes: what kube-proxy complains about is told,
// what it does not start with is an error.
func TestCheck(t *testing.T) {
	const (
		v4, v6 = "192.0.2.1", "2001:db8::1"
		open4  = "nodePortAddresses: no address is of IPv4"
		open6  = "nodePortAddresses: no address is of IPv6"
		pods4  = "clusterCIDR: no range is of IPv4"
		pods6  = "clusterCIDR: no range is of IPv6"
		node4  = "spec.podCIDRs of the Node: no range is of IPv4"
	)
	for _, c := range []struct {
		name, yaml string
		addrs      string
		podCIDRs   string
		only4      bool     // the kernel has no IPv6
		problems   []string // what they begin with
		err        string   // what it has in it
	}{
		{name: "defaults", addrs: v4},
		{name: "dual-stack", yaml: `clusterCIDR: "10.0.0.0/8,fd00::/8"`, addrs: v4 + " " + v6, podCIDRs: "10.1.0.0/16 fd00:1::/64"},

		{name: "NodePorts of the primary family", yaml: "nodePortAddresses: [192.0.2.0/24]", addrs: v4},
		{name: "NodePorts of the other family", yaml: "nodePortAddresses: [192.0.2.0/24]", addrs: v6, problems: []string{open6}},
		{name: "the same the other way round", yaml: "nodePortAddresses: [2001:db8::/64]", addrs: v4 + " " + v6, problems: []string{open4}},
		{name: "NodePorts of one family of two pod ranges", yaml: "clusterCIDR: \"10.0.0.0/8,fd00::/8\"\nnodePortAddresses: [192.0.2.0/24]", addrs: v4, problems: []string{open6}},
		{name: "NodePorts of one family of two of the Node", yaml: "nodePortAddresses: [192.0.2.0/24]", addrs: v4, podCIDRs: "fd00:1::/64 10.1.0.0/16", problems: []string{open6}},
		{name: "but the kernel has only that one", yaml: "nodePortAddresses: [192.0.2.0/24]", addrs: v4, podCIDRs: "fd00:1::/64 10.1.0.0/16", only4: true},
		{name: "a keyword is of both", yaml: "clusterCIDR: \"10.0.0.0/8,fd00::/8\"\nnodePortAddresses: [192.0.2.0/24, primary]", addrs: v4},
		{name: "everywhere on purpose", yaml: "clusterCIDR: \"10.0.0.0/8,fd00::/8\"\nnodePortAddresses: [all]", addrs: v4},

		{name: "pods of the other family", yaml: `clusterCIDR: "fd00::/8"`, addrs: v4, problems: []string{pods4}},
		{name: "which the kernel does not have", yaml: `clusterCIDR: "fd00::/8"`, addrs: v4, only4: true, err: pods4},
		{name: "pods of IPv4 on a node of IPv6", yaml: `clusterCIDR: "10.0.0.0/8"`, addrs: v6 + " " + v4, problems: []string{pods6}},
		{name: "pods that are told otherwise", yaml: "clusterCIDR: \"fd00::/8\"\ndetectLocalMode: NodeCIDR", addrs: v4, podCIDRs: "10.1.0.0/16", only4: true},

		{name: "pods of the Node of the other family", addrs: v4, podCIDRs: "fd00:1::/64", problems: []string{node4}},
		{name: "which shall tell them", yaml: "detectLocalMode: NodeCIDR", addrs: v4, podCIDRs: "fd00:1::/64", err: node4},
		{name: "none yet", yaml: "detectLocalMode: NodeCIDR", addrs: v4, problems: []string{"detectLocalMode: the Node has no spec.podCIDRs yet"}},

		{name: "servers of the other family", yaml: "healthzBindAddress: \"[2001:db8::1]:1\"\nmetricsBindAddress: \"[::1]:2\"", addrs: v4},
		{
			name: "which the kernel does not have", yaml: "healthzBindAddress: \"[2001:db8::1]:1\"\nmetricsBindAddress: \"[::1]:2\"", addrs: v4, only4: true,
			problems: []string{"healthzBindAddress: the kernel has no IPv6, so nothing can listen on [2001:db8::1]:1", "metricsBindAddress: the kernel has no IPv6"},
		},
		{name: "servers everywhere", yaml: "healthzBindAddress: \"[::]:1\"\nmetricsBindAddress: \"[::]:2\"", addrs: v4, only4: true},

		{name: "a node of a family that the kernel does not have", addrs: v6, only4: true, err: "the kernel has no IPv6, but 2001:db8::1 of this node"},
		{name: "as its second one", addrs: v4 + " " + v6, only4: true},
		{name: "a node that is not known", problems: []string{"nodePortAddresses: no address of this node is known"}},
		{name: "but does not matter", yaml: "nodePortAddresses: [192.0.2.0/24, 2001:db8::/64]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := Parse([]byte(withMode(c.yaml)))
			if err != nil {
				t.Fatal(err)
			}
			facts := NodeFacts{Families: rules.Families()}
			if c.only4 {
				facts.Families = []rules.Family{rules.IPv4}
			}
			for _, text := range strings.Fields(c.addrs) {
				facts.Addrs = append(facts.Addrs, netip.MustParseAddr(text))
			}
			for _, text := range strings.Fields(c.podCIDRs) {
				facts.PodCIDRs = append(facts.PodCIDRs, netip.MustParsePrefix(text))
			}
			problems, err := cfg.Check(facts)
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			equal := func(beginning, problem string) bool { return strings.HasPrefix(problem, beginning) }
			if !slices.EqualFunc(c.problems, problems, equal) {
				t.Errorf("problems (want the beginnings -, got +):\n%s", cmp.Diff(c.problems, problems))
			}
		})
	}
}
