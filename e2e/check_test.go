package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
	"github.com/nftproxy/nftproxy/e2e/internal/probe"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// settle is how long the proxy may take to catch up with a change.
const settle = 5 * time.Second

// draws returns how many probes have to find each of some endpoints, and no other. That
// one is drawn by none of them, though all is well, happens once in 10^10 times.
func draws(endpoints int) int {
	const most = 1e-10
	if endpoints < 2 {
		return 30 // of those that go wrong now and then, one will be seen
	}
	n := float64(endpoints)
	return int(math.Ceil(math.Log(most/n) / math.Log(1-1/n)))
}

// Every datagram of a check, and every load, is a flow of its own, with a source
// port that was not used before: where the kernel sends the datagrams of a flow
// that it remembers is not the rules' choice.
const (
	firstPort = 10_000
	ports     = 20_000 // up to the ephemeral ones
)

// newFlow returns a source port for a new flow of datagrams.
func (c *cluster) newFlow() uint16 { return firstPort + uint16(c.flows.Add(1)%ports) }

// want is what becomes of packets to a Service.
type want struct {
	outcome probe.Outcome
	pods    []string // the hosts that answer, each of them
	settle  time.Duration
	repeat  bool // the first packet of a connection may be repeated
}

// repeated is a limit within which a client repeats the first packet of a connection, after
// one second and after two more. The kernel drops one whose new source port another flow has
// got in the same moment (insert_failed of conntrack), whoever masquerades.
const repeated = 5 * time.Second

// kind is one kind of packets.
type kind struct {
	from string
	to   probe.Target
}

// kinds returns the kinds of packets to a Service: to each of its addresses,
// from each of the hosts, over each of the protocols.
func kinds(service []netip.Addr, hosts []string, protocols []probe.Protocol) []kind {
	var all []kind
	for _, address := range service {
		for _, host := range hosts {
			for _, protocol := range protocols {
				to := probe.Target{Protocol: protocol, Address: netip.AddrPortFrom(address, servicePort)}
				all = append(all, kind{host, to})
			}
		}
	}
	return all
}

// check sends packets to all addresses of a Service, over TCP and UDP, from
// outside the cluster, a pod and the node itself. It waits until packets of
// every kind have fared as they should, and then judges all kinds once.
func (c *cluster) check(t *testing.T, service []netip.Addr, want want) {
	t.Helper()
	if want.settle == 0 {
		want.settle = settle
	}
	all := kinds(service, []string{testnet.Client, testnet.PodB, testnet.Node1}, []probe.Protocol{probe.TCP, probe.UDP})
	deadline := time.Now().Add(want.settle)
	each(all, func(k kind) {
		for c.judge(t, k, want) != nil && time.Now().Before(deadline) {
			time.Sleep(10 * time.Millisecond)
		}
	})
	want.repeat = want.outcome == probe.OK
	each(all, func(k kind) {
		if err := c.judge(t, k, want); err != nil {
			t.Errorf("from %s to %s: %v", k.from, k.to, err)
		}
	})
}

// each runs fn for all kinds at once and waits for the last.
func each(kinds []kind, fn func(kind)) {
	var work sync.WaitGroup
	for _, k := range kinds {
		work.Go(func() { fn(k) })
	}
	work.Wait()
}

// judge sends packets of one kind and returns what is wrong with their fate.
func (c *cluster) judge(t *testing.T, k kind, want want) error {
	results, err := c.draw(t, k, want)
	if err != nil {
		return err
	}
	missing := c.endpoints(k.to.Address.Addr(), want.pods)
	for _, result := range results {
		if err := c.judgeOne(k.from, result, want); err != nil {
			return fmt.Errorf("%w; all: %s", err, probe.Summary(results))
		}
		missing = slices.DeleteFunc(missing, func(e netip.AddrPort) bool { return e == result.Endpoint })
	}
	if len(missing) > 0 {
		return fmt.Errorf("%v never answered; all: %s", missing, probe.Summary(results))
	}
	return nil
}

