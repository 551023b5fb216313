package syncer_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// kernels runs a test against the real kernel and against its model.
func kernels(t *testing.T, test func(t *testing.T, k syncer.Kernel)) {
	t.Run("netlink", func(t *testing.T) { test(t, newNetlink(t, nstest.New(t))) })
	t.Run("memory", func(t *testing.T) { test(t, &syncer.Memory{}) })
}

func newNetlink(tb testing.TB, ns *nstest.NS) *syncer.Netlink {
	tb.Helper()
	k, err := syncer.NewNetlink(ns.FD())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := k.Close(); err != nil {
			tb.Error(err)
		}
	})
	return k
}

func batch(ops ...syncer.Op) *syncer.Batch {
	b := &syncer.Batch{}
	b.Add(ops...)
	return b
}

// TestKernelContract says what a kernel takes and what it refuses: the real one
// and the model must agree on every line.
func TestKernelContract(t *testing.T) {
	const f = rules.IPv4
	element := func(slot uint32, endpoint int) rules.Element {
		return rules.Element{Set: rules.Endpoints, Key: key(1, slot), Endpoint: addrPort(f, 244, endpoint, 80)}
	}
	table := syncer.Op{Verb: syncer.AddTable, Family: f}
	endpoints := syncer.Op{Verb: syncer.AddSet, Family: f, Decl: rules.Endpoints.Set()}
	verdicts := syncer.Op{Verb: syncer.AddSet, Family: f, Decl: rules.ServiceIPs.Set()}
	add := func(e ...rules.Element) syncer.Op {
		return syncer.Op{Verb: syncer.AddElements, Family: f, Set: e[0].Set, Elements: e}
	}
	del := func(e ...rules.Element) syncer.Op {
		return syncer.Op{Verb: syncer.DeleteElements, Family: f, Set: e[0].Set, Elements: e}
	}
	chain := func(name string) syncer.Op {
		return syncer.Op{Verb: syncer.AddChain, Family: f, Chain: rules.Chain{Name: name}}
	}
	rule := func(chain string, r ...rules.Statement) syncer.Op {
		return syncer.Op{Verb: syncer.AddRule, Family: f, Name: chain, Rule: r}
	}
	named := func(verb syncer.Verb, name string) syncer.Op { return syncer.Op{Verb: verb, Family: f, Name: name} }
	dispatch := rules.Element{Set: rules.ServiceIPs, Key: key(1, 0), Chain: "random-1"}
	draw := rules.DrawEndpoint{Map: rules.Endpoints, Capacity: 1}

	firewall := syncer.Op{Verb: syncer.AddSet, Family: f, Decl: rules.AllowedSources.Set()}
	source := func(prefix string) rules.Element {
		k := key(1, 0)
		k.Range = netip.MustParsePrefix(prefix)
		return rules.Element{Set: rules.AllowedSources, Key: k}
	}
	clients := func(decl rules.Set) syncer.Op { return syncer.Op{Verb: syncer.AddSet, Family: f, Decl: decl} }
	affinity := rules.Set{Name: "affinity-1", Key: []rules.Field{rules.SourceAddr}, Value: rules.EndpointValue, Clients: 1024}
	otherwise := func(change func(s *rules.Set)) syncer.Op {
		s := affinity
		change(&s)
		return clients(s)
	}
	remember := rules.RememberClient{Map: "affinity-1", Endpoint: addrPort(f, 244, 1, 80), Timeout: time.Hour}
	recall := rules.DNATRemembered{Map: "affinity-1"}
	slot := rules.Element{Set: rules.AffinityEndpoints, Key: key(1, 0), Chain: "endpoint-1"}
	affine := []syncer.Op{
		clients(affinity), clients(rules.AffinityEndpoints.Set()), chain("endpoint-1"), rule("endpoint-1", remember), rule("endpoint-1", recall), add(slot),
	}
	withAffinity := func(ops ...syncer.Op) *syncer.Batch { return batch(slices.Concat(affine, ops)...) }
	ranges := syncer.Op{Verb: syncer.AddSet, Family: f, Decl: rules.ServiceCIDRs.Set()}
	ranges6 := []syncer.Op{{Verb: syncer.AddTable, Family: rules.IPv6}, {Verb: syncer.AddSet, Family: rules.IPv6, Decl: rules.ServiceCIDRs.Set()}}
	cidrs := func(verb syncer.Verb, prefixes ...string) syncer.Op {
		op := syncer.Op{Verb: verb, Set: rules.ServiceCIDRs}
		for _, p := range prefixes {
			prefix := netip.MustParsePrefix(p)
			op.Family = rules.FamilyOf(prefix.Addr())
			op.Elements = append(op.Elements, rules.Element{Set: rules.ServiceCIDRs, Key: rules.Key{Range: prefix}})
		}
		return op
	}
	withRanges := func(ops ...syncer.Op) *syncer.Batch {
		return batch(slices.Concat(ranges6, []syncer.Op{ranges, cidrs(syncer.AddElements, "10.96.0.0/16", "10.97.0.0/16"), cidrs(syncer.AddElements, "fd00::/112")}, ops)...)
	}
	base := batch(table, endpoints, verdicts, chain("random-1"), chain("services"),
		rule("random-1", draw), rule("services", rules.Dispatch{Map: rules.ServiceIPs}),
		add(element(0, 1)), add(dispatch))
	tests := map[string]struct {
		batch *syncer.Batch
		taken bool
	}{
		"nothing":                                {batch(), true},
		"a table that exists":                    {batch(table), true},
		"a new slot":                             {batch(add(element(1, 2))), true},
		"a slot with another endpoint":           {batch(del(element(0, 1)), add(element(0, 2))), true},
		"a filled slot":                          {batch(add(element(0, 2))), false},
		"the same element again":                 {batch(add(element(0, 1))), true},
		"the same verdict again":                 {batch(add(dispatch)), true},
		"ranges side by side":                    {batch(firewall, add(source("10.0.0.0/9"), source("10.128.0.0/9"))), true},
		"a range within another":                 {batch(firewall, add(source("10.0.0.0/8"), source("10.1.0.0/16"))), false},
		"deleting a range":                       {batch(firewall, add(source("10.0.0.0/8")), del(source("10.0.0.0/8"))), true},
		"the same slot twice":                    {batch(add(element(1, 1)), add(element(1, 2))), false},
		"deleting a slot":                        {batch(del(element(0, 1))), true},
		"deleting an empty slot":                 {batch(del(element(7, 1))), false},
		"an element of a missing set":            {batch(add(rules.Element{Set: rules.Hairpin, Key: key(1, 0)})), false},
		"a verdict to a missing chain":           {batch(add(rules.Element{Set: rules.ServiceIPs, Key: key(2, 0), Chain: "random-9"})), false},
		"a verdict to a chain of the same batch": {batch(chain("random-9"), add(rules.Element{Set: rules.ServiceIPs, Key: key(2, 0), Chain: "random-9"})), true},
		"a verdict before its chain":             {batch(add(rules.Element{Set: rules.ServiceIPs, Key: key(2, 0), Chain: "random-9"}), chain("random-9")), false},
		"a rule in a missing chain":              {batch(rule("nowhere", rules.Reject{})), false},
		"a rule with a missing set":              {batch(rule("services", rules.MatchSet{Set: rules.Hairpin})), false},
		"a jump to a missing chain":              {batch(rule("services", rules.Jump{Chain: "nowhere"})), false},
		"deleting a chain in use by an element":  {batch(named(syncer.DeleteChain, "random-1")), false},
		"deleting a chain whose element goes":    {batch(del(dispatch), named(syncer.DeleteChain, "random-1")), true},
		"deleting a chain whose set is flushed":  {batch(named(syncer.FlushSet, "service-ips"), named(syncer.DeleteChain, "random-1")), true},
		"deleting a missing chain":               {batch(named(syncer.DeleteChain, "nowhere")), false},
		"deleting a set in use by a rule":        {batch(named(syncer.DeleteSet, "endpoints")), false},
		"deleting a set after its rules":         {batch(syncer.Op{Verb: syncer.FlushTable, Family: f}, named(syncer.DeleteSet, "endpoints")), true},
		"making a set anew": {batch(syncer.Op{Verb: syncer.FlushTable, Family: f},
			named(syncer.FlushSet, "endpoints"), named(syncer.DeleteSet, "endpoints"), endpoints, add(element(0, 2))), true},
		"flushing a missing set": {batch(named(syncer.FlushSet, "nothing")), false},
		"good and bad together":  {batch(add(element(1, 1)), add(element(0, 2))), false},

		"a map of clients again":                       {withAffinity(clients(affinity)), true},
		"a set that exists":                            {batch(endpoints), true},
		"it with another size":                         {withAffinity(otherwise(func(s *rules.Set) { s.Clients = 2048 })), true},
		"it as one that rules do not fill":             {withAffinity(otherwise(func(s *rules.Set) { s.Clients = 0 })), false},
		"it as a set":                                  {withAffinity(otherwise(func(s *rules.Set) { s.Value = rules.NoValue })), false},
		"it with other values":                         {withAffinity(otherwise(func(s *rules.Set) { s.Value = rules.VerdictValue })), false},
		"it with a longer key":                         {withAffinity(otherwise(func(s *rules.Set) { s.Key = []rules.Field{rules.SourceAddr, rules.L4Proto} })), false},
		"it with a key of another type":                {withAffinity(otherwise(func(s *rules.Set) { s.Key = []rules.Field{rules.Slot} })), false},
		"it with another field of the same type":       {withAffinity(otherwise(func(s *rules.Set) { s.Key = []rules.Field{rules.DestAddr} })), true},
		"it with ranges":                               {withAffinity(otherwise(func(s *rules.Set) { s.Key = []rules.Field{rules.SourceRange} })), false},
		"remembering in a missing map":                 {batch(chain("endpoint-1"), rule("endpoint-1", remember)), false},
		"recalling from a missing map":                 {batch(chain("endpoint-1"), rule("endpoint-1", recall)), false},
		"deleting a map of clients in use":             {withAffinity(named(syncer.DeleteSet, "affinity-1")), false},
		"flushing a chain":                             {withAffinity(named(syncer.FlushChain, "endpoint-1")), true},
		"flushing a missing chain":                     {batch(named(syncer.FlushChain, "endpoint-1")), false},
		"other rules for a chain":                      {withAffinity(named(syncer.FlushChain, "endpoint-1"), rule("endpoint-1", recall)), true},
		"deleting a map after a chain is flushed":      {withAffinity(named(syncer.FlushChain, "endpoint-1"), named(syncer.DeleteSet, "affinity-1")), true},
		"deleting a flushed chain in use":              {withAffinity(named(syncer.FlushChain, "endpoint-1"), named(syncer.DeleteChain, "endpoint-1")), false},
		"deleting a chain, flushed, with its slot":     {withAffinity(del(slot), named(syncer.FlushChain, "endpoint-1"), named(syncer.DeleteChain, "endpoint-1")), true},
		"deleting a chain that is flushed before":      {withAffinity(named(syncer.FlushChain, "endpoint-1"), del(slot), named(syncer.DeleteChain, "endpoint-1")), true},
		"deleting a chain with its rules":              {withAffinity(del(slot), named(syncer.DeleteChain, "endpoint-1")), true},
		"deleting a map after the chains that use it":  {withAffinity(del(slot), named(syncer.DeleteChain, "endpoint-1"), named(syncer.DeleteSet, "affinity-1")), true},
		"deleting a map before the chains that use it": {withAffinity(del(slot), named(syncer.DeleteSet, "affinity-1"), named(syncer.DeleteChain, "endpoint-1")), false},

		"ranges of ClusterIPs":                    {withRanges(), true},
		"one more, beside them":                   {withRanges(cidrs(syncer.AddElements, "10.95.0.0/16")), true},
		"one of them again":                       {withRanges(cidrs(syncer.AddElements, "10.96.0.0/16")), true},
		"one within them":                         {withRanges(cidrs(syncer.AddElements, "10.96.1.0/24")), false},
		"one around them":                         {withRanges(cidrs(syncer.AddElements, "10.96.0.0/15")), false},
		"one within them, with its beginning":     {withRanges(cidrs(syncer.AddElements, "10.96.0.0/24")), false},
		"one within them, with its end":           {withRanges(cidrs(syncer.AddElements, "10.97.255.0/24")), false},
		"deleting the first of two side by side":  {withRanges(cidrs(syncer.DeleteElements, "10.96.0.0/16")), true},
		"deleting the second of two side by side": {withRanges(cidrs(syncer.DeleteElements, "10.97.0.0/16")), true},
		"deleting both":                           {withRanges(cidrs(syncer.DeleteElements, "10.96.0.0/16", "10.97.0.0/16")), true},
		"deleting one that is not there":          {withRanges(cidrs(syncer.DeleteElements, "10.98.0.0/16")), false},
		"deleting a part of one":                  {withRanges(cidrs(syncer.DeleteElements, "10.96.0.0/24")), false},
		"two in place of one":                     {withRanges(cidrs(syncer.DeleteElements, "10.96.0.0/16"), cidrs(syncer.AddElements, "10.96.0.0/24", "10.96.1.0/24")), true},
		"one in place of two":                     {withRanges(cidrs(syncer.DeleteElements, "10.96.0.0/16", "10.97.0.0/16"), cidrs(syncer.AddElements, "10.96.0.0/15")), true},
		"one to the last address":                 {withRanges(cidrs(syncer.AddElements, "255.255.0.0/16")), true},
		"deleting one to the last address":        {withRanges(cidrs(syncer.AddElements, "255.255.0.0/16"), cidrs(syncer.DeleteElements, "255.255.0.0/16")), true},
		"every address":                           {batch(ranges, cidrs(syncer.AddElements, "0.0.0.0/0")), true},
		"a single address":                        {withRanges(cidrs(syncer.AddElements, "10.98.0.1/32", "10.98.0.2/32")), true},
		"a range of IPv6, beside":                 {withRanges(cidrs(syncer.AddElements, "fd00::1:0/112")), true},
		"a range of IPv6, within":                 {withRanges(cidrs(syncer.AddElements, "fd00::/120")), false},
		"deleting a range of IPv6":                {withRanges(cidrs(syncer.DeleteElements, "fd00::/112")), true},
		"IPv6 to the last address":                {withRanges(cidrs(syncer.AddElements, "ffff::/16"), cidrs(syncer.DeleteElements, "ffff::/16")), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			kernels(t, func(t *testing.T, k syncer.Kernel) {
				ctx := t.Context()
				if err := k.Apply(ctx, base); err != nil {
					t.Fatal(err)
				}
				checkOutcome(t, "check", k.Check(ctx, test.batch), test.taken)
				// A check changes nothing, so applying comes out the same, and so does a
				// refused batch a second time.
				checkOutcome(t, "apply", k.Apply(ctx, test.batch), test.taken)
				if !test.taken {
					checkOutcome(t, "apply again", k.Apply(ctx, test.batch), false)
				}
			})
		})
	}
}

