package syncer

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nftproxy/nftproxy/rules"
)

// addrPorts parses addresses with ports.
func addrPorts(texts ...string) []netip.AddrPort {
	all := make([]netip.AddrPort, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParseAddrPort(text)
	}
	return all
}

// TestStale says of one flow whether it may stay.
func TestStale(t *testing.T) {
	tests := map[string]struct {
		destination, replySource string
		endpoints                []string
		want                     bool
	}{
		"to an endpoint that serves":                   {"10.96.0.1:53", "10.244.0.1:5353", []string{"10.244.0.1:5353", "10.244.0.2:5353"}, false},
		"to one that does not":                         {"10.96.0.1:53", "10.244.0.3:5353", []string{"10.244.0.1:5353", "10.244.0.2:5353"}, true},
		"to another port of one that serves":           {"10.96.0.1:53", "10.244.0.1:53", []string{"10.244.0.1:5353"}, true},
		"translated, and no endpoint is left":          {"10.96.0.1:53", "10.244.0.1:5353", nil, true},
		"untranslated, and there is an endpoint":       {"10.96.0.1:53", "10.96.0.1:53", []string{"10.244.0.1:5353"}, true},
		"untranslated, and there is none":              {"10.96.0.1:53", "10.96.0.1:53", nil, false},
		"untranslated to an endpoint with no other IP": {"192.0.2.1:53", "192.0.2.1:53", []string{"192.0.2.1:53"}, false},
		"IPv6, serves":                                 {"[fd00::1]:53", "[fd01::1]:5353", []string{"[fd01::1]:5353"}, false},
		"IPv6, does not":                               {"[fd00::1]:53", "[fd01::2]:5353", []string{"[fd01::1]:5353"}, true},
		"IPv6, untranslated":                           {"[fd00::1]:53", "[fd00::1]:53", []string{"[fd01::1]:5353"}, true},
	}
	for name, test := range tests {
		got := stale(netip.MustParseAddrPort(test.destination), netip.MustParseAddrPort(test.replySource), addrPorts(test.endpoints...))
		if got != test.want {
			t.Errorf("%s: stale is %t", name, got)
		}
	}
}

// dns is a change of a Service of UDP that has an address, unless that is empty, and
// endpoints.
func dns(name, frontend string, endpoints ...string) Change {
	return flowService(rules.UDP, name, []string{frontend}, endpoints...)
}

func flowService(p rules.Protocol, name string, frontends []string, endpoints ...string) Change {
	c := goneService(p, name, frontends[0])
	c.ServicePort = &rules.ServicePort{ServicePortKey: c.Key, Serving: addrPorts(endpoints...)}
	for _, f := range frontends {
		c.ServicePort.Frontends = append(c.ServicePort.Frontends, rules.Frontend{Kind: rules.ClusterIP, Addr: netip.MustParseAddrPort(f)})
	}
	return c
}

// goneService is the end of a Service of the family of an address.
func goneService(p rules.Protocol, name, frontend string) Change {
	return Change{Key: rules.ServicePortKey{
		ServicePortName: rules.ServicePortName{Namespace: "default", Name: name, Protocol: p},
		Family:          rules.FamilyOf(netip.MustParseAddrPort(frontend).Addr()),
	}}
}

func targetNames(targets map[flowTarget]struct{}) []string {
	var names []string
	for t := range maps.Keys(targets) {
		names = append(names, t.protocol.String()+" "+t.addr.String())
	}
	slices.Sort(names)
	return names
}

