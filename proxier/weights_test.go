package proxier

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/rules"
)

// TestWeights says which weight selectors give an endpoint whose slice says 7.
func TestWeights(t *testing.T) {
	const (
		canary = "10.1.2.3 zone=a node=n1 pod=api-canary-x1"
		bare   = "10.1.2.3" // nothing is said of it
	)
	pod := func(pattern string, weight uint16) Weight {
		return Weight{By: SelectByPod, Pattern: pattern, Weight: weight}
	}
	addr := func(cidr string, weight uint16) Weight {
		return Weight{By: SelectByAddr, CIDR: netip.MustParsePrefix(cidr), Weight: weight}
	}
	all := Weight{By: SelectAll, Weight: 95}
	tests := map[string]struct {
		endpoint string
		weights  []Weight
		want     uint16
	}{
		"no selectors":                  {canary, nil, 7},
		"none matches":                  {canary, []Weight{pod("web-*", 5)}, 7},
		"all":                           {canary, []Weight{all}, 95},
		"all, of which nothing is said": {bare, []Weight{all}, 95},
		"the first that matches":        {canary, []Weight{pod("web-*", 4), pod("api-canary-*", 5), all}, 5},
		"even if a later is narrower":   {canary, []Weight{all, pod("api-canary-x1", 5)}, 95},
		"weight 0":                      {canary, []Weight{pod("api-*", 0), all}, 0},

		"zone":                 {canary, []Weight{{By: SelectByZone, Pattern: "a", Weight: 5}}, 5},
		"another zone":         {canary, []Weight{{By: SelectByZone, Pattern: "ab", Weight: 5}}, 7},
		"a zone is no pattern": {canary, []Weight{{By: SelectByZone, Pattern: "*", Weight: 5}}, 7},
		"no zone":              {bare, []Weight{{By: SelectByZone, Pattern: "a", Weight: 5}, {By: SelectByZone, Weight: 6}}, 7},

		"node":         {canary, []Weight{{By: SelectByNode, Pattern: "n1", Weight: 5}}, 5},
		"another node": {canary, []Weight{{By: SelectByNode, Pattern: "n2", Weight: 5}}, 7},
		"no node":      {bare, []Weight{{By: SelectByNode, Pattern: "n1", Weight: 5}, {By: SelectByNode, Weight: 6}}, 7},

		"pod, the whole name": {canary, []Weight{pod("canary", 5)}, 7},
		"pod, as a pattern":   {canary, []Weight{pod("api-*-[w-y]?", 5)}, 5},
		"pod, a bad pattern":  {canary, []Weight{pod("api-[", 5)}, 7},
		"no pod":              {bare, []Weight{pod("*", 5)}, 7},

		"address":                        {canary, []Weight{addr("10.1.0.0/16", 5)}, 5},
		"another address":                {canary, []Weight{addr("10.2.0.0/16", 5)}, 7},
		"an address of the other family": {canary, []Weight{addr("::/0", 5)}, 7},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			slice := newSlice(t, "default/s", "api", ":80", test.endpoint)
			slice.Weight = 7
			tracker := NewTracker(rules.Families())
			tracker.Apply(services(newService(t, "default/api", "10.96.0.1", ":80").weigh(test.weights...)))
			tracker.Apply(endpointSlices(slice))
			if got := tracker.TakeChanges()[0].ServicePort.Endpoints[0].Weight; got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
		})
	}
}

// TestWeightsChange touches the ports of the Service only; the weight is that of each
// endpoint.
func TestWeightsChange(t *testing.T) {
	tracker := NewTracker(rules.Families())
	service := func() *Service { return newService(t, "default/api", "10.96.0.1", ":80") }
	weights := func(canary uint16) []Weight {
		return []Weight{{By: SelectByPod, Pattern: "api-canary-*", Weight: canary}, {By: SelectAll, Weight: 95}}
	}
	tracker.Apply(services(service(), newService(t, "default/other", "10.96.0.2", ":80")))
	tracker.Apply(endpointSlices(newSlice(t, "default/s", "api", ":80", "10.1.0.1 pod=api-canary-1", "10.1.0.2 pod=api-canary-2", "10.1.0.3 pod=api-1")))
	tracker.TakeChanges()
	for _, step := range []struct {
		service *Service
		want    []string
	}{
		{service().weigh(weights(5)...), []string{"default/api (tcp, IPv4): 10.96.0.1:80 -> 10.1.0.1:80=5 10.1.0.2:80=5 10.1.0.3:80=95"}},
		{service().weigh(weights(5)...), []string{}},
		{service().weigh(weights(0)...), []string{"default/api (tcp, IPv4): 10.96.0.1:80 -> 10.1.0.1:80=0 10.1.0.2:80=0 10.1.0.3:80=95"}},
		{service(), []string{"default/api (tcp, IPv4): 10.96.0.1:80 -> 10.1.0.1:80 10.1.0.2:80 10.1.0.3:80"}},
	} {
		tracker.Apply(services(step.service))
		if diff := cmp.Diff(step.want, describeAll(tracker.TakeChanges())); diff != "" {
			t.Error(diff)
		}
	}
}
