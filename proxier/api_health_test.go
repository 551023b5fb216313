package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testingclock "k8s.io/utils/clock/testing"
)

func TestAPIHealth(t *testing.T) {
	refused := fmt.Errorf("failed to list: %w", &url.Error{Op: "Get", URL: "https://api:6443/api/v1/services?x=y", Err: errors.New("connection refused")})
	core, logs := observer.New(zap.DebugLevel)
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	h := newAPIHealth(zap.New(core), clock, "https://api:6443", []string{kindService, kindSlice}, []string{kindNode, kindServiceCIDR})
	waiting := func(kinds, why string) string {
		return "waiting for the first list of " + kinds + " from https://api:6443: " + why
	}
	cannot := func(kinds, why string) string {
		return "cannot watch " + kinds + " at https://api:6443: " + why + "; trying again, meanwhile the last known state stays"
	}
	without := func(kinds, why string) string {
		return "Services work without " + kinds + " from https://api:6443: " + why + "; trying again"
	}
	notFound := apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, false)
	steps := []struct {
		name string
		do   func()
		want []string
	}{
		{"no answer for ten seconds", func() { clock.Step(apiLogInterval); h.remind() }, []string{waiting("Services and EndpointSlices", "no answer yet")}},
		{"soon after", func() { clock.Step(time.Second); h.failed(kindService, refused); h.failed(kindSlice, refused) }, nil},
		{"ten seconds later", func() { clock.Step(apiLogInterval); h.remind() }, []string{waiting("Services and EndpointSlices", "connection refused")}},
		{"and again", func() { clock.Step(apiLogInterval); h.remind() }, []string{waiting("Services and EndpointSlices", "connection refused")}},
		{"one is there", func() { h.succeeded(kindService); h.listed(kindService) }, []string{"https://api:6443 answers again about Services"}},
		{"the other is still missing", func() { clock.Step(apiLogInterval); h.remind() }, []string{waiting("EndpointSlices", "connection refused")}},
		{"both are there", func() { h.succeeded(kindSlice); h.listed(kindSlice) }, []string{"https://api:6443 answers again about EndpointSlices"}},
		{"an outage", func() { clock.Step(time.Hour); h.failed(kindSlice, refused); h.failed(kindService, refused) }, []string{cannot("EndpointSlices", "connection refused")}},
		{"it goes on", func() { clock.Step(apiLogInterval); h.failed(kindSlice, refused) }, []string{cannot("EndpointSlices and Services", "connection refused")}},
		{"the end of it", func() { h.succeeded(kindSlice); h.succeeded(kindService); h.succeeded(kindService) }, []string{
			"https://api:6443 answers again about EndpointSlices", "https://api:6443 answers again about Services",
		}},
		{"no trouble", func() {
			clock.Step(time.Hour)
			h.failed(kindSlice, fmt.Errorf("watch: %w", context.Canceled))
			h.failed(kindSlice, apierrors.NewResourceExpired("too old"))
		}, nil},
		{"not allowed", func() {
			h.failed(kindSlice, apierrors.NewForbidden(schema.GroupResource{Resource: "endpointslices"}, "", errors.New("no role")))
		}, []string{cannot("EndpointSlices", "endpointslices is forbidden: no role (a ClusterRole must allow to list and watch them)")}},
		{"a watch that ends with an error", func() {
			clock.Step(apiLogInterval)
			h.clientLogger(kindSlice).Info("Warning: watch ended with error", "err", errors.New("cannot decode"))
		}, []string{cannot("EndpointSlices", "cannot decode")}},
		{"an error of the client", func() {
			clock.Step(apiLogInterval)
			h.clientLogger(kindSlice).WithName("x").WithValues("a", "b").Error(nil, "unknown event", "type", "X")
		}, []string{cannot("EndpointSlices", "unknown event typeX")}},
		{"an optional kind is refused", func() { clock.Step(apiLogInterval); h.failed(kindServiceCIDR, notFound) }, []string{
			without("ServiceCIDRs", "the server could not find the requested resource"),
		}},
		{"again and again", func() { clock.Step(time.Hour); h.failed(kindServiceCIDR, notFound) }, nil},
		{"services begin without it, and another", func() { h.without([]string{kindNode, kindServiceCIDR}) }, []string{without("Nodes", "no answer yet")}},
		{"both are there", func() { h.succeeded(kindNode); h.succeeded(kindServiceCIDR); h.succeeded(kindNode) }, []string{
			"https://api:6443 answers again about Nodes", "https://api:6443 answers again about ServiceCIDRs",
		}},
		{"an outage of an optional kind", func() { clock.Step(time.Hour); h.failed(kindNode, refused) }, nil},
		{"services begin in it", func() { h.without([]string{kindNode}) }, []string{without("Nodes", "connection refused")}},
		{"the end of that", func() { h.succeeded(kindNode) }, []string{"https://api:6443 answers again about Nodes"}},
		{"not allowed to read an optional kind", func() {
			h.failed(kindNode, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no role")))
		}, []string{without("Nodes", "nodes is forbidden: no role (a ClusterRole must allow to list and watch them)")}},
	}
	for _, step := range steps {
		step.do()
		var got []string
		for _, entry := range logs.TakeAll() {
			if entry.Level > zap.DebugLevel {
				got = append(got, entry.Message)
			}
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%s: want -, got +\n%s", step.name, diff)
		}
	}
	if h.remind() {
		t.Error("still reminding")
	}
}
