package syncer_test

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/nstest"
	"github.com/nftproxy/nftproxy/syncer/synctest"
)

// TestOperationCounts says what each kind of change costs.
func TestOperationCounts(t *testing.T) {
	twoFrontends := func(sp *rules.ServicePort) *rules.ServicePort {
		sp.Frontends = append(sp.Frontends, rules.Frontend{Kind: rules.ClusterIP, Addr: addrPort(rules.IPv4, 96, 999, 80)})
		return sp
	}
	weighted := func(sp *rules.ServicePort, weights ...uint16) *rules.ServicePort {
		for i := range sp.Endpoints {
			sp.Endpoints[i].Weight = weights[i]
		}
		return sp
	}
	const v4 = rules.IPv4
	balancer := func(f rules.Family, endpoints int) *rules.ServicePort {
		sp := service(1, f)
		sp.ExternalLocal = true
		for i := range 3 {
			sp.Frontends = append(sp.Frontends, rules.Frontend{Kind: rules.LoadBalancerIP, Addr: addrPort(f, 113, i+1, 80)})
		}
		for i := range endpoints {
			sp.Endpoints = append(sp.Endpoints, rules.Endpoint{Addr: addrPort(f, 244, i, 8080), Weight: 1, Local: true})
		}
		sp.LocalEndpoints = sp.Endpoints
		return sp
	}
	// everywhere is Service 1 with a ClusterIP, a NodePort and load-balancer IPs.
	everywhere := func(balancers int, endpoints ...int) *rules.ServicePort {
		sp := remote(v4, endpoints...)
		sp.Frontends = append(sp.Frontends, rules.Frontend{Kind: rules.NodePort, Addr: nodePort(v4, 30_080)})
		for i := range balancers {
			sp.Frontends = append(sp.Frontends, rules.Frontend{Kind: rules.LoadBalancerIP, Addr: addrPort(v4, 113, i+1, 80)})
		}
		return sp
	}
	sticky := func(hours int, endpoints ...int) *rules.ServicePort { // three frontends
		sp := everywhere(1, endpoints...)
		sp.Affinity = time.Duration(hours) * time.Hour
		return sp
	}
	// What it takes to add the chains that draw from 3 slots, and of these the one that
	// takes slot 0, which all capacities share.
	newSlotChain, firstSlot := 0, 2
	for _, c := range rules.SlotChains(rules.Endpoints, 3) {
		newSlotChain += 1 + len(c.Rules)
	}
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	tests := map[string]struct {
		before, after *rules.ServicePort
		want          syncer.Counts
	}{
		"endpoint added":                  {remote(v4, 1, 2, 3, 4, 5, 6, 7, 8, 9), remote(v4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), syncer.Counts{Elements: 1}},
		"endpoint removed":                {remote(v4, 1, 2, 3), remote(v4, 1, 3), syncer.Counts{Elements: 1}},
		"endpoint replaced":               {remote(v4, 1, 2, 3), remote(v4, 1, 3, 4), syncer.Counts{Elements: 2}},
		"endpoint of slot 0 removed":      {remote(v4, 1, 2, 3), remote(v4, 2, 3), syncer.Counts{Elements: 3}},
		"endpoint of slot 0 replaced":     {remote(v4, 1, 2, 3), remote(v4, 2, 3, 4), syncer.Counts{Elements: 2}},
		"local endpoint added":            {remote(v4, 1, 3, 5, 7, 9, 11, 13, 15, 17), service(1, v4, 1, 3, 5, 7, 9, 11, 13, 15, 17, 18), syncer.Counts{Elements: 2}},
		"two frontends, endpoint removed": {twoFrontends(remote(v4, 1, 2, 3)), twoFrontends(remote(v4, 1, 3)), syncer.Counts{Elements: 2}},
		"capacity grows":                  {remote(v4, 1, 2), remote(v4, 1, 2, 3), syncer.Counts{Elements: 3, Verdicts: 2, Objects: newSlotChain - firstSlot}},
		"weight doubled":                  {weighted(remote(v4, 1, 2, 3), 1, 3, 6), weighted(remote(v4, 1, 2, 3), 1, 3, 5), syncer.Counts{Elements: 1}},
		"last endpoint removed":           {remote(v4, 1), remote(v4), syncer.Counts{Elements: 3, Verdicts: 1}},
		"first endpoint":                  {remote(v4), remote(v4, 1), syncer.Counts{Elements: 3, Verdicts: 1, Objects: firstSlot}},
		"new Service":                     {nil, remote(v4, 1, 2, 3), syncer.Counts{Elements: 5, Verdicts: 1, Objects: newSlotChain}},
		"deleted Service":                 {remote(v4, 1, 2, 3), nil, syncer.Counts{Elements: 5, Verdicts: 1}},
		"nothing":                         {service(1, v4, 1, 2, 3), service(1, v4, 3, 2, 1), syncer.Counts{}},
		"local endpoint of a load balancer with 3 IPs under policy Local": {balancer(v4, 100), balancer(v4, 101), syncer.Counts{Elements: 1 + 3*2 + 1}},
		"endpoint added of IPv6":               {remote(rules.IPv6, 1, 2, 3, 4, 5, 6, 7, 8, 9), remote(rules.IPv6, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), syncer.Counts{Elements: 1}},
		"back to an earlier capacity's chain":  {remote(v4, 1, 2, 3, 4), remote(v4, 1), syncer.Counts{Elements: 5, Verdicts: 2}},
		"all endpoints replaced, one capacity": {remote(v4, 1, 2, 3), remote(v4, 4, 5, 6), syncer.Counts{Elements: 6}},

		"NodePort, endpoint added":                       {everywhere(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), everywhere(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), syncer.Counts{Elements: 2}},
		"NodePort, endpoint removed":                     {everywhere(0, 1, 2, 3), everywhere(0, 1, 3), syncer.Counts{Elements: 2}},
		"NodePort, endpoint replaced":                    {everywhere(0, 1, 2, 3), everywhere(0, 1, 3, 4), syncer.Counts{Elements: 4}},
		"NodePort, last endpoint":                        {everywhere(0, 1), everywhere(0), syncer.Counts{Elements: 3 + 4, Verdicts: 2}},
		"NodePort comes":                                 {remote(v4, 1, 2, 3), everywhere(0, 1, 2, 3), syncer.Counts{Elements: 3 + 2, Verdicts: 1, Objects: newSlotChain}},
		"NodePort goes":                                  {everywhere(0, 1, 2, 3), remote(v4, 1, 2, 3), syncer.Counts{Elements: 3 + 2, Verdicts: 1}},
		"five frontends and 100 endpoints, one added":    {everywhere(3, hundred...), everywhere(3, append([]int{101}, hundred...)...), syncer.Counts{Elements: 5}},
		"five frontends and 100 endpoints, one removed":  {everywhere(3, hundred...), everywhere(3, hundred[:99]...), syncer.Counts{Elements: 5}},
		"five frontends and 100 endpoints, one replaced": {everywhere(3, hundred...), everywhere(3, append([]int{101}, hundred[1:]...)...), syncer.Counts{Elements: 5 * 2}},

		"affinity, endpoint added":    {sticky(1, 1, 2, 3, 4, 5, 6, 7, 8, 9), sticky(1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), syncer.Counts{Elements: 3, Verdicts: 3, Objects: 4}},
		"affinity, endpoint removed":  {sticky(1, 1, 2, 3), sticky(1, 1, 3), syncer.Counts{Elements: 3, Verdicts: 3, Objects: 2}},
		"affinity, endpoint replaced": {sticky(1, 1, 2, 3), sticky(1, 1, 3, 4), syncer.Counts{Elements: 6, Verdicts: 6, Objects: 4 + 2}},
		"affinity, timeout changed":   {sticky(1, 1, 2, 3), sticky(2, 1, 2, 3), syncer.Counts{Objects: 3 * 4}},
		"affinity, nothing":           {sticky(1, 1, 2, 3), sticky(1, 3, 2, 1), syncer.Counts{}},
		"affinity on":                 {everywhere(1, 1, 2, 3), sticky(1, 1, 2, 3), syncer.Counts{Elements: 3 * (2*3 + 2), Verdicts: 3 * (3 + 2), Objects: 1 + 3*4 + 2*newSlotChain}},
		"affinity off":                {sticky(1, 1, 2, 3), everywhere(1, 1, 2, 3), syncer.Counts{Elements: 3 * (2*3 + 2), Verdicts: 3 * (3 + 2), Objects: 1 + 3*2 + 2*newSlotChain}},
		"affinity, new Service":       {nil, sticky(1, 1, 2, 3), syncer.Counts{Elements: 3 * (3 + 2), Verdicts: 3 * (3 + 1), Objects: 1 + 3*4 + 2*newSlotChain}},
		"affinity, deleted Service":   {sticky(1, 1, 2, 3), nil, syncer.Counts{Elements: 3 * (3 + 2), Verdicts: 3 * (3 + 1), Objects: 1 + 3*2}},
		"affinity, last endpoint":     {sticky(1, 1), sticky(1), syncer.Counts{Elements: 3*(1+1) + 2 + 3, Verdicts: 3 * 2, Objects: 1 + 2}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			memory := &syncer.Memory{}
			s := newSyncer(t, memory, rules.Config{})
			mustSync(t, s, nil)
			var after []syncer.Change
			if test.before != nil {
				mustSync(t, s, set(test.before))
				after = gone(test.before)
			}
			if test.after != nil {
				after = set(test.after)
			}
			res := mustSync(t, s, after)
			if res.Counts != test.want {
				t.Errorf("got %+v, want %+v", res.Counts, test.want)
			}
			if wantBatches := min(1, test.want.Elements+test.want.Objects); res.Batches != wantBatches {
				t.Errorf("%d batches, want %d", res.Batches, wantBatches)
			}
			checkMemory(t, memory, s)
		})
	}
}