// draw sends packets of one kind: many when they are to be answered. The first
// that fares otherwise is the last.
func (c *cluster) draw(t *testing.T, k kind, want want) ([]probe.Result, error) {
	var results []probe.Result
	for range draws(len(want.pods)) {
		request := probe.Request{To: k.to}
		switch {
		case k.to.Protocol == probe.UDP:
			request.SourcePort = c.newFlow()
		case want.repeat:
			request.Limit = repeated
		}
		result, err := probe.Send(t.Context(), c.network.Host(k.from).Namespace, request)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
		if result.Outcome != want.outcome || want.outcome == probe.Dropped {
			break
		}
	}
	return results, nil
}

func (c *cluster) judgeOne(from string, result probe.Result, want want) error {
	if result.Outcome != want.outcome {
		return fmt.Errorf("%s, want %s", result, want.outcome)
	}
	if result.Outcome != probe.OK {
		return nil
	}
	if !slices.Contains(c.endpoints(result.Endpoint.Addr(), want.pods), result.Endpoint) {
		return fmt.Errorf("%s, want an answer of %v", result, want.pods)
	}
	// A pod's own address is kept, everybody else's may hide behind node1's.
	if from == testnet.PodB && !result.SourceKept() {
		return fmt.Errorf("%s, want the source kept", result)
	}
	if node := c.network.Host(testnet.Node1); from != testnet.PodB && !slices.Contains(node.Addresses(), result.Source.Addr()) {
		return fmt.Errorf("%s, want node1 as source", result)
	}
	return nil
}

// endpoints returns the pods' endpoints of a family.
func (c *cluster) endpoints(like netip.Addr, pods []string) []netip.AddrPort {
	var endpoints []netip.AddrPort
	for _, pod := range pods {
		endpoints = append(endpoints, netip.AddrPortFrom(c.network.Host(pod).Address(like), endpointPort))
	}
	return endpoints
}

// load is what is sent to a Service all the time while something happens; one
// of the pods must answer every probe. A datagram on its way to an endpoint that
// is taken away may get lost, a connection may not.
type load struct {
	protocols []probe.Protocol
	pods      []string
}

// underLoad runs fn under a load from outside the cluster and from a pod.
func (c *cluster) underLoad(t *testing.T, service []netip.Addr, load load, fn func()) {
	t.Helper()
	loads := map[kind]*probe.Load{}
	for _, k := range kinds(service, []string{testnet.Client, testnet.PodB}, load.protocols) {
		request := probe.Request{To: k.to}
		if k.to.Protocol == probe.UDP {
			request.SourcePort = c.newFlow()
		}
		loads[k] = probe.StartLoad(t.Context(), c.network.Host(k.from).Namespace, request, 5*time.Millisecond)
	}
	defer func() {
		for k, running := range loads {
			results, err := running.Stop()
			for _, result := range results {
				if err == nil {
					err = c.judgeOne(k.from, result, want{outcome: probe.OK, pods: load.pods})
				}
			}
			if err != nil || len(results) == 0 {
				t.Errorf("load from %s to %s: %v; all: %s", k.from, k.to, err, probe.Summary(results))
			}
		}
	}()
	fn()
}

// generation returns the number of nftables transactions in a namespace so far.
func generation(ns *namespace.Namespace) (uint32, error) {
	request := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
	request.AddData(&nl.Nfgenmsg{})
	var messages [][]byte
	err := ns.Do(func() error {
		var err error
		messages, err = request.Execute(unix.NETLINK_NETFILTER, 0)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("ask for the nftables generation: %w", err)
	}
	for _, message := range messages {
		attributes, err := nl.ParseRouteAttr(message[nl.SizeofNfgenmsg:])
		if err != nil {
			return 0, fmt.Errorf("read the nftables generation: %w", err)
		}
		for _, a := range attributes {
			if a.Attr.Type == unix.NFTA_GEN_ID {
				return binary.BigEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, errors.New("no nftables generation in the answer")
}
