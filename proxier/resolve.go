package proxier

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/rules"
)

// resolve returns the service port as this node shall serve it, nil if there is
// none of this key.
func (t *Tracker) resolve(key rules.ServicePortKey) *rules.ServicePort {
	entry, ok := t.services[serviceName(key)]
	if !ok || entry.service == nil {
		return nil
	}
	service := entry.service
	sp := &rules.ServicePort{
		ServicePortKey: key, Affinity: service.Affinity,
		InternalLocal: service.InternalLocal, ExternalLocal: service.ExternalLocal,
	}
	known, external := false, false
	for p, f := range service.frontends(key.Family) {
		if p.Name != key.Port || p.Protocol != key.Protocol {
			continue
		}
		known, external = true, external || f.External()
		if owner, _ := t.claims.owner(frontend{f.Addr, key.Protocol}); owner == key {
			sp.Frontends = append(sp.Frontends, f)
		}
	}
	if !known {
		return nil
	}
	sp.SourceRanges, sp.Restricted = service.sources(key.Family, t.nodeIPs[key.Family])
	candidates := entry.candidates(key, t.zone)
	if key.Protocol != rules.TCP {
		sp.Serving = serving(candidates)
	}
	resolveEndpoints(sp, candidates, external)
	return sp
}

// frontends returns the addresses of a family that clients use, each with its port. A
// NodePort has the unspecified address, and exists in the families of the ClusterIPs.
func (s *Service) frontends(family rules.Family) iter.Seq2[Port, rules.Frontend] {
	return func(yield func(Port, rules.Frontend) bool) {
		for _, addr := range s.Addrs {
			if rules.FamilyOf(addr.Addr) != family {
				continue
			}
			for _, p := range s.Ports {
				if !yield(p, rules.Frontend{Kind: addr.Kind, Addr: netip.AddrPortFrom(addr.Addr, p.Number)}) {
					return
				}
				nodePort := netip.AddrPortFrom(unspecified(family), p.NodePort)
				if addr.Kind == rules.ClusterIP && p.NodePort != 0 && !yield(p, rules.Frontend{Kind: rules.NodePort, Addr: nodePort}) {
					return
				}
			}
		}
	}
}

// unspecified returns the address that stands for all addresses of this node.
func unspecified(f rules.Family) netip.Addr {
	if f == rules.IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// sources returns which sources of a family may use the load-balancer IPs of a
// Service, and false if all may. If the node may, so may the load-balancer IPs
// themselves: what a node sends to an address that it has itself comes from there.
func (s *Service) sources(f rules.Family, nodeIP netip.Addr) (ranges []netip.Prefix, restricted bool) {
	if !s.Restricted {
		return nil, false
	}
	node := false
	for _, p := range s.SourceRanges {
		if rules.FamilyOf(p.Addr()) != f {
			continue
		}
		if p.Bits() == 0 {
			return nil, false
		}
		ranges = append(ranges, p)
		node = node || p.Contains(nodeIP)
	}
	for _, a := range s.Addrs {
		if node && a.Kind == rules.LoadBalancerIP && rules.FamilyOf(a.Addr) == f {
			ranges = append(ranges, netip.PrefixFrom(a.Addr, a.Addr.BitLen()))
		}
	}
	return ranges, true
}

// resolveEndpoints fills in the endpoints that the traffic policies need. Topology
// counts under policy Cluster only: under policy Local there is nothing nearer.
func resolveEndpoints(sp *rules.ServicePort, all []candidate, external bool) {
	anywhere := usable(all)
	sp.Served = len(anywhere) > 0
	if !sp.InternalLocal || external {
		sp.Endpoints = endpoints(near(anywhere))
	}
	if sp.InternalLocal || sp.ExternalLocal && external {
		sp.LocalEndpoints = endpoints(usable(filter(all, func(c candidate) bool { return c.local })))
	}
}

// candidate is an endpoint of a service port with its conditions.
type candidate struct {
	addr   netip.AddrPort
	weight uint16
	// What its SliceEndpoint says.
	local, ready, serving, terminating bool
	nodeHint, zoneHint                 hint
}

// better reports whether a describes the endpoint's state better than b, if an
// address is listed more than once: not terminating before terminating, as in
// kube-proxy; then, where that leaves it to chance, ready before not ready, and so
// on until two are equal, so that the order of slices never matters.
func (a candidate) better(b candidate) bool {
	switch {
	case a.terminating != b.terminating:
		return b.terminating
	case a.ready != b.ready:
		return a.ready
	case a.serving != b.serving:
		return a.serving
	case a.local != b.local:
		return a.local
	case a.nodeHint != b.nodeHint:
		return a.nodeHint > b.nodeHint
	case a.zoneHint != b.zoneHint:
		return a.zoneHint > b.zoneHint
	default:
		return a.weight > b.weight
	}
}

// candidates returns the endpoints that the slices list for the service port, seen
// from a zone, each address and port once, sorted.
func (e *tracked) candidates(key rules.ServicePortKey, zone string) []candidate {
	var all []candidate
	for _, s := range e.slices {
		if s.Family != key.Family {
			continue
		}
		for _, p := range s.Ports {
			if p.Name != key.Port || p.Protocol != key.Protocol {
				continue
			}
			all = slices.Grow(all, len(s.Endpoints))
			for i := range s.Endpoints {
				endpoint := &s.Endpoints[i]
				all = append(all, candidate{
					addr: netip.AddrPortFrom(endpoint.Addr, p.Number), weight: weigh(e.service.Weights, endpoint, s.Weight),
					local: endpoint.Local, ready: endpoint.Ready, serving: endpoint.Serving, terminating: endpoint.Terminating,
					nodeHint: endpoint.nodeHint(), zoneHint: endpoint.zoneHint(zone),
				})
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		if order := a.addr.Compare(b.addr); order != 0 {
			return order
		}
		switch {
		case a.better(b):
			return -1
		case b.better(a):
			return 1
		default:
			return 0
		}
	})
	return slices.CompactFunc(all, func(a, b candidate) bool { return a.addr == b.addr })
}

// usable returns the endpoints that new connections may go to: the ready ones, or,
// if there is none, those that are terminating but still serve (KEP-1669).
func usable(all []candidate) []candidate {
	chosen := filter(all, func(c candidate) bool { return c.ready })
	if len(chosen) == 0 {
		chosen = filter(all, func(c candidate) bool { return c.serving && c.terminating })
	}
	return chosen
}

// serving returns the endpoints that keep the flows that they have: those that serve,
// whatever else is said of them, and all that new ones may go to.
func serving(all []candidate) []netip.AddrPort {
	var addrs []netip.AddrPort
	for _, c := range all {
		if c.serving || c.ready {
			addrs = append(addrs, c.addr)
		}
	}
	return addrs
}

func filter(all []candidate, keep func(candidate) bool) []candidate {
	chosen := make([]candidate, 0, len(all))
	for _, c := range all {
		if keep(c) {
			chosen = append(chosen, c)
		}
	}
	return chosen
}

func endpoints(chosen []candidate) []rules.Endpoint {
	all := make([]rules.Endpoint, len(chosen))
	for i, c := range chosen {
		all[i] = rules.Endpoint{Addr: c.addr, Weight: c.weight, Local: c.local}
	}
	return all
}