func checkOutcome(t *testing.T, what string, err error, taken bool) {
	t.Helper()
	var kernelErr *syncer.Error
	switch {
	case taken && err != nil:
		t.Errorf("%s: %v", what, err)
	case !taken && err == nil:
		t.Errorf("%s: not refused", what)
	case !taken && (!errors.As(err, &kernelErr) || kernelErr.Cause != syncer.Refused):
		t.Errorf("%s: not a refusal: %v", what, err)
	}
}

func TestStateListsOurObjectsOnly(t *testing.T) {
	ns := nstest.New(t)
	k := newNetlink(t, ns)
	ns.MustNFT(t, `
		table ip other { chain nat-prerouting { type nat hook prerouting priority -100; }; set cluster-ips { type ipv4_addr; }; }
		table ip nftproxy {
			set old { type ipv4_addr; }
			chain c {}
			chain nat-output { type nat hook output priority -100; ip daddr { 1.2.3.4, 5.6.7.8 } accept; }
			chain strict { type filter hook input priority 0; policy drop; }
		}`, "-f", "-")
	state, err := k.State(t.Context(), rules.Families())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := state[rules.IPv6]; ok {
		t.Error("a table of IPv6 is listed")
	}
	got := state[rules.IPv4]
	if isMap, ok := got.Sets["old"]; len(got.Sets) != 1 || !ok || isMap {
		t.Errorf("sets: %v", got.Sets)
	}
	if c, ok := got.Chains["c"]; !ok || c != nil || len(got.Chains) != 3 {
		t.Errorf("chains: %v", got.Chains)
	}
	if hook := got.Chains["nat-output"]; *hook != (rules.Hook{Type: rules.NATChain, Point: rules.Output, Priority: -100}) {
		t.Errorf("hook of nat-output: %+v", hook)
	}
	if hook := got.Chains["strict"]; hook.Type == rules.FilterChain {
		t.Errorf("a chain with policy drop looks like one with policy accept: %+v", hook)
	}
}

