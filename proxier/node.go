package proxier

import (
	"net/netip"
	"slices"
)

// Node is what the proxy uses of the Node that it runs on. It is never changed after
// it was made.
type Node struct {
	Name string
	// Addrs holds the usable addresses of status.addresses: the InternalIPs, then the
	// ExternalIPs, in their order.
	Addrs []netip.Addr
	// PodCIDRs are the ranges of the addresses of this node's pods.
	PodCIDRs []netip.Prefix
	// Zone is the label topology.kubernetes.io/zone, empty if it is not set.
	Zone string
	// Deleting is true once the Node has a deletion timestamp, ToBeDeleted if it has the
	// taint with which the cluster autoscaler announces the node's end.
	Deleting, ToBeDeleted bool
}

// Equal reports whether nothing that the proxy uses differs.
func (n *Node) Equal(o *Node) bool {
	return n.Name == o.Name && n.Zone == o.Zone && n.Deleting == o.Deleting && n.ToBeDeleted == o.ToBeDeleted &&
		slices.Equal(n.Addrs, o.Addrs) && slices.Equal(n.PodCIDRs, o.PodCIDRs)
}
