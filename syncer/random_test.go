package syncer_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/nstest"
	"github.com/nftproxy/nftproxy/syncer/synctest"
)

// TestRandomChanges applies random changes of everything that there is, with faults.
// After each that succeeded the kernel holds what is wanted, and that is what a Syncer
// without a past would want.
func TestRandomChanges(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			memory := &syncer.Memory{}
			faulty := synctest.NewKernel(memory)
			s := newSyncer(t, faulty, rules.Config{})
			objects := randomObjects{
				services: map[rules.ServicePortKey]*rules.ServicePort{}, nodes: map[rules.Family]rules.Node{},
			}
			for range 50 {
				if random.IntN(4) == 0 {
					faulty.Inject([]synctest.Fault{synctest.LoseBatch, synctest.LoseAnswer}[random.IntN(2)])
				}
				changes := objects.change(t, random, s)
				write := s.Sync
				if random.IntN(10) == 0 {
					write = s.Resync
				}
				_, err := write(t.Context(), changes)
				for err != nil {
					_, err = s.Sync(t.Context(), nil)
				}
				checkMemory(t, memory, s)
				objects.check(t, s)
			}
		})
	}
}

// randomObjects are what a Syncer was told.
type randomObjects struct {
	cfg      rules.Config
	services map[rules.ServicePortKey]*rules.ServicePort
	nodes    map[rules.Family]rules.Node
}

// change makes random changes. It tells the Syncer of the node and the configuration and
// returns those of service ports.
func (o *randomObjects) change(t *testing.T, random *rand.Rand, s *syncer.Syncer) []syncer.Change {
	t.Helper()
	if random.IntN(10) == 0 {
		node := randomNode(random)
		if err := s.SetNode(node); err != nil {
			t.Fatal(err)
		}
		o.nodes[node.Family] = node
	}
	if random.IntN(20) == 0 {
		o.cfg = randomConfig(random)
		if err := s.Configure(o.cfg); err != nil {
			t.Fatal(err)
		}
	}
	var changes []syncer.Change
	for range random.IntN(4) {
		sp := randomService(random)
		changes = append(changes, set(sp)...)
		o.services[sp.ServicePortKey] = sp
		if random.IntN(4) == 0 {
			changes = append(changes, gone(sp)...)
			delete(o.services, sp.ServicePortKey)
		}
	}
	return changes
}

// check compares what the Syncer wants with what one without a past would: the same, but
// for the numbers of slots and the sizes of their tables.
func (o *randomObjects) check(t *testing.T, s *syncer.Syncer) {
	t.Helper()
	var compiled []*rules.Compiled
	for _, sp := range o.services {
		c, err := rules.Compile(o.cfg, *sp, nil)
		if err != nil {
			t.Fatal(err)
		}
		compiled = append(compiled, c)
	}
	for _, node := range o.nodes {
		c, err := rules.CompileNode(node)
		if err != nil {
			t.Fatal(err)
		}
		compiled = append(compiled, c)
	}
	fresh, wanted := rules.NewRuleset(o.cfg, compiled), s.Wanted()
	for _, f := range rules.Families() {
		if want, got := essence(fresh, f), essence(wanted, f); !slices.Equal(want, got) {
			t.Fatalf("what is wanted (+) is not what would be wanted afresh (-) of %s:\n%s", f, cmp.Diff(want, got))
		}
	}
}

// essence returns what a ruleset says, sorted, without the numbers of slots and the sizes
// of their tables, which depend on the past.
func essence(r *rules.Ruleset, f rules.Family) []string {
	var lines []string
	for _, e := range r.Elements(f) {
		e.Key.Slot = 0
		if !strings.HasPrefix(e.Chain, "endpoint-") { // ends in a capacity
			e.Chain = strings.TrimRight(e.Chain, "0123456789")
		}
		lines = append(lines, fmt.Sprintf("%s { %s }", e.Set.Set().Name, e.AppendText(nil)))
	}
	for name, text := range declarations(r.Sets(f), f) {
		lines = append(lines, name+" "+text)
	}
	for name, text := range chainTexts(r.Chains(f), f) {
		if rules.ChainsByName(name) == nil {
			lines = append(lines, name+" "+text)
		}
	}
	slices.Sort(lines)
	return lines
}