// TestDirtyFrontends says after which commits the flows to which frontends are
// judged.
func TestDirtyFrontends(t *testing.T) {
	const a, b, one, two, three = "10.96.0.1:53", "10.96.0.2:53", "10.244.0.1:53", "10.244.0.2:53", "10.244.0.3:53"
	gone := goneService(rules.UDP, "dns", a)
	noFrontend := dns("dns", a, one)
	noFrontend.ServicePort = &rules.ServicePort{ServicePortKey: noFrontend.Key}
	type commit struct {
		changes []Change
		want    []string
	}
	tests := map[string][]commit{
		"at the start all are":       {{[]Change{dns("dns", a, one), dns("other", b)}, []string{"udp " + a, "udp " + b}}},
		"TCP is never":               {{[]Change{flowService(rules.TCP, "web", []string{a}, one)}, nil}},
		"SCTP is":                    {{[]Change{flowService(rules.SCTP, "sigtran", []string{a}, one)}, []string{"sctp " + a}}},
		"unknown Services go":        {{[]Change{gone}, nil}},
		"an endpoint more":           {{[]Change{dns("dns", a, one)}, []string{"udp " + a}}, {[]Change{dns("dns", a, two, one)}, nil}},
		"an endpoint less":           {{[]Change{dns("dns", a, two, one)}, []string{"udp " + a}}, {[]Change{dns("dns", a, one)}, []string{"udp " + a}}},
		"an endpoint replaced":       {{[]Change{dns("dns", a, one, two)}, []string{"udp " + a}}, {[]Change{dns("dns", a, three, one)}, []string{"udp " + a}}},
		"the last endpoint":          {{[]Change{dns("dns", a, one)}, []string{"udp " + a}}, {[]Change{dns("dns", a)}, []string{"udp " + a}}},
		"the first endpoint":         {{[]Change{dns("dns", a)}, []string{"udp " + a}}, {[]Change{dns("dns", a, one)}, []string{"udp " + a}}},
		"nothing new":                {{[]Change{dns("dns", a, one)}, []string{"udp " + a}}, {[]Change{dns("dns", a, one)}, nil}},
		"no commit without a change": {{[]Change{dns("dns", a, one)}, []string{"udp " + a}}, {nil, nil}},
		"the Service goes":           {{[]Change{dns("dns", a, one)}, []string{"udp " + a}}, {[]Change{gone}, []string{"udp " + a}}, {[]Change{gone}, nil}},
		"its address goes":           {{[]Change{dns("dns", a, one)}, []string{"udp " + a}}, {[]Change{noFrontend}, []string{"udp " + a}}},
		"its address changes":        {{[]Change{dns("dns", a, one)}, []string{"udp " + a}}, {[]Change{dns("dns", b, one)}, []string{"udp " + a, "udp " + b}}},
		"one of two addresses goes":  {{[]Change{flowService(rules.UDP, "dns", []string{a, b}, one)}, []string{"udp " + a, "udp " + b}}, {[]Change{dns("dns", a, one)}, []string{"udp " + b}}},
		"an address moves, endpoints too": {
			{[]Change{dns("dns", a, one)}, []string{"udp " + a}},
			{[]Change{gone, dns("other", a, one)}, nil},
		},
		"an address moves to other endpoints": {
			{[]Change{dns("dns", a, one)}, []string{"udp " + a}},
			{[]Change{dns("aaa", a, two), gone}, []string{"udp " + a}},
			{[]Change{dns("aaa", a)}, []string{"udp " + a}},
		},
		"an address moves before it was left": {
			{[]Change{dns("dns", a, one)}, []string{"udp " + a}},
			{[]Change{dns("other", a, two)}, []string{"udp " + a}},
			{[]Change{gone}, nil},
			{[]Change{dns("other", a)}, []string{"udp " + a}},
		},
	}
	for name, commits := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServing()
			for i, c := range commits {
				s.prepare(c.changes)
				if early := s.take(); len(early) > 0 {
					t.Errorf("before commit %d: %v", i, targetNames(early))
				}
				s.commit(false)
				if diff := cmp.Diff(c.want, targetNames(s.take()), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("after commit %d: %s", i, diff)
				}
			}
		})
	}
}

// TestFailedCommit prepares again and again before a commit succeeds: all of it counts,
// the newest of each.
func TestFailedCommit(t *testing.T) {
	s := newServing()
	s.prepare([]Change{dns("a", "10.96.0.1:53", "10.244.0.1:53"), dns("b", "10.96.0.2:53", "10.244.0.1:53")})
	s.commit(false)
	s.take()
	s.prepare([]Change{dns("a", "10.96.0.1:53")})
	s.prepare(nil)
	s.prepare([]Change{dns("b", "10.96.0.3:53", "10.244.0.1:53")})
	s.prepare([]Change{dns("b", "10.96.0.2:53", "10.244.0.1:53")})
	s.commit(false)
	if diff := cmp.Diff([]string{"udp 10.96.0.1:53"}, targetNames(s.take())); diff != "" {
		t.Error(diff)
	}
}

// TestFullWrite: after one all frontends that there are, and those that went, are
// judged.
func TestFullWrite(t *testing.T) {
	s := newServing()
	s.prepare([]Change{dns("a", "10.96.0.1:53", "10.244.0.1:53"), dns("b", "10.96.0.2:53")})
	s.commit(true)
	s.take()
	s.prepare([]Change{goneService(rules.UDP, "a", "10.96.0.1:53")})
	s.commit(true)
	if diff := cmp.Diff([]string{"udp 10.96.0.1:53", "udp 10.96.0.2:53"}, targetNames(s.take())); diff != "" {
		t.Error(diff)
	}
	s.commit(true)
	if diff := cmp.Diff([]string{"udp 10.96.0.2:53"}, targetNames(s.take())); diff != "" {
		t.Error(diff)
	}
}

// TestBetweenPrepareAndCommit judges flows while nobody knows which rules they met.
func TestBetweenPrepareAndCommit(t *testing.T) {
	const frontend = "10.96.0.1:53"
	to := flowTarget{rules.UDP, netip.MustParseAddrPort(frontend)}
	before, after := netip.MustParseAddrPort("10.244.0.1:53"), netip.MustParseAddrPort("10.244.0.2:53")
	s := newServing()
	judge := func(replySource netip.AddrPort) bool {
		return s.judge(map[flowTarget]struct{}{to: {}}, to, replySource)
	}
	s.prepare([]Change{dns("dns", frontend, before.String())})
	s.commit(false)
	s.take()
	if judge(before) || !judge(after) {
		t.Error("before")
	}
	s.prepare([]Change{dns("dns", frontend, after.String())})
	if judge(before) || judge(after) {
		t.Error("a flow was judged in between")
	}
	s.commit(false)
	if len(s.take()) != 1 || !judge(before) || judge(after) {
		t.Error("after")
	}
	// Equal endpoints make nothing dirty, but a flow that was not judged does.
	s.prepare([]Change{dns("dns", frontend, after.String())})
	judge(before)
	s.commit(false)
	if len(s.take()) != 1 {
		t.Error("the flow that was put off is forgotten")
	}
}