func TestProbe(t *testing.T) {
	ns := nstest.New(t)
	k := newNetlink(t, ns)
	if err := k.Probe(t.Context(), rules.Config{MasqueradeAll: true}); err != nil {
		t.Fatal(err)
	}
	if listing := ns.MustNFT(t, "", "list", "ruleset"); listing != "" {
		t.Errorf("the probe left something behind:\n%s", listing)
	}
}

// TestProbeNamesWhatIsMissing asks kernels that lack something.
func TestProbeNamesWhatIsMissing(t *testing.T) {
	lacks := func(lacks func(syncer.Op) bool) fakeKernel { return fakeKernel{lacks: lacks} }
	tests := map[string]struct {
		kernel fakeKernel
		want   string
	}{
		"nf_tables":    {fakeKernel{stateErr: &syncer.Error{Op: "list", Cause: syncer.Refused, Err: syscall.EOPNOTSUPP}}, "the kernel has no nf_tables"},
		"privileges":   {fakeKernel{stateErr: &syncer.Error{Op: "list", Cause: syncer.Forbidden, Err: syscall.EPERM}}, "forbidden"},
		"maps":         {lacks(func(op syncer.Op) bool { return op.Verb == syncer.AddSet && op.Decl.Name == "endpoints" }), `cannot do "add map ip nftproxy endpoints`},
		"nat chains":   {lacks(func(op syncer.Op) bool { return op.Verb == syncer.AddChain && op.Chain.Name == "nat-output" }), `cannot do "add chain ip nftproxy nat-output`},
		"numgen":       {lacksStatement(func(s rules.Statement) bool { _, ok := s.(rules.DrawEndpoint); return ok }), "numgen random mod 2 map @endpoints"},
		"masquerading": {lacksStatement(func(s rules.Statement) bool { _, ok := s.(rules.Masquerade); return ok }), "masquerade fully-random"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := syncer.Examine(t.Context(), rules.Config{}.WithDefaults(), test.kernel)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "probe the kernel: ") {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
		})
	}
	if err := syncer.Examine(t.Context(), rules.Config{}.WithDefaults(), fakeKernel{}); err != nil {
		t.Errorf("a kernel that lacks nothing: %v", err)
	}
}

