package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Node is what the ruleset of a family depends on beside Config and Services, and what
// may change at any time.
type Node struct {
	Family Family
	// NodePortIPs are this node's addresses on which NodePorts are open. They do not
	// matter if Config.NodePortsEverywhere lists the family.
	NodePortIPs []netip.Addr
	// ServiceCIDRs are the ranges from which ClusterIPs are allocated. They may overlap.
	ServiceCIDRs []netip.Prefix
}

// Key returns the key of what CompileNode returns. No service port has it.
func (n Node) Key() ServicePortKey { return ServicePortKey{Family: n.Family} }

// CompileNode turns a Node into its part of the ruleset. An error joins everything that
// is not a range or address of the family; then there is nothing to install.
func CompileNode(n Node) (*Compiled, error) {
	var errs []error
	for _, a := range n.NodePortIPs {
		if !a.IsValid() || FamilyOf(a) != n.Family || a.Is4In6() || a.Zone() != "" {
			errs = append(errs, fmt.Errorf("NodePort address %s: not an address of %s", a, n.Family))
		}
	}
	for _, p := range n.ServiceCIDRs {
		if !p.IsValid() || FamilyOf(p.Addr()) != n.Family || p.Addr().Is4In6() {
			errs = append(errs, fmt.Errorf("ServiceCIDR %s: not a range of %s", p, n.Family))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	c := &Compiled{ServicePortKey: n.Key(), NodePortIPs: slices.Clone(n.NodePortIPs), ServiceCIDRs: disjoint(n.ServiceCIDRs)}
	slices.SortFunc(c.NodePortIPs, netip.Addr.Compare)
	c.NodePortIPs = slices.Compact(c.NodePortIPs)
	return c, nil
}

// appendNode appends the elements of one set that the node has.
func (c *Compiled) appendNode(dst []Element, id SetID) []Element {
	switch id { //nolint:exhaustive // the others depend on Services
	case NodePortIPs:
		for _, a := range c.NodePortIPs {
			dst = append(dst, Element{Set: id, Key: Key{Addr: a}})
		}
	case ServiceCIDRs:
		for _, p := range c.ServiceCIDRs {
			dst = append(dst, Element{Set: id, Key: Key{Range: p}})
		}
	}
	return dst
}
