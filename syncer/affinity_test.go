package syncer_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// affinityClients are as many as make it certain that not all draw the same of four
// endpoints: once in a billion times they do.
const affinityClients = 16

// affinityHost is a node with a Syncer and an Affinity.
type affinityHost struct {
	*testNode
	family   rules.Family
	protocol rules.Protocol
	kernel   syncer.Kernel
	syncer   *syncer.Syncer
	affinity *syncer.Affinity
}

func newAffinityHost(t *testing.T, f rules.Family, p rules.Protocol) *affinityHost {
	t.Helper()
	h := &affinityHost{testNode: newNode(t, affinityClients, 4), family: f, protocol: p}
	h.kernel = newNetlink(t, h.ns)
	h.start(t)
	return h
}

// start begins anew, as a daemon does that knows of nothing.
func (h *affinityHost) start(t *testing.T) {
	t.Helper()
	h.syncer = newSyncer(t, h.kernel, rules.Config{})
	h.affinity = syncer.NewAffinity(h.ns.FD(), func(err error) { t.Error(err) })
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	run := h.affinity.Run
	go func() { done <- run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// service is a Service with an affinity and some of the endpoints.
func (h *affinityHost) service(affinity time.Duration, endpoints ...int) *rules.ServicePort {
	sp := service(1, h.family, endpoints...)
	sp.Protocol, sp.Affinity = h.protocol, affinity
	return sp
}

// sync installs a Service and waits until the clients are forgotten that have to be.
func (h *affinityHost) sync(t *testing.T, sp *rules.ServicePort) {
	t.Helper()
	h.sweep(t, mustSync(t, h.syncer, set(sp)))
}

func (h *affinityHost) sweep(t *testing.T, res syncer.Result) {
	t.Helper()
	before := h.affinity.Stats().Passes
	h.affinity.Sweep(res.Affinity)
	if !slices.ContainsFunc(res.Affinity, func(a rules.AffinityTable) bool { return a.Stale }) {
		return
	}
	for deadline := time.Now().Add(20 * time.Second); h.affinity.Stats().Passes == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no pass: %+v", h.affinity.Stats())
		}
	}
}

// at returns where each client is, by its number; it must be there three times.
func (h *affinityHost) at(t *testing.T, sp *rules.ServicePort) map[int]string {
	t.Helper()
	at := map[int]string{}
	for range 3 {
		for c := range affinityClients {
			got := h.ask(clientAddr(h.family, c), h.protocol, sp.Frontends[0].Addr)
			if at[c] == "" {
				at[c] = got
			}
			if at[c] != got {
				t.Errorf("client %d was at %s and is at %s", c, at[c], got)
			}
		}
	}
	return at
}

func (h *affinityHost) endpoint(n int) string { return addrPort(h.family, 244, n, 8080).String() }

// wantSame checks that clients are where they were.
func wantSame(t *testing.T, what string, before, now map[int]string) {
	t.Helper()
	if diff := cmp.Diff(before, now); diff != "" {
		t.Errorf("%s: clients were (-) and are (+) at:\n%s", what, diff)
	}
}

// wantMoved checks that the clients of one endpoint have moved and the others have not.
// It returns how many those are.
func wantMoved(t *testing.T, what, from string, before, now map[int]string) int {
	t.Helper()
	moved := 0
	for c, at := range before {
		switch {
		case at != from && now[c] != at:
			t.Errorf("%s: client %d was at %s and is at %s", what, c, at, now[c])
		case at == from && now[c] == from:
			t.Errorf("%s: client %d is still at %s", what, c, from)
		case at == from:
			moved++
		}
	}
	return moved
}

