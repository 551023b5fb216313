package events_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nftproxy/nftproxy/proxier/events"
)

// about makes a Warning about a Service.
func about(service, reason, note string) events.Event {
	return events.Event{
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "default", Name: service, UID: "uid-1"},
		Type:      events.Warning, Reason: reason, Action: "Listen", Note: note,
	}
}

// server is a fake API server whose answers can be chosen.
type server struct {
	*fake.Clientset
	created chan *eventsv1.Event // what was made, in order
	answers chan error           // to the next requests; without one, the Event is made
}

func newServer() *server {
	s := &server{Clientset: fake.NewClientset(), created: make(chan *eventsv1.Event, 200), answers: make(chan error, 200)}
	s.PrependReactor("create", "events", func(action clienttesting.Action) (bool, runtime.Object, error) {
		select {
		case err := <-s.answers:
			if err != nil {
				return true, nil, err
			}
		default:
		}
		event, ok := action.(clienttesting.CreateAction).GetObject().(*eventsv1.Event)
		if !ok {
			return true, nil, errors.New("not an Event")
		}
		s.created <- event
		return true, event, nil
	})
	return s
}

// harness is a Recorder with its surroundings.
type harness struct {
	*events.Recorder
	server *server
	clock  *testingclock.FakeClock
	logs   *observer.ObservedLogs
}

func newHarness() *harness {
	core, logs := observer.New(zap.InfoLevel)
	h := &harness{server: newServer(), clock: testingclock.NewFakeClock(time.Unix(1_700_000_000, 0)), logs: logs}
	h.Recorder = events.NewRecorder(h.server.EventsV1(), "node-1", zap.New(core), h.clock)
	return h
}

// start runs the Recorder until stop is called, which waits for it.
func (h *harness) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// notes returns the notes of what the API server was given, after the Recorder has
// ended.
func (h *harness) notes() []string {
	close(h.server.created)
	var notes []string
	for event := range h.server.created {
		notes = append(notes, event.Note)
	}
	return notes
}

func TestEvent(t *testing.T) {
	h := newHarness()
	stop := h.start(t)
	h.Record(about("web", "FailedToStartServiceHealthcheck", "the port is in use"))
	got := <-h.server.created
	stop()
	want := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: "default", Name: "web.17979cfe362a0000"},
		EventTime:           metav1.MicroTime{Time: time.Unix(1_700_000_000, 0)},
		ReportingController: "nftproxy", ReportingInstance: "nftproxy-node-1",
		Type: "Warning", Reason: "FailedToStartServiceHealthcheck", Action: "Listen", Note: "the port is in use",
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: "default", Name: "web", UID: "uid-1"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

// TestEventOfANode: an object without a namespace has its Events in "default".
func TestEventOfANode(t *testing.T) {
	h := newHarness()
	stop := h.start(t)
	h.Record(events.Event{
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: "node-1", UID: "node-1"},
		Type:      events.Normal, Reason: "Starting", Action: "StartKubeProxy",
	})
	got := <-h.server.created
	stop()
	if got.Namespace != "default" || got.Regarding.Namespace != "" || got.Type != "Normal" {
		t.Errorf("got %+v", got)
	}
}

