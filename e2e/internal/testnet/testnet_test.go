package testnet

import (
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/nftproxy/nftproxy/e2e/internal/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newNetwork(t *testing.T) *Network {
	t.Helper()
	network, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	return network
}

// serve starts servers at a port of a host's addresses.
func serve(t *testing.T, host *Host, port uint16) {
	t.Helper()
	for _, address := range []netip.Addr{host.IPv4, host.IPv6} {
		server, err := probe.Serve(host.Namespace, netip.AddrPortFrom(address, port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := server.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func send(t *testing.T, from *Host, target string, limit time.Duration) probe.Result {
	t.Helper()
	to, err := probe.ParseTarget(target)
	if err != nil {
		t.Fatal(err)
	}
	result, err := probe.Send(t.Context(), from.Namespace, probe.Request{To: to, Limit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestHosts(t *testing.T) {
	network := newNetwork(t)
	want := []string{Client, Client2, Control, Node1, Node2, PodA, PodB, PodC, PodD, PodE}
	if diff := cmp.Diff(want, network.Names()); diff != "" {
		t.Errorf("names (-want +got)\n%s", diff)
	}
	addresses := map[string][]string{
		Node1:   {"192.0.2.1", "2001:db8:1::1", "10.244.1.1", "fd00:10:244:1::1"},
		Node2:   {"192.0.2.2", "2001:db8:1::2", "10.244.2.1", "fd00:10:244:2::1"},
		PodA:    {"10.244.1.10", "fd00:10:244:1::10"},
		PodE:    {"10.244.2.12", "fd00:10:244:2::12"},
		Client2: {"192.0.2.201", "2001:db8:1::201"},
	}
	for name, want := range addresses {
		host := network.Host(name)
		var got []string
		for _, address := range host.Addresses() {
			got = append(got, address.String())
			if owner := network.Owner(address); owner != host {
				t.Errorf("the owner of %s is %v, want %s", address, owner, name)
			}
			if pod := name == PodA || name == PodE; (host.Node != "") != pod {
				t.Errorf("%s is on node %q", name, host.Node)
			}
			if like := host.Address(address); like.Is4() != address.Is4() || !slices.Contains(host.Addresses(), like) {
				t.Errorf("%s has the address %s like %s", name, like, address)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("addresses of %s (-want +got)\n%s", name, diff)
		}
	}
	if network.Host("nobody") != nil || network.Owner(netip.MustParseAddr("203.0.113.1")) != nil {
		t.Error("found a host that is none")
	}
}

// TestRouting sends packets between all hosts that can reach each other.
func TestRouting(t *testing.T) {
	network := newNetwork(t)
	inCluster := []string{Node1, Node2, Control, PodA, PodB, PodC, PodD, PodE}
	machines := []string{Node1, Node2, Client, Client2, Control}
	for _, name := range network.Names() {
		serve(t, network.Host(name), 8080)
	}
	check := func(from, to string) {
		for _, address := range []netip.Addr{network.Host(to).IPv4, network.Host(to).IPv6} {
			at := netip.AddrPortFrom(address, 8080)
			for _, protocol := range []string{"tcp://", "udp://"} {
				got := send(t, network.Host(from), protocol+at.String(), 0)
				if got.Outcome != probe.OK || got.Endpoint != at || !got.SourceKept() ||
					(from != Node1 && from != Node2 && got.Local.Addr() != network.Host(from).Address(address)) {
					t.Errorf("from %s to %s%s: %s", from, protocol, at, got)
				}
			}
		}
	}
	for _, group := range [][]string{inCluster, machines} {
		for _, from := range group {
			for _, to := range group {
				check(from, to)
			}
		}
	}
}

// TestNothingAnswers covers packets to addresses that no host has.
func TestNothingAnswers(t *testing.T) {
	network := newNetwork(t)
	for _, from := range []string{Client, PodA, PodC, Node1, Node2} {
		for _, target := range []string{
			"tcp://203.0.113.10:80", "udp://[2001:db8:113::10]:80", // external addresses
			"udp://10.96.0.1:80", "tcp://[fd00:10:96::1]:80", // service addresses
			"tcp://10.244.2.99:80", "tcp://[fd00:10:244:2::99]:80", // pods that are not there
			"tcp://10.244.1.99:80",
		} {
			if from == Client && strings.Contains(target, "10.244") || from == Client && strings.Contains(target, "fd00:10:244") {
				continue // a client knows no pods
			}
			if got := send(t, network.Host(from), target, 100*time.Millisecond); got.Outcome != probe.Dropped {
				t.Errorf("from %s to %s: %s", from, target, got)
			}
		}
	}
	if got := send(t, network.Host(Client), "tcp://192.0.2.1:80", 0); got.Outcome != probe.Refused {
		t.Errorf("to a closed port of node1: %s", got)
	}
}

// handMade translates one service address of each family on node1 as a proxy
// would do.
const handMade = `
table inet test {
	chain translate {
		ip daddr 10.96.0.10 meta l4proto { tcp, udp } dnat ip to 10.244.1.10:8080
		ip daddr 10.96.0.11 meta l4proto { tcp, udp } dnat ip to 10.244.2.10:8080
		ip6 daddr fd00:10:96::10 meta l4proto { tcp, udp } dnat ip6 to [fd00:10:244:1::10]:8080
		ip6 daddr fd00:10:96::11 meta l4proto { tcp, udp } dnat ip6 to [fd00:10:244:2::10]:8080
		ip daddr 203.0.113.10 meta mark set 1 dnat ip to 10.244.2.10
		ip6 daddr 2001:db8:113::10 meta mark set 1 dnat ip6 to fd00:10:244:2::10
	}
	chain prerouting { type nat hook prerouting priority -100; jump translate; }
	chain output { type nat hook output priority -100; jump translate; }
	chain forward {
		type filter hook forward priority 0
		ip daddr 10.96.0.66 reject
		ip6 daddr fd00:10:96::66 reject
		ip daddr 10.96.0.67 drop
	}
	chain out {
		type filter hook output priority 0
		ip daddr 10.96.0.66 reject
		ip6 daddr fd00:10:96::66 reject
		ip daddr 10.96.0.67 drop
	}
	chain postrouting {
		type nat hook postrouting priority 100
		meta mark 1 masquerade
		ip saddr 10.244.1.10 ip daddr 10.244.1.10 masquerade
		ip6 saddr fd00:10:244:1::10 ip6 daddr fd00:10:244:1::10 masquerade
		ip saddr 192.0.2.200 ip daddr 10.244.2.0/24 masquerade
		ip6 saddr 2001:db8:1::200 ip6 daddr fd00:10:244:2::/64 masquerade
	}
}`

func TestTranslation(t *testing.T) {
	network := newNetwork(t)
	if _, err := network.Host(Node1).Command(t.Context(), handMade, "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	for _, pod := range []string{PodA, PodC} {
		serve(t, network.Host(pod), 8080)
	}
	type want struct {
		outcome  probe.Outcome
		endpoint string
		source   string // empty: the client's own
	}
	tests := []struct {
		from, to string
		want     want
	}{
		{PodB, "10.96.0.10:80", want{probe.OK, "10.244.1.10:8080", ""}},
		{PodB, "10.96.0.11:80", want{probe.OK, "10.244.2.10:8080", ""}},
		{PodB, "[fd00:10:96::10]:80", want{probe.OK, "[fd00:10:244:1::10]:8080", ""}},
		{PodB, "[fd00:10:96::11]:80", want{probe.OK, "[fd00:10:244:2::10]:8080", ""}},
		{Node1, "10.96.0.10:80", want{probe.OK, "10.244.1.10:8080", ""}},
		{Node1, "10.96.0.11:80", want{probe.OK, "10.244.2.10:8080", ""}},
		{Node1, "[fd00:10:96::10]:80", want{probe.OK, "[fd00:10:244:1::10]:8080", ""}},
		{Client, "10.96.0.10:80", want{probe.OK, "10.244.1.10:8080", ""}},
		{Client, "10.96.0.11:80", want{probe.OK, "10.244.2.10:8080", "192.0.2.1"}},
		{Client, "[fd00:10:96::11]:80", want{probe.OK, "[fd00:10:244:2::10]:8080", "2001:db8:1::1"}},
		{Client2, "203.0.113.10:8080", want{probe.OK, "10.244.2.10:8080", "192.0.2.1"}},
		{Client2, "[2001:db8:113::10]:8080", want{probe.OK, "[fd00:10:244:2::10]:8080", "2001:db8:1::1"}},
		{PodA, "10.96.0.10:80", want{probe.OK, "10.244.1.10:8080", "10.244.1.1"}}, // to itself
		{PodA, "[fd00:10:96::10]:80", want{probe.OK, "[fd00:10:244:1::10]:8080", "fd00:10:244:1::1"}},
		{PodA, "203.0.113.10:8081", want{outcome: probe.Refused}}, // no server at the port
		{PodA, "10.96.0.66:80", want{outcome: probe.Refused}},
		{Client, "[fd00:10:96::66]:80", want{outcome: probe.Refused}},
		{Node1, "10.96.0.66:80", want{outcome: probe.Refused}},
		{Node1, "[fd00:10:96::66]:80", want{outcome: probe.Refused}},
		{PodA, "10.96.0.67:80", want{outcome: probe.Dropped}},
		{Node1, "10.96.0.67:80", want{outcome: probe.Dropped}},
	}
	for _, test := range tests {
		for _, protocol := range []string{"tcp://", "udp://"} {
			t.Run(test.from+" to "+protocol+test.to, func(t *testing.T) {
				result := send(t, network.Host(test.from), protocol+test.to, 0)
				got := want{outcome: result.Outcome}
				if result.Outcome == probe.OK {
					got.endpoint = result.Endpoint.String()
				}
				if result.Outcome == probe.OK && !result.SourceKept() {
					got.source = result.Source.Addr().String()
				}
				if got != test.want {
					t.Errorf("%s; want %+v", result, test.want)
				}
			})
		}
	}
}

// TestNoRateLimit sends more refused packets than the kernel's usual limits on
// ICMP errors let through.
func TestNoRateLimit(t *testing.T) {
	network := newNetwork(t)
	if _, err := network.Host(Node1).Command(t.Context(), handMade, "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"udp://10.96.0.66:53", "udp://[fd00:10:96::66]:53", "tcp://10.96.0.66:53", "udp://192.0.2.1:53"} {
		to, err := probe.ParseTarget(target)
		if err != nil {
			t.Fatal(err)
		}
		results, err := probe.Repeat(t.Context(), network.Host(Client).Namespace, probe.Request{To: to}, 300)
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range results {
			if result.Outcome != probe.Refused {
				t.Fatalf("%s: %s", target, probe.Summary(results))
			}
		}
	}
}

// TestHostUntouched compares the interfaces and settings of this process's own
// namespace before, during and after.
func TestHostUntouched(t *testing.T) {
	look := func() string {
		var state strings.Builder
		for _, file := range []string{
			"/proc/self/net/dev_mcast", "/proc/self/net/if_inet6", "/proc/self/net/route",
			"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding", "/proc/sys/net/ipv4/icmp_ratelimit",
		} {
			data, err := os.ReadFile(file)
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
			state.Write(data)
		}
		return state.String()
	}
	before := look()
	network, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, look()); diff != "" {
		t.Errorf("while the network stands (-before +now)\n%s", diff)
	}
	if err := network.Close(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, look()); diff != "" {
		t.Errorf("after it (-before +now)\n%s", diff)
	}
}