// TestClientsStick follows clients through all that may happen to their Service: each is
// where it was until its endpoint goes.
func TestClientsStick(t *testing.T) {
	forEachTransport(t, func(t *testing.T, f rules.Family, p rules.Protocol) {
		h := newAffinityHost(t, f, p)
		sp := h.service(3*time.Hour, 1, 2, 3, 4)
		h.sync(t, sp)
		start := h.at(t, sp)
		if len(slices.Compact(slices.Sorted(maps.Values(start)))) < 2 {
			t.Fatalf("all are at %s", start[0])
		}

		gone := 1
		for start[0] != h.endpoint(gone) { // the endpoint of client 0
			gone++
		}
		rest := slices.DeleteFunc([]int{1, 2, 3, 4}, func(e int) bool { return e == gone })
		h.sync(t, h.service(3*time.Hour, rest...))
		now := h.at(t, sp)
		if n := wantMoved(t, "an endpoint goes", h.endpoint(gone), start, now); h.affinity.Stats().Forgotten != uint64(n) {
			t.Errorf("%d clients moved, %+v", n, h.affinity.Stats())
		}
		h.sync(t, sp)
		wantSame(t, "it is back", now, h.at(t, sp))

		res, err := h.syncer.Resync(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		h.sweep(t, res)
		wantSame(t, "everything is written again", now, h.at(t, sp))
		h.start(t)
		h.sync(t, sp)
		wantSame(t, "a restart", now, h.at(t, sp))

		for now[0] != h.endpoint(gone) {
			gone = gone%4 + 1
		}
		rest = slices.DeleteFunc([]int{1, 2, 3, 4}, func(e int) bool { return e == gone })
		h.start(t)
		h.sync(t, h.service(3*time.Hour, rest...))
		wantMoved(t, "an endpoint went during a restart", h.endpoint(gone), now, h.at(t, sp))
	})
}

// client is an element of a map as nft lists it.
type client struct {
	Address          string
	Timeout, Expires int // seconds
}

// clients returns what the only map of clients holds, by address.
func (h *affinityHost) clients(t *testing.T) map[string]client {
	t.Helper()
	names := h.ownSets(t)
	if len(names) != 1 {
		t.Fatalf("maps %v", names)
	}
	var listing struct {
		Objects []struct {
			Map struct {
				Elements [][2]json.RawMessage `json:"elem"`
			} `json:"map"`
		} `json:"nftables"`
	}
	text := h.ns.MustNFT(t, "", "-j", "list", "map", h.family.Keyword(), rules.TableName, names[0])
	if err := json.Unmarshal([]byte(text), &listing); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	all := map[string]client{}
	for _, o := range listing.Objects {
		for _, e := range o.Map.Elements {
			var key struct {
				Element struct {
					Address          string `json:"val"`
					Timeout, Expires int
				} `json:"elem"`
			}
			if err := json.Unmarshal(e[0], &key); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			all[key.Element.Address] = client(key.Element)
		}
	}
	return all
}

// ownSets and ownChains return the names of what the Service has of its own.
func (h *affinityHost) ownSets(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(h.state(t).Sets)), func(name string) bool {
		return slices.ContainsFunc(rules.Sets(), func(s rules.Set) bool { return s.Name == name })
	})
}

func (h *affinityHost) ownChains(t *testing.T) []string {
	t.Helper()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(h.state(t).Chains)), func(name string) bool { return !strings.HasPrefix(name, "endpoint-") })
}

func (h *affinityHost) state(t *testing.T) syncer.TableState {
	t.Helper()
	state, err := h.kernel.State(t.Context(), rules.Families())
	if err != nil {
		t.Fatal(err)
	}
	return state[h.family]
}

// TestAffinityTimeout: the kernel remembers clients for as long as configured, beginning
// anew with each connection; another time moves nobody.
func TestAffinityTimeout(t *testing.T) {
	for _, f := range rules.Families() {
		t.Run(f.String(), func(t *testing.T) {
			h := newAffinityHost(t, f, rules.TCP)
			sp := h.service(time.Hour, 1, 2, 3, 4)
			h.sync(t, sp)
			before := h.at(t, sp)
			for c, e := range h.clients(t) {
				if e.Timeout != 3600 || e.Expires > 3600 || e.Expires < 3000 {
					t.Errorf("%s: %+v", c, e)
				}
			}

			h.sync(t, h.service(3*time.Hour, 1, 2, 3, 4))
			first := clientAddr(f, 0)
			h.ask(first, rules.TCP, sp.Frontends[0].Addr)
			for c, e := range h.clients(t) {
				// Without a connection, it is as it was; with one, it begins anew.
				if renewed := e.Expires > 3600; renewed != (c == first.String()) {
					t.Errorf("%s: %+v", c, e)
				}
			}
			wantSame(t, "another timeout", before, h.at(t, sp))
		})
	}
}

// TestAffinityComesAndGoes: with the affinity of a Service go its map and chains, and
// with its Service too.
func TestAffinityComesAndGoes(t *testing.T) {
	for _, f := range rules.Families() {
		t.Run(f.String(), func(t *testing.T) {
			h := newAffinityHost(t, f, rules.TCP)
			with, without := h.service(time.Hour, 1, 2, 3, 4), h.service(0, 1, 2, 3, 4)
			steps := []struct {
				changes      []syncer.Change
				sets, chains int
			}{
				{set(without), 0, 0}, {set(with), 1, 4}, {set(without), 0, 0}, {set(with), 1, 4}, {gone(with), 0, 0},
			}
			for i, step := range steps {
				h.sweep(t, mustSync(t, h.syncer, step.changes))
				if s, c := h.ownSets(t), h.ownChains(t); len(s) != step.sets || len(c) != step.chains {
					t.Errorf("step %d: maps %v, chains %v", i, s, c)
				}
				if step.changes[0].ServicePort != nil && h.ask(clientAddr(f, 0), rules.TCP, with.Frontends[0].Addr) == "no answer" {
					t.Errorf("step %d: no answer", i)
				}
			}
		})
	}
}