// TestNodeOperationCounts says what changes of the node cost, with a Service that has a
// NodePort.
func TestNodeOperationCounts(t *testing.T) {
	node := func(addrs []int, cidrs ...string) rules.Node {
		n := rules.Node{Family: rules.IPv4}
		for _, a := range addrs {
			n.NodePortIPs = append(n.NodePortIPs, addrPort(rules.IPv4, 1, a, 1).Addr())
		}
		for _, c := range cidrs {
			n.ServiceCIDRs = append(n.ServiceCIDRs, netip.MustParsePrefix(c))
		}
		return n
	}
	tests := map[string]struct {
		before, after rules.Node
		elements      int
	}{
		"nothing":                        {node([]int{1, 2}, "10.96.0.0/16"), node([]int{2, 1, 1}, "10.96.0.0/16", "10.96.1.0/24"), 0},
		"an address comes":               {node([]int{1}, "10.96.0.0/16"), node([]int{1, 2}, "10.96.0.0/16"), 1},
		"an address goes":                {node([]int{1, 2}), node([]int{1}), 1},
		"an address changes":             {node([]int{1}), node([]int{2}), 2},
		"all of two addresses go":        {node([]int{1, 2}), node(nil), 2},
		"a ServiceCIDR comes":            {node([]int{1}, "10.96.0.0/16"), node([]int{1}, "10.96.0.0/16", "10.97.0.0/16"), 1},
		"a ServiceCIDR goes":             {node([]int{1}, "10.96.0.0/16", "10.97.0.0/16"), node([]int{1}, "10.97.0.0/16"), 1},
		"a ServiceCIDR around the first": {node(nil, "10.96.0.0/16"), node(nil, "10.96.0.0/16", "10.96.0.0/15"), 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			memory := &syncer.Memory{}
			s := newSyncer(t, memory, rules.Config{})
			sp := service(1, rules.IPv4, 1, 2, 3)
			sp.Frontends = append(sp.Frontends, rules.Frontend{Kind: rules.NodePort, Addr: nodePort(rules.IPv4, 30_080)})
			var res syncer.Result
			for _, n := range []rules.Node{test.before, test.after} {
				if err := s.SetNode(n); err != nil {
					t.Fatal(err)
				}
				res = mustSync(t, s, set(sp))
				checkMemory(t, memory, s)
			}
			if want := (syncer.Counts{Elements: test.elements}); res.Counts != want || res.Batches != min(1, test.elements) || res.Full {
				t.Errorf("got %+v, want %+v", res, want)
			}
		})
	}
}

