package syncer

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nftproxy/nftproxy/rules"
)

// nodePortNumber is the NodePort of all that is below.
const nodePortNumber = 30053

// host is an address of a network of hosts, with the NodePort's number.
func (w world) host(n int) string { return w.addr(9, n, nodePortNumber) }

// hostAddrs are the addresses of some hosts.
func (w world) hostAddrs(hosts ...int) []netip.Addr {
	var addrs []netip.Addr
	for _, n := range hosts {
		addrs = append(addrs, netip.MustParseAddrPort(w.host(n)).Addr())
	}
	return addrs
}

// toHost is the n-th client's flow to a host, translated to an endpoint; 0: to none.
func (w world) toHost(n, host, endpoint int) entry {
	e := entry{protocol: w.protocol, source: w.addr(1, 1, 4000+n), destination: w.host(host), replySource: w.host(host)}
	if endpoint != 0 {
		e.replySource = w.endpoint(endpoint)
	}
	return e
}

// nodePortService is a Service with the ClusterIP 1, a NodePort and endpoints.
func (w world) nodePortService(endpoints ...int) Change {
	c := w.service([]int{1}, endpoints...)
	unspecified := netip.IPv4Unspecified()
	if w.family == rules.IPv6 {
		unspecified = netip.IPv6Unspecified()
	}
	c.ServicePort.Frontends = append(c.ServicePort.Frontends, rules.Frontend{
		Kind: rules.NodePort, Addr: netip.AddrPortFrom(unspecified, nodePortNumber),
	})
	return c
}

// externalIP is another Service: one that has an address of a host, and a port that is
// the NodePort's.
func (w world) externalIP(host int, endpoints ...int) Change {
	c := flowService(w.protocol, "external", []string{w.host(host)}, "[::1]:1")
	c.ServicePort.Serving = nil
	for _, e := range endpoints {
		c.ServicePort.Serving = append(c.ServicePort.Serving, netip.MustParseAddrPort(w.endpoint(e)))
	}
	return c
}

func forEachWorld(t *testing.T, test func(t *testing.T, w world)) {
	for _, w := range []world{{rules.UDP, rules.IPv4}, {rules.UDP, rules.IPv6}, {rules.SCTP, rules.IPv4}, {rules.SCTP, rules.IPv6}} {
		t.Run(fmt.Sprintf("%s/%s", w.protocol, w.family), func(t *testing.T) { test(t, w) })
	}
}

