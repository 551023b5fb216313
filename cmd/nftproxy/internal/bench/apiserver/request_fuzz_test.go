package apiserver

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// FuzzParsePath: what is understood is written in one way, and means the same then.
func FuzzParsePath(f *testing.F) {
	for _, text := range []string{
		"/api/v1/services", "/api/v1/namespaces/a/services/b", "/api/v1/nodes/n", "/apis/discovery.k8s.io/v1/namespaces/a/endpointslices",
		"/apis/networking.k8s.io/v1/servicecidrs/x", "/api/v1/namespaces//services/", "/api/v1/namespaces/services/services", "//",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, ok := parsePath(text)
		if !ok {
			if p.resource.name != "" || p.namespace != "" || p.name != "" {
				t.Errorf("%q is not understood, and yet %+v", text, p)
			}
			return
		}
		canonical := "/apis/" + p.resource.gv
		if p.resource.gv == "v1" {
			canonical = "/api/v1"
		}
		if p.namespace != "" {
			canonical += "/namespaces/" + p.namespace
		}
		canonical += "/" + p.resource.name
		if p.name != "" {
			canonical += "/" + p.name
		}
		again, ok := parsePath(canonical)
		if !ok || again.resource.name != p.resource.name || again.namespace != p.namespace || again.name != p.name {
			t.Errorf("%q is %+v, but %q is %+v", text, p, canonical, again)
		}
		if strings.Contains(p.namespace, "/") || strings.Contains(p.name, "/") {
			t.Errorf("%q: names with slashes in %+v", text, p)
		}
	})
}

// FuzzRequest: every request is answered, in the encoding that the answer says it has, and
// with selected objects alone. Watches end with their request.
func FuzzRequest(f *testing.F) {
	s := New()
	labels := map[string]string{"app": "web"}
	for _, o := range []runtime.Object{
		service("a", "10.0.0.1", labels), service("b", "None", nil), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		&discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a-1", Labels: labels}},
	} {
		if err := s.Put(o); err != nil {
			f.Fatal(err)
		}
	}
	const path = "/api/v1/services"
	for _, seed := range []struct{ method, path, query, accept, body string }{
		{"GET", path, "labelSelector=app%3Dweb&fieldSelector=spec.clusterIP%21%3DNone", protobufType + "," + jsonType, ""},
		{"GET", path, "watch=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", jsonType, ""},
		{"GET", path, "watch=true&resourceVersion=2&timeoutSeconds=5&allowWatchBookmarks=1", protobufType + ";stream=watch", ""},
		{"GET", "/api/v1/nodes/n", "", "application/json;as=Table;g=meta.k8s.io;v=v1, */*", ""},
		{"GET", "/apis/discovery.k8s.io/v1/endpointslices", "limit=500&labelSelector=%21x", "application/yaml", ""},
		{"GET", "/version", "", "", ""},
		{"POST", "/apis/events.k8s.io/v1/namespaces/default/events", "", jsonType, "{}"},
		{"DELETE", "/api/v1/nodes/n", "", "", ""},
	} {
		f.Add(seed.method, seed.path, seed.query, seed.accept, seed.body)
	}
	f.Fuzz(func(t *testing.T, method, path, query, accept, body string) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		r := (&http.Request{
			Method: method, URL: &url.URL{Path: path, RawQuery: query}, Header: http.Header{"Accept": {accept}},
			Body: io.NopCloser(strings.NewReader(body)),
		}).WithContext(ctx)
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		want := []int{http.StatusOK, http.StatusCreated, http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed}
		if !slices.Contains(want, w.Code) {
			t.Fatalf("status %d: %s", w.Code, w.Body)
		}
		p, ok := parsePath(path)
		if !ok || w.Code != http.StatusOK || method != http.MethodGet {
			return
		}
		q, err := parseQuery(r, p.namespace)
		switch {
		case p.name != "":
			checkAnswer(t, s, w, func(o runtime.Object) bool {
				return s.store.get(p.resource, keyOf(p.namespace, p.name)) != nil && !meta.IsListType(o)
			})
		case err != nil:
			t.Errorf("%q is answered, and yet %v", query, err)
		case !q.watch:
			checkAnswer(t, s, w, func(o runtime.Object) bool {
				all, err := meta.ExtractList(o)
				return err == nil && !slices.ContainsFunc(all, func(o runtime.Object) bool { return !q.matches(o) })
			})
		}
	})
}

// checkAnswer decodes an answer as its content type says.
func checkAnswer(t *testing.T, s *Server, w *httptest.ResponseRecorder, right func(runtime.Object) bool) {
	t.Helper()
	contentType := w.Header().Get("Content-Type")
	info, ok := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), contentType)
	if !ok || (contentType != jsonType && contentType != protobufType) {
		t.Fatalf("content type %q", contentType)
	}
	o, _, err := info.Serializer.Decode(w.Body.Bytes(), nil, nil)
	if err != nil {
		t.Fatalf("%s: %v", contentType, err)
	}
	if !right(o) {
		t.Errorf("not what was asked for: %v", o)
	}
}
