package proxier

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/nftproxy/nftproxy/rules"
)

// primaryAndAll is a NodePorts: the node's own IPs of IPv4, and all addresses of IPv6.
type primaryAndAll struct{}

func (primaryAndAll) Open(f rules.Family, nodeIPs, local []netip.Addr) (addrs []netip.Addr, all bool) {
	for _, a := range nodeIPs {
		if f == rules.IPv4 && rules.FamilyOf(a) == f && slices.Contains(local, a) {
			addrs = append(addrs, a)
		}
	}
	return addrs, f == rules.IPv6
}

func addrs(texts ...string) (list []netip.Addr) {
	for _, s := range texts {
		list = append(list, netip.MustParseAddr(s))
	}
	return list
}

// nodeBench is a running Proxier whose addresses come from the test.
type nodeBench struct {
	*bench

	addresses chan []netip.Addr
}

func startNode(t *testing.T, opts Options) *nodeBench {
	t.Helper()
	addresses := make(chan []netip.Addr)
	opts.NodePorts = primaryAndAll{}
	opts.WatchAddresses = func(ctx context.Context, changed func([]netip.Addr)) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case list := <-addresses:
				changed(list)
			}
		}
	}
	return &nodeBench{bench: start(t, opts), addresses: addresses}
}

// elements returns the keys of a set's elements.
func (b *nodeBench) elements(set rules.SetID) string {
	var keys []string
	for _, f := range rules.Families() {
		for _, e := range b.memory.Elements(f) {
			if e.Set == set {
				keys = append(keys, string(e.AppendKey(nil)))
			}
		}
	}
	return strings.Join(keys, " ")
}

// TestFirstSyncWaitsForAddresses: without them NodePorts would be closed for a moment.
func TestFirstSyncWaitsForAddresses(t *testing.T) {
	b := startNode(t, Options{})
	b.handler.Apply(Changes{Node: &NodeChange{&Node{Addrs: addrs("192.0.2.1")}}})
	b.handler.Synced()
	b.quiet()
	b.addresses <- addrs("10.0.0.1", "192.0.2.1", "fe80::1")
	if r := b.report(); !r.Full || b.elements(rules.NodePortIPs) != "192.0.2.1 fe80::1" {
		t.Errorf("NodePorts are open on %s after %+v", b.elements(rules.NodePortIPs), r)
	}
}

// TestNodeChangesAreElements follows what the node says, each time by the fewest
// operations.
func TestNodeChangesAreElements(t *testing.T) {
	b := startNode(t, Options{})
	b.handler.Synced()
	b.addresses <- addrs("192.0.2.1", "192.0.2.7")
	b.report()
	steps := []struct {
		what      string
		do        func()
		nodePorts string
		cidrs     string
		elements  int
	}{
		{"the Node appears", func() {
			b.handler.Apply(Changes{Node: &NodeChange{&Node{Addrs: addrs("192.0.2.1", "192.0.2.7")}}})
		}, "192.0.2.1", "", 1},
		{"its address changes", func() {
			b.handler.Apply(Changes{Node: &NodeChange{&Node{Addrs: addrs("192.0.2.7")}}})
		}, "192.0.2.7", "", 2},
		{"the interface loses it", func() { b.addresses <- addrs("192.0.2.1") }, "", "", 1},
		{"and gets it back", func() { b.addresses <- addrs("192.0.2.1", "192.0.2.7") }, "192.0.2.7", "", 1},
		{"the Node goes, the machine stays", func() { b.handler.Apply(Changes{Node: &NodeChange{}}) }, "192.0.2.7", "", 0},
		{"a ServiceCIDR", func() {
			b.handler.Apply(Changes{ServiceCIDRs: []ServiceCIDRChange{{"kubernetes", prefixes("10.96.0.0/16", "fd00:96::/112")}}})
		}, "192.0.2.7", "10.96.0.0/16 fd00:96::/112", 2},
		{"one more, within the first", func() {
			b.handler.Apply(Changes{ServiceCIDRs: []ServiceCIDRChange{{"more", prefixes("10.96.1.0/24", "10.97.0.0/16")}}})
		}, "192.0.2.7", "10.96.0.0/16 10.97.0.0/16 fd00:96::/112", 1},
		{"the first goes", func() {
			b.handler.Apply(Changes{ServiceCIDRs: []ServiceCIDRChange{{Name: "kubernetes"}}})
		}, "192.0.2.7", "10.96.1.0/24 10.97.0.0/16", 3},
	}
	for _, s := range steps {
		s.do()
		r := b.report()
		if r.Err != nil || r.Full || r.Counts.Elements != s.elements {
			t.Errorf("%s: %+v, want %d element operations", s.what, r, s.elements)
		}
		if n, c := b.elements(rules.NodePortIPs), b.elements(rules.ServiceCIDRs); n != s.nodePorts || c != s.cidrs {
			t.Errorf("%s: NodePorts are open on %q, ServiceCIDRs are %q; want %q, %q", s.what, n, c, s.nodePorts, s.cidrs)
		}
	}
}

