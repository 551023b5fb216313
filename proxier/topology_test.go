package proxier

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nftproxy/nftproxy/rules"
)

// TestTopology says which endpoints hints leave to a node in zone a, under each of
// the traffic policies.
func TestTopology(t *testing.T) {
	const (
		cluster  = "10.96.0.1"
		internal = "10.96.0.1 internal-local"
		external = "10.96.0.1 lb=203.0.113.1 external-local"
		mixed    = "10.96.0.1 lb=203.0.113.1 internal-local"
	)
	tests := map[string]struct {
		service   string
		zone      string // a if empty, unknown if -
		endpoints []string
		want      string
	}{
		"zone: the ones for it":                        {cluster, "", []string{"10.1.0.1 for-zones=a", "10.1.0.2 for-zones=b", "10.1.0.3 for-zones=a"}, " 10.1.0.1:80 10.1.0.3:80"},
		"zone: one of several of an endpoint":          {cluster, "", []string{"10.1.0.1 for-zones=a,b", "10.1.0.2 for-zones=b,c", "10.1.0.3 for-zones=aa,ba"}, " 10.1.0.1:80"},
		"zone: the node's is unknown":                  {cluster, "-", []string{"10.1.0.1 for-zones=a", "10.1.0.2 for-zones=b"}, " 10.1.0.1:80 10.1.0.2:80"},
		"zone: none for the node's":                    {cluster, "c", []string{"10.1.0.1 for-zones=a", "10.1.0.2 for-zones=b"}, " 10.1.0.1:80 10.1.0.2:80"},
		"zone: where an endpoint is is no hint":        {cluster, "", []string{"10.1.0.1 zone=a", "10.1.0.2 zone=b"}, " 10.1.0.1:80 10.1.0.2:80"},
		"zone: a ready one has no hint":                {cluster, "", []string{"10.1.0.1 for-zones=a", "10.1.0.2 for-zones=b", "10.1.0.3"}, " 10.1.0.1:80 10.1.0.2:80 10.1.0.3:80"},
		"zone: one that is not ready has none":         {cluster, "", []string{"10.1.0.1 for-zones=a", "10.1.0.2 for-zones=b", "10.1.0.3 n", "10.1.0.4 t"}, " 10.1.0.1:80"},
		"zone: only the other's are ready":             {cluster, "", []string{"10.1.0.1 n for-zones=a", "10.1.0.2 for-zones=b", "10.1.0.3 for-zones=c"}, " 10.1.0.2:80 10.1.0.3:80"},
		"zone: none is ready":                          {cluster, "", []string{"10.1.0.1 n for-zones=a"}, ""},
		"zone: all terminate":                          {cluster, "", []string{"10.1.0.1 t for-zones=a", "10.1.0.2 t for-zones=b"}, " 10.1.0.1:80 10.1.0.2:80"},
		"zone: ready elsewhere beats terminating here": {cluster, "", []string{"10.1.0.1 t for-zones=a", "10.1.0.2 for-zones=b"}, " 10.1.0.2:80"},
		"zone: a duplicate with hints wins":            {cluster, "", []string{"10.1.0.1", "10.1.0.1 for-zones=b", "10.1.0.1 for-zones=a", "10.1.0.2 for-zones=b"}, " 10.1.0.1:80"},

		"node: the ones for it":                 {cluster, "", []string{"10.1.0.1 for-node=here for-zones=b", "10.1.0.2 for-node=elsewhere for-zones=a"}, " 10.1.0.1:80"},
		"node: without a zone":                  {cluster, "-", []string{"10.1.0.1 for-node=here", "10.1.0.2 for-node=elsewhere"}, " 10.1.0.1:80"},
		"node: one has no hint, zones do":       {cluster, "", []string{"10.1.0.1 for-node=here for-zones=b", "10.1.0.2 for-zones=a"}, " 10.1.0.2:80"},
		"node: one has no hint at all":          {cluster, "", []string{"10.1.0.1 for-node=here for-zones=a", "10.1.0.2"}, " 10.1.0.1:80 10.1.0.2:80"},
		"node: none for this one":               {cluster, "", []string{"10.1.0.1 for-node=elsewhere for-zones=b", "10.1.0.2 for-node=elsewhere for-zones=a"}, " 10.1.0.2:80"},
		"node: none for this one, no zone":      {cluster, "", []string{"10.1.0.1 for-node=elsewhere", "10.1.0.2 for-node=elsewhere"}, " 10.1.0.1:80 10.1.0.2:80"},
		"node: the one for it is not ready":     {cluster, "", []string{"10.1.0.1 n for-node=here", "10.1.0.2 for-node=elsewhere"}, " 10.1.0.2:80"},
		"node: where an endpoint is is no hint": {cluster, "", []string{"10.1.0.1 l", "10.1.0.2"}, " 10.1.0.1:80* 10.1.0.2:80"},

		"external: not the local list":             {external, "", []string{"10.1.0.1 for-zones=a", "10.1.0.2 l for-zones=b"}, " 10.1.0.1:80; local 10.1.0.2:80*; served"},
		"external: none local":                     {external, "", []string{"10.1.0.1 for-zones=a", "10.1.0.2 for-zones=b"}, " 10.1.0.1:80; local; served"},
		"external: local ones terminate":           {external, "", []string{"10.1.0.1 for-zones=a", "10.1.0.2 lt for-zones=b"}, " 10.1.0.1:80; local 10.1.0.2:80*; served"},
		"internal: not at all":                     {internal, "", []string{"10.1.0.1 for-zones=a", "10.1.0.2 l for-zones=b"}, "; local 10.1.0.2:80*; served"},
		"internal, and external of policy Cluster": {mixed, "", []string{"10.1.0.1 for-zones=a", "10.1.0.2 l for-zones=b"}, " 10.1.0.1:80; local 10.1.0.2:80*; served"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tracker := NewTracker(rules.Families())
			zone := strings.TrimPrefix(test.zone, "-")
			if test.zone == "" {
				zone = "a"
			}
			tracker.Apply(inZone(zone, ""))
			tracker.Apply(services(newService(t, "default/web", test.service, ":80")))
			tracker.Apply(endpointSlices(newSlice(t, "default/s", "web", ":80", test.endpoints...)))
			changes := describeAll(tracker.TakeChanges())
			_, got, _ := strings.Cut(changes[0], " ->")
			if got != test.want || len(changes) != 1 {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// TestTopologyKeepsFlows: an endpoint in another zone keeps those that it has.
func TestTopologyKeepsFlows(t *testing.T) {
	tracker := NewTracker(rules.Families())
	tracker.Apply(inZone("a", ""))
	tracker.Apply(services(newService(t, "default/dns", "10.96.0.1", ":53/udp")))
	tracker.Apply(endpointSlices(newSlice(t, "default/s", "dns", ":53/udp", "10.1.0.1 for-zones=a", "10.1.0.2 for-zones=b")))
	if sp := tracker.TakeChanges()[0].ServicePort; len(sp.Endpoints) != 1 || len(sp.Serving) != 2 {
		t.Errorf("endpoints %v, serving %v", sp.Endpoints, sp.Serving)
	}
}

// TestNodeChanges says what a change of the Node touches.
func TestNodeChanges(t *testing.T) {
	tracker := NewTracker(rules.Families())
	tracker.Apply(services(
		newService(t, "a/plain", "10.96.0.1", ":80"),
		newService(t, "a/zones", "10.96.0.2", ":80", "dns:53/udp"),
		newService(t, "a/ranges", "10.96.0.3 fd00::3 lb=203.0.113.3 lb=2001:db8::3 external=203.0.113.4 from=192.0.2.0/24 from=2001:db8:9::/64", ":80"),
		newService(t, "a/everybody", "10.96.0.5 lb=203.0.113.5 from=192.0.2.0/24 from=0.0.0.0/0", ":80"),
	))
	tracker.Apply(endpointSlices(
		newSlice(t, "a/plain", "plain", ":80", "10.1.0.1 zone=a"),
		newSlice(t, "a/zones-1", "zones", ":80", "10.1.0.2 for-zones=a", "10.1.0.3 for-zones=b", "10.1.0.4 for-zones=c,d"),
		newSlice(t, "a/zones-2", "zones", "dns:53/udp", "10.1.0.5 for-zones=c"),
		newSlice(t, "a/orphans", "none", ":80", "10.1.0.6 for-zones=a"),
	))
	tracker.TakeChanges()
	const (
		v4   = "a/ranges (tcp, IPv4): 10.96.0.3:80 203.0.113.3:80 203.0.113.4:80 from [192.0.2.0/24] ->"
		v4ip = "a/ranges (tcp, IPv4): 10.96.0.3:80 203.0.113.3:80 203.0.113.4:80 from [192.0.2.0/24 203.0.113.3/32] ->"
		v6   = "a/ranges (tcp, IPv6): [fd00::3]:80 [2001:db8::3]:80 from [2001:db8:9::/64] ->"
		v6ip = "a/ranges (tcp, IPv6): [fd00::3]:80 [2001:db8::3]:80 from [2001:db8:9::/64 2001:db8::3/128] ->"
		orph = "a/none (tcp, IPv4): gone"
	)
	steps := []struct {
		name   string
		change Changes
		want   []string
	}{
		{"a zone is known", inZone("a", ""), []string{orph, "a/zones (tcp, IPv4): 10.96.0.2:80 -> 10.1.0.2:80"}},
		{"the same zone again", inZone("a", ""), nil},
		{"something else changes", Changes{Node: &NodeChange{&Node{Name: "here", Zone: "a", Deleting: true}}}, nil},
		{"another zone", inZone("b", ""), []string{orph, "a/zones (tcp, IPv4): 10.96.0.2:80 -> 10.1.0.3:80"}},
		{"a zone without a port's endpoints", inZone("e", ""), []string{"a/zones (tcp, IPv4): 10.96.0.2:80 -> 10.1.0.2:80 10.1.0.3:80 10.1.0.4:80"}},
		{"a zone that is named nowhere either", inZone("f", ""), nil},
		{"an address in no range", inZone("f", "198.51.100.1 2001:db8:8::1"), nil},
		{"an address in a range", inZone("f", "192.0.2.1 2001:db8:8::1"), []string{v4ip}},
		{"another one in the range", inZone("f", "192.0.2.2 2001:db8:8::1"), nil},
		{"only the first counts", inZone("f", "198.51.100.1 192.0.2.1 2001:db8:9::1"), []string{v4, v6ip}},
		{"the Node goes", Changes{Node: &NodeChange{}}, []string{v6}},
	}
	for _, step := range steps {
		if touched := tracker.Apply(step.change); touched != (len(step.want) > 0) {
			t.Errorf("%s: touched %t", step.name, touched)
		}
		if diff := cmp.Diff(step.want, describeAll(tracker.TakeChanges()), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s:\n%s", step.name, diff)
		}
	}
}
