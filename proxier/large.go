package proxier

import (
	"net/netip"
	"slices"
	"unique"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// largeEndpoints is from how many endpoints on changes of a service port are looked for in
// the slices that have changed only. To resolve and compile one of fewer takes no more than
// some 50 µs, and needs no memory in between.
const largeEndpoints = 128

// large is what is known of a service port with very many endpoints, so that nobody has to
// look at all of them to know what a change of a few makes of it. There is one only as long
// as every endpoint counts as any other: with TCP, without affinity, a traffic policy
// Local, weights and hints, and with at least one that is ready. Then those in use are
// those that are ready.
type large struct {
	listed map[netip.AddrPort]int // how many times slices list an endpoint
	ready  int                    // listed endpoints that are ready and do not terminate
	// changed is by how much the number of times has changed that an endpoint is listed as
	// ready, since that was taken.
	changed map[netip.AddrPort]int
}

// follow begins to follow a service port as it is resolved now, if it is large and was so
// before: most never change, and need not be known.
func (t *Tracker) follow(key rules.ServicePortKey, sp *rules.ServicePort) {
	l, before := t.large[key]
	switch {
	case l != nil:
		l.changed = map[netip.AddrPort]int{} // it is all in sp
	case sp == nil || len(sp.Endpoints) < t.largeEndpoints:
		delete(t.large, key)
	case !before:
		t.large[key] = nil
	case plain(sp, t.services[serviceName(key)]) && sp.Validate() == nil:
		l = &large{listed: make(map[netip.AddrPort]int, len(sp.Endpoints)), changed: map[netip.AddrPort]int{}}
		for _, s := range t.services[serviceName(key)].slices {
			l.update(key, nil, s)
		}
		l.changed = map[netip.AddrPort]int{}
		t.large[key] = l
	}
}

// plain reports whether every endpoint of a service port counts as any other.
func plain(sp *rules.ServicePort, e *tracked) bool {
	if sp.Protocol != rules.TCP || sp.Affinity != 0 || sp.InternalLocal || sp.ExternalLocal || len(e.service.Weights) > 0 {
		return false
	}
	for _, s := range e.slices {
		if endpoints, _, ok := s.listing(sp.ServicePortKey); !ok || slices.ContainsFunc(endpoints, SliceEndpoint.hinted) {
			return false
		}
	}
	return slices.ContainsFunc(e.slices, func(s *EndpointSlice) bool {
		endpoints, _, _ := s.listing(sp.ServicePortKey)
		return slices.ContainsFunc(endpoints, func(e SliceEndpoint) bool { return e.Ready && !e.Terminating })
	})
}

func (e SliceEndpoint) hinted() bool { return e.NodeHinted || e.ZoneHints != unique.Handle[string]{} }

// touchLarge notes that a slice of a large service port has changed.
func (t *Tracker) touchLarge(key rules.ServicePortKey, prev, next *EndpointSlice) {
	l := t.large[key]
	told, ok := l.update(key, prev, next)
	if !ok || l.ready == 0 || len(l.listed) < t.largeEndpoints/2 { // half: not to begin and end again and again
		delete(t.large, key)
		told = false
	}
	t.dirty[key] = t.dirty[key] || !told
}

// takeLarge returns what has changed of a large service port.
func (t *Tracker) takeLarge(key rules.ServicePortKey) (syncer.Change, bool) {
	l := t.large[key]
	var d rules.Delta
	for addr, times := range l.changed {
		if times > 0 {
			d.Added = append(d.Added, addr)
		} else {
			d.Removed = append(d.Removed, addr)
		}
	}
	slices.SortFunc(d.Added, netip.AddrPort.Compare)
	slices.SortFunc(d.Removed, netip.AddrPort.Compare)
	if d.Validate(key) != nil {
		delete(t.large, key) // there will be nothing that a difference could be from
		return syncer.Change{}, false
	}
	l.changed = map[netip.AddrPort]int{}
	return syncer.Change{Key: key, Delta: &d}, true
}

// Anew has service ports be looked at as a whole again, since a difference was of no use.
func (t *Tracker) Anew(keys []rules.ServicePortKey) {
	for _, key := range keys {
		delete(t.large, key)
		t.dirty[key] = true
	}
}

// update takes the change of a slice. It reports whether changed tells all that it makes of
// the service port, and false for ok if the service port cannot be followed any more.
func (l *large) update(key rules.ServicePortKey, prev, next *EndpointSlice) (told, ok bool) {
	before, beforePort, _ := prev.listing(key)
	after, afterPort, ok := next.listing(key)
	if !ok {
		return false, false
	}
	if beforePort == afterPort {
		before, after = differing(before, after)
	}
	told = true
	for i := range before {
		told = l.remove(netip.AddrPortFrom(before[i].Addr, beforePort), &before[i]) && told
	}
	for i := range after {
		if after[i].hinted() {
			return false, false
		}
		told = l.add(netip.AddrPortFrom(after[i].Addr, afterPort), &after[i]) && told
	}
	return told, true
}

// listing returns the endpoints that the slice lists for a service port, and their port;
// none of nil. It returns false for ok if they are not as any others.
func (s *EndpointSlice) listing(key rules.ServicePortKey) (endpoints []SliceEndpoint, number uint16, ok bool) {
	if s == nil || s.Service != key.Name || s.Name.Namespace != key.Namespace || s.Family != key.Family {
		return nil, 0, true
	}
	for _, p := range s.Ports {
		if p.Name != key.Port || p.Protocol != key.Protocol {
			continue
		}
		if endpoints != nil || s.Weight != DefaultWeight {
			return nil, 0, false
		}
		endpoints, number = s.Endpoints, p.Number
	}
	return endpoints, number, true
}

// differing returns two lists without what they have in common at the beginning and at the
// end.
func differing(a, b []SliceEndpoint) (restOfA, restOfB []SliceEndpoint) {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return a, b
}

// add notes that a slice lists an endpoint. It reports whether changed tells what that
// makes of the service port: of those listed more than once the best counts, and those on
// this node are masqueraded for themselves.
func (l *large) add(addr netip.AddrPort, e *SliceEndpoint) (told bool) {
	l.listed[addr]++
	l.count(addr, e, 1)
	return l.listed[addr] == 1 && !e.Local
}

// remove notes that a slice does not list an endpoint any more, and reports the same.
func (l *large) remove(addr netip.AddrPort, e *SliceEndpoint) (told bool) {
	l.count(addr, e, -1)
	times := l.listed[addr]
	if times == 1 {
		delete(l.listed, addr)
	} else {
		l.listed[addr] = times - 1
	}
	return times == 1 && !e.Local
}

func (l *large) count(addr netip.AddrPort, e *SliceEndpoint, by int) {
	if !e.Ready {
		return
	}
	if !e.Terminating {
		l.ready += by
	}
	if l.changed[addr] += by; l.changed[addr] == 0 {
		delete(l.changed, addr)
	}
}
