package proxier

import (
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/rules"
)

// resolve returns the service port as this node shall serve it, nil if there is
// none of this key.
func (t *Tracker) resolve(key rules.ServicePortKey) *rules.ServicePort {
	entry, ok := t.services[types.NamespacedName{Namespace: key.Namespace, Name: key.Name}]
	if !ok || entry.service == nil {
		return nil
	}
	service := entry.service
	sp := &rules.ServicePort{ServicePortKey: key, InternalLocal: service.InternalLocal, ExternalLocal: service.ExternalLocal}
	sp.Restricted = service.Restricted
	for _, p := range service.SourceRanges {
		if rules.FamilyOf(p.Addr()) != key.Family {
			continue
		}
		if p.Bits() == 0 {
			sp.Restricted, sp.SourceRanges = false, nil // everybody
			break
		}
		sp.SourceRanges = append(sp.SourceRanges, p)
	}
	known := false
	for _, addr := range service.Addrs {
		if rules.FamilyOf(addr.Addr) != key.Family {
			continue
		}
		for _, p := range service.Ports {
			if p.Name != key.Port || p.Protocol != key.Protocol {
				continue
			}
			known = true
			f := rules.Frontend{Kind: addr.Kind, Addr: netip.AddrPortFrom(addr.Addr, p.Number)}
			if owner, _ := t.claims.owner(frontend{f.Addr, key.Protocol}); owner == key {
				sp.Frontends = append(sp.Frontends, f)
			}
		}
	}
	if !known {
		return nil
	}
	candidates := entry.candidates(key)
	if key.Protocol != rules.TCP {
		sp.Serving = serving(candidates)
	}
	resolveEndpoints(sp, candidates, service.external(key.Family))
	return sp
}

// resolveEndpoints fills in the endpoints that the traffic policies need. It uses up
// all.
func resolveEndpoints(sp *rules.ServicePort, all []candidate, external bool) {
	endpoints := usable(all)
	sp.Served = len(endpoints) > 0
	if !sp.InternalLocal || external {
		sp.Endpoints = endpoints
	}
	if sp.InternalLocal || sp.ExternalLocal && external {
		sp.LocalEndpoints = usable(slices.DeleteFunc(all, func(c candidate) bool { return !c.Local }))
	}
}

// candidate is an endpoint of a service port with its conditions.
type candidate struct {
	SliceEndpoint
	addr   netip.AddrPort
	weight uint16
}

// better reports whether a describes the endpoint's state better than b, if an
// address is listed more than once: not terminating before terminating, as in
// kube-proxy; then, where that leaves it to chance, ready before not ready, and so
// on until two are equal, so that the order of slices never matters.
func (a candidate) better(b candidate) bool {
	switch {
	case a.Terminating != b.Terminating:
		return b.Terminating
	case a.Ready != b.Ready:
		return a.Ready
	case a.Serving != b.Serving:
		return a.Serving
	case a.Local != b.Local:
		return a.Local
	default:
		return a.weight > b.weight
	}
}

// candidates returns the endpoints that the slices list for the service port, each
// address and port once, sorted.
func (e *tracked) candidates(key rules.ServicePortKey) []candidate {
	var all []candidate
	for _, s := range e.slices {
		if s.Family != key.Family {
			continue
		}
		for _, p := range s.Ports {
			if p.Name != key.Port || p.Protocol != key.Protocol {
				continue
			}
			for _, endpoint := range s.Endpoints {
				all = append(all, candidate{endpoint, netip.AddrPortFrom(endpoint.Addr, p.Number), s.Weight})
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
func usable(all []candidate) []rules.Endpoint {
	endpoints := pick(all, func(c candidate) bool { return c.Ready })
	if len(endpoints) == 0 {
		endpoints = pick(all, func(c candidate) bool { return c.Serving && c.Terminating })
	}
	return endpoints
}

// serving returns the endpoints that keep the flows that they have: those that serve,
// whatever else is said of them, and all that new ones may go to.
func serving(all []candidate) []netip.AddrPort {
	var addrs []netip.AddrPort
	for _, c := range all {
		if c.Serving || c.Ready {
			addrs = append(addrs, c.addr)
		}
	}
	return addrs
}

func pick(all []candidate, is func(candidate) bool) []rules.Endpoint {
	var endpoints []rules.Endpoint
	for _, c := range all {
		if is(c) {
			endpoints = append(endpoints, rules.Endpoint{Addr: c.addr, Weight: c.weight, Local: c.Local})
		}
	}
	return endpoints
}
