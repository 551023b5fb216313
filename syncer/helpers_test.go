package syncer_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// addrPort makes up an address of a family: network 96 for frontends, 244 for
// endpoints.
func addrPort(f rules.Family, network byte, host, port int) netip.AddrPort {
	if f == rules.IPv4 {
		a := netip.AddrFrom4([4]byte{10, network + byte(host>>16), byte(host >> 8), byte(host)})
		return netip.AddrPortFrom(a, uint16(port))
	}
	a := netip.AddrFrom16([16]byte{0: 0xfd, 3: network, 13: byte(host >> 16), 14: byte(host >> 8), 15: byte(host)})
	return netip.AddrPortFrom(a, uint16(port))
}

// nodePort is the address of a NodePort's frontend.
func nodePort(f rules.Family, port uint16) netip.AddrPort {
	if f == rules.IPv4 {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), port)
	}
	return netip.AddrPortFrom(netip.IPv6Unspecified(), port)
}

// key is the key of a slot of the host-th Service of IPv4.
func key(host int, slot uint32) rules.Key {
	return rules.Key{Addr: addrPort(rules.IPv4, 96, host, 80).Addr(), Protocol: rules.TCP, Port: 80, Slot: slot}
}

// service returns the n-th Service, with one frontend and the given endpoints,
// which are local where their number is even.
func service(n int, f rules.Family, endpoints ...int) *rules.ServicePort {
	sp := &rules.ServicePort{
		ServicePortKey: rules.ServicePortKey{
			ServicePortName: rules.ServicePortName{Namespace: "default", Name: fmt.Sprintf("svc-%06d", n), Protocol: rules.TCP},
			Family:          f,
		},
		Frontends: []rules.Frontend{{Kind: rules.ClusterIP, Addr: addrPort(f, 96, n, 80)}},
	}
	for _, e := range endpoints {
		sp.Endpoints = append(sp.Endpoints, rules.Endpoint{Addr: addrPort(f, 244, e, 8080), Weight: 1, Local: e%2 == 0})
	}
	return sp
}

// remote is Service 1 without local endpoints: its changes touch no hairpin.
func remote(f rules.Family, endpoints ...int) *rules.ServicePort {
	sp := service(1, f, endpoints...)
	for i := range sp.Endpoints {
		sp.Endpoints[i].Local = false
	}
	return sp
}

func set(services ...*rules.ServicePort) []syncer.Change {
	changes := make([]syncer.Change, len(services))
	for i, sp := range services {
		changes[i] = syncer.Change{Key: sp.ServicePortKey, ServicePort: sp}
	}
	return changes
}

func gone(services ...*rules.ServicePort) []syncer.Change {
	changes := set(services...)
	for i := range changes {
		changes[i].ServicePort = nil
	}
	return changes
}

func newSyncer(tb testing.TB, k syncer.Kernel, cfg rules.Config) *syncer.Syncer {
	tb.Helper()
	s, err := syncer.New(k, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func mustSync(tb testing.TB, s *syncer.Syncer, changes []syncer.Change) syncer.Result {
	tb.Helper()
	res, err := s.Sync(tb.Context(), changes)
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range res.Refused {
		tb.Fatalf("%s: %v", r.Key, r.Err)
	}
	return res
}

// checkMemory compares what the model holds with what is wanted. Chains that draw slots
// may stay behind when nothing refers to them any more.
func checkMemory(tb testing.TB, m *syncer.Memory, s *syncer.Syncer) {
	tb.Helper()
	wanted := s.Wanted()
	for _, f := range rules.Families() {
		if want, got := wanted.Elements(f), m.Elements(f); !slices.Equal(want, got) {
			diff := cmp.Diff(want, got, cmp.Comparer(func(a, b rules.Element) bool { return a == b }))
			tb.Fatalf("the kernel (+) does not hold what is wanted (-) of %s:\n%s", f, diff)
		}
		if diff := cmp.Diff(declarations(wanted.Sets(f), f), declarations(m.Sets(f), f)); diff != "" {
			tb.Fatalf("the kernel (+) does not have the sets that are wanted (-) of %s:\n%s", f, diff)
		}
		want, got := chainTexts(wanted.Chains(f), f), chainTexts(m.Chains(f), f)
		for name := range got {
			if chains := rules.ChainsByName(name); len(chains) > 0 && want[name] == "" {
				want[name] = chainText(chains[len(chains)-1], f)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			tb.Fatalf("the kernel (+) does not have the chains that are wanted (-) of %s:\n%s", f, diff)
		}
	}
}

// declarations returns how sets are declared, by name.
func declarations(sets []rules.Set, f rules.Family) map[string]string {
	all := map[string]string{}
	for _, s := range sets {
		all[s.Name] = fmt.Sprintf("%s %s %q", s.Kind(), s.AppendType(nil, f), s.Options())
	}
	return all
}

// chainTexts returns the hooks and rules of chains, by name.
func chainTexts(chains []rules.Chain, f rules.Family) map[string]string {
	all := map[string]string{}
	for _, c := range chains {
		all[c.Name] = chainText(c, f)
	}
	return all
}

func chainText(c rules.Chain, f rules.Family) string {
	text := []byte("chain")
	if c.Base != nil {
		text = c.Base.AppendText(append(text, ' '))
	}
	for _, r := range c.Rules {
		text = r.AppendText(append(text, '\n'), f)
	}
	return string(text)
}

func refusedKeys(res syncer.Result) []rules.ServicePortKey {
	keys := make([]rules.ServicePortKey, len(res.Refused))
	for i, r := range res.Refused {
		keys[i] = r.Key
	}
	slices.SortFunc(keys, rules.ServicePortKey.Compare)
	return keys
}
