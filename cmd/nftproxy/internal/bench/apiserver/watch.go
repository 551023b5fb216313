package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// bookmarkPeriod is how often a watch says how far it is: as often as a real API
	// server.
	bookmarkPeriod = time.Minute
	// watchTime is how long a watch takes whose client does not say it.
	watchTime = time.Hour
)

// query is what the query of a request says.
type query struct {
	selection
	watch     bool
	version   uint64 // 0 for any
	initial   bool   // a watch begins with all objects and a bookmark (WatchList)
	bookmarks bool
	timeout   time.Duration
}

func parseQuery(r *http.Request, namespace string) (q query, err error) {
	v := r.URL.Query()
	if q.selection, err = newSelection(namespace, v.Get("labelSelector"), v.Get("fieldSelector")); err != nil {
		return query{}, err
	}
	for name, flag := range map[string]*bool{"watch": &q.watch, "sendInitialEvents": &q.initial, "allowWatchBookmarks": &q.bookmarks} {
		if text := v.Get(name); text != "" {
			if *flag, err = strconv.ParseBool(text); err != nil {
				return query{}, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if text := v.Get("resourceVersion"); text != "" {
		if q.version, err = strconv.ParseUint(text, 10, 64); err != nil {
			return query{}, fmt.Errorf("resourceVersion: %w", err)
		}
	}
	q.timeout = watchTime
	if text := v.Get("timeoutSeconds"); text != "" {
		seconds, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return query{}, fmt.Errorf("timeoutSeconds: %w", err)
		}
		if seconds > 0 { // 0 is as good as none
			q.timeout = time.Duration(seconds) * time.Second
		}
	}
	return q, nil
}

func formatVersion(version uint64) string { return strconv.FormatUint(version, 10) }

// watch writes events until the client is gone, the time is over, or the server ends. An
// error after the beginning ends it too: the client comes again.
func (s *Server) watch(ctx context.Context, w http.ResponseWriter, r resource, q query, out encoding) error {
	ctx, cancel := context.WithTimeout(ctx, q.timeout)
	defer cancel()
	w.Header().Set("Content-Type", out.streamType())
	w.WriteHeader(http.StatusOK)
	watching := watcher{store: s.store, resource: r, query: q, out: out.stream(w), flush: http.NewResponseController(w).Flush}
	_ = watching.run(ctx) // see above
	return nil
}

// watcher is a watch that runs.
type watcher struct {
	query
	store    *store
	resource resource
	out      *stream
	flush    func() error
}

func (w *watcher) run(ctx context.Context) error {
	if w.initial || w.version == 0 {
		if err := w.begin(); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(bookmarkPeriod)
	defer ticker.Stop()
	for {
		events, version, changed := w.store.since(w.resource, w.version)
		for _, e := range events {
			kind, o := w.seen(e)
			if kind == "" {
				continue
			}
			if err := w.out.write(kind, o); err != nil {
				return err
			}
		}
		w.version = version
		if err := w.flush(); err != nil {
			return fmt.Errorf("write a watch: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-ticker.C:
			if err := w.bookmark(nil); err != nil {
				return err
			}
		}
	}
}

// begin writes all objects, and the bookmark after them if it was asked for.
func (w *watcher) begin() error {
	objects, version := w.store.list(w.resource, w.selection)
	for _, o := range objects {
		if err := w.out.write(watch.Added, o); err != nil {
			return err
		}
	}
	w.version = version
	if !w.initial {
		return nil
	}
	return w.bookmark(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
}

// bookmark writes how far the watch is.
func (w *watcher) bookmark(annotations map[string]string) error {
	if !w.bookmarks {
		return nil
	}
	gv, err := schema.ParseGroupVersion(w.resource.gv)
	if err != nil {
		return fmt.Errorf("write a bookmark: %w", err)
	}
	o, err := scheme.Scheme.New(gv.WithKind(w.resource.kind))
	if err != nil {
		return fmt.Errorf("write a bookmark: %w", err)
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return fmt.Errorf("write a bookmark: %w", err)
	}
	m.SetResourceVersion(formatVersion(w.version))
	m.SetAnnotations(annotations)
	return w.out.write(watch.Bookmark, o)
}
