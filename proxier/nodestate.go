package proxier

import (
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/rules"
)

// NodePorts says on which addresses of this node NodePorts are open.
type NodePorts interface {
	// Open returns these addresses of a family, or all as true if they are open on every
	// address but loopback ones. nodeIPs are those that the Node has, local those of the
	// interfaces.
	Open(f rules.Family, nodeIPs, local []netip.Addr) (addrs []netip.Addr, all bool)
}

// nodeState is what the ruleset depends on beside Services and EndpointSlices, and what
// it makes of it.
type nodeState struct {
	rules       rules.Config // as configured
	nodeCIDR    bool
	nodePorts   NodePorts
	bindAddress netip.Addr

	node  *Node                     // nil if it is not known
	local []netip.Addr              // the addresses of the interfaces
	cidrs map[string][]netip.Prefix // of each ServiceCIDR
}

func newNodeState(opts Options) *nodeState {
	s := &nodeState{
		rules: opts.Rules, nodeCIDR: opts.NodeCIDR, nodePorts: opts.NodePorts, bindAddress: opts.BindAddress,
		cidrs: map[string][]netip.Prefix{},
	}
	s.setNode(nil)
	return s
}

// apply takes changes and reports whether any of them is for it.
func (s *nodeState) apply(changes Changes) bool {
	if changes.Node != nil {
		s.setNode(changes.Node.Node)
	}
	for _, c := range changes.ServiceCIDRs {
		if len(c.CIDRs) == 0 {
			delete(s.cidrs, c.Name)
		} else {
			s.cidrs[c.Name] = c.CIDRs
		}
	}
	return changes.Node != nil || len(changes.ServiceCIDRs) > 0
}

// setNode takes the newest Node. If there is none any more, what the last one said stays:
// the machine has not lost its addresses with it. The bind address, which is an address
// of the node that the operator has chosen, comes before those of the Node.
func (s *nodeState) setNode(node *Node) {
	if node == nil && s.node != nil {
		return
	}
	s.node = node
	if !s.bindAddress.IsValid() {
		return
	}
	chosen := &Node{}
	if node != nil {
		*chosen = *node
	}
	chosen.Addrs = append([]netip.Addr{s.bindAddress}, chosen.Addrs...)
	s.node = chosen
}

// nodeIPs returns this node's own addresses, at most one a family.
func (s *nodeState) nodeIPs() []netip.Addr {
	var ips []netip.Addr
	if s.node == nil {
		return ips
	}
	for _, f := range rules.Families() {
		i := slices.IndexFunc(s.node.Addrs, func(a netip.Addr) bool { return rules.FamilyOf(a) == f })
		if i >= 0 {
			ips = append(ips, s.node.Addrs[i])
		}
	}
	return ips
}

// config returns the configuration of the ruleset.
func (s *nodeState) config() rules.Config {
	cfg := s.rules
	if s.nodeCIDR {
		cfg.ClusterCIDRs = nil
		if s.node != nil {
			cfg.ClusterCIDRs = s.node.PodCIDRs
		}
	}
	cfg.NodePortsEverywhere = nil
	for _, f := range cfg.Families {
		if _, all := s.open(f); all {
			cfg.NodePortsEverywhere = append(cfg.NodePortsEverywhere, f)
		}
	}
	return cfg
}

// open returns the addresses on which NodePorts are open; all says that these are all
// there are.
func (s *nodeState) open(f rules.Family) (addrs []netip.Addr, all bool) {
	if s.nodePorts == nil {
		return nil, false
	}
	addrs, all = s.nodePorts.Open(f, s.nodeIPs(), s.local)
	if !all {
		return addrs, false
	}
	for _, a := range s.local {
		if rules.FamilyOf(a) == f {
			addrs = append(addrs, a)
		}
	}
	return addrs, true
}

// families returns what the ruleset of each family gets from the node.
func (s *nodeState) families() []rules.Node {
	var nodes []rules.Node
	for _, f := range s.rules.Families {
		node := rules.Node{Family: f}
		node.NodePortIPs, _ = s.open(f)
		for _, cidrs := range s.cidrs {
			for _, p := range cidrs {
				if rules.FamilyOf(p.Addr()) == f {
					node.ServiceCIDRs = append(node.ServiceCIDRs, p)
				}
			}
		}
		nodes = append(nodes, node)
	}
	return nodes
}
