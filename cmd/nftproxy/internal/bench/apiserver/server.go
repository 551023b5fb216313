package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
)

// The version of Kubernetes that the server says it is.
const (
	major, minor = "1", "37"
)

const (
	// largestRequest is how much a client may send.
	largestRequest = 1 << 20
	// headerTimeout is how long a client may take to say what it wants.
	headerTimeout = 10 * time.Second
)

// Server is an API server.
type Server struct {
	store  *store
	codecs serializer.CodecFactory
}

// New returns a server without objects.
func New() *Server { return &Server{store: newStore(), codecs: scheme.Codecs} }

// Put creates or replaces a Service, EndpointSlice, Node or ServiceCIDR, and sets its
// resource version. The caller must not change the object any more. An error says that it
// is none of these.
func (s *Server) Put(o runtime.Object) error { return s.store.put(o, false) }

// Delete deletes an object; o is its last state, as for Put. It is an error if there is
// none.
func (s *Server) Delete(o runtime.Object) error { return s.store.put(o, true) }

// Serve serves until the context is done, then ends all watches, and returns nil. It
// closes the listener.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx }, // watches end with it
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() { stopped <- server.Shutdown(context.WithoutCancel(ctx)) })
	err := server.Serve(l)
	if stop() {
		return fmt.Errorf("serve the API: %w", err)
	}
	if err := <-stopped; err != nil {
		return fmt.Errorf("end the API server: %w", err)
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := s.serve(w, r)
	var status apierrors.APIStatus
	if err == nil {
		return
	}
	if !errors.As(err, &status) {
		status = apierrors.NewBadRequest(err.Error())
	}
	st := status.Status()
	st.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(int(st.Code))
	_ = json.NewEncoder(w).Encode(st) // a client that is gone needs no answer
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) error {
	switch {
	case r.Method == http.MethodPost:
		return accept(w, r)
	case r.Method != http.MethodGet:
		return apierrors.NewMethodNotSupported(schema.GroupResource{Resource: r.URL.Path}, r.Method)
	case r.URL.Path == "/version":
		w.Header().Set("Content-Type", runtime.ContentTypeJSON)
		return json.NewEncoder(w).Encode(version.Info{Major: major, Minor: minor, GitVersion: "v" + major + "." + minor + ".0"})
	}
	p, ok := parsePath(r.URL.Path)
	if !ok {
		return apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path)
	}
	out := s.negotiate(r.Header.Get("Accept"), p.resource)
	if p.name != "" {
		o := s.store.get(p.resource, keyOf(p.namespace, p.name))
		if o == nil {
			return apierrors.NewNotFound(schema.GroupResource{Resource: p.resource.name}, p.name)
		}
		return out.write(w, o)
	}
	query, err := parseQuery(r, p.namespace)
	if err != nil {
		return err
	}
	if query.watch {
		return s.watch(r.Context(), w, p.resource, query, out)
	}
	return s.list(w, p.resource, query, out)
}

// accept answers that an object was created, which is forgotten.
func accept(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestRequest))
	if err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(body) // a client that is gone needs no answer
	return nil
}

func (s *Server) list(w http.ResponseWriter, r resource, q query, out encoding) error {
	objects, version := s.store.list(r, q.selection)
	list := r.newList()
	if err := meta.SetList(list, objects); err != nil {
		return fmt.Errorf("make a list: %w", err)
	}
	m, err := meta.ListAccessor(list)
	if err != nil {
		return fmt.Errorf("make a list: %w", err)
	}
	m.SetResourceVersion(formatVersion(version))
	return out.write(w, list)
}

// path is what the path of a request says.
type path struct {
	resource        resource
	namespace, name string
}

// parsePath parses /api/v1 or /apis/GROUP/VERSION, and then
// [/namespaces/NAMESPACE]/RESOURCE[/NAME].
func parsePath(text string) (p path, ok bool) {
	for _, r := range resources() {
		prefix := "/apis/"
		if r.gv == "v1" {
			prefix = "/api/"
		}
		rest, found := strings.CutPrefix(text, prefix+r.gv+"/")
		if !found {
			continue
		}
		parts := strings.Split(rest, "/")
		if len(parts) > 2 && parts[0] == "namespaces" {
			p.namespace, parts = parts[1], parts[2:]
		}
		if parts[0] != r.name || len(parts) > 2 {
			p.namespace = ""
			continue
		}
		p.resource = r
		if len(parts) == 2 {
			p.name = parts[1]
		}
		return p, true
	}
	return path{}, false
}
