package proxier

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"
)

// The first lists of the required kinds are waited for without end, those of the
// optional ones for a while after these.
func TestAPIOutputSynced(t *testing.T) {
	required, optional := []string{kindService, kindSlice}, []string{kindNode, kindServiceCIDR}
	tests := []struct {
		name    string
		lists   []string // that arrive at once
		passes  time.Duration
		synced  int
		missing string
	}{
		{name: "all", lists: []string{kindService, kindSlice, kindNode, kindServiceCIDR}, synced: 1},
		{name: "all, the optional ones first", lists: []string{kindServiceCIDR, kindNode, kindSlice, kindService}, synced: 1},
		{name: "some twice", lists: []string{kindNode, kindService, kindNode, kindService, kindSlice, kindServiceCIDR, kindNode}, synced: 1},
		{name: "a required one is missing", lists: []string{kindService, kindNode, kindServiceCIDR}, passes: time.Hour},
		{name: "an optional one is missing", lists: []string{kindSlice, kindNode, kindService}},
		{name: "and not yet given up", lists: []string{kindSlice, kindNode, kindService}, passes: optionalWait - 1},
		{name: "and given up", lists: []string{kindSlice, kindNode, kindService}, passes: optionalWait, synced: 1, missing: "ServiceCIDR"},
		{name: "both are given up", lists: []string{kindSlice, kindService}, passes: optionalWait, synced: 1, missing: "Node ServiceCIDR"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r, clock := newSourceRecorder(t), testingclock.NewFakeClock(time.Unix(0, 0))
			out := newAPIOutput(r, required, optional)
			for _, kind := range test.lists {
				out.apply(kind, Changes{}, nil, true)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			missing, ended := "", make(chan struct{})
			go func() {
				defer close(ended)
				out.await(ctx, clock, func(kinds []string) { missing = strings.Join(kinds, " ") })
			}()
			waits := test.synced == 0 || test.missing != "" // or it ends by itself
			for ready := len(out.required) == 0; waits && ready && !clock.HasWaiters(); {
				time.Sleep(time.Millisecond)
			}
			clock.Step(test.passes)
			if test.synced == 0 {
				cancel()
			}
			<-ended
			if missing != test.missing || r.synced != test.synced {
				t.Errorf("synced %d times, without %q", r.synced, missing)
			}
			for _, kind := range slices.Concat(required, optional) { // however late
				out.apply(kind, Changes{}, nil, true)
			}
			if r.synced != 1 {
				t.Errorf("synced %d times in the end", r.synced)
			}
		})
	}
}

// An API server that does not know ServiceCIDRs, does not let the Node be read, or
// fails to, holds up services for a moment only. What it gives later is used.
func TestAPIWithoutOptionalKinds(t *testing.T) {
	tests := map[string]struct {
		resource string
		err      error
		wantLog  string
		names    string // without the kind
	}{
		"unknown": {
			"servicecidrs", apierrors.NewGenericServerResponse(404, "list", schema.GroupResource{}, "", "", 0, false),
			"Services work without ServiceCIDRs from the API server: the server could not find the requested resource; trying again", "ns/a ns/a-1 node-1",
		},
		"forbidden": {
			"nodes", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no role")),
			"Services work without Nodes from the API server: nodes is forbidden: no role (a ClusterRole must allow to list and watch them); trying again", "ns/a ns/a-1 kubernetes",
		},
		"broken": {
			"nodes", apierrors.NewInternalError(errors.New("x")),
			"Services work without Nodes from the API server: Internal error occurred: x; trying again", "ns/a ns/a-1 kubernetes",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(namedService("a", "10.96.0.1"), namedSlice("a-1", "10.244.1.1"), kubeNode(nil), kubeServiceCIDR("kubernetes", "10.96.0.0/16"))
			r := newSourceRecorder(t)
			healed := false
			client.PrependReactor("list", test.resource, func(kubetesting.Action) (done bool, _ runtime.Object, _ error) {
				r.get(func() { done = !healed })
				return done, nil, test.err
			})
			core, logs := observer.New(zap.DebugLevel)
			a, clock := NewAPI(client, "node-1", zap.New(core)), testingclock.NewFakeClock(time.Unix(0, 0))
			a.clock = clock
			r.start(a)
			r.waitNames(test.names)
			failed := func(e observer.LoggedEntry) bool {
				return e.Level > zap.DebugLevel || e.Message == "an optional kind is not being watched"
			}
			for logs.Filter(failed).Len() == 0 {
				time.Sleep(time.Millisecond)
			}
			r.get(func() {
				if r.synced > 0 {
					t.Error("synced before the time was up")
				}
			})
			for synced := 0; synced == 0; r.get(func() { synced = r.synced }) {
				clock.Step(optionalWait) // perhaps before it is waited for
				time.Sleep(time.Millisecond)
			}
			r.get(func() { healed = true })
			r.waitNames("ns/a ns/a-1 node-1 kubernetes")
			r.waitSynced()
			var messages []string
			for _, entry := range logs.Filter(func(e observer.LoggedEntry) bool { return e.Level > zap.DebugLevel }).All() {
				// The request and the reflector report the same error.
				messages = append(messages, strings.Replace(entry.Message, "failed to list *v1.Node: ", "", 1))
			}
			if len(messages) != 2 || messages[0] != test.wantLog || !strings.HasPrefix(messages[1], "the API server answers again about ") {
				t.Errorf("logged %q", messages)
			}
		})
	}
}
