package proxier

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/nftproxy/nftproxy/proxier/events"
	"github.com/nftproxy/nftproxy/proxier/metrics"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// sink is an events.Sink that keeps what it gets.
type sink []events.Event

func (s *sink) Record(e events.Event) { *s = append(*s, e) }

// TestProblemsAreCountedAndTold: a bad annotation is a metric of its own, and every
// problem of an object an Event about it.
func TestProblemsAreCountedAndTold(t *testing.T) {
	m, told := metrics.New(rules.Families(), metrics.BuildInfo{}), &sink{}
	r := newReporter(Observers{Metrics: m, Events: told}, rules.Families(), time.Now())
	service := ObjectRef{Kind: kindService, Name: objectName("default/web"), UID: "uid"}
	r.problem(Problem{Object: service, Reason: ReasonBadAnnotation, Err: errors.New("weights")})
	r.problem(Problem{Object: service, Reason: ReasonUnusableField, Err: errors.New("address")})
	r.problem(Problem{Reason: ReasonBadManifest, Err: errors.New("file")}) // of no object
	for name, want := range map[string]int{"nftproxy_bad_annotations_total": 1, "nftproxy_skipped_objects_total": 2} {
		if n, err := testutil.GatherAndCount(m.Gatherer(), name); err != nil || n != want {
			t.Errorf("%s has %d series, want %d; %v", name, n, want, err)
		}
	}
	if len(*told) != 2 || (*told)[0].Reason != ReasonBadAnnotation || (*told)[0].Regarding.UID != "uid" || (*told)[0].Note != "weights" {
		t.Errorf("Events: %+v", *told)
	}
}

// TestNoLocalEndpoints counts what kube-proxy counts: service ports that are served, but
// not from here, where their policy wants that.
func TestNoLocalEndpoints(t *testing.T) {
	key := rules.ServicePortKey{ServicePortName: rules.ServicePortName{Name: "web"}, Family: rules.IPv4}
	external := []rules.Frontend{{Kind: rules.ExternalIP}}
	local := []rules.Endpoint{{Local: true}}
	n := newNoLocalEndpoints()
	for i, step := range []struct {
		port               *rules.ServicePort
		internal, external int
	}{
		{&rules.ServicePort{InternalLocal: true, Served: true}, 1, 0},
		{&rules.ServicePort{InternalLocal: true, ExternalLocal: true, Frontends: external, Served: true}, 1, 1},
		{&rules.ServicePort{InternalLocal: true, ExternalLocal: true, Frontends: external, Served: true, LocalEndpoints: local}, 0, 0},
		{&rules.ServicePort{ExternalLocal: true, Frontends: external, Served: true}, 0, 1},
		{&rules.ServicePort{ExternalLocal: true, Served: true}, 0, 0},                             // no way in from outside
		{&rules.ServicePort{InternalLocal: true, ExternalLocal: true, Frontends: external}, 0, 0}, // nobody serves
		{&rules.ServicePort{InternalLocal: true, Served: true}, 1, 0},
		{nil, 0, 0},
	} {
		n.update([]syncer.Change{{Key: key, ServicePort: step.port}})
		if i4, e4 := n.count(rules.IPv4); i4 != step.internal || e4 != step.external {
			t.Errorf("step %d: internal %d, external %d; want %d, %d", i, i4, e4, step.internal, step.external)
		}
	}
}
