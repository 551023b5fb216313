package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// fakeAPI is an API server that lists and watches, as fast as a test needs it, and fails
// on request.
type fakeAPI struct {
	server *httptest.Server

	mu      sync.Mutex
	version int
	kinds   map[string]*fakeKind // by path
	changed chan struct{}        // closed at the next change
	refuse  bool                 // answer 503
	ended   chan struct{}        // closed when all watches shall end
	watches int                  // that there were
	expired int                  // watches that began too late
	told    []eventsv1.Event     // that were written in JSON
}

// fakeKind is the objects of one kind.
type fakeKind struct {
	list      string // its kind
	version   string
	objects   map[string]json.RawMessage
	events    []fakeEvent
	forgotten int // the version of the last event that is forgotten
}

type fakeEvent struct {
	version int
	line    []byte
}

// The paths of the kinds that a proxy watches.
const (
	servicesPath = "/api/v1/services"
	slicesPath   = "/apis/discovery.k8s.io/v1/endpointslices"
	nodesPath    = "/api/v1/nodes"
	cidrsPath    = "/apis/networking.k8s.io/v1/servicecidrs"
	eventsPath   = "/apis/events.k8s.io/v1/namespaces/default/events" // of Nodes too
)

// newFakeAPI serves in a namespace until the test ends.
func newFakeAPI(t *testing.T, ns *nstest.NS) *fakeAPI {
	t.Helper()
	f := &fakeAPI{
		version: 1, changed: make(chan struct{}), ended: make(chan struct{}),
		kinds: map[string]*fakeKind{
			servicesPath: {list: "ServiceList", version: "v1"},
			slicesPath:   {list: "EndpointSliceList", version: "discovery.k8s.io/v1"},
			nodesPath:    {list: "NodeList", version: "v1"},
			cidrsPath:    {list: "ServiceCIDRList", version: "networking.k8s.io/v1"},
		},
	}
	for _, k := range f.kinds {
		k.objects = map[string]json.RawMessage{}
	}
	f.server = httptest.NewUnstartedServer(f)
	_ = f.server.Listener.Close()
	err := ns.Do(func() (err error) {
		f.server.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f.server.Start()
	t.Cleanup(func() {
		f.endWatches()
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

// kubeconfig returns the path of a file that says how to reach the server.
func (f *fakeAPI) kubeconfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
  clusters: [{name: c, cluster: {server: "%s"}}]}`, f.server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// put creates or replaces an object.
func (f *fakeAPI) put(t *testing.T, path, name string, o interface {
	runtime.Object
	metav1.Object
}) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.kinds[path]
	f.version++
	o.SetResourceVersion(strconv.Itoa(f.version))
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	verb := watch.Added
	if k.objects[name] != nil {
		verb = watch.Modified
	}
	k.objects[name] = text
	f.tell(k, verb, text)
}

// remove deletes an object.
func (f *fakeAPI) remove(path, name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	k := f.kinds[path]
	f.version++
	text := k.objects[name]
	delete(k.objects, name)
	f.tell(k, watch.Deleted, text)
}

// tell adds an event. The lock is held.
func (f *fakeAPI) tell(k *fakeKind, verb watch.EventType, object json.RawMessage) {
	k.events = append(k.events, fakeEvent{f.version, fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", verb, object)})
	close(f.changed)
	f.changed = make(chan struct{})
}

// putNode writes the Node "node1", as changed.
func (f *fakeAPI) putNode(t *testing.T, change ...func(*corev1.Node)) {
	t.Helper()
	node := &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: "node1"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}}},
	}
	for _, c := range change {
		c(node)
	}
	f.put(t, nodesPath, node.Name, node)
}

// endWatches closes all watches. Clients begin new ones.
func (f *fakeAPI) endWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.ended)
	f.ended = make(chan struct{})
}

// forget makes watches that begin at a version of the past fail, and closes all that
// there are.
func (f *fakeAPI) forget() {
	f.mu.Lock()
	for _, k := range f.kinds {
		k.events, k.forgotten = nil, f.version
	}
	f.mu.Unlock()
	f.endWatches()
}

// setRefuse makes the server refuse all requests, or not.
func (f *fakeAPI) setRefuse(refuse bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuse = refuse
}

// watched returns how many watches there were, and how many of them began too late.
func (f *fakeAPI) watched() (watches, expired int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.watches, f.expired
}

// ServeHTTP implements [http.Handler].
func (f *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	f.mu.Lock()
	k, refuse := f.kinds[r.URL.Path], f.refuse
	f.mu.Unlock()
	switch {
	case refuse:
		fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	case r.Method == http.MethodPost && r.URL.Path == eventsPath:
		f.take(w, r)
	case k == nil: // Events about other namespaces
		fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case r.URL.Query().Get("sendInitialEvents") == "true":
		fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	case r.URL.Query().Get("watch") != "":
		f.watch(w, r, k)
	default:
		f.list(w, k)
	}
}

// take keeps an Event.
func (f *fakeAPI) take(w http.ResponseWriter, r *http.Request) {
	var event eventsv1.Event
	if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
		fail(w, http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType)
		return
	}
	f.mu.Lock()
	f.told = append(f.told, event)
	f.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(event)
}

// events returns type, reason and action of the Events that were written.
func (f *fakeAPI) events() (texts []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.told {
		texts = append(texts, fmt.Sprintf("%s %s: %s %s %s", e.Regarding.Kind, e.Regarding.Name, e.Type, e.Reason, e.Action))
	}
	return texts
}

func status(code int, reason metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Message: "as the test wants it", Reason: reason, Code: int32(code),
	}
}

func fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status(code, reason))
}

func (f *fakeAPI) list(w http.ResponseWriter, k *fakeKind) {
	f.mu.Lock()
	answer := map[string]any{
		"apiVersion": k.version, "kind": k.list, "metadata": map[string]string{"resourceVersion": strconv.Itoa(f.version)},
		"items": slices.AppendSeq([]json.RawMessage{}, maps.Values(k.objects)),
	}
	f.mu.Unlock()
	_ = json.NewEncoder(w).Encode(answer)
}

// watch sends events until the client leaves or watches end.
func (f *fakeAPI) watch(w http.ResponseWriter, r *http.Request, k *fakeKind) {
	seen, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
		return
	}
	f.mu.Lock()
	f.watches++
	late, ended := seen < k.forgotten, f.ended
	if late {
		f.expired++
	}
	f.mu.Unlock()
	if late {
		fail(w, http.StatusGone, metav1.StatusReasonExpired)
		return
	}
	flusher := http.NewResponseController(w)
	for {
		f.mu.Lock()
		first, _ := slices.BinarySearchFunc(k.events, seen+1, func(e fakeEvent, version int) int { return e.version - version })
		news, changed := slices.Clone(k.events[first:]), f.changed
		f.mu.Unlock()
		for _, e := range news {
			if _, err := w.Write(e.line); err != nil {
				return
			}
			seen = e.version
		}
		if err := flusher.Flush(); err != nil {
			return
		}
		select {
		case <-changed:
		case <-ended:
			return
		case <-r.Context().Done():
			return
		case <-time.After(time.Minute):
		}
	}
}