// TestSharedElements follows elements that two service ports want.
func TestSharedElements(t *testing.T) {
	memory := &syncer.Memory{}
	s := newSyncer(t, memory, rules.Config{})
	http, https := service(1, rules.IPv4, 2), service(1, rules.IPv4, 2)
	https.Port, https.Frontends[0].Addr = "https", addrPort(rules.IPv4, 96, 1, 443)
	steps := []struct {
		changes  []syncer.Change
		elements int // those of two ports: ClusterIP and hairpin once, a verdict and a slot each
	}{
		{set(http, https), 6}, {gone(http), 4}, {set(http), 6}, {gone(https), 4}, {gone(http), 0},
	}
	for i, step := range steps {
		mustSync(t, s, step.changes)
		checkMemory(t, memory, s)
		if n := len(memory.Elements(rules.IPv4)); n != step.elements {
			t.Errorf("step %d: %d elements, want %d", i, n, step.elements)
		}
	}
}

// TestAddressMovesBetweenServices gives the address of one Service to another in
// one sync, whichever sorts first.
func TestAddressMovesBetweenServices(t *testing.T) {
	for _, from := range []int{1, 2} {
		memory := &syncer.Memory{}
		s := newSyncer(t, memory, rules.Config{})
		owner, heir := service(from, rules.IPv4, 1), service(3-from, rules.IPv4, 2)
		heir.Frontends = owner.Frontends
		mustSync(t, s, set(owner))
		mustSync(t, s, append(gone(owner), set(heir)...))
		checkMemory(t, memory, s)
	}
}

