package proxier

import (
	"context"
	"errors"
	"fmt"
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
	h := newAPIHealth(zap.New(core), clock, "https://api:6443", kindService, kindSlice)
	waiting := func(kinds, why string) string {
		return "waiting for the first list of " + kinds + " from https://api:6443: " + why
	}
	cannot := func(kinds, why string) string {
		return "cannot watch " + kinds + " at https://api:6443: " + why + "; trying again, meanwhile the last known state stays"
	}
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
