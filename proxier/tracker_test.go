package proxier

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nftproxy/nftproxy/rules"
)

// TestTracker feeds changes step by step and says which service ports each step
// touches, and what becomes of them.
func TestTracker(t *testing.T) {
	type step struct {
		changes Changes
		want    []string
	}
	web := func(ports ...string) *Service { return newService(t, "default/web", "10.96.0.10 fd00::10", ports...) }
	slice := func(endpoints ...string) *EndpointSlice {
		return newSlice(t, "default/web-1", "web", "http:8080", endpoints...)
	}
	weighted := slice("10.1.0.1")
	weighted.Weight = 5
	twoPorts := slice("10.1.0.1")
	twoPorts.Ports = append(twoPorts.Ports, port(t, "metrics:9090"))
	moved := slice("10.1.0.1")
	moved.Service = "other"
	goneService := Changes{Services: []ServiceChange{{Name: objectName("default/web")}}}
	goneSlice := Changes{Slices: []SliceChange{{Name: objectName("default/web-1")}}}

	tests := map[string][]step{
		"Service first, then its slice": {
			{services(web("http:80")), []string{
				"default/web:http (tcp, IPv4): 10.96.0.10:80 ->", "default/web:http (tcp, IPv6): [fd00::10]:80 ->",
			}},
			{endpointSlices(slice("10.1.0.1", "10.1.0.2 l")), []string{
				"default/web:http (tcp, IPv4): 10.96.0.10:80 -> 10.1.0.1:8080 10.1.0.2:8080*",
			}},
		},
		"slice first": {
			{endpointSlices(slice("10.1.0.1")), []string{"default/web:http (tcp, IPv4): gone"}},
			{services(web("http:80")), []string{
				"default/web:http (tcp, IPv4): 10.96.0.10:80 -> 10.1.0.1:8080", "default/web:http (tcp, IPv6): [fd00::10]:80 ->",
			}},
		},
		"the same objects again": {
			{services(newService(t, "a/a", "10.96.0.1", ":80")), []string{"a/a (tcp, IPv4): 10.96.0.1:80 ->"}},
			{services(newService(t, "a/a", "10.96.0.1", ":80")), nil},
			{endpointSlices(newSlice(t, "a/s", "a", ":80", "10.1.0.1")), []string{"a/a (tcp, IPv4): 10.96.0.1:80 -> 10.1.0.1:80"}},
			{endpointSlices(newSlice(t, "a/s", "a", ":80", "10.1.0.1")), nil},
		},
		"unknown objects go": {{goneService, nil}, {goneSlice, nil}},
		"one port of several changes": {
			{services(newService(t, "a/a", "10.96.0.1", "http:80", "https:443")), []string{
				"a/a:http (tcp, IPv4): 10.96.0.1:80 ->", "a/a:https (tcp, IPv4): 10.96.0.1:443 ->",
			}},
			{services(newService(t, "a/a", "10.96.0.1", "http:81", "https:443")), []string{"a/a:http (tcp, IPv4): 10.96.0.1:81 ->"}},
			{services(newService(t, "a/a", "10.96.0.1", "https:443")), []string{"a/a:http (tcp, IPv4): gone"}},
			{endpointSlices(newSlice(t, "a/s", "a", "https:8443", "10.1.0.1")), []string{"a/a:https (tcp, IPv4): 10.96.0.1:443 -> 10.1.0.1:8443"}},
		},
		"equal ports of several protocols": {
			{services(newService(t, "a/dns", "10.96.0.1", "dns:53/udp", "dns-tcp:53", "dns-sctp:53/sctp")), []string{
				"a/dns:dns (udp, IPv4): 10.96.0.1:53 ->", "a/dns:dns-sctp (sctp, IPv4): 10.96.0.1:53 ->", "a/dns:dns-tcp (tcp, IPv4): 10.96.0.1:53 ->",
			}},
			{endpointSlices(newSlice(t, "a/s", "dns", "dns:5353/udp", "10.1.0.1")), []string{
				"a/dns:dns (udp, IPv4): 10.96.0.1:53 -> 10.1.0.1:5353",
			}},
		},
		"a slice changes its ports only": {
			{services(newService(t, "default/web", "10.96.0.1", "http:80", "metrics:90")), []string{
				"default/web:http (tcp, IPv4): 10.96.0.1:80 ->", "default/web:metrics (tcp, IPv4): 10.96.0.1:90 ->",
			}},
			{endpointSlices(slice("10.1.0.1")), []string{"default/web:http (tcp, IPv4): 10.96.0.1:80 -> 10.1.0.1:8080"}},
			{endpointSlices(twoPorts), []string{"default/web:metrics (tcp, IPv4): 10.96.0.1:90 -> 10.1.0.1:9090"}},
		},
		"a slice moves to another Service": {
			{services(newService(t, "default/web", "10.96.0.1", "http:80"), newService(t, "default/other", "10.96.0.2", "http:80")), []string{
				"default/other:http (tcp, IPv4): 10.96.0.2:80 ->", "default/web:http (tcp, IPv4): 10.96.0.1:80 ->",
			}},
			{endpointSlices(slice("10.1.0.1")), []string{"default/web:http (tcp, IPv4): 10.96.0.1:80 -> 10.1.0.1:8080"}},
			{endpointSlices(moved), []string{
				"default/other:http (tcp, IPv4): 10.96.0.2:80 -> 10.1.0.1:8080", "default/web:http (tcp, IPv4): 10.96.0.1:80 ->",
			}},
		},
		"a weight changes": {
			{services(newService(t, "default/web", "10.96.0.1", "http:80")), []string{"default/web:http (tcp, IPv4): 10.96.0.1:80 ->"}},
			{endpointSlices(weighted), []string{"default/web:http (tcp, IPv4): 10.96.0.1:80 -> 10.1.0.1:8080=5"}},
		},
		"Service goes and comes back": {
			{services(newService(t, "default/web", "10.96.0.1", "http:80")), []string{"default/web:http (tcp, IPv4): 10.96.0.1:80 ->"}},
			{endpointSlices(slice("10.1.0.1")), []string{"default/web:http (tcp, IPv4): 10.96.0.1:80 -> 10.1.0.1:8080"}},
			{goneService, []string{"default/web:http (tcp, IPv4): gone"}},
			{services(newService(t, "default/web", "10.96.0.2", "http:80")), []string{"default/web:http (tcp, IPv4): 10.96.0.2:80 -> 10.1.0.1:8080"}},
			{goneSlice, []string{"default/web:http (tcp, IPv4): 10.96.0.2:80 ->"}},
		},
		"two Services claim an address: the older has it": {
			{services(newService(t, "b/young", "10.96.0.1", ":80").at(20)), []string{"b/young (tcp, IPv4): 10.96.0.1:80 ->"}},
			{services(newService(t, "c/old", "10.96.0.1", ":80").at(10)), []string{"b/young (tcp, IPv4): ->", "c/old (tcp, IPv4): 10.96.0.1:80 ->"}},
			{services(newService(t, "a/new", "10.96.0.1", ":80").at(30)), []string{"a/new (tcp, IPv4): ->"}},
			{Changes{Services: []ServiceChange{{Name: objectName("c/old")}}}, []string{"b/young (tcp, IPv4): 10.96.0.1:80 ->", "c/old (tcp, IPv4): gone"}},
			{services(newService(t, "b/young", "10.96.0.9", ":80").at(20)), []string{"a/new (tcp, IPv4): 10.96.0.1:80 ->", "b/young (tcp, IPv4): 10.96.0.9:80 ->"}},
		},
		"external addresses come and go": {
			{services(newService(t, "a/a", "10.96.0.1 lb=203.0.113.1", ":80")), []string{"a/a (tcp, IPv4): 10.96.0.1:80 203.0.113.1:80 ->"}},
			{services(newService(t, "a/a", "10.96.0.1 lb=203.0.113.1 external=203.0.113.2", ":80")), []string{"a/a (tcp, IPv4): 10.96.0.1:80 203.0.113.1:80 203.0.113.2:80 ->"}},
			{services(newService(t, "a/a", "10.96.0.1", ":80")), []string{"a/a (tcp, IPv4): 10.96.0.1:80 ->"}},
		},
		"an address becomes one of another kind": {
			{services(newService(t, "a/a", "10.96.0.1 lb=203.0.113.1", ":80")), []string{"a/a (tcp, IPv4): 10.96.0.1:80 203.0.113.1:80 ->"}},
			{services(newService(t, "a/a", "10.96.0.1 external=203.0.113.1", ":80")), []string{"a/a (tcp, IPv4): 10.96.0.1:80 203.0.113.1:80 ->"}},
		},
		"two Services share an address, not a port": {
			{services(newService(t, "a/a", "10.96.0.1 lb=203.0.113.1", ":80"), newService(t, "b/b", "10.96.0.2 lb=203.0.113.1", ":81")), []string{
				"a/a (tcp, IPv4): 10.96.0.1:80 203.0.113.1:80 ->", "b/b (tcp, IPv4): 10.96.0.2:81 203.0.113.1:81 ->",
			}},
		},
		"two Services claim an external address and port": {
			{services(newService(t, "a/young", "10.96.0.1 lb=203.0.113.1", ":80").at(20)), []string{"a/young (tcp, IPv4): 10.96.0.1:80 203.0.113.1:80 ->"}},
			{services(newService(t, "b/old", "10.96.0.2 external=203.0.113.1", ":80").at(10)), []string{
				"a/young (tcp, IPv4): 10.96.0.1:80 ->", "b/old (tcp, IPv4): 10.96.0.2:80 203.0.113.1:80 ->",
			}},
		},
		"source ranges change, each family has its own": {
			{services(newService(t, "a/a", "10.96.0.1 fd00::1 lb=203.0.113.1 lb=2001:db8::1 from=10.0.0.0/8", ":80")), []string{
				"a/a (tcp, IPv4): 10.96.0.1:80 203.0.113.1:80 from [10.0.0.0/8] ->", "a/a (tcp, IPv6): [fd00::1]:80 [2001:db8::1]:80 from [] ->",
			}},
			{services(newService(t, "a/a", "10.96.0.1 fd00::1 lb=203.0.113.1 lb=2001:db8::1 from=10.0.0.0/8 from=::/0", ":80")), []string{
				"a/a (tcp, IPv4): 10.96.0.1:80 203.0.113.1:80 from [10.0.0.0/8] ->", "a/a (tcp, IPv6): [fd00::1]:80 [2001:db8::1]:80 ->",
			}},
		},
		"policies change": {
			{services(newService(t, "default/web", "10.96.0.1 lb=203.0.113.1", "http:80")), []string{"default/web:http (tcp, IPv4): 10.96.0.1:80 203.0.113.1:80 ->"}},
			{endpointSlices(slice("10.1.0.1", "10.1.0.2 l")), []string{"default/web:http (tcp, IPv4): 10.96.0.1:80 203.0.113.1:80 -> 10.1.0.1:8080 10.1.0.2:8080*"}},
			{services(newService(t, "default/web", "10.96.0.1 lb=203.0.113.1 external-local", "http:80")), []string{
				"default/web:http (tcp, IPv4): 10.96.0.1:80 203.0.113.1:80 -> 10.1.0.1:8080 10.1.0.2:8080*; local 10.1.0.2:8080*; served",
			}},
			{services(newService(t, "default/web", "10.96.0.1 lb=203.0.113.1 external-local", "http:80")), nil},
			{services(newService(t, "default/web", "10.96.0.1 internal-local", "http:80")), []string{
				"default/web:http (tcp, IPv4): 10.96.0.1:80 ->; local 10.1.0.2:8080*; served",
			}},
		},
		"NodePorts, in the families of the ClusterIPs": {
			{services(newService(t, "a/a", "10.96.0.1 fd00::1", ":80+30080"), newService(t, "a/b", "fd00::2 lb=2001:db8::2", ":80+30081/udp")), []string{
				"a/a (tcp, IPv4): 10.96.0.1:80 0.0.0.0:30080 ->", "a/a (tcp, IPv6): [fd00::1]:80 [::]:30080 ->",
				"a/b (udp, IPv6): [fd00::2]:80 [::]:30081 [2001:db8::2]:80 ->",
			}},
		},
		"a NodePort comes, changes and goes": {
			{services(newService(t, "a/a", "10.96.0.1", "http:80", "https:443")), []string{"a/a:http (tcp, IPv4): 10.96.0.1:80 ->", "a/a:https (tcp, IPv4): 10.96.0.1:443 ->"}},
			{services(newService(t, "a/a", "10.96.0.1", "http:80+30080", "https:443")), []string{"a/a:http (tcp, IPv4): 10.96.0.1:80 0.0.0.0:30080 ->"}},
			{services(newService(t, "a/a", "10.96.0.1", "http:80+30081", "https:443")), []string{"a/a:http (tcp, IPv4): 10.96.0.1:80 0.0.0.0:30081 ->"}},
			{services(newService(t, "a/a", "10.96.0.1", "http:80", "https:443")), []string{"a/a:http (tcp, IPv4): 10.96.0.1:80 ->"}},
		},
		"two Services claim a NodePort": {
			{services(newService(t, "a/young", "10.96.0.1", ":80+30080").at(20)), []string{"a/young (tcp, IPv4): 10.96.0.1:80 0.0.0.0:30080 ->"}},
			{services(newService(t, "b/old", "10.96.0.2", ":81+30080", "dns:53+30080/udp").at(10)), []string{
				"a/young (tcp, IPv4): 10.96.0.1:80 ->", "b/old (tcp, IPv4): 10.96.0.2:81 0.0.0.0:30080 ->", "b/old:dns (udp, IPv4): 10.96.0.2:53 0.0.0.0:30080 ->",
			}},
			{Changes{Services: []ServiceChange{{Name: objectName("b/old")}}}, []string{
				"a/young (tcp, IPv4): 10.96.0.1:80 0.0.0.0:30080 ->", "b/old (tcp, IPv4): gone", "b/old:dns (udp, IPv4): gone",
			}},
		},
		"affinity changes": {
			{services(newService(t, "a/a", "10.96.0.1", ":80")), []string{"a/a (tcp, IPv4): 10.96.0.1:80 ->"}},
			{services(newService(t, "a/a", "10.96.0.1 affinity=3h", ":80")), []string{"a/a (tcp, IPv4): 10.96.0.1:80 for 3h0m0s ->"}},
			{services(newService(t, "a/a", "10.96.0.1 affinity=10s", ":80")), []string{"a/a (tcp, IPv4): 10.96.0.1:80 for 10s ->"}},
			{services(newService(t, "a/a", "10.96.0.1", ":80")), []string{"a/a (tcp, IPv4): 10.96.0.1:80 ->"}},
		},
		"equally old ones: the name decides": {
			{services(newService(t, "b/b", "10.96.0.1", ":80"), newService(t, "a/a", "10.96.0.1", ":80", "other:81")), []string{
				"a/a (tcp, IPv4): 10.96.0.1:80 ->", "a/a:other (tcp, IPv4): 10.96.0.1:81 ->", "b/b (tcp, IPv4): ->",
			}},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			tracker := NewTracker(rules.Families())
			for i, step := range steps {
				if touched := tracker.Apply(step.changes); touched != (len(step.want) > 0) {
					t.Errorf("step %d: touched %t", i, touched)
				}
				if diff := cmp.Diff(step.want, describeAll(tracker.TakeChanges()), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("step %d:\n%s", i, diff)
				}
			}
		})
	}
}