// TestStart begins with whatever a kernel may hold, and ends with what is wanted.
func TestStart(t *testing.T) {
	const keptChain = `chain nat-output { type nat hook output priority -100; policy accept; };`
	tests := map[string]string{
		"nothing":                    "",
		"an empty table":             "table ip nftproxy {}",
		"a base chain as wanted":     "table ip nftproxy { " + keptChain + " }",
		"other priority":             "table ip nftproxy { chain nat-output { type nat hook output priority -90; }; }",
		"other policy":               "table ip nftproxy { chain filter-input { type filter hook input priority 0; policy drop; }; }",
		"a base chain made regular":  "table ip nftproxy { chain nat-output { accept; }; }",
		"a regular chain made base":  "table ip6 nftproxy { chain services { type nat hook output priority -100; }; }",
		"a set of another type":      "table ip nftproxy { set endpoints { type inet_service; elements = { 80 }; }; chain services { tcp dport @endpoints accept; }; }",
		"a set that is in use":       "table ip nftproxy { set old { type inet_service; }; chain old { tcp dport @old accept; }; chain older { jump old; }; }",
		"anonymous sets":             "table ip nftproxy { chain services { tcp dport { 80, 443 } accept; tcp dport vmap { 1 : drop }; }; }",
		"a chain that elements need": "table ip nftproxy { map service-ips { type ipv4_addr . inet_proto . inet_service : verdict; elements = { 10.0.0.1 . tcp . 80 : goto old }; }; chain old { accept; }; }",
		"another program's table":    "table inet filter { chain input { type filter hook input priority 0; accept; }; }",
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			ns := nstest.New(t)
			ns.MustNFT(t, text, "-f", "-")
			_, others := split(ns.Listing(t))
			s := newSyncer(t, newNetlink(t, ns), rules.Config{})
			mustSync(t, s, set(service(1, rules.IPv4, 1, 2, 3), service(1, rules.IPv6, 1)))
			ours, othersNow := split(ns.Listing(t))
			if diff := cmp.Diff(others, othersNow); diff != "" {
				t.Errorf("other tables changed:\n%s", diff)
			}
			if diff := cmp.Diff(wantedListing(t, s), ours); diff != "" {
				t.Errorf("the kernel (+) does not list what is wanted (-):\n%s", diff)
			}
		})
	}
}

// split separates our tables from others in a listing.
func split(listing []string) (ours, others []string) {
	for _, line := range listing {
		if strings.Contains(line, `"nftproxy"`) {
			ours = append(ours, line)
		} else {
			others = append(others, line)
		}
	}
	return ours, others
}

// TestRestartKeepsBaseChains starts a second Syncer on what the first left: one
// batch, in which no base chain is deleted or added.
func TestRestartKeepsBaseChains(t *testing.T) {
	kernels(t, func(t *testing.T, k syncer.Kernel) {
		services := set(service(1, rules.IPv4, 1, 2, 3), service(2, rules.IPv6, 4), service(3, rules.IPv4))
		mustSync(t, newSyncer(t, k, rules.Config{}), services)
		recorder := synctest.NewKernel(k)
		res := mustSync(t, newSyncer(t, recorder, rules.Config{}), services)
		if res.Batches != 1 || !res.Full {
			t.Errorf("result: %+v", res)
		}
		for _, b := range recorder.Applied() {
			for _, op := range b.Ops() {
				if op.Verb == syncer.DeleteChain && rules.ChainsByName(op.Name) == nil ||
					op.Verb == syncer.AddChain && rules.ChainsByName(op.Chain.Name) == nil {
					t.Errorf("a chain of the skeleton is made again: %s%s", op.Name, op.Chain.Name)
				}
			}
		}
	})
}