// TestNodePortFlows says which entries a change deletes: those whose number is in gone.
// The hosts 1 and 2 are this node, and the Service had the endpoints 1 and 2.
func TestNodePortFlows(t *testing.T) {
	tests := map[string]struct {
		before func(w world) []Change // nil: the Service
		after  func(w world) []Change
		flows  func(w world) []entry
		gone   []int
	}{
		"an endpoint is replaced": {
			after: func(w world) []Change { return []Change{w.nodePortService(2, 3)} },
			flows: func(w world) []entry {
				return []entry{w.toHost(0, 1, 1), w.toHost(1, 2, 1), w.flow(2, 1, 1), w.toHost(3, 1, 2), w.toHost(4, 2, 2), w.toHost(5, 2, 3), w.flow(6, 1, 2)}
			},
			gone: []int{0, 1, 2},
		},
		"none is left": {
			after: func(w world) []Change { return []Change{w.nodePortService()} },
			flows: func(w world) []entry { return []entry{w.toHost(0, 1, 1), w.toHost(1, 2, 2), w.toHost(2, 1, 0)} },
			gone:  []int{0, 1},
		},
		"one appears where there was none": {
			before: func(w world) []Change { return []Change{w.nodePortService()} },
			after:  func(w world) []Change { return []Change{w.nodePortService(3)} },
			flows:  func(w world) []entry { return []entry{w.toHost(0, 1, 0), w.toHost(1, 2, 0), w.toHost(2, 3, 0)} },
			gone:   []int{0, 1},
		},
		"the Service goes": {
			after: func(w world) []Change { return []Change{w.gone()} },
			flows: func(w world) []entry {
				return []entry{w.toHost(0, 1, 1), w.toHost(1, 2, 2), w.toHost(2, 1, 0), w.toHost(3, 3, 1)}
			},
			gone: []int{0, 1},
		},
		"the NodePort goes": {
			after: func(w world) []Change { return []Change{w.service([]int{1}, 1, 2)} },
			flows: func(w world) []entry { return []entry{w.toHost(0, 1, 1), w.flow(1, 1, 1), w.toHost(2, 3, 1)} },
			gone:  []int{0},
		},
		"masqueraded flows": {
			after: func(w world) []Change { return []Change{w.nodePortService(2)} },
			flows: func(w world) []entry {
				return []entry{w.masqueraded(w.toHost(0, 1, 1)), w.masqueraded(w.toHost(1, 1, 2))}
			},
			gone: []int{0},
		},
		"flows to other hosts, ports and protocols": {
			after: func(w world) []Change { return []Change{w.nodePortService(3)} },
			flows: func(w world) []entry {
				otherPort, tcp, reverse := w.toHost(4, 1, 1), w.toHost(5, 1, 1), w.toHost(6, 1, 0)
				otherPort.destination = w.addr(9, 1, nodePortNumber+1)
				tcp.protocol = rules.TCP
				reverse.source, reverse.destination = reverse.destination, reverse.source
				reverse.replySource = reverse.destination
				// Another host's NodePort, passing through, and somebody else's translation.
				return []entry{w.toHost(0, 1, 1), w.toHost(1, 3, 0), w.toHost(2, 3, 1), w.toHost(3, 4, 9), otherPort, tcp, reverse}
			},
			gone: []int{0},
		},
		"a node's address that is a frontend itself": {
			before: func(w world) []Change { return []Change{w.nodePortService(1, 2), w.externalIP(1, 3)} },
			after:  func(w world) []Change { return []Change{w.nodePortService(2)} },
			flows:  func(w world) []entry { return []entry{w.toHost(0, 2, 1), w.toHost(1, 1, 3), w.toHost(2, 1, 1)} },
			gone:   []int{0},
		},
		"such a frontend comes": {
			after: func(w world) []Change { return []Change{w.externalIP(1, 3)} },
			flows: func(w world) []entry { return []entry{w.toHost(0, 1, 1), w.toHost(1, 1, 3), w.toHost(2, 2, 1)} },
			gone:  []int{0},
		},
		"such a frontend goes": {
			before: func(w world) []Change { return []Change{w.nodePortService(1, 2), w.externalIP(1, 3)} },
			after: func(w world) []Change {
				c := w.externalIP(1)
				c.ServicePort = nil
				return []Change{c}
			},
			flows: func(w world) []entry {
				return []entry{w.toHost(0, 1, 3), w.toHost(1, 1, 0), w.toHost(2, 1, 2), w.toHost(3, 2, 1)}
			},
			gone: []int{0, 1},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			forEachWorld(t, func(t *testing.T, w world) {
				h := newFlowHost(t)
				h.conntrack.SetNodePortIPs(w.family, w.hostAddrs(1, 2))
				before := []Change{w.nodePortService(1, 2)}
				if test.before != nil {
					before = test.before(w)
				}
				h.commit(before...)
				flows := test.flows(w)
				h.inject(flows...)
				h.commit(test.after(w)...)
				h.wantWithout(flows, test.gone)
			})
		})
	}
}

// wantWithout checks that of some flows those are gone whose number is in gone.
func (h *flowHost) wantWithout(flows []entry, gone []int) {
	h.tb.Helper()
	var stay []entry
	for i, e := range flows {
		if !slices.Contains(gone, i) {
			stay = append(stay, e)
		}
	}
	h.want("afterwards", stay...)
	if s := h.conntrack.Stats(); s.Deleted != uint64(len(gone)) || s.Failed != 0 {
		h.tb.Errorf("%+v", s)
	}
}

