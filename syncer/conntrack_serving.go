package syncer

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/nftproxy/nftproxy/rules"
)

// flowTarget is what a client addresses: a frontend. That of a NodePort has the
// unspecified address of its family and stands for those of the node.
type flowTarget struct {
	protocol rules.Protocol
	addr     netip.AddrPort
}

// nodePort reports whether the target is a NodePort.
func (t flowTarget) nodePort() bool { return t.addr.Addr().IsUnspecified() }

// asNodePort returns the NodePort to which a target belongs if its address is one of the
// node's.
func (t flowTarget) asNodePort() flowTarget {
	unspecified := netip.IPv6Unspecified()
	if t.addr.Addr().Is4() {
		unspecified = netip.IPv4Unspecified()
	}
	return flowTarget{t.protocol, netip.AddrPortFrom(unspecified, t.addr.Port())}
}

// tracked reports whether flows of the protocol are cleaned up. Those of TCP are
// not: a TCP connection ends with its endpoint, which resets it, and a client that
// connects again makes a new entry. A client of UDP may send from the same port for
// ever, and an association of SCTP tries for minutes: each of their packets renews
// the entry that leads nowhere.
func tracked(p rules.Protocol) bool { return p == rules.UDP || p == rules.SCTP }

// serving is what the kernel was told, and what it is being told, about the
// frontends whose flows are cleaned up: which endpoints serve each.
//
// A commit takes a while and what it changed is known only afterwards, so changes
// come in two steps: prepare before it, commit after it. The flows of a frontend
// that is in between are not judged at all. A packet may meet the new rules at any
// time from the one to the other, and what it began must not be taken for stale.
type serving struct {
	frontends map[flowTarget]served
	owned     map[rules.ServicePortKey][]flowTarget

	prepared map[rules.ServicePortKey]*rules.ServicePort // nil for one that goes
	moving   map[flowTarget]struct{}                     // the frontends of prepared, old and new

	dirty map[flowTarget]struct{} // may have stale flows

	// nodeIPs are the addresses on which NodePorts are open, preparedNodeIPs those on
	// which they are about to be.
	nodeIPs, preparedNodeIPs map[netip.Addr]struct{}
}

// served is a frontend that is in force.
type served struct {
	owner     rules.ServicePortKey
	endpoints []netip.AddrPort // that serve it, sorted
}

func newServing() *serving {
	return &serving{
		frontends: map[flowTarget]served{},
		owned:     map[rules.ServicePortKey][]flowTarget{},
		prepared:  map[rules.ServicePortKey]*rules.ServicePort{},
		moving:    map[flowTarget]struct{}{},
		dirty:     map[flowTarget]struct{}{},

		nodeIPs: map[netip.Addr]struct{}{}, preparedNodeIPs: map[netip.Addr]struct{}{},
	}
}

// prepare takes changes that are about to be committed.
func (s *serving) prepare(changes []Change) {
	for _, c := range changes {
		if !tracked(c.Key.Protocol) {
			continue
		}
		s.prepared[c.Key] = c.ServicePort
		for _, t := range s.owned[c.Key] {
			s.moving[t] = struct{}{}
		}
		for _, t := range targetsOf(c.ServicePort) {
			s.moving[t] = struct{}{}
		}
	}
}

// commit puts everything that was prepared in force, and marks the frontends that
// may have stale flows now: with all set, all of them.
func (s *serving) commit(all bool) {
	s.commitPrepared()
	s.commitNodeIPs()
	if all {
		for t := range s.frontends {
			s.dirty[t] = struct{}{}
		}
	}
}

func (s *serving) commitPrepared() {
	if len(s.prepared) == 0 {
		return
	}
	before := make(map[flowTarget]served, len(s.moving))
	for t := range s.moving {
		if was, ok := s.frontends[t]; ok {
			before[t] = was
		}
	}
	for key := range s.prepared {
		for _, t := range s.owned[key] {
			// It may have gone to another service port before it left this one.
			if s.frontends[t].owner == key {
				delete(s.frontends, t)
			}
		}
		delete(s.owned, key)
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.prepared), rules.ServicePortKey.Compare) {
		targets := targetsOf(s.prepared[key])
		if len(targets) == 0 {
			continue
		}
		s.owned[key] = targets
		now := served{key, sortedEndpoints(s.prepared[key].Serving)}
		for _, t := range targets {
			s.frontends[t] = now
		}
	}
	for t := range s.moving {
		was, had := before[t]
		now, has := s.frontends[t]
		if had != has || has && mayStale(was.endpoints, now.endpoints) {
			s.dirty[t] = struct{}{}
		}
	}
	// New maps: the old ones would keep the size of the first commit.
	s.prepared = map[rules.ServicePortKey]*rules.ServicePort{}
	s.moving = map[flowTarget]struct{}{}
}

