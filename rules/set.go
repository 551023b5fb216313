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
)

// ValueType is what the elements of a set map to.
type ValueType uint8

// The types of values.
const (
	NoValue       ValueType = iota // a set
	VerdictValue                   // a map to "goto <chain>"
	EndpointValue                  // a map to an address and a port
)

// SetID names one of our sets and maps. Their number is constant: whatever
// depends on Services is an element.
type SetID uint8

// The sets and maps, in the order in which they are printed and programmed.
const (
	// ClusterIPs holds every ClusterIP, for the masquerade mark and for the
	// reject of ports that no Service has.
	ClusterIPs SetID = iota
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
	// Firewalled holds the addresses of load balancers that only some sources may use.
	Firewalled
	// AllowedSources holds the ranges of these sources.
	AllowedSources
	// Hairpin holds the endpoints on this node, for packets that an endpoint
	// sends to itself through a Service.
	Hairpin
	// ServiceIPs maps a frontend to the chain of its slot table's capacity.
	ServiceIPs
	// LocalServiceIPs does so for external frontends of traffic policy Local, for
	// clients that are not on this node.
	LocalServiceIPs
	// Endpoints maps a slot of a frontend to the endpoint in it.
	Endpoints
	// LocalEndpoints does so for LocalServiceIPs.
	LocalEndpoints

	numSets
)

// Set describes a set or map of the table.
type Set struct {
	ID    SetID
	Name  string
	Key   []Field
	Value ValueType
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
	switch id {
	case ClusterIPs:
		return Set{ID: id, Name: "cluster-ips", Key: []Field{DestAddr}}
	case NoEndpointsReject:
		return Set{ID: id, Name: "no-endpoints-reject", Key: []Field{DestAddr, L4Proto, DestPort}}
	case NoEndpointsDrop:
		return Set{ID: id, Name: "no-endpoints-drop", Key: []Field{DestAddr, L4Proto, DestPort}}
	case MasqueradeIPs:
		return Set{ID: id, Name: "masquerade-ips", Key: []Field{DestAddr, L4Proto, DestPort}}
	case MasqueradeNodeIPs:
		return Set{ID: id, Name: "masquerade-node-ips", Key: []Field{DestAddr, L4Proto, DestPort}}
	case Firewalled:
		return Set{ID: id, Name: "firewalled", Key: []Field{DestAddr, L4Proto, DestPort}}
	case AllowedSources:
		return Set{ID: id, Name: "allowed-sources", Key: []Field{DestAddr, L4Proto, DestPort, SourceRange}}
	case Hairpin:
		return Set{ID: id, Name: "hairpin", Key: []Field{SourceAddr, DestAddr, L4Proto, DestPort}}
	case ServiceIPs:
		return Set{ID: id, Name: "service-ips", Key: []Field{DestAddr, L4Proto, DestPort}, Value: VerdictValue}
	case LocalServiceIPs:
		return Set{ID: id, Name: "local-service-ips", Key: []Field{DestAddr, L4Proto, DestPort}, Value: VerdictValue}
	case Endpoints:
		return Set{ID: id, Name: "endpoints", Key: []Field{DestAddr, L4Proto, DestPort, Slot}, Value: EndpointValue}
	case LocalEndpoints:
		return Set{ID: id, Name: "local-endpoints", Key: []Field{DestAddr, L4Proto, DestPort, Slot}, Value: EndpointValue}
	default:
		panic(fmt.Sprintf("rules: no set %d", id))
	}
}

// interval reports whether elements are ranges. Ranges must not overlap.
func (s Set) interval() bool { return slices.Contains(s.Key, SourceRange) }

// Shared reports whether several service ports may want the same element.
func (id SetID) Shared() bool { return id == ClusterIPs || id == Hairpin }
