package proxier

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/rules"
)

// applyNode takes the newest state of this node, nil for none.
func (t *Tracker) applyNode(next *Node) {
	if next == nil {
		next = &Node{}
	}
	t.setZone(next.Zone)
	t.setNodeIPs(firstAddrs(next.Addrs))
}

// firstAddrs returns the first address of each family.
func firstAddrs(addrs []netip.Addr) map[rules.Family]netip.Addr {
	first := map[rules.Family]netip.Addr{}
	for _, a := range addrs {
		if _, ok := first[rules.FamilyOf(a)]; !ok {
			first[rules.FamilyOf(a)] = a
		}
	}
	return first
}

// setZone marks the service ports that have endpoints with hints for one of the old
// and the new zone, and not for the other.
func (t *Tracker) setZone(zone string) {
	prev := t.zone
	t.zone = zone
	if prev == zone {
		return
	}
	for name := range t.zoned {
		slice := t.services[t.owners[name]].slice(name)
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; e.zoneHint(prev) != e.zoneHint(zone) {
				t.markSlices(nil, slice)
				break
			}
		}
	}
}

// setNodeIPs marks the service ports for which the new addresses of this node let
// other sources in than the old ones.
func (t *Tracker) setNodeIPs(addrs map[rules.Family]netip.Addr) {
	prev := t.nodeIPs
	t.nodeIPs = addrs
	if maps.Equal(prev, addrs) {
		return
	}
	for name := range t.restricted {
		service := t.services[name].service
		for _, family := range t.families {
			before, _ := service.sources(family, prev[family])
			after, _ := service.sources(family, addrs[family])
			if slices.Equal(before, after) {
				continue
			}
			for p := range service.frontends(family) {
				t.dirty[keyOf(name, p.Name, p.Protocol, family)] = true
			}
		}
	}
}
