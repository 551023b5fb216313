package rules

import (
	"fmt"
	"slices"
)

// TableName is the name of our table in both families. Nothing outside it is
// ever read or changed.
const TableName = "nftproxy"

// Field is a part of a set's key, and at the same time the part of a packet that
// a rule compares with it.
type Field uint8

// The fields, with the nft expressions that they stand for.
const (
	SourceAddr  Field = iota + 1 // ip saddr
	DestAddr                     // ip daddr
	L4Proto                      // meta l4proto
	DestPort                     // th dport
	Slot                         // numgen random mod <capacity>
	SourceRange                  // ip saddr, compared with ranges
	DestRange                    // ip daddr, compared with ranges
)

// ValueType is what the elements of a set map to.
type ValueType uint8

// The types of values.
const (
	NoValue       ValueType = iota // a set
	VerdictValue                   // a map to "goto <chain>"
	EndpointValue                  // a map to an address and a port
)

// SetID names one of the sets and maps that every table has. Their number is
// constant: whatever depends on Services is an element. Only session affinity takes
// maps beside these, see Compiled.OwnSets.
type SetID uint8

// The sets and maps, in the order in which they are printed and programmed.
const (
	// ClusterIPs holds every ClusterIP, for the masquerade mark and for the
	// reject of ports that no Service has.
	ClusterIPs SetID = iota
	// ServiceCIDRs holds the ranges from which ClusterIPs are allocated, for the drop of
	// what goes to one that is not.
	ServiceCIDRs
	// NodePortIPs holds this node's addresses on which NodePorts are open.
	NodePortIPs
	// Firewalled holds the addresses of load balancers that only some sources may use.
	Firewalled
	// AllowedSources holds the ranges of these sources.
	AllowedSources
	// Hairpin holds the endpoints on this node, for packets that an endpoint
	// sends to itself through a Service.
	Hairpin

	// NoEndpointsReject holds the frontends that no endpoint serves.
	NoEndpointsReject
	// NoEndpointsDrop holds the frontends of traffic policy Local that endpoints on
	// other nodes serve, and none on this one.
	NoEndpointsDrop
	// MasqueradeIPs holds the external frontends of traffic policy Cluster: whoever
	// the client is, the answers must come back through this node.
	MasqueradeIPs
	// MasqueradeNodeIPs holds the external frontends of traffic policy Local, for
	// packets of this node itself.
	MasqueradeNodeIPs
	// ServiceIPs maps a frontend to the chain of its slot table's capacity.
	ServiceIPs
	// LocalServiceIPs does so for external frontends of traffic policy Local, for
	// clients that are not on this node.
	LocalServiceIPs
	// Endpoints maps a slot of a frontend to the endpoint in it.
	Endpoints
	// LocalEndpoints does so for LocalServiceIPs.
	LocalEndpoints
	// AffinityEndpoints maps a slot of a frontend with session affinity to the chain of
	// the endpoint in it.
	AffinityEndpoints
	// LocalAffinityEndpoints does so for LocalServiceIPs.
	LocalAffinityEndpoints

	// The same for NodePorts, in the same order: their keys have no address.
	NoEndpointsRejectNodePorts
	NoEndpointsDropNodePorts
	MasqueradeNodePorts
	MasqueradeNodeNodePorts
	ServiceNodePorts
	LocalServiceNodePorts
	NodePortEndpoints
	LocalNodePortEndpoints
	NodePortAffinityEndpoints
	LocalNodePortAffinityEndpoints

	numSets

	firstTwin    = NoEndpointsReject
	firstForNode = NoEndpointsRejectNodePorts
)

// Set describes a set or map of the table.
type Set struct {
	Name  string
	Key   []Field
	Value ValueType
	// Clients is how many elements rules may add, each with a timeout; 0 if only we add
	// elements.
	Clients uint32
}

// Sets returns all sets and maps, indexed by SetID.
func Sets() []Set {
	sets := make([]Set, numSets)
	for id := range numSets {
		sets[id] = id.Set()
	}
	return sets
}

// Set returns the description of the set.
func (id SetID) Set() Set {
	key := []Field{DestAddr, L4Proto, DestPort, Slot}
	frontend := key[:3]
	base, nodePort := id.twin()
	if nodePort {
		key, frontend = key[1:], frontend[1:]
	}
	switch base {
	case ClusterIPs, NodePortIPs:
		key = []Field{DestAddr}
	case ServiceCIDRs:
		key = []Field{DestRange}
	case AllowedSources:
		key = append(slices.Clone(frontend), SourceRange)
	case Hairpin:
		key = []Field{SourceAddr, DestAddr, L4Proto, DestPort}
	case Endpoints, LocalEndpoints, AffinityEndpoints, LocalAffinityEndpoints: // the whole key
	default:
		key = frontend
	}
	return Set{Name: id.name(), Key: key, Value: id.Value()}
}

// Value returns the type of the set's values, Set().Value.
func (id SetID) Value() ValueType {
	base, _ := id.twin()
	switch base {
	case ServiceIPs, LocalServiceIPs, AffinityEndpoints, LocalAffinityEndpoints:
		return VerdictValue
	case Endpoints, LocalEndpoints:
		return EndpointValue
	default:
		return NoValue
	}
}

func (id SetID) name() string {
	names := [numSets]string{
		ClusterIPs: "cluster-ips", ServiceCIDRs: "service-cidrs", NodePortIPs: "nodeport-ips",
		Firewalled: "firewalled", AllowedSources: "allowed-sources", Hairpin: "hairpin",

		NoEndpointsReject: "no-endpoints-reject", NoEndpointsRejectNodePorts: "no-endpoints-reject-nodeports",
		NoEndpointsDrop: "no-endpoints-drop", NoEndpointsDropNodePorts: "no-endpoints-drop-nodeports",
		MasqueradeIPs: "masquerade-ips", MasqueradeNodePorts: "masquerade-nodeports",
		MasqueradeNodeIPs: "masquerade-node-ips", MasqueradeNodeNodePorts: "masquerade-node-nodeports",
		ServiceIPs: "service-ips", ServiceNodePorts: "service-nodeports",
		LocalServiceIPs: "local-service-ips", LocalServiceNodePorts: "local-service-nodeports",
		Endpoints: "endpoints", NodePortEndpoints: "nodeport-endpoints",
		LocalEndpoints: "local-endpoints", LocalNodePortEndpoints: "local-nodeport-endpoints",
		AffinityEndpoints: "affinity-endpoints", NodePortAffinityEndpoints: "nodeport-affinity-endpoints",
		LocalAffinityEndpoints: "local-affinity-endpoints", LocalNodePortAffinityEndpoints: "local-nodeport-affinity-endpoints",
	}
	if id >= numSets {
		panic(fmt.Sprintf("rules: no set %d", id))
	}
	return names[id]
}

// twin returns, for a set of NodePorts, its twin for frontends with an address, and
// otherwise the set itself.
func (id SetID) twin() (base SetID, nodePort bool) {
	if id >= firstForNode && id < numSets {
		return id - firstForNode + firstTwin, true
	}
	return id, false
}

// forNodePorts returns a set's twin for NodePorts.
func (id SetID) forNodePorts() SetID { return id - firstTwin + firstForNode }

// interval reports whether elements are ranges. Ranges must not overlap.
func (s Set) interval() bool {
	return slices.Contains(s.Key, SourceRange) || slices.Contains(s.Key, DestRange)
}

// Shared reports whether several service ports may want the same element.
func (id SetID) Shared() bool { return id == ClusterIPs || id == Hairpin }