// fakeKernel refuses batches with an operation that it lacks.
type fakeKernel struct {
	stateErr error
	lacks    func(syncer.Op) bool
}

func lacksStatement(is func(rules.Statement) bool) fakeKernel {
	return fakeKernel{lacks: func(op syncer.Op) bool {
		return op.Verb == syncer.AddRule && slices.ContainsFunc(op.Rule, is)
	}}
}

func (k fakeKernel) State(context.Context, []rules.Family) (syncer.State, error) {
	return nil, k.stateErr
}

func (k fakeKernel) Check(_ context.Context, b *syncer.Batch) error {
	if k.lacks != nil && slices.ContainsFunc(b.Ops(), k.lacks) {
		return &syncer.Error{Op: "check", Cause: syncer.Refused, Err: syscall.EOPNOTSUPP}
	}
	return nil
}

func TestCanceledContext(t *testing.T) {
	k := newNetlink(t, nstest.New(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	table := batch(syncer.Op{Verb: syncer.AddTable, Family: rules.IPv4})
	var err *syncer.Error
	if !errors.As(k.Apply(ctx, table), &err) || err.Cause != syncer.Unknown {
		t.Errorf("error: %v", err)
	}
	if err := k.Apply(t.Context(), table); err != nil {
		t.Errorf("the next batch: %v", err)
	}
}