// mayStale reports whether flows may have become stale with the change of a
// frontend's endpoints: if one has gone, or if there were none and untranslated
// flows must be now. More endpoints leave all flows where they are.
func mayStale(before, now []netip.AddrPort) bool {
	if len(before) == 0 {
		return len(now) > 0
	}
	return slices.ContainsFunc(before, func(e netip.AddrPort) bool { return !containsEndpoint(now, e) })
}

// take returns the dirty frontends that can be judged, and takes them for clean.
// NodePorts cannot be while nobody knows where they are open.
func (s *serving) take() map[flowTarget]struct{} {
	open := s.openFamilies()
	taken := make(map[flowTarget]struct{}, len(s.dirty))
	left := map[flowTarget]struct{}{}
	for t := range s.dirty {
		if _, moves := s.moving[t]; moves || t.nodePort() && !open[rules.FamilyOf(t.addr.Addr())] {
			left[t] = struct{}{}
		} else {
			taken[t] = struct{}{}
		}
	}
	s.dirty = left
	return taken
}

// judge reports whether a flow whose replies come from replySource is stale, if it is to
// one of the targets. If what it is to is in between, it is judged later.
//
// A frontend with the flow's very destination comes before a NodePort, as in the rules,
// and may leave its flows to one when it goes.
func (s *serving) judge(targets map[flowTarget]struct{}, exact flowTarget, replySource netip.AddrPort) bool {
	to := exact
	_, moves := s.moving[exact]
	if _, ok := s.frontends[exact]; !ok {
		open, moving := s.nodeAddr(exact.addr.Addr())
		moves = moves || moving
		if open {
			to = exact.asNodePort()
			_, moving = s.moving[to]
			moves = moves || moving
		}
	}
	concerned := false
	for _, t := range []flowTarget{exact, to} {
		if _, ok := targets[t]; ok {
			concerned = true
			if moves {
				s.dirty[t] = struct{}{}
			}
		}
	}
	return concerned && !moves && stale(exact.addr, replySource, s.frontends[to].endpoints)
}

// stale reports whether a flow leads to where it should not: its replies do not
// come from one of the sorted endpoints that serve its destination.
//
// The source of the replies is where the flow was translated to, whatever was done
// to its own source: masquerading changes the destination of the replies. A flow
// that was never translated has its own destination there. It is stale as soon as
// there is an endpoint for it; while there is none, and once the destination is no
// frontend any more, it is none of ours.
func stale(destination, replySource netip.AddrPort, endpoints []netip.AddrPort) bool {
	if containsEndpoint(endpoints, replySource) {
		return false
	}
	return replySource != destination || len(endpoints) > 0
}

func containsEndpoint(sorted []netip.AddrPort, e netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(sorted, e, netip.AddrPort.Compare)
	return found
}

// sortedEndpoints returns the endpoints sorted, a copy unless they are.
func sortedEndpoints(endpoints []netip.AddrPort) []netip.AddrPort {
	if slices.IsSortedFunc(endpoints, netip.AddrPort.Compare) {
		return endpoints
	}
	endpoints = slices.Clone(endpoints)
	slices.SortFunc(endpoints, netip.AddrPort.Compare)
	return endpoints
}

// targetsOf returns the frontends of a service port, none of nil.
func targetsOf(sp *rules.ServicePort) []flowTarget {
	if sp == nil || len(sp.Frontends) == 0 {
		return nil
	}
	targets := make([]flowTarget, len(sp.Frontends))
	for i, f := range sp.Frontends {
		targets[i] = flowTarget{sp.Protocol, f.Addr}
	}
	return targets
}
