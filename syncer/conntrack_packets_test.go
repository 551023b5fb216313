package syncer_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// flowNode is a node with a Syncer and a Conntrack, and a Service with a NodePort.
type flowNode struct {
	*testNode
	family    rules.Family
	syncer    *syncer.Syncer
	conntrack *syncer.Conntrack
}

const testNodePort = 30_053

func newFlowNode(t *testing.T, f rules.Family) *flowNode {
	t.Helper()
	n := &flowNode{testNode: newNode(t, 1, 3), family: f}
	n.syncer = newSyncer(t, newNetlink(t, n.ns), rules.Config{})
	n.conntrack = syncer.NewConntrack(n.ns.FD(), func(err error) { t.Error(err) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- n.conntrack.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return n
}

// sync installs the Service and waits until flows have been judged.
func (n *flowNode) sync(t *testing.T, addrs []netip.Addr, endpoints ...int) {
	t.Helper()
	sp := remote(n.family, endpoints...)
	sp.Protocol = rules.UDP
	sp.Frontends = append(sp.Frontends, rules.Frontend{Kind: rules.NodePort, Addr: nodePort(n.family, testNodePort)})
	for _, e := range sp.Endpoints {
		sp.Serving = append(sp.Serving, e.Addr)
	}
	if err := n.syncer.SetNode(rules.Node{Family: n.family, NodePortIPs: addrs}); err != nil {
		t.Fatal(err)
	}
	before := n.conntrack.Stats().Passes
	n.conntrack.SetNodePortIPs(n.family, addrs)
	n.conntrack.Prepare(set(sp))
	n.conntrack.Commit(mustSync(t, n.syncer, set(sp)).Full)
	for deadline := time.Now().Add(20 * time.Second); n.conntrack.Stats().Passes == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no pass: %+v", n.conntrack.Stats())
		}
	}
}

// hasFlowTo reports whether the node has a conntrack entry of UDP to an address.
func (n *flowNode) hasFlowTo(to netip.AddrPort) bool {
	n.tb.Helper()
	has := false
	n.do(n.ns, func() error {
		family := netlink.InetFamily(unix.AF_INET)
		if n.family == rules.IPv6 {
			family = unix.AF_INET6
		}
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		for _, f := range flows {
			has = has || f.Forward.Protocol == unix.IPPROTO_UDP && f.Forward.DstIP.Equal(to.Addr().AsSlice()) && f.Forward.DstPort == to.Port()
		}
		return err
	})
	return has
}

// TestUDPClientOfNodePort: a client that never changes its port follows the endpoints
// behind a NodePort. Its flow through the node, to another host with the same port
// number, is left alone.
func TestUDPClientOfNodePort(t *testing.T) {
	for _, f := range rules.Families() {
		t.Run(f.String(), func(t *testing.T) {
			n := newFlowNode(t, f)
			client := netip.AddrPortFrom(clientAddr(f, 0), 4001)
			port := netip.AddrPortFrom(nodeAddr(f), testNodePort)
			other := netip.AddrPortFrom(farAddr(f), testNodePort)
			n.serve(n.far, other)
			want := func(what, answer string) {
				t.Helper()
				for range 3 {
					if got := n.askFrom(client, rules.UDP, port); got != answer {
						t.Errorf("%s: %s, not %s", what, got, answer)
					}
				}
			}
			endpoint := func(e int) string { return addrPort(f, 244, e, 8080).String() }

			n.sync(t, []netip.Addr{nodeAddr(f)}, 1)
			want("the first endpoint", endpoint(1))
			if got := n.askFrom(client, rules.UDP, other); got != other.String() {
				t.Fatalf("the other host: %s", got)
			}
			if !n.hasFlowTo(other) {
				t.Fatal("there is no flow to the other host")
			}
			n.sync(t, []netip.Addr{nodeAddr(f)}, 2)
			want("replaced", endpoint(2))
			n.sync(t, []netip.Addr{nodeAddr(f)})
			want("none", "refused")
			n.sync(t, []netip.Addr{nodeAddr(f)}, 3)
			want("one is back", endpoint(3))
			// Nothing was sent meanwhile that would have made it again.
			if !n.hasFlowTo(other) {
				t.Error("the flow to the other host has been deleted")
			}
		})
	}
}

// TestUDPClientOfNewAddress: a client that was there before NodePorts were opened on the
// address is served from then on.
func TestUDPClientOfNewAddress(t *testing.T) {
	for _, f := range rules.Families() {
		t.Run(f.String(), func(t *testing.T) {
			n := newFlowNode(t, f)
			client := netip.AddrPortFrom(clientAddr(f, 0), 4001)
			port := netip.AddrPortFrom(nodeAddr(f), testNodePort)
			n.sync(t, nil, 1)
			// A local program has the port, so that there is a flow.
			n.serve(n.ns, port)
			if got := n.askFrom(client, rules.UDP, port); got != port.String() {
				t.Fatalf("before: %s", got)
			}
			n.sync(t, []netip.Addr{nodeAddr(f)}, 1)
			if got, want := n.askFrom(client, rules.UDP, port), addrPort(f, 244, 1, 8080).String(); got != want {
				t.Errorf("afterwards: %s, not %s", got, want)
			}
		})
	}
}