// TestRestartKeepsClients: what maps of clients remember outlives a restart if the map is
// wanted, and goes if it is not.
func TestRestartKeepsClients(t *testing.T) {
	kernels(t, func(t *testing.T, k syncer.Kernel) {
		var services []*rules.ServicePort
		kept := map[string]bool{}
		for i, f := range rules.Families() {
			sp := service(i, f, 1, 2, 3)
			sp.ExternalLocal, sp.LocalEndpoints, sp.Affinity = true, sp.Endpoints[1:2], time.Hour
			sp.Frontends = append(sp.Frontends, rules.Frontend{Kind: rules.NodePort, Addr: nodePort(f, 30_080)})
			services = append(services, sp)
			c, err := rules.Compile(rules.Config{}, *sp, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range c.OwnSets() {
				kept[s.Name] = true
			}
		}
		old := service(3, rules.IPv4, 1)
		old.Affinity = time.Hour
		mustSync(t, newSyncer(t, k, rules.Config{}), append(set(services...), set(old)...))

		recorder := synctest.NewKernel(k)
		res := mustSync(t, newSyncer(t, recorder, rules.Config{}), set(services...))
		if res.Batches != 1 || !res.Full || len(kept) != 4 {
			t.Errorf("result %+v, %d maps", res, len(kept))
		}
		deleted := 0
		for _, op := range recorder.Applied()[0].Ops() {
			switch op.Verb {
			case syncer.FlushSet, syncer.DeleteSet:
				if kept[op.Name] {
					t.Errorf("it is flushed or deleted: %s", op.Name)
				}
				if strings.HasPrefix(op.Name, "affinity-") && op.Name != "affinity-endpoints" && op.Verb == syncer.DeleteSet {
					deleted++
				}
			default:
			}
		}
		if deleted != 1 {
			t.Errorf("%d maps of clients were deleted, of one Service that is gone", deleted)
		}
		if len(res.Affinity) != len(kept) {
			t.Errorf("%d of %d maps are to be swept", len(res.Affinity), len(kept))
		}
		for _, table := range res.Affinity {
			if !table.Stale || !kept[table.Map] {
				t.Errorf("%+v", table)
			}
		}
	})
}

// TestAffinityTables says which tables of clients a sync reports, and whether some may
// have to be forgotten.
func TestAffinityTables(t *testing.T) {
	sticky := func(endpoints ...int) []syncer.Change {
		sp := remote(rules.IPv4, endpoints...)
		sp.Affinity = time.Hour
		return set(sp)
	}
	type step struct {
		changes []syncer.Change
		want    string // the endpoints in use, "stale" if some have gone
	}
	tests := map[string]struct {
		steps []step
		full  string // what a full write reports then
	}{
		"the first endpoints":          {[]step{{sticky(1, 2), "1 2"}}, "1 2 stale"},
		"an endpoint comes":            {[]step{{sticky(1, 2), "1 2"}, {sticky(1, 2, 3), "1 2 3"}}, "1 2 3 stale"},
		"an endpoint goes":             {[]step{{sticky(1, 2), "1 2"}, {sticky(2), "2 stale"}}, "2 stale"},
		"an endpoint is replaced":      {[]step{{sticky(1, 2), "1 2"}, {sticky(2, 3), "2 3 stale"}}, "2 3 stale"},
		"an endpoint goes and is back": {[]step{{sticky(1, 2), "1 2"}, {sticky(2), "2 stale"}, {sticky(1, 2), "1 2"}}, "1 2 stale"},
		"nothing":                      {[]step{{sticky(1, 2), "1 2"}, {sticky(2, 1), ""}}, "1 2 stale"},
		"the last endpoint goes":       {[]step{{sticky(1), "1"}, {sticky(), ""}}, ""},
		"affinity goes":                {[]step{{sticky(1), "1"}, {set(remote(rules.IPv4, 1)), ""}}, ""},
		"affinity comes":               {[]step{{set(remote(rules.IPv4, 1)), ""}, {sticky(1), "1"}}, "1 stale"},
		"the Service goes":             {[]step{{sticky(1), "1"}, {gone(remote(rules.IPv4)), ""}}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSyncer(t, &syncer.Memory{}, rules.Config{})
			mustSync(t, s, nil)
			for i, step := range test.steps {
				if got := tableText(mustSync(t, s, step.changes).Affinity); got != step.want {
					t.Errorf("step %d: %q, want %q", i, got, step.want)
				}
			}
			// Nobody knows what happened before a full write.
			res, err := s.Resync(t.Context(), nil)
			if got := tableText(res.Affinity); err != nil || got != test.full {
				t.Errorf("a full write: %q, want %q, error %v", got, test.full, err)
			}
		})
	}
}

func tableText(tables []rules.AffinityTable) string {
	var words []string
	for _, table := range tables {
		for _, e := range table.Endpoints {
			words = append(words, strconv.Itoa(int(e.Addr().AsSlice()[3])))
		}
		if table.Stale {
			words = append(words, "stale")
		}
	}
	return strings.Join(words, " ")
}