// TestUsableEndpoints says which endpoints of a service port serve, under each of
// the traffic policies.
func TestUsableEndpoints(t *testing.T) {
	const (
		cluster  = "10.96.0.1"
		internal = "10.96.0.1 internal-local"
		external = "10.96.0.1 lb=203.0.113.1 external-local"
		both     = "10.96.0.1 lb=203.0.113.1 internal-local external-local"
		unused   = "10.96.0.1 external-local" // nothing external to apply to
	)
	tests := map[string]struct {
		service string
		slices  [][]string
		want    string
	}{
		"ready ones":                       {cluster, [][]string{{"10.1.0.1", "10.1.0.2 n", "10.1.0.3"}}, " 10.1.0.1:8080 10.1.0.3:8080"},
		"ready before terminating":         {cluster, [][]string{{"10.1.0.1", "10.1.0.2 t"}}, " 10.1.0.1:8080"},
		"only terminating ones that serve": {cluster, [][]string{{"10.1.0.1 n", "10.1.0.2 t", "10.1.0.3 td"}}, " 10.1.0.2:8080"},
		"serving is not enough":            {cluster, [][]string{{"10.1.0.1 n"}}, ""},
		"sorted over slices":               {cluster, [][]string{{"10.1.0.9"}, {"10.1.0.10", "10.1.0.1"}}, " 10.1.0.1:8080 10.1.0.9:8080 10.1.0.10:8080"},
		"duplicates: not terminating wins": {cluster, [][]string{{"10.1.0.1 t"}, {"10.1.0.1 l"}, {"10.1.0.1 td"}}, " 10.1.0.1:8080*"},
		"duplicates: not ready loses":      {cluster, [][]string{{"10.1.0.1 n"}, {"10.1.0.1"}}, " 10.1.0.1:8080"},

		"internal: local ones":             {internal, [][]string{{"10.1.0.1", "10.1.0.2 l"}}, "; local 10.1.0.2:8080*; served"},
		"internal: none local":             {internal, [][]string{{"10.1.0.1"}}, "; local; served"},
		"internal: none at all":            {internal, [][]string{{"10.1.0.1 n"}}, "; local"},
		"external: both lists":             {external, [][]string{{"10.1.0.1", "10.1.0.2 l"}}, " 10.1.0.1:8080 10.1.0.2:8080*; local 10.1.0.2:8080*; served"},
		"external: none local":             {external, [][]string{{"10.1.0.1"}}, " 10.1.0.1:8080; local; served"},
		"both: all remote and terminating": {both, [][]string{{"10.1.0.1 t"}}, " 10.1.0.1:8080; local; served"},
		"local ones terminate, remote ones are ready": {external, [][]string{{"10.1.0.1", "10.1.0.2 lt", "10.1.0.3 ltd"}},
			" 10.1.0.1:8080; local 10.1.0.2:8080*; served"},
		"an external policy without external addresses": {unused, [][]string{{"10.1.0.1", "10.1.0.2 l"}}, " 10.1.0.1:8080 10.1.0.2:8080*; local; served"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tracker := NewTracker(rules.Families())
			tracker.Apply(services(newService(t, "default/web", test.service, "http:80")))
			for i, endpoints := range test.slices {
				tracker.Apply(endpointSlices(newSlice(t, fmt.Sprintf("default/s%d", i), "web", "http:8080", endpoints...)))
			}
			changes := describeAll(tracker.TakeChanges())
			_, got, _ := strings.Cut(changes[0], " ->")
			if got != test.want || len(changes) != 1 {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestExternalPerPort: a NodePort is a way in from outside, for its own port only.
func TestExternalPerPort(t *testing.T) {
	tests := map[string]struct {
		service string
		want    []string
	}{
		"external-local": {"10.96.0.1 external-local", []string{
			"default/web:http (tcp, IPv4): 10.96.0.1:80 0.0.0.0:30080 -> 10.1.0.1:8080 10.1.0.2:8080*; local 10.1.0.2:8080*; served",
			"default/web:https (tcp, IPv4): 10.96.0.1:443 -> 10.1.0.1:8443 10.1.0.2:8443*; local; served",
		}},
		"internal-local": {"10.96.0.1 internal-local", []string{
			"default/web:http (tcp, IPv4): 10.96.0.1:80 0.0.0.0:30080 -> 10.1.0.1:8080 10.1.0.2:8080*; local 10.1.0.2:8080*; served",
			"default/web:https (tcp, IPv4): 10.96.0.1:443 ->; local 10.1.0.2:8443*; served",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tracker := NewTracker(rules.Families())
			slice := newSlice(t, "default/s", "web", "http:8080", "10.1.0.1", "10.1.0.2 l")
			slice.Ports = append(slice.Ports, port(t, "https:8443"))
			tracker.Apply(endpointSlices(slice))
			tracker.Apply(services(newService(t, "default/web", test.service, "http:80+30080", "https:443")))
			if diff := cmp.Diff(test.want, describeAll(tracker.TakeChanges())); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTrackerForgets ends with as little as it began.
func TestTrackerForgets(t *testing.T) {
	tracker := NewTracker(rules.Families())
	tracker.largeEndpoints = 1
	svc, slice := newService(t, "a/a", "10.96.0.1 from=192.0.2.0/24", ":80").at(2), newSlice(t, "a/s", "a", ":80", "10.1.0.1 for-zones=a")
	older := newService(t, "a/older", "10.96.0.1", ":80").at(1)
	tracker.Apply(services(svc, older))
	tracker.TakeProblems()
	tracker.Apply(endpointSlices(slice))
	for i := range 3 {
		tracker.Apply(endpointSlices(newSlice(t, "a/large", "older", ":80", fmt.Sprintf("10.1.0.%d", 2+i))))
		tracker.TakeChanges()
	}
	if len(tracker.large) == 0 {
		t.Error("no Service is large")
	}
	tracker.Apply(endpointSlices(slice))
	tracker.Apply(Changes{Slices: []SliceChange{{Name: objectName("a/large")}}})
	tracker.Apply(Changes{Services: []ServiceChange{{Name: svc.Name}, {Name: older.Name}}, Slices: []SliceChange{{Name: slice.Name}}})
	tracker.TakeChanges()
	tracker.TakeProblems()
	if n := len(tracker.services) + len(tracker.owners) + len(tracker.claims) + len(tracker.dirty) + len(tracker.zoned) +
		len(tracker.restricted) + len(tracker.conflicts.touched) + len(tracker.conflicts.told) + len(tracker.large); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// TestDisabledFamily never reports service ports of it.
func TestDisabledFamily(t *testing.T) {
	tracker := NewTracker([]rules.Family{rules.IPv4})
	tracker.Apply(services(newService(t, "a/a", "10.96.0.1 fd00::1", ":80")))
	tracker.Apply(endpointSlices(newSlice(t, "a/s", "a", ":80", "fd00::2")))
	want := []string{"a/a (tcp, IPv4): 10.96.0.1:80 ->"}
	if diff := cmp.Diff(want, describeAll(tracker.TakeChanges())); diff != "" {
		t.Error(diff)
	}
}

// TestNoExternalIPs: with the feature gate off an external IP is no frontend, and takes
// none away from others.
func TestNoExternalIPs(t *testing.T) {
	tracker := NewTracker(rules.Families())
	tracker.noExternalIPs = true
	tracker.Apply(services(
		newService(t, "default/a", "10.96.0.1 external=203.0.113.1", "http:80").at(1),
		newService(t, "default/b", "10.96.0.2 lb=203.0.113.1", "http:80").at(2),
	))
	var got []string
	for _, c := range tracker.TakeChanges() {
		for _, f := range c.ServicePort.Frontends {
			got = append(got, c.Key.Name+" "+f.Addr.String())
		}
	}
	if want := []string{"a 10.96.0.1:80", "b 10.96.0.2:80", "b 203.0.113.1:80"}; !slices.Equal(got, want) {
		t.Errorf("frontends %v, want %v", got, want)
	}
}
