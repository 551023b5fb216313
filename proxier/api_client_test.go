package proxier

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	testingclock "k8s.io/utils/clock/testing"
)

// kubeconfig writes a kubeconfig file for the server.
func kubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, path, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
users: [{name: u, user: {token: t}}]
`, server))
	return path
}

// apiServer answers the requests of a watch with initial events, as an API server
// does.
type apiServer struct {
	*httptest.Server

	t  testing.TB
	mu sync.Mutex
	// events are the initial events by path, and requests those that came.
	events   map[string][]runtime.Object
	requests map[string]*http.Request
	more     map[string]chan metav1.WatchEvent
	// one answers the other requests; nil refuses them.
	one http.HandlerFunc
}

func newAPIServer(t testing.TB) *apiServer {
	s := &apiServer{t: t, events: map[string][]runtime.Object{}, requests: map[string]*http.Request{}, more: map[string]chan metav1.WatchEvent{}}
	s.Server = httptest.NewServer(s)
	return s
}

const (
	servicesPath = "/api/v1/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/endpointslices"
	nodesPath    = "/api/v1/nodes"
	cidrsPath    = "/apis/networking.k8s.io/v1/servicecidrs"
)

// bookmarkOf returns an object of the kind of a path.
func bookmarkOf(path string) (runtime.Object, *metav1.ObjectMeta) {
	switch path {
	case servicesPath:
		o := &corev1.Service{}
		return o, &o.ObjectMeta
	case slicesPath:
		o := &discoveryv1.EndpointSlice{}
		return o, &o.ObjectMeta
	case nodesPath:
		o := &corev1.Node{}
		return o, &o.ObjectMeta
	default:
		o := &networkingv1.ServiceCIDR{}
		return o, &o.ObjectMeta
	}
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	one := s.one
	s.mu.Unlock()
	switch {
	case req.FormValue("watch") == "true" && req.FormValue("sendInitialEvents") == "true":
	case one != nil:
		one(w, req)
		return
	default:
		http.Error(w, "only watches with initial events", http.StatusNotFound)
		return
	}
	bookmark, meta := bookmarkOf(req.URL.Path)
	meta.ResourceVersion = "10"
	meta.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	s.mu.Lock()
	events, more := s.events[req.URL.Path], make(chan metav1.WatchEvent)
	s.requests[req.URL.Path], s.more[req.URL.Path] = req, more
	s.mu.Unlock()

	w.Header().Set("Content-Type", "application/json")
	for _, o := range events {
		s.send(w, metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Object: o}})
	}
	s.send(w, metav1.WatchEvent{Type: "BOOKMARK", Object: runtime.RawExtension{Object: bookmark}})
	for {
		select {
		case e, ok := <-more:
			if !ok {
				return
			}
			s.send(w, e)
		case <-req.Context().Done():
			return
		}
	}
}

func (s *apiServer) send(w http.ResponseWriter, e metav1.WatchEvent) {
	switch o := e.Object.Object.(type) {
	case *corev1.Service:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	case *discoveryv1.EndpointSlice:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	case *corev1.Node:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}
	case *networkingv1.ServiceCIDR:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: "ServiceCIDR"}
	}
	if err := json.NewEncoder(w).Encode(e); err != nil {
		s.t.Error(err)
	}
	w.(http.Flusher).Flush() //nolint:forcetypeassert // always one
}

// What is asked of a server: a list as a watch, only what concerns the proxy, as
// protobuf if possible. A list after the end of a watch tells what was deleted
// meanwhile.
func TestAPIWithAServer(t *testing.T) {
	server := newAPIServer(t)
	server.events[servicesPath] = []runtime.Object{namedService("a", "10.96.0.1"), namedService("b", "10.96.0.2")}
	server.events[slicesPath] = []runtime.Object{namedSlice("a-1", "10.244.1.1")}
	server.events[nodesPath] = []runtime.Object{kubeNode(nil)}
	server.events[cidrsPath] = []runtime.Object{kubeServiceCIDR("kubernetes", "10.96.0.0/16")}
	client, err := NewClient(ClientOptions{Kubeconfig: kubeconfig(t, server.URL)})
	must(t, err)
	if got := serverOf(client); got != server.URL {
		t.Errorf("server %s, want %s", got, server.URL)
	}
	r := newSourceRecorder(t)
	r.ending = append(r.ending, server.CloseClientConnections, server.Close)
	r.start(NewAPI(client, "node-1", zap.NewNop()))
	r.waitSynced()
	r.waitNames("ns/a ns/b ns/a-1 node-1 kubernetes")

	server.mu.Lock()
	for path, want := range map[string]string{
		servicesPath: "!service.kubernetes.io/service-proxy-name; spec.clusterIP!=None",
		slicesPath:   "!service.kubernetes.io/headless; ",
		nodesPath:    "; metadata.name=node-1",
		cidrsPath:    "; ",
	} {
		req := server.requests[path]
		if got := req.FormValue("labelSelector") + "; " + req.FormValue("fieldSelector"); got != want {
			t.Errorf("%s is asked for %q, want %q", path, got, want)
		}
		if req.Header.Get("User-Agent") != "nftproxy" || !strings.HasPrefix(req.Header.Get("Accept"), "application/vnd.kubernetes.protobuf") ||
			!strings.Contains(req.Header.Get("Accept"), "application/json") {
			t.Errorf("headers %v", req.Header)
		}
	}
	server.events[servicesPath] = []runtime.Object{namedService("b", "10.96.0.2"), namedService("c", "10.96.0.3")}
	more := server.more[servicesPath]
	server.mu.Unlock()

	more <- metav1.WatchEvent{Type: "DELETED", Object: runtime.RawExtension{Object: namedService("a", "10.96.0.1")}}
	r.waitNames("ns/b ns/a-1 node-1 kubernetes")
	more <- metav1.WatchEvent{Type: "ERROR", Object: runtime.RawExtension{Object: &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: http.StatusGone, Reason: metav1.StatusReasonExpired,
	}}}
	r.waitNames("ns/b ns/c ns/a-1 node-1 kubernetes")
}

// A server that refuses connections at the start is waited for; this does not hold
// up the end.
func TestAPIUnreachable(t *testing.T) {
	closed, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	server := closed.Addr().String()
	must(t, closed.Close())
	client, err := NewClient(ClientOptions{Kubeconfig: kubeconfig(t, "http://"+server)})
	must(t, err)
	core, logs := observer.New(zap.InfoLevel)
	tried := make(chan struct{}, 1)
	log := zap.New(core, zap.Hooks(func(zapcore.Entry) error {
		select {
		case tried <- struct{}{}:
		default:
		}
		return nil
	}))
	r := newSourceRecorder(t)
	a := NewAPI(client, "node-1", log)
	a.clock = testingclock.NewFakeClock(time.Now()) // no back-off ever ends
	stop := r.start(a)
	select {
	case <-tried:
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is logged")
	}
	stop()
	want := "waiting for the first list of Services and EndpointSlices from http://" + server + ": dial tcp " + server + ": connect: connection refused"
	if entries := logs.All(); len(entries) != 1 || entries[0].Message != want {
		t.Errorf("logged %v", entries)
	}
	if r.synced > 0 || r.applies > 0 {
		t.Error("something was delivered")
	}
}

func TestNewClientErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	broken := filepath.Join(t.TempDir(), "broken")
	write(t, broken, "]")
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for path, want := range map[string]string{
		missing:                           "read the kubeconfig file " + missing,
		broken:                            "give the path of a valid one",
		"":                                "run as a pod with a service account, or give the path of a kubeconfig file",
		kubeconfig(t, "http://a b:70000"): "correct the kubeconfig file",
	} {
		client, err := NewClient(ClientOptions{Kubeconfig: path})
		if err == nil || !strings.Contains(err.Error(), want) || errors.Unwrap(err) == nil {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
		if client != kubernetes.Interface(nil) {
			t.Error("a client and an error")
		}
	}
}
