package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A service port with session affinity remembers its clients in a map of its own, and
// has a chain for each endpoint:
//
//	map affinity-<digest>    { client : endpoint address . port }
//	chain endpoint-<digest>  { remember the client with this endpoint, unless it is known;
//	                           dnat to the endpoint that is remembered }
//
// A slot is drawn for every new connection, but what is remembered counts, and every
// connection renews it.

// affinityClients bounds how many clients a service port remembers. A client beyond it
// is served all the same, by the endpoint drawn: no affinity rather than no service.
// It is as much as kube-proxy lets the conntrack table grow to.
const affinityClients = 1 << 20

// Names of the maps and chains of one service port.
const (
	affinityPrefix = "affinity-"
	endpointPrefix = "endpoint-"
)

// affinityMapName returns the name of the map of clients, of policy Local or Cluster.
// It is the same after a restart, and another one where the map is declared otherwise.
func affinityMapName(key ServicePortKey, local bool) string {
	return affinityPrefix + digest(key, local, netip.AddrPort{})
}

func endpointChainName(key ServicePortKey, local bool, endpoint netip.AddrPort) string {
	return endpointPrefix + digest(key, local, endpoint)
}

// digest returns 64 bits of a hash: too many to meet the same twice.
func digest(key ServicePortKey, local bool, endpoint netip.AddrPort) string {
	const declaration = 1 // counts the ways in which the maps have been declared
	sum := sha256.Sum256(fmt.Appendf(nil, "%d\x00%s\x00%s\x00%s\x00%d\x00%d\x00%t\x00%s", declaration,
		key.Namespace, key.Name, key.Port, key.Protocol, key.Family, local, endpoint))
	return hex.EncodeToString(sum[:8])
}

// endpointChains returns the names of the chains of the endpoints in the slots.
func endpointChains(key ServicePortKey, local bool, slots SlotTable) []string {
	names := make([]string, slots.Capacity())
	for i, endpoint := range slots.flat() {
		if endpoint.IsValid() {
			names[i] = endpointChainName(key, local, endpoint)
		}
	}
	return names
}

// endpointChain returns the chain that sends a client to the endpoint that it is
// remembered with, by now at least this one.
func endpointChain(key ServicePortKey, local bool, endpoint netip.AddrPort, affinity time.Duration) Chain {
	clients := affinityMapName(key, local)
	return Chain{
		Name: endpointChainName(key, local, endpoint),
		Rules: []Rule{
			{RememberClient{Map: clients, Endpoint: endpoint, Timeout: affinity}},
			{MatchProtocol{key.Protocol}, DNATRemembered{Map: clients}},
			{MatchProtocol{key.Protocol}, DNAT{Endpoint: endpoint}},
		},
	}
}

// AffinityTable is what remembers the clients of a service port under one policy.
type AffinityTable struct {
	Family Family
	Map    string // its name
	// Endpoints are those in use, sorted. A client that is remembered with another one
	// has to be forgotten.
	Endpoints []netip.AddrPort
	// Stale is true if clients may be remembered with an endpoint that is not in use any
	// more. It depends on what was in use before: Compiled knows nothing of that.
	Stale bool
}

// AffinityTables returns the service port's tables of clients: of policy Cluster, of
// policy Local, both, or none.
func (c *Compiled) AffinityTables() []AffinityTable {
	if c == nil || c.Affinity == 0 {
		return nil
	}
	var tables []AffinityTable
	for _, local := range []bool{false, true} {
		if endpoints := c.slotsOf(local).flat().endpoints(); len(endpoints) > 0 {
			tables = append(tables, AffinityTable{Family: c.Family, Map: affinityMapName(c.ServicePortKey, local), Endpoints: endpoints})
		}
	}
	return tables
}

// OwnSets returns the maps that this service port alone has: those that remember its
// clients. Rules fill them.
func (c *Compiled) OwnSets() []Set {
	tables := c.AffinityTables()
	sets := make([]Set, len(tables))
	for i, t := range tables {
		sets[i] = Set{Name: t.Map, Key: []Field{SourceAddr}, Value: EndpointValue, Clients: affinityClients}
	}
	return sets
}

// OwnChains returns the chains that this service port alone has: those of its endpoints,
// sorted by name.
func (c *Compiled) OwnChains() []Chain {
	if c == nil || c.Affinity == 0 {
		return nil
	}
	var chains []Chain
	for _, local := range []bool{false, true} {
		for _, endpoint := range c.slotsOf(local).flat().endpoints() {
			chains = append(chains, endpointChain(c.ServicePortKey, local, endpoint, c.Affinity))
		}
	}
	slices.SortFunc(chains, func(a, b Chain) int { return strings.Compare(a.Name, b.Name) })
	return chains
}

// slotsOf returns the slot table of policy Local or Cluster, none of nil.
func (c *Compiled) slotsOf(local bool) SlotTable {
	switch {
	case c == nil:
		return nil
	case local:
		return c.LocalSlots
	default:
		return c.Slots
	}
}
