package proxier

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// apiLogInterval is the least time between two lines about the same trouble.
const apiLogInterval = 10 * time.Second

// apiHealth tells the user, in few lines, how it is going with the API server.
type apiHealth struct {
	log    *zap.Logger
	clock  clock.WithTicker
	server string

	mu      sync.Mutex
	waiting []string         // the required kinds whose first full list is still to come
	failing map[string]error // by required kind: why it is not being watched
	// optional has the kinds that services do without, with their last error, nil if
	// there is none.
	optional map[string]error
	told     map[string]bool // by kind: the log says that it is failing
	last     time.Time       // of the last line about trouble
}

func newAPIHealth(log *zap.Logger, c clock.WithTicker, server string, required, optional []string) *apiHealth {
	h := &apiHealth{
		log: log, clock: c, server: server, waiting: slices.Clone(required),
		failing: map[string]error{}, optional: map[string]error{}, told: map[string]bool{},
	}
	for _, kind := range optional {
		h.optional[kind] = nil
	}
	return h
}

// run repeats what is being waited for until everything is there.
func (h *apiHealth) run(ctx context.Context) {
	ticker := h.clock.NewTicker(apiLogInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		if !h.remind() {
			return
		}
	}
}

// remind returns false once there is nothing more to wait for.
func (h *apiHealth) remind() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.waiting) == 0 {
		return false
	}
	if h.clock.Since(h.last) >= apiLogInterval {
		h.tell()
	}
	return true
}

// listed notes that a full list of the kind has arrived.
func (h *apiHealth) listed(kind string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = slices.DeleteFunc(h.waiting, func(k string) bool { return k == kind })
	h.answered(kind)
}

// succeeded notes that the API server answered a request for the kind.
func (h *apiHealth) succeeded(kind string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answered(kind)
}

func (h *apiHealth) answered(kind string) {
	delete(h.failing, kind)
	if _, ok := h.optional[kind]; ok {
		h.optional[kind] = nil
	}
	if h.told[kind] {
		delete(h.told, kind)
		h.log.Info(fmt.Sprintf("%s answers again about %ss", h.server, kind))
	}
}

// failed notes that the kind is not being watched.
func (h *apiHealth) failed(kind string, err error) {
	// An end that was asked for, or a version that is too old to go on from, is no
	// trouble.
	if errors.Is(err, context.Canceled) || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.optional[kind]; ok {
		h.failedOptional(kind, err)
		return
	}
	h.failing[kind] = err
	if h.clock.Since(h.last) >= apiLogInterval {
		h.tell()
	}
}

// tell writes one line about everything that is being waited for, or that fails.
func (h *apiHealth) tell() {
	h.last = h.clock.Now()
	why := "no answer yet"
	kinds := slices.Sorted(maps.Keys(h.failing))
	for _, kind := range kinds {
		h.told[kind] = true
		why = explain(h.failing[kind])
	}
	if len(h.waiting) > 0 {
		h.log.Warn(fmt.Sprintf("waiting for the first list of %ss from %s: %s", strings.Join(h.waiting, "s and "), h.server, why))
		return
	}
	h.log.Warn(fmt.Sprintf("cannot watch %ss at %s: %s; trying again, meanwhile the last known state stays",
		strings.Join(kinds, "s and "), h.server, why))
}

// explain says why a request failed, and what to do where that is known.
func explain(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // without the URL with all its parameters
	}
	switch {
	case apierrors.IsForbidden(err):
		return err.Error() + " (a ClusterRole must allow to list and watch them)"
	case apierrors.IsUnauthorized(err):
		return err.Error() + " (the credentials are missing or have expired)"
	default:
		return err.Error()
	}
}

// observe returns a ListWatch that notes how its requests went.
func (h *apiHealth) observe(kind string, lw *cache.ListWatch) *cache.ListWatch {
	note := func(err error) {
		if err != nil {
			h.failed(kind, err)
			return
		}
		h.succeeded(kind)
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := lw.ListWithContext(ctx, o)
			note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := lw.WatchWithContext(ctx, o)
			note(err)
			return w, err
		},
	}
}

// clientLogger returns the logger for client-go's reflector of the kind. The
// reflector has errors of its own, such as an event that cannot be decoded: they
// are noted like those of requests. Everything else is for debugging.
func (h *apiHealth) clientLogger(kind string) logr.Logger {
	return logr.New(clientLog{health: h, kind: kind})
}

type clientLog struct {
	health *apiHealth
	kind   string
}

func (l clientLog) Init(logr.RuntimeInfo)          {}
func (l clientLog) WithValues(...any) logr.LogSink { return l }
func (l clientLog) WithName(string) logr.LogSink   { return l }

// Enabled implements [logr.LogSink]. The levels are those of the flag --v, as for all of
// client-go: at 8 it logs whole answers.
func (l clientLog) Enabled(level int) bool {
	return level == 0 || l.health.log.Core().Enabled(zapcore.Level(-level))
}

// Info implements [logr.LogSink]. A watch that ends with an error is logged with
// it, as information of level 0.
func (l clientLog) Info(level int, msg string, kv ...any) {
	for i := 1; i < len(kv); i += 2 {
		if err, ok := kv[i].(error); ok && level == 0 {
			l.health.failed(l.kind, err)
		}
	}
	l.health.log.Named("client-go").Log(zapcore.Level(-max(level, 1)), msg, zap.Any("details", kv))
}

// Error implements [logr.LogSink].
func (l clientLog) Error(err error, msg string, kv ...any) {
	if err == nil {
		err = errors.New(msg + " " + fmt.Sprint(kv...))
	}
	l.health.failed(l.kind, err)
}

// serverOf returns the address of the API server that the client talks to.
func serverOf(client kubernetes.Interface) string {
	c, ok := client.CoreV1().RESTClient().(*rest.RESTClient)
	if !ok || c == nil { // not a client of a server
		return "the API server"
	}
	u := c.Get().URL()
	return u.Scheme + "://" + u.Host
}