// TestNodePortAddresses says which entries go when the node's addresses change, with a
// change of the endpoints 1 and 2 to 2 and 3 at the same time.
func TestNodePortAddresses(t *testing.T) {
	flows := func(w world) []entry {
		return []entry{
			w.toHost(0, 1, 0), w.toHost(1, 1, 1), w.toHost(2, 1, 2),
			w.toHost(3, 2, 0), w.toHost(4, 2, 1), w.toHost(5, 2, 2),
		}
	}
	tests := map[string]struct {
		before, after []int // the hosts that are this node; nil: nobody has said
		gone          []int
	}{
		"not known":                 {nil, nil, nil},
		"none":                      {[]int{}, []int{}, nil},
		"the same":                  {[]int{1, 2}, []int{2, 1}, []int{0, 1, 3, 4}},
		"one of two is known":       {[]int{1}, []int{1}, []int{0, 1}},
		"one comes":                 {[]int{1}, []int{1, 2}, []int{0, 1, 3, 4}},
		"the first comes":           {nil, []int{2}, []int{3, 4}},
		"one goes":                  {[]int{1, 2}, []int{1}, []int{0, 1}},
		"all go":                    {[]int{1, 2}, []int{}, nil},
		"one in place of the other": {[]int{1}, []int{2}, []int{3, 4}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			forEachWorld(t, func(t *testing.T, w world) {
				h := newFlowHost(t)
				set := func(hosts []int) {
					if hosts != nil {
						h.conntrack.SetNodePortIPs(w.family, w.hostAddrs(hosts...))
					}
				}
				set(test.before)
				h.commit(w.nodePortService(1, 2))
				h.inject(flows(w)...)
				set(test.after)
				h.commit(w.nodePortService(2, 3))
				h.wantWithout(flows(w), test.gone)
			})
		})
	}
}

// TestNodePortAddressAlone: an address that comes is enough for its flows to be judged,
// one of the other family is not.
func TestNodePortAddressAlone(t *testing.T) {
	forEachWorld(t, func(t *testing.T, w world) {
		h := newFlowHost(t)
		h.commit(w.nodePortService(1))
		flows := []entry{w.toHost(0, 1, 0), w.toHost(1, 1, 1), w.toHost(2, 2, 0)}
		h.inject(flows...)
		other := world{w.protocol, rules.IPv4 + rules.IPv6 - w.family}
		h.conntrack.SetNodePortIPs(other.family, other.hostAddrs(1))
		h.conntrack.Commit(false)
		h.conntrack.SetNodePortIPs(w.family, w.hostAddrs(1))
		h.commit()
		h.wantWithout(flows, []int{0})
	})
}

// TestLoopbackIsNoNodePort: what a local program answers at a loopback address is none of
// ours.
func TestLoopbackIsNoNodePort(t *testing.T) {
	for f, loopback := range map[rules.Family]netip.Addr{rules.IPv4: netip.MustParseAddr("127.0.0.1"), rules.IPv6: netip.IPv6Loopback()} {
		w := world{rules.UDP, f}
		h := newFlowHost(t)
		h.conntrack.SetNodePortIPs(f, append(w.hostAddrs(1), loopback))
		h.commit(w.nodePortService(1))
		flow := w.toHost(0, 1, 0)
		flow.destination = netip.AddrPortFrom(loopback, nodePortNumber).String()
		flow.replySource = flow.destination
		h.inject(flow)
		h.commit(w.nodePortService(2))
		h.want("a flow to "+loopback.String(), flow)
	}
}

// TestNodePortsInBetween judges flows while nobody knows which rules they met: the
// NodePort, its address, or a frontend at this address is about to change. They are
// judged after the commit.
func TestNodePortsInBetween(t *testing.T) {
	w := world{rules.UDP, rules.IPv4}
	to := flowTarget{w.protocol, netip.MustParseAddrPort(w.host(1))}
	endpoint := netip.MustParseAddrPort(w.endpoint(1))
	tests := map[string]struct {
		prepare        func(s *serving)
		between, after bool // whether a flow to endpoint 1 is found to be stale
	}{
		"the NodePort":               {func(s *serving) { s.prepare([]Change{w.nodePortService(3)}) }, false, true},
		"the NodePort is to have it": {func(s *serving) { s.prepare([]Change{w.nodePortService(1)}) }, false, false},
		"a frontend comes":           {func(s *serving) { s.prepare([]Change{w.externalIP(1, 2)}) }, false, true},
		"a frontend that has it":     {func(s *serving) { s.prepare([]Change{w.externalIP(1, 1)}) }, false, false},
		"the address goes":           {func(s *serving) { s.setNodePortIPs(w.family, w.hostAddrs(2)) }, false, false},
		"another address comes":      {func(s *serving) { s.setNodePortIPs(w.family, w.hostAddrs(1, 2)) }, true, true},
		"a frontend elsewhere":       {func(s *serving) { s.prepare([]Change{w.externalIP(2, 2)}) }, true, true},
	}
	for name, test := range tests {
		s := newServing()
		s.setNodePortIPs(w.family, w.hostAddrs(1))
		s.prepare([]Change{w.nodePortService(2)})
		s.commit(true)
		targets := s.take()
		if !s.judge(targets, to, endpoint) {
			t.Errorf("%s: not stale before", name)
		}
		test.prepare(s)
		if got := s.judge(targets, to, endpoint); got != test.between {
			t.Errorf("%s: stale is %t in between", name, got)
		}
		s.commit(false)
		if !test.between {
			targets = s.take() // what was put off is in it
		}
		if got := s.judge(targets, to, endpoint); got != test.after {
			t.Errorf("%s: stale is %t after the commit", name, got)
		}
	}
}

