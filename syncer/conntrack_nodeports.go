package syncer

import (
	"maps"
	"net/netip"

	"github.com/nftproxy/nftproxy/rules"
)

// setNodePortIPs takes the addresses of a family on which NodePorts are about to be
// open, instead of those before. Loopback ones do not count: NodePorts are not open there.
func (s *serving) setNodePortIPs(f rules.Family, addrs []netip.Addr) {
	maps.DeleteFunc(s.preparedNodeIPs, func(a netip.Addr, _ struct{}) bool { return rules.FamilyOf(a) == f })
	for _, a := range addrs {
		if !a.IsLoopback() && rules.FamilyOf(a) == f {
			s.preparedNodeIPs[a] = struct{}{}
		}
	}
}

// commitNodeIPs puts prepared addresses in force. Flows to a new one may have met no
// rules before: all NodePorts of its family may have stale flows.
func (s *serving) commitNodeIPs() {
	if maps.Equal(s.nodeIPs, s.preparedNodeIPs) {
		return
	}
	grown := map[rules.Family]bool{}
	for a := range s.preparedNodeIPs {
		if _, known := s.nodeIPs[a]; !known {
			grown[rules.FamilyOf(a)] = true
		}
	}
	s.nodeIPs = maps.Clone(s.preparedNodeIPs)
	for t := range s.frontends {
		if t.nodePort() && grown[rules.FamilyOf(t.addr.Addr())] {
			s.dirty[t] = struct{}{}
		}
	}
}

// nodeAddr reports whether NodePorts are open on an address, as far as that is in force,
// and whether it is about to change.
func (s *serving) nodeAddr(a netip.Addr) (open, moves bool) {
	_, open = s.nodeIPs[a]
	_, stays := s.preparedNodeIPs[a]
	return open, open != stays
}

// openFamilies returns the families in which NodePorts are open on any address.
func (s *serving) openFamilies() map[rules.Family]bool {
	open := map[rules.Family]bool{}
	for a := range s.nodeIPs {
		open[rules.FamilyOf(a)] = true
	}
	return open
}
