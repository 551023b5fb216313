package rules

import (
	"errors"
	"math/rand"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A table holds each element once, in order, whoever and however many want it.
func TestRulesetElements(t *testing.T) {
	web := service(1, "AB")
	web.Endpoints[0].Local = true
	secure := service(1, "AB") // another port of the same address, the same pods
	secure.Port, secure.Frontends = "https", []Frontend{frontend("10.96.0.10:443")}
	secure.Endpoints[0].Local = true
	other := service(1, "C")
	other.Name, other.Frontends = "other", []Frontend{frontend("10.96.0.5:80")}

	got := NewRuleset(Config{}, []*Compiled{compile(t, web, nil), compile(t, secure, nil), compile(t, other, nil)}).Elements(IPv4)
	want := []string{
		`10.96.0.5`, `10.96.0.10`,
		`10.244.0.65 . 10.244.0.65 . tcp . 8080`,
		`10.96.0.5 . tcp . 80 comment "default/other:http" : goto random-1`,
		`10.96.0.10 . tcp . 80 comment "default/web:http" : goto random-2`,
		`10.96.0.10 . tcp . 443 comment "default/web:https" : goto random-2`,
		`10.96.0.5 . tcp . 80 . 0 : 10.244.0.67 . 8080`,
		`10.96.0.10 . tcp . 80 . 0 : 10.244.0.65 . 8080`,
		`10.96.0.10 . tcp . 80 . 1 : 10.244.0.66 . 8080`,
		`10.96.0.10 . tcp . 443 . 0 : 10.244.0.65 . 8080`,
		`10.96.0.10 . tcp . 443 . 1 : 10.244.0.66 . 8080`,
	}
	var text []string
	for _, e := range got {
		text = append(text, string(e.AppendText(nil)))
	}
	if !slices.Equal(text, want) {
		t.Errorf("got\n%q, want\n%q", text, want)
	}
}

// The order of the service ports is not in the text, not even if two of them
// claim the same frontend, which is an error of whoever asks for it.
func TestRulesetIsIndependentOfOrder(t *testing.T) {
	claim, rival := service(2, "ABC"), service(3, "XYZA")
	rival.Name = "rival"
	services := []*Compiled{compile(t, claim, nil), compile(t, rival, nil), compile(t, service(9, "ABCDEFG"), nil)}
	want := writeText(t, services...)
	rng := rand.New(rand.NewSource(1))
	for range 20 {
		rng.Shuffle(len(services), func(i, j int) { services[i], services[j] = services[j], services[i] })
		if got := writeText(t, services...); got != want {
			t.Fatalf("another order is printed as\n%s, want\n%s", got, want)
		}
	}
}

// A chain comes after the chains that it jumps to, so that a batch in this order
// never refers to what is not there yet; and the chain of every element exists.
func TestChainsComeBeforeTheirUse(t *testing.T) {
	r := NewRuleset(Config{MasqueradeAll: true}, []*Compiled{
		compile(t, service(1, "ABCDE"), nil), compile(t, service(1, "A"), nil), compile(t, service(1, "ABCDE"), nil),
		compile(t, service(1, ""), nil), compile(t, service(0, "ABC"), nil),
	})
	known := map[string]bool{}
	for _, c := range r.Chains(IPv4) {
		for _, rule := range c.Rules {
			for _, s := range rule {
				if jump, ok := s.(Jump); ok && !known[jump.Chain] {
					t.Errorf("chain %s jumps to %s, which is not there yet", c.Name, jump.Chain)
				}
			}
		}
		if known[c.Name] {
			t.Errorf("chain %s is listed twice", c.Name)
		}
		known[c.Name] = true
	}
	for _, e := range r.Elements(IPv4) {
		if e.Chain != "" && !known[e.Chain] {
			t.Errorf("element %s refers to a chain that is not there", e.AppendText(nil))
		}
	}
	if known["random-3"] {
		t.Error("there is a chain for a service port without frontends")
	}
}

func TestChainsByName(t *testing.T) {
	for _, endpoints := range []SetID{
		Endpoints, LocalEndpoints, NodePortEndpoints, LocalNodePortEndpoints,
		AffinityEndpoints, LocalAffinityEndpoints, NodePortAffinityEndpoints, LocalNodePortAffinityEndpoints,
	} {
		drawn := func(capacity uint32) Chain {
			if endpoints.Value() == VerdictValue {
				return Chain{Rules: []Rule{{Dispatch{endpoints, capacity}}}}
			}
			return Chain{Rules: []Rule{{DrawEndpoint{endpoints, capacity}}}}
		}
		first := drawn(1)
		first.Name = chainName(endpoints, 1)
		if got := ChainsByName(first.Name); !reflect.DeepEqual(got, []Chain{first}) {
			t.Errorf("the chains of %s are %+v", first.Name, got)
		}
		for _, capacity := range []int{2, 5, 1024} {
			name := chainName(endpoints, capacity)
			draw := drawn(uint32(capacity))
			draw.Name = "draw-" + name
			want := Chain{Name: name, Rules: append(slices.Repeat([]Rule{{Jump{draw.Name}}}, tries(capacity)), Rule{Jump{first.Name}})}
			if got := ChainsByName(name); !reflect.DeepEqual(got, []Chain{draw, first, want}) {
				t.Errorf("the chains of %s are %+v", name, got)
			}
			if got := ChainsByName(draw.Name); !reflect.DeepEqual(got, []Chain{draw}) {
				t.Errorf("the chains of %s are %+v", draw.Name, got)
			}
		}
	}
	if got := ChainsByName("local-random-0"); !reflect.DeepEqual(got, []Chain{{Name: "local-random-0"}}) {
		t.Errorf("the chains of no endpoints are %+v", got)
	}
	for _, name := range []string{
		"", "services", "random-", "random--1", "local-random-01", "random-04", "random-+4", "random-x", "random-4294967296", "Random-4",
		"draw-", "draw-random-1", "draw-random-0", "draw-draw-random-4", "draw-services",
	} {
		if got := ChainsByName(name); got != nil {
			t.Errorf("%q is the chain %+v", name, got)
		}
	}
}

// Traffic to ClusterIPs is marked for masquerading if it comes from outside the
// cluster, and traffic to external frontends of policy Local goes to endpoints on
// this node if it comes from outside and not from this node. An address of this node
// within a range counts as that of a pod. Without a range nobody knows what is outside,
// and outside the range of all addresses there is nothing.
func TestServiceRules(t *testing.T) {
	cidrs := func(list ...string) Config {
		var cfg Config
		for _, s := range list {
			cfg.ClusterCIDRs = append(cfg.ClusterCIDRs, netip.MustParsePrefix(s))
		}
		return cfg
	}
	const (
		cluster  = "KEY @masquerade-ips MARK 0x00004000\n"
		node     = "fib saddr type local KEY @masquerade-node-ips MARK 0x00004000\n"
		dispatch = "KEY vmap @service-ips\nip daddr @nodeport-ips jump nodeports\n"
		external = cluster + node + dispatch
	)
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"no range", Config{}, "fib saddr type != local KEY vmap @local-service-ips\n" + external},
		{"a range of the other family", cidrs("fd00::/8"), "fib saddr type != local KEY vmap @local-service-ips\n" + external},
		{"all addresses", cidrs("10.0.0.0/8", "0.0.0.0/0"), cluster + dispatch},
		{"ranges", cidrs("10.0.0.0/8", "fd00::/8", "172.16.0.0/12"),
			"fib saddr type != local ip saddr != 10.0.0.0/8 ip saddr != 172.16.0.0/12 KEY vmap @local-service-ips\n" +
				"ip daddr @cluster-ips ip saddr != 10.0.0.0/8 ip saddr != 172.16.0.0/12 MARK 0x00004000\n" +
				cluster + strings.Replace(node, "local", "local ip saddr != 10.0.0.0/8 ip saddr != 172.16.0.0/12", 1) + dispatch},
		{"everything", Config{MasqueradeAll: true},
			"fib saddr type != local KEY vmap @local-service-ips\nip daddr @cluster-ips MARK 0x00004000\n" + external},
		{"another bit", Config{MasqueradeAll: true, MasqueradeMark: 1},
			"fib saddr type != local KEY vmap @local-service-ips\nip daddr @cluster-ips MARK 0x00000001\n" +
				strings.ReplaceAll(external, "0x00004000", "0x00000001")},
	} {
		skeleton := Skeleton(c.cfg, IPv4)
		chain := skeleton[slices.IndexFunc(skeleton, func(c Chain) bool { return c.Name == chainServices })]
		var text strings.Builder
		for _, rule := range chain.Rules {
			text.Write(append(rule.AppendText(nil, IPv4), '\n'))
		}
		got := strings.NewReplacer("ip daddr . meta l4proto . th dport", "KEY", "meta mark set meta mark |", "MARK").Replace(text.String())
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (want -, got +):\n%s", c.name, diff)
		}
	}
}

// limitedWriter fails once it has no more room.
type limitedWriter struct {
	room int
	err  error
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if w.room -= len(p); w.room < 0 {
		return 0, w.err
	}
	return len(p), nil
}

// A writer that fails, early or late, fails the whole.
func TestWriteErrorsAreReturned(t *testing.T) {
	r := NewRuleset(Config{}, []*Compiled{compile(t, service(200, "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), nil)})
	full := errors.New("full")
	for _, room := range []int{0, 100_000} {
		if err := r.WriteText(&limitedWriter{room, full}); !errors.Is(err, full) {
			t.Errorf("room for %d bytes: WriteText says %v", room, err)
		}
		if err := r.WriteJSON(&limitedWriter{room, full}); !errors.Is(err, full) {
			t.Errorf("room for %d bytes: WriteJSON says %v", room, err)
		}
	}
}
