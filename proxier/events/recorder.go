package events

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typedeventsv1 "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/utils/clock"
)

// Sink takes Events. None of its methods blocks.
type Sink interface {
	// Record tells about the Event, unless it was told lately or there are too many.
	Record(e Event)
}

const (
	// queued is how many Events wait at most for an API server that does not answer.
	queued = 100
	// retryInterval is the time between attempts to write an Event, attempts how many
	// there are.
	retryInterval = 10 * time.Second
	attempts      = 12
	// flushTime is what is left for queued Events when the process ends.
	flushTime = 2 * time.Second
)

// Recorder is the Sink that writes Events to the API server.
type Recorder struct {
	client   typedeventsv1.EventsV1Interface
	instance string
	clock    clock.Clock
	log      *zap.Logger
	limiter  *limiter
	queue    chan *eventsv1.Event
}

// NewRecorder returns a Recorder for the proxy on that node. Its owner has to call Run.
// A nil clock is the system's.
func NewRecorder(client typedeventsv1.EventsV1Interface, nodeName string, log *zap.Logger, c clock.Clock) *Recorder {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Recorder{
		client: client, instance: ReportingController + "-" + nodeName, clock: c, log: log,
		limiter: newLimiter(c), queue: make(chan *eventsv1.Event, queued),
	}
}

// Record implements [Sink]. An Event that comes before Run waits for it.
func (r *Recorder) Record(e Event) {
	if !r.limiter.allow(e) {
		r.log.Debug("an Event was told lately, or there are too many", e.fields()...)
		return
	}
	select {
	case r.queue <- e.object(r.instance, metav1.MicroTime{Time: r.clock.Now()}):
	default:
		r.log.Warn("an Event is lost: the API server does not take those before it", e.fields()...)
	}
}

// Run writes Events until the context is done. Then it takes up to two seconds to
// write those that are queued, and returns nil.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			r.flush(ctx, r.next())
			return nil
		case event := <-r.queue:
			if !r.write(ctx, event) {
				r.flush(ctx, event)
				return nil
			}
		}
	}
}

// next returns an Event that is queued, nil if there is none.
func (r *Recorder) next() *eventsv1.Event {
	select {
	case event := <-r.queue:
		return event
	default:
		return nil
	}
}

// write writes an Event, and tries again if that may help. It reports false if the
// context ended before the outcome was known.
func (r *Recorder) write(ctx context.Context, event *eventsv1.Event) bool {
	for attempt := 1; ; attempt++ {
		err := r.create(ctx, event)
		switch {
		case err == nil:
			return true
		case ctx.Err() != nil:
			return false
		case !temporary(err) || attempt == attempts:
			r.lost(event, err)
			return true
		}
		timer := r.clock.NewTimer(retryInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C():
		}
	}
}

// flush writes the Event and all that are queued, once each, with a context that goes on
// a little longer than that of the process.
func (r *Recorder) flush(ctx context.Context, event *eventsv1.Event) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
	defer cancel()
	for ; event != nil; event = r.next() {
		if err := r.create(ctx, event); err != nil {
			r.lost(event, err)
		}
	}
}

// create asks the API server to make the Event. That it is there already means that an
// earlier attempt did it, whose answer was lost.
func (r *Recorder) create(ctx context.Context, event *eventsv1.Event) error {
	_, err := r.client.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// temporary reports whether the same request may succeed later: the API server was not
// reached, or could not serve it.
func temporary(err error) bool {
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) || answer.Status().Code >= http.StatusInternalServerError || apierrors.IsTooManyRequests(err)
}

func (r *Recorder) lost(event *eventsv1.Event, err error) {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return // nobody is left to read it
	}
	hint := "the API server refuses it"
	switch {
	case apierrors.IsForbidden(err):
		hint = "a ClusterRole must allow to create events of events.k8s.io"
	case temporary(err):
		hint = "the API server cannot be reached, or has trouble"
	}
	r.log.Warn("an Event cannot be written", zap.String("hint", hint), zap.String("namespace", event.Namespace),
		zap.String("name", event.Regarding.Name), zap.String("reason", event.Reason), zap.String("note", event.Note), zap.Error(err))
}

// Logger is the Sink for when there is no API server: Events go to the log.
type Logger struct {
	log     *zap.Logger
	limiter *limiter
}

// NewLogger returns a Logger. A nil clock is the system's.
func NewLogger(log *zap.Logger, c clock.PassiveClock) *Logger {
	if c == nil {
		c = clock.RealClock{}
	}
	return &Logger{log: log, limiter: newLimiter(c)}
}

// Record implements [Sink].
func (l *Logger) Record(e Event) {
	if !l.limiter.allow(e) {
		return
	}
	level := zap.InfoLevel
	if e.Type == Warning {
		level = zap.WarnLevel
	}
	l.log.Log(level, "event", e.fields()...)
}