// TestFrontendsShareClients: a client is at the same endpoint behind each address.
func TestFrontendsShareClients(t *testing.T) {
	forEachTransport(t, func(t *testing.T, f rules.Family, p rules.Protocol) {
		h := newAffinityHost(t, f, p)
		sp := h.service(time.Hour, 1, 2, 3, 4)
		sp.Frontends = append(sp.Frontends, rules.Frontend{Kind: rules.LoadBalancerIP, Addr: addrPort(f, 113, 1, 80)},
			rules.Frontend{Kind: rules.NodePort, Addr: nodePort(f, 30_080)})
		if err := h.syncer.SetNode(rules.Node{Family: f, NodePortIPs: []netip.Addr{nodeAddr(f)}}); err != nil {
			t.Fatal(err)
		}
		h.sync(t, sp)
		start := h.at(t, sp)
		for _, frontend := range []netip.AddrPort{sp.Frontends[1].Addr, netip.AddrPortFrom(nodeAddr(f), 30_080)} {
			for c := range affinityClients {
				if got := h.ask(clientAddr(f, c), p, frontend); got != start[c] {
					t.Errorf("client %d is at %s by %s, and at %s otherwise", c, got, frontend, start[c])
				}
			}
		}
	})
}

// TestPolicyLocalRemembersApart: a client that is at a remote endpoint under one policy
// is never led there under the other.
func TestPolicyLocalRemembersApart(t *testing.T) {
	forEachTransport(t, func(t *testing.T, f rules.Family, p rules.Protocol) {
		h := newAffinityHost(t, f, p)
		sp := h.service(time.Hour, 1, 2, 3, 4) // 2 and 4 are local
		sp.ExternalLocal = true
		sp.Frontends = append(sp.Frontends, rules.Frontend{Kind: rules.LoadBalancerIP, Addr: addrPort(f, 113, 1, 80)})
		sp.LocalEndpoints = []rules.Endpoint{sp.Endpoints[1], sp.Endpoints[3]}
		h.sync(t, sp)
		cluster := h.at(t, sp)
		balanced := *sp
		balanced.Frontends = sp.Frontends[1:]
		local := h.at(t, &balanced)
		wantSame(t, "under policy Cluster", cluster, h.at(t, sp))
		wantSame(t, "under policy Local", local, h.at(t, &balanced))
		remote := 0
		for c := range affinityClients {
			if local[c] != h.endpoint(2) && local[c] != h.endpoint(4) {
				t.Errorf("client %d is at %s under policy Local", c, local[c])
			}
			if cluster[c] == h.endpoint(1) || cluster[c] == h.endpoint(3) {
				remote++
			}
		}
		if sets := h.ownSets(t); len(sets) != 2 || remote == 0 {
			t.Errorf("maps %v, %d clients at remote endpoints", sets, remote)
		}

		// An endpoint that is not local any more is in use still under one policy alone.
		sp.Endpoints[1].Local, sp.LocalEndpoints = false, sp.LocalEndpoints[1:]
		h.sync(t, sp)
		wantSame(t, "an endpoint is remote now, policy Cluster", cluster, h.at(t, sp))
		wantMoved(t, "an endpoint is remote now, policy Local", h.endpoint(2), local, h.at(t, &balanced))
	})
}

// smallMaps is a Kernel whose maps of clients have room for two.
type smallMaps struct{ syncer.Kernel }

func (k smallMaps) Apply(ctx context.Context, b *syncer.Batch) error {
	small := &syncer.Batch{}
	for _, op := range b.Ops() {
		op.Decl.Clients = min(op.Decl.Clients, 2)
		small.Add(op)
	}
	return k.Kernel.Apply(ctx, small)
}

// TestFullMapServes: a client for whom there is no room is served all the same.
func TestFullMapServes(t *testing.T) {
	forEachTransport(t, func(t *testing.T, f rules.Family, p rules.Protocol) {
		h := newAffinityHost(t, f, p)
		h.kernel = smallMaps{h.kernel}
		h.start(t)
		sp := h.service(time.Hour, 1, 2, 3, 4)
		h.sync(t, sp)
		at := map[int]string{}
		for c := range affinityClients {
			at[c] = h.ask(clientAddr(f, c), p, sp.Frontends[0].Addr)
			if !slices.Contains([]string{h.endpoint(1), h.endpoint(2), h.endpoint(3), h.endpoint(4)}, at[c]) {
				t.Errorf("client %d: %s", c, at[c])
			}
		}
		remembered := h.clients(t)
		if len(remembered) > 2 {
			t.Fatalf("%d clients are remembered", len(remembered))
		}
		for c := range affinityClients {
			if _, ok := remembered[clientAddr(f, c).String()]; !ok {
				continue
			}
			for range 5 {
				if got := h.ask(clientAddr(f, c), p, sp.Frontends[0].Addr); got != at[c] {
					t.Errorf("client %d is remembered, was at %s and is at %s", c, at[c], got)
				}
			}
		}
	})
}