// TestNodePortAddressStaysAfterAll: flows that were put off, since their address was
// about to go, are judged when it does not.
func TestNodePortAddressStaysAfterAll(t *testing.T) {
	w := world{rules.UDP, rules.IPv4}
	to := flowTarget{w.protocol, netip.MustParseAddrPort(w.host(1))}
	s := newServing()
	s.setNodePortIPs(w.family, w.hostAddrs(1))
	s.prepare([]Change{w.nodePortService(2)})
	s.commit(false)
	targets := s.take()
	s.setNodePortIPs(w.family, nil)
	if s.judge(targets, to, to.addr) {
		t.Error("it was judged")
	}
	s.setNodePortIPs(w.family, w.hostAddrs(1))
	s.commit(false)
	if !s.judge(s.take(), to, to.addr) {
		t.Error("it is forgotten")
	}
}

// TestDirtyNodePorts says after which commits the flows to NodePorts are judged.
func TestDirtyNodePorts(t *testing.T) {
	w := world{rules.UDP, rules.IPv4}
	const clusterIP, port = "udp 10.96.0.1:53", "udp 0.0.0.0:30053"
	type step struct {
		hosts   []int // nil: nobody says anything
		changes []Change
		full    bool
		want    []string
	}
	tests := map[string][]step{
		"with addresses":              {{[]int{1}, []Change{w.nodePortService(1)}, false, []string{port, clusterIP}}},
		"without them, later":         {{nil, []Change{w.nodePortService(1)}, false, []string{clusterIP}}, {[]int{1}, nil, false, []string{port}}},
		"the same addresses":          {{[]int{1, 2}, []Change{w.nodePortService(1)}, false, []string{port, clusterIP}}, {[]int{2, 1}, nil, false, nil}},
		"an address more":             {{[]int{1}, []Change{w.nodePortService(1)}, false, []string{port, clusterIP}}, {[]int{1, 2}, nil, false, []string{port}}},
		"an address less":             {{[]int{1, 2}, []Change{w.nodePortService(1)}, false, []string{port, clusterIP}}, {[]int{1}, nil, false, nil}},
		"a full write":                {{[]int{1}, []Change{w.nodePortService(1)}, false, []string{port, clusterIP}}, {nil, nil, true, []string{port, clusterIP}}},
		"it went before an address":   {{nil, []Change{w.nodePortService(1)}, false, []string{clusterIP}}, {nil, []Change{w.gone()}, false, []string{clusterIP}}, {[]int{1}, nil, false, []string{port}}},
		"an address, and no NodePort": {{[]int{1}, []Change{w.service([]int{1}, 1)}, false, []string{clusterIP}}, {[]int{1, 2}, nil, false, nil}},
	}
	for name, steps := range tests {
		s := newServing()
		for i, step := range steps {
			if step.hosts != nil {
				s.setNodePortIPs(w.family, w.hostAddrs(step.hosts...))
			}
			s.prepare(step.changes)
			s.commit(step.full)
			if diff := cmp.Diff(step.want, targetNames(s.take()), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s, step %d: %s", name, i, diff)
			}
		}
	}
}