// randomService returns one of 8 Services of each family, with any kinds of frontends,
// policies and endpoints, with and without affinity.
func randomService(random *rand.Rand) *rules.ServicePort {
	f := rules.Families()[random.IntN(2)]
	n := random.IntN(8)
	sp := service(n, f, random.Perm(12)[:random.IntN(12)]...)
	for i := range sp.Endpoints {
		sp.Endpoints[i].Weight = uint16(random.IntN(4))
		if sp.Endpoints[i].Local && random.IntN(2) == 0 {
			sp.LocalEndpoints = append(sp.LocalEndpoints, sp.Endpoints[i])
		}
	}
	sp.InternalLocal, sp.ExternalLocal, sp.Served = random.IntN(4) == 0, random.IntN(4) == 0, random.IntN(2) == 0
	if random.IntN(2) == 0 {
		sp.Frontends = append(sp.Frontends, rules.Frontend{Kind: rules.NodePort, Addr: nodePort(f, uint16(30_000+n))})
	}
	for i := range random.IntN(3) {
		kind := []rules.FrontendKind{rules.ExternalIP, rules.LoadBalancerIP}[i]
		sp.Frontends = append(sp.Frontends, rules.Frontend{Kind: kind, Addr: addrPort(f, byte(113+i), n, 80)})
	}
	if sp.Restricted = random.IntN(4) == 0; sp.Restricted {
		for i := range random.IntN(3) {
			source := addrPort(f, 1, i, 1).Addr()
			sp.SourceRanges = append(sp.SourceRanges, netip.PrefixFrom(source, source.BitLen()-random.IntN(3)).Masked())
		}
	}
	if random.IntN(3) == 0 {
		sp.Affinity = time.Duration(1+random.IntN(2)) * time.Hour
	}
	return sp
}

func randomNode(random *rand.Rand) rules.Node {
	n := rules.Node{Family: rules.Families()[random.IntN(2)]}
	for _, host := range random.Perm(4)[:random.IntN(4)] {
		n.NodePortIPs = append(n.NodePortIPs, addrPort(n.Family, 1, host, 1).Addr())
	}
	for range random.IntN(4) { // side by side, one within another, up to the last address
		addr := addrPort(n.Family, 96, random.IntN(4)<<8, 1).Addr()
		if random.IntN(4) == 0 {
			addr = map[rules.Family]netip.Addr{rules.IPv4: netip.MustParseAddr("255.255.255.255"), rules.IPv6: netip.MustParseAddr("ffff::")}[n.Family]
		}
		bits := addr.BitLen() - 8 - random.IntN(2)
		if addr.Is6() && random.IntN(4) == 0 {
			bits = 8
		}
		n.ServiceCIDRs = append(n.ServiceCIDRs, netip.PrefixFrom(addr, bits).Masked())
	}
	return n
}

func randomConfig(random *rand.Rand) rules.Config {
	cfg := rules.Config{MasqueradeAll: random.IntN(2) == 0, NodePortsEverywhere: rules.Families()[:random.IntN(3)]}
	switch random.IntN(3) {
	case 0:
		cfg.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:f4::/32")}
	case 1:
		cfg.PodInterfacePrefix = "veth"
	}
	return cfg
}

// TestKernelEqualsWanted runs random changes against the real kernel, then compares
// its listing with the wanted ruleset.
func TestKernelEqualsWanted(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	ns := nstest.New(t)
	s := newSyncer(t, newNetlink(t, ns), rules.Config{MasqueradeAll: true})
	for i := range 300 {
		if i%5 == 0 {
			if err := s.SetNode(randomNode(random)); err != nil {
				t.Fatal(err)
			}
		}
		mustSync(t, s, set(randomService(random)))
	}
	// Chains stay until the next resync once they were used.
	if _, err := s.Resync(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	checkListing(t, ns, s)
	if err := s.Configure(randomConfig(random)); err != nil {
		t.Fatal(err)
	}
	mustSync(t, s, nil)
	checkListing(t, ns, s)
}

// TestBatchTextLoads replays what is printed of each batch with the real nft, which
// must lead to the same ruleset.
func TestBatchTextLoads(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	faulty := synctest.NewKernel(&syncer.Memory{})
	s := newSyncer(t, faulty, rules.Config{MasqueradeAll: true})
	ns := nstest.New(t)
	for range 10 { // nft sends all in one message, which may not be large without root
		sp := randomService(random)
		if sp.Family == rules.IPv6 {
			sp.Affinity = 0 // nft 1.0.6 aborts when it reads the rules
		}
		mustSync(t, s, set(sp))
	}
	if _, err := s.Resync(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, b := range faulty.Applied() {
		all.WriteString(b.String())
	}
	ns.MustNFT(t, all.String(), "-f", "-")
	checkListing(t, ns, s)
}

// checkListing compares what the kernel lists with what is wanted.
func checkListing(t *testing.T, ns *nstest.NS, s *syncer.Syncer) {
	t.Helper()
	if diff := cmp.Diff(wantedListing(t, s), ns.Listing(t)); diff != "" {
		t.Fatalf("the kernel (+) does not list what is wanted (-):\n%s", diff)
	}
}

// wantedListing returns the listing of what is wanted. That nft lists a ruleset as
// WriteJSON prints it is tested where that is made.
func wantedListing(t *testing.T, s *syncer.Syncer) []string {
	t.Helper()
	var text strings.Builder
	if err := s.Wanted().WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	return nstest.Normalize(t, []byte(text.String()))
}
