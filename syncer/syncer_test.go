package syncer_test

import (
	"strings"
	"testing"

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
		"capacity grows":                  {remote(v4, 1, 2), remote(v4, 1, 2, 3), syncer.Counts{Elements: 3, Verdicts: 2, Objects: 14}},
		"weight doubled":                  {weighted(remote(v4, 1, 2, 3), 1, 3, 6), weighted(remote(v4, 1, 2, 3), 1, 3, 5), syncer.Counts{Elements: 1}},
		"last endpoint removed":           {remote(v4, 1), remote(v4), syncer.Counts{Elements: 3, Verdicts: 1}},
		"first endpoint":                  {remote(v4), remote(v4, 1), syncer.Counts{Elements: 3, Verdicts: 1, Objects: 2}},
		"new Service":                     {nil, remote(v4, 1, 2, 3), syncer.Counts{Elements: 5, Verdicts: 1, Objects: 14}},
		"deleted Service":                 {remote(v4, 1, 2, 3), nil, syncer.Counts{Elements: 5, Verdicts: 1}},
		"nothing":                         {service(1, v4, 1, 2, 3), service(1, v4, 3, 2, 1), syncer.Counts{}},
		"local endpoint of a load balancer with 3 IPs under policy Local": {balancer(v4, 100), balancer(v4, 101), syncer.Counts{Elements: 1 + 3*2 + 1}},
		"endpoint added of IPv6":               {remote(rules.IPv6, 1, 2, 3, 4, 5, 6, 7, 8, 9), remote(rules.IPv6, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10), syncer.Counts{Elements: 1}},
		"back to an earlier capacity's chain":  {remote(v4, 1, 2, 3, 4), remote(v4, 1), syncer.Counts{Elements: 5, Verdicts: 2, Objects: 2}},
		"all endpoints replaced, one capacity": {remote(v4, 1, 2, 3), remote(v4, 4, 5, 6), syncer.Counts{Elements: 6}},
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
			if wantBatches := min(1, test.want.Elements); res.Batches != wantBatches {
				t.Errorf("%d batches, want %d", res.Batches, wantBatches)
			}
			checkMemory(t, memory, s)
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
				if op.Verb == syncer.DeleteChain && !strings.HasPrefix(op.Name, "random-") ||
					op.Verb == syncer.AddChain && !strings.HasPrefix(op.Chain.Name, "random-") {
					t.Errorf("a chain of the skeleton is made again: %s%s", op.Name, op.Chain.Name)
				}
			}
		}
	})
}