// TestLimitsOfTheAPI: what the API server would refuse as too long is cut.
func TestLimitsOfTheAPI(t *testing.T) {
	server := newServer()
	long := events.NewRecorder(server.EventsV1(), strings.Repeat("n", 253), zap.NewNop(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	long.Record(about("web", "R", strings.Repeat("a", 1023)+"ä"))
	long.Record(about("web", "R", strings.Repeat("a", 1022)+"ä"))
	if err := long.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if got := <-server.created; len(got.Note) != 1023 || len(got.ReportingInstance) != 128 {
		t.Errorf("note of %d bytes, instance of %d", len(got.Note), len(got.ReportingInstance))
	}
	if got := <-server.created; len(got.Note) != 1024 {
		t.Errorf("note of %d bytes", len(got.Note))
	}
}

// TestRepetition: the same text about the same object is told once in ten minutes.
func TestRepetition(t *testing.T) {
	h := newHarness()
	steps := []struct {
		event events.Event
		after time.Duration
		told  bool
	}{
		{about("web", "Bad", "1"), 0, true},
		{about("web", "Bad", "1"), 0, false},
		{about("web", "Bad", "2"), 0, true},
		{about("web", "Worse", "1"), 0, true},
		{about("dns", "Bad", "1"), 0, true},
		{about("web", "Bad", "1"), events.RepeatInterval - time.Second, false},
		{about("web", "Bad", "1"), time.Second, true},
		{about("web", "Bad", "1"), events.RepeatInterval / 2, false},
	}
	var want []string
	for _, step := range steps {
		h.clock.Step(step.after)
		h.Record(step.event)
		if step.told {
			want = append(want, step.event.Note)
		}
	}
	h.start(t)()
	if diff := cmp.Diff(want, h.notes()); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

// TestFlood: of many different Events a burst is told, then one now and then. One that
// was left out may be told when it comes again.
func TestFlood(t *testing.T) {
	h := newHarness()
	var want []string
	for i := range 5000 {
		note := strconv.Itoa(i)
		h.Record(about("web", "Bad", note))
		if i < events.Burst {
			want = append(want, note)
		}
	}
	h.clock.Step(events.Interval)
	h.Record(about("web", "Bad", "4999"))
	h.Record(about("web", "Bad", "4998"))
	h.start(t)()
	if diff := cmp.Diff(append(want, "4999"), h.notes()); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

// TestRetry: an Event is written once the API server takes it, in its turn.
func TestRetry(t *testing.T) {
	h := newHarness()
	temporary := []error{
		errors.New("connection refused"),
		apierrors.NewTooManyRequests("slow down", 1),
		apierrors.NewInternalError(errors.New("no etcd")),
		apierrors.NewServiceUnavailable("starting"),
	}
	for _, err := range temporary {
		h.server.answers <- err
	}
	stop := h.start(t)
	h.Record(about("web", "Bad", "first"))
	h.Record(about("web", "Bad", "second"))
	for range temporary {
		h.waitForWaiter()
		h.clock.Step(time.Minute)
	}
	for _, want := range []string{"first", "second"} {
		if got := <-h.server.created; got.Note != want {
			t.Errorf("got %q, want %q", got.Note, want)
		}
	}
	stop()
	if n := h.logs.Len(); n != 0 {
		t.Errorf("the log has %v", h.logs.All())
	}
}

// waitForWaiter waits until a timer runs.
func (h *harness) waitForWaiter() {
	for !h.clock.HasWaiters() {
		time.Sleep(time.Millisecond)
	}
}

// TestGivingUp: an API server that is away for long costs an Event, and a line.
func TestGivingUp(t *testing.T) {
	h := newHarness()
	const attempts = 12
	for range attempts {
		h.server.answers <- errors.New("connection refused")
	}
	stop := h.start(t)
	h.Record(about("web", "Bad", "lost"))
	h.Record(about("web", "Bad", "next"))
	for range attempts - 1 {
		h.waitForWaiter()
		h.clock.Step(time.Minute)
	}
	if got := <-h.server.created; got.Note != "next" {
		t.Errorf("got %q", got.Note)
	}
	stop()
	if lines := h.logs.FilterMessage("an Event cannot be written").Len(); lines != 1 {
		t.Errorf("the log has %v", h.logs.All())
	}
}

// TestRefusal: what the API server does not want is not tried again.
func TestRefusal(t *testing.T) {
	resource := schema.GroupResource{Group: "events.k8s.io", Resource: "events"}
	terminating := apierrors.NewForbidden(resource, "web.1", errors.New("the namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	tests := []struct {
		name string
		err  error
		hint string // in the log; empty: no line
	}{
		{"no role", apierrors.NewForbidden(resource, "", errors.New("no role")), "a ClusterRole must allow to create events of events.k8s.io"},
		{"invalid", apierrors.NewBadRequest("no such type"), "the API server refuses it"},
		{"a namespace that ends", terminating, ""},
		{"it is there", apierrors.NewAlreadyExists(resource, "web.1"), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h := newHarness()
			h.server.answers <- test.err
			h.Record(about("web", "Bad", "refused"))
			h.Record(about("web", "Bad", "next"))
			stop := h.start(t)
			if got := <-h.server.created; got.Note != "next" {
				t.Errorf("got %q", got.Note)
			}
			stop()
			var hints []any
			for _, line := range h.logs.All() {
				hints = append(hints, line.ContextMap()["hint"])
			}
			var want []any
			if test.hint != "" {
				want = []any{test.hint}
			}
			if diff := cmp.Diff(want, hints); diff != "" {
				t.Errorf("want -, got +\n%s", diff)
			}
		})
	}
}

// TestEnd: what is queued, and what is being tried, is written at the end.
func TestEnd(t *testing.T) {
	h := newHarness()
	h.server.answers <- errors.New("connection refused")
	stop := h.start(t)
	h.Record(about("web", "Bad", "first"))
	h.waitForWaiter()
	h.Record(about("web", "Bad", "second"))
	stop()
	if diff := cmp.Diff([]string{"first", "second"}, h.notes()); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if h.clock.HasWaiters() {
		t.Error("a timer still runs")
	}
}

// TestEndWithoutServer: nothing is tried twice at the end.
func TestEndWithoutServer(t *testing.T) {
	h := newHarness()
	for range 3 {
		h.server.answers <- errors.New("connection refused")
	}
	stop := h.start(t)
	h.Record(about("web", "Bad", "first"))
	h.waitForWaiter()
	h.Record(about("web", "Bad", "second"))
	stop()
	if notes := h.notes(); len(notes) != 0 || h.logs.FilterMessage("an Event cannot be written").Len() != 2 {
		t.Errorf("written %q, the log has %v", notes, h.logs.All())
	}
}

// TestFullQueue: while the API server takes nothing, what does not fit is in the log.
func TestFullQueue(t *testing.T) {
	h := newHarness()
	const queued = 100
	for i := range queued + 3 {
		h.Record(about("web", "Bad", strconv.Itoa(i)))
		h.clock.Step(events.Interval)
	}
	if n := h.logs.FilterMessageSnippet("an Event is lost").Len(); n != 3 {
		t.Errorf("%d lines about lost Events, want 3", n)
	}
	h.start(t)()
	if n := len(h.notes()); n != queued {
		t.Errorf("%d Events, want %d", n, queued)
	}
}

func TestLogger(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	l := events.NewLogger(zap.New(core), testingclock.NewFakePassiveClock(time.Unix(0, 0)))
	started := about("web", "Starting", "")
	started.Type = events.Normal
	for _, e := range []events.Event{about("web", "Bad", "too bad"), about("web", "Bad", "too bad"), started} {
		l.Record(e)
	}
	var got []zapcore.Level
	for _, line := range logs.All() {
		got = append(got, line.Level)
	}
	if diff := cmp.Diff([]zapcore.Level{zap.WarnLevel, zap.InfoLevel}, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	want := map[string]any{"kind": "Service", "namespace": "default", "name": "web", "reason": "Bad", "action": "Listen", "note": "too bad"}
	if diff := cmp.Diff(want, logs.All()[0].ContextMap()); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

// Both are sinks.
var (
	_ events.Sink = (*events.Recorder)(nil)
	_ events.Sink = (*events.Logger)(nil)
)