// TestPodCIDRsOfTheNode are part of the rules themselves, which are written anew.
func TestPodCIDRsOfTheNode(t *testing.T) {
	b := startNode(t, Options{NodeCIDR: true, Rules: rules.Config{ClusterCIDRs: prefixes("172.16.0.0/12")}})
	b.handler.Synced()
	b.addresses <- nil
	b.report()
	pods := func(cidrs ...string) Changes { return Changes{Node: &NodeChange{&Node{PodCIDRs: prefixes(cidrs...)}}} }
	for i, want := range []bool{true, false, true} { // whether the whole ruleset is written
		b.handler.Apply(pods([]string{"10.244.1.0/24", "10.244.1.0/24", "10.244.2.0/24"}[i]))
		if r := b.report(); r.Full != want || r.Err != nil {
			t.Errorf("step %d: %+v", i, r)
		}
	}
}

func TestBindAddressComesFirst(t *testing.T) {
	s := newNodeState(Options{Rules: rules.Config{}.WithDefaults(), BindAddress: netip.MustParseAddr("192.0.2.9")})
	check := func(want ...string) {
		t.Helper()
		if got := s.nodeIPs(); !slices.Equal(got, addrs(want...)) {
			t.Errorf("the node has the addresses %v, want %v", got, want)
		}
	}
	check("192.0.2.9")
	s.apply(Changes{Node: &NodeChange{&Node{Addrs: addrs("192.0.2.1", "2001:db8::1", "2001:db8::2")}}})
	check("192.0.2.9", "2001:db8::1")
	s.apply(Changes{Node: &NodeChange{}})
	check("192.0.2.9", "2001:db8::1")
}

// TestNodeIsShown before the first sync and when it has changed, to whom may refuse it.
func TestNodeIsShown(t *testing.T) {
	const refused = "192.0.2.7"
	b := newBench(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	handlers, shown := make(chan Handler), make(chan *Node, 10)
	broken := errors.New("broken")
	p, err := New(sourceFunc(func(ctx context.Context, h Handler) error {
		handlers <- h
		<-ctx.Done()
		return nil
	}), b.kernel, Options{
		Log: zap.NewNop(), BindAddress: netip.MustParseAddr("192.0.2.9"),
		OnSync: func(r Report) { b.reports <- r },
		OnNode: func(n *Node) error {
			shown <- n
			if slices.Contains(n.Addrs, netip.MustParseAddr(refused)) {
				return broken
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	h := <-handlers
	show := func(addr string) []netip.Addr {
		h.Apply(Changes{Node: &NodeChange{&Node{Addrs: addrs(addr)}}})
		return (<-shown).Addrs
	}
	h.Synced()
	if n := <-shown; !slices.Equal(n.Addrs, addrs("192.0.2.9")) {
		t.Errorf("at first: %v", n.Addrs)
	}
	b.report()
	if got := show("192.0.2.1"); !slices.Equal(got, addrs("192.0.2.9", "192.0.2.1")) {
		t.Errorf("then: %v", got)
	}
	b.report()
	h.Apply(b.web(1))
	b.report()
	if len(shown) > 0 {
		t.Error("it is shown though it has not changed")
	}
	before := len(b.memory.Elements(rules.IPv4))
	refuse := b.web(2)
	refuse.Node = &NodeChange{&Node{Addrs: addrs(refused)}}
	h.Apply(refuse)
	if err := <-done; !errors.Is(err, broken) {
		t.Errorf("Run: %v", err)
	}
	if after := len(b.memory.Elements(rules.IPv4)); after != before {
		t.Errorf("%d elements, then %d", before, after)
	}
}
