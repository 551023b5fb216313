package proxier

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/rules"
)

// TestConflicts says which claims in vain are reported, and when.
func TestConflicts(t *testing.T) {
	old := func() *Service { return newService(t, "b/old", "10.96.0.1 lb=203.0.113.1", ":80").at(10) }
	young := func(addrs string) *Service { return newService(t, "a/young", addrs, ":80").at(20) }
	gone := func(name string) Changes { return Changes{Services: []ServiceChange{{Name: objectName(name)}}} }
	const (
		lost   = "Service a/young is not served at 203.0.113.1, tcp port 80: Service b/old has it, which is older; give one of them another address or port"
		lostTo = "Service a/young is not served at 203.0.113.1, tcp port 80: Service c/older has it, which is older; give one of them another address or port"
	)
	type step struct {
		changes Changes
		want    []string
	}
	tests := map[string][]step{
		"the younger comes later": {
			{services(old()), nil},
			{services(young("10.96.0.2 lb=203.0.113.1")), []string{lost}},
		},
		"the older comes later": {
			{services(young("10.96.0.2 lb=203.0.113.1")), nil},
			{services(old()), []string{lost}},
		},
		"once": {
			{services(old(), young("10.96.0.2 lb=203.0.113.1")), []string{lost}},
			{services(old(), young("10.96.0.2 lb=203.0.113.1")), nil},
			{services(young("10.96.0.2 lb=203.0.113.1 external=203.0.113.9 internal-local")), nil},
			{services(newService(t, "d/other", "10.96.0.9 lb=203.0.113.8", ":80").at(20)), nil},
			{endpointSlices(newSlice(t, "a/s", "young", ":80", "10.1.0.1")), nil},
		},
		"a third one comes: only that is told": {
			{services(old(), young("10.96.0.2 lb=203.0.113.1")), []string{lost}},
			{services(newService(t, "d/third", "10.96.0.3 lb=203.0.113.1", ":80").at(15)), []string{
				"Service d/third is not served at 203.0.113.1, tcp port 80: Service b/old has it, which is older; give one of them another address or port",
			}},
		},
		"the owner changes": {
			{services(old(), young("10.96.0.2 lb=203.0.113.1")), []string{lost}},
			{services(newService(t, "c/older", "10.96.0.3 lb=203.0.113.1", ":80").at(5)), []string{
				lostTo, "Service b/old is not served at 203.0.113.1, tcp port 80: Service c/older has it, which is older; give one of them another address or port",
			}},
			{gone("c/older"), []string{lost}},
		},
		"won, then lost again": {
			{services(old(), young("10.96.0.2 lb=203.0.113.1")), []string{lost}},
			{gone("b/old"), nil},
			{services(old()), []string{lost}},
		},
		"given up, then claimed again": {
			{services(old(), young("10.96.0.2 lb=203.0.113.1")), []string{lost}},
			{services(young("10.96.0.2")), nil},
			{services(young("10.96.0.2 lb=203.0.113.1")), []string{lost}},
		},
		"over before anybody asks": {
			{Changes{Services: append(services(old(), young("10.96.0.2 lb=203.0.113.1")).Services, gone("b/old").Services...)}, nil},
		},
		"another port or protocol is none": {
			{services(old(), newService(t, "a/young", "10.96.0.2 lb=203.0.113.1", ":81", "udp:80/udp").at(20)), nil},
		},
		"equally old, named ports": {
			{services(newService(t, "a/a", "10.96.0.1", "http:80"), newService(t, "b/b", "10.96.0.1", "web:80", "other:81")), []string{
				"Service b/b:web is not served at 10.96.0.1, tcp port 80: Service a/a:http has it, which is as old and comes first by name; give one of them another address or port",
			}},
		},
		"a NodePort, in each family": {
			{services(newService(t, "a/a", "10.96.0.1 fd00::1", ":80+30080").at(1), newService(t, "b/b", "10.96.0.2 fd00::2", ":81+30080", "udp:80+30080/udp").at(2)), []string{
				"Service b/b is not served at tcp nodePort 30080 (IPv4): Service a/a has it, which is older; give one of them another nodePort",
				"Service b/b is not served at tcp nodePort 30080 (IPv6): Service a/a has it, which is older; give one of them another nodePort",
			}},
		},
		"each family by itself": {
			{services(newService(t, "a/a", "10.96.0.1 fd00::1", ":80").at(1), newService(t, "b/b", "10.96.0.2 fd00::1", ":80").at(2)), []string{
				"Service b/b is not served at fd00::1, tcp port 80: Service a/a has it, which is older; give one of them another address or port",
			}},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			tracker := NewTracker(rules.Families())
			for i, step := range steps {
				tracker.Apply(step.changes)
				var got []string
				for _, p := range tracker.TakeProblems() {
					got = append(got, p.Err.Error())
				}
				if diff := cmp.Diff(step.want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("step %d:\n%s", i, diff)
				}
			}
		})
	}
}

// TestConflictObject is the Service that loses, as it is now.
func TestConflictObject(t *testing.T) {
	tracker := NewTracker(rules.Families())
	tracker.Apply(services(newService(t, "a/a", "10.96.0.1", ":80").at(1)))
	loser := newService(t, "b/b", "10.96.0.1", ":80").at(2)
	tracker.Apply(services(loser))
	named := *loser
	named.UID = "b-uid"
	if tracker.TakeChanges(); tracker.Apply(services(&named)) {
		t.Error("a UID touches service ports")
	}
	problems := tracker.TakeProblems()
	if len(problems) != 1 || problems[0].Reason != "AddressConflict" ||
		problems[0].Object != (ObjectRef{Kind: "Service", Name: objectName("b/b"), UID: types.UID("b-uid")}) {
		t.Errorf("%+v", problems)
	}
}
