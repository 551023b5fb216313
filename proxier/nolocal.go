package proxier

import (
	"slices"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// noLocalEndpoints counts the service ports that some endpoint serves, but none on this
// node, where their traffic policy wants one.
type noLocalEndpoints struct {
	ports  map[rules.ServicePortKey]lacking
	counts map[rules.Family]lacks
}

// lacking says which policies of a service port lack an endpoint.
type lacking struct{ internal, external bool }

// lacks counts them.
type lacks struct{ internal, external int }

func newNoLocalEndpoints() noLocalEndpoints {
	return noLocalEndpoints{ports: map[rules.ServicePortKey]lacking{}, counts: map[rules.Family]lacks{}}
}

// update takes the newest states of service ports.
func (n noLocalEndpoints) update(changes []syncer.Change) {
	for _, c := range changes {
		if c.Delta != nil { // of one without policy Local
			continue
		}
		n.add(c.Key.Family, n.ports[c.Key], -1)
		now := lackingOf(c.ServicePort)
		if now == (lacking{}) {
			delete(n.ports, c.Key)
			continue
		}
		n.ports[c.Key] = now
		n.add(c.Key.Family, now, 1)
	}
}

func (n noLocalEndpoints) add(f rules.Family, l lacking, by int) {
	count := n.counts[f]
	if l.internal {
		count.internal += by
	}
	if l.external {
		count.external += by
	}
	n.counts[f] = count
}

// count returns the number of service ports of a family, by policy.
func (n noLocalEndpoints) count(f rules.Family) (internal, external int) {
	return n.counts[f].internal, n.counts[f].external
}

func lackingOf(sp *rules.ServicePort) lacking {
	if sp == nil || !sp.Served || len(sp.LocalEndpoints) > 0 {
		return lacking{}
	}
	return lacking{
		internal: sp.InternalLocal,
		external: sp.ExternalLocal && slices.ContainsFunc(sp.Frontends, rules.Frontend.External),
	}
}
