package apiserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	jsonType     = runtime.ContentTypeJSON
	protobufType = runtime.ContentTypeProtobuf
)

// serve starts a server, and returns its URL and a function that makes clients.
func serve(t *testing.T) (*Server, string, func(contentType string) kubernetes.Interface) {
	t.Helper()
	s := New()
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error)
	go func() { done <- s.Serve(ctx, l) }()
	transport := &http.Transport{}
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		transport.CloseIdleConnections()
	})
	url := "http://" + l.Addr().String()
	return s, url, func(contentType string) kubernetes.Interface {
		client, err := kubernetes.NewForConfig(&rest.Config{
			Host: url, Transport: transport, QPS: -1,
			ContentConfig: rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType},
		})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
}

func service(name, clusterIP string, labels map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
		Spec:       corev1.ServiceSpec{ClusterIP: clusterIP},
	}
}

func put(t *testing.T, s *Server, all ...runtime.Object) {
	t.Helper()
	for _, o := range all {
		if err := s.Put(o); err != nil {
			t.Fatal(err)
		}
	}
}

// next returns the next event as text.
func next(t *testing.T, w watch.Interface) string {
	t.Helper()
	e, ok := <-w.ResultChan()
	if !ok {
		return "ended"
	}
	m, err := meta.Accessor(e.Object)
	if err != nil {
		t.Fatalf("%s %v: %v", e.Type, e.Object, err)
	}
	text := fmt.Sprintf("%s %s@%s", e.Type, m.GetName(), m.GetResourceVersion())
	if m.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		text += " initial"
	}
	return text
}

// TestListAndWatch lists, and watches from there.
func TestListAndWatch(t *testing.T) {
	for _, contentType := range []string{jsonType, protobufType} {
		t.Run(contentType, func(t *testing.T) {
			s, _, newClient := serve(t)
			services := newClient(contentType).CoreV1().Services("")
			put(t, s, service("b", "10.0.0.2", nil), service("a", "10.0.0.1", nil))
			list, err := services.List(t.Context(), metav1.ListOptions{Limit: 1})
			if err != nil {
				t.Fatal(err)
			}
			if list.ResourceVersion != "3" || len(list.Items) != 2 || list.Items[0].Name != "a" || list.Items[1].Spec.ClusterIP != "10.0.0.2" {
				t.Errorf("%+v", list)
			}
			w, err := services.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			put(t, s, service("a", "10.0.0.3", nil), service("c", "10.0.0.4", nil))
			if err := s.Delete(service("b", "10.0.0.2", nil)); err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"MODIFIED a@4", "ADDED c@5", "DELETED b@6"} {
				if got := next(t, w); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
		})
	}
}

// TestWatchList begins a watch with all objects, as reflectors do since 1.32.
func TestWatchList(t *testing.T) {
	for _, contentType := range []string{jsonType, protobufType} {
		s, _, newClient := serve(t)
		put(t, s, service("b", "10.0.0.2", nil), service("a", "10.0.0.1", nil))
		yes := true
		w, err := newClient(contentType).CoreV1().Services("default").Watch(t.Context(), metav1.ListOptions{
			SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, service("c", "10.0.0.3", nil))
		for _, want := range []string{"ADDED a@3", "ADDED b@2", "BOOKMARK @3 initial", "ADDED c@4"} {
			if got := next(t, w); got != want {
				t.Errorf("%s: %q, want %q", contentType, got, want)
			}
		}
		w.Stop()
	}
}

// TestSelectors says what a client with selectors sees.
func TestSelectors(t *testing.T) {
	s, _, newClient := serve(t)
	client := newClient(protobufType)
	other := map[string]string{"service.kubernetes.io/service-proxy-name": "other"}
	put(t, s, service("mine", "10.0.0.1", nil), service("other", "10.0.0.2", other), service("headless", "None", nil))
	selected := metav1.ListOptions{LabelSelector: "!service.kubernetes.io/service-proxy-name", FieldSelector: "spec.clusterIP!=None"}
	list, err := client.CoreV1().Services("").List(t.Context(), selected)
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "mine" {
		t.Fatalf("%v, %v", list, err)
	}
	selected.ResourceVersion = list.ResourceVersion
	w, err := client.CoreV1().Services("").Watch(t.Context(), selected)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	put(t, s, service("other", "10.0.0.3", other), service("other", "10.0.0.3", nil), service("mine", "10.0.0.1", other))
	for _, want := range []string{"ADDED other@6", "DELETED mine@7"} {
		if got := next(t, w); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	put(t, s, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}})
	nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=node-2"})
	if err != nil || len(nodes.Items) != 1 || nodes.Items[0].Name != "node-2" {
		t.Errorf("%v, %v", nodes, err)
	}
}

// TestReflectors follows objects of every kind by both ways of client-go.
func TestReflectors(t *testing.T) {
	for _, contentType := range []string{jsonType, protobufType} {
		for _, streaming := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, streaming %t", contentType, streaming), func(t *testing.T) {
				s, _, newClient := serve(t)
				client := newClient(contentType)
				kinds := []struct {
					resource string
					getter   cache.Getter
					object   runtime.Object
				}{
					{"services", client.CoreV1().RESTClient(), service("x", "10.0.0.1", nil)},
					{"nodes", client.CoreV1().RESTClient(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x"}}},
					{"endpointslices", client.DiscoveryV1().RESTClient(), &discoveryv1.EndpointSlice{
						ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "x"}, AddressType: discoveryv1.AddressTypeIPv4,
					}},
					{"servicecidrs", client.NetworkingV1().RESTClient(), &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "x"}}},
				}
				for i, kind := range kinds {
					follow(t, s, kind.getter, kind.resource, kind.object, streaming, 2+3*i)
				}
			})
		}
	}
}

// follow puts, changes and deletes an object, and sees what a reflector makes of it. The
// first version of the object will be version.
func follow(t *testing.T, s *Server, getter cache.Getter, resource string, o runtime.Object, streaming bool, version int) {
	t.Helper()
	put(t, s, o.DeepCopyObject())
	var lister cache.ListerWatcher = cache.NewListWatchFromClient(getter, resource, "", fields.Everything())
	if !streaming {
		lister = cache.ToListWatcherWithWatchListSemantics(cache.NewListWatchFromClient(getter, resource, "", fields.Everything()), noWatchList{})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	store := make(reflected, 10)
	reflector := cache.NewReflectorWithOptions(lister, o, store, cache.ReflectorOptions{Name: resource})
	running.Go(func() { reflector.RunWithContext(ctx) })
	want := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			if got := <-store; got != text {
				t.Errorf("%s: %q, want %q", resource, got, text)
			}
		}
	}
	want(fmt.Sprintf("1 objects at %d", version), fmt.Sprintf("x is at %d", version))
	put(t, s, o.DeepCopyObject())
	want(fmt.Sprintf("x is at %d", version+1))
	if err := s.Delete(o.DeepCopyObject()); err != nil {
		t.Error(err)
	}
	want("x is gone")
}

func TestOther(t *testing.T) {
	s, url, newClient := serve(t)
	client := newClient(jsonType)
	put(t, s, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	if n, err := client.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{}); err != nil || n.Name != "n" {
		t.Errorf("get a node: %v, %v", n, err)
	}
	if _, err := client.CoreV1().Nodes().Get(t.Context(), "m", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("get no node: %v", err)
	}
	if _, err := client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("list pods: %v", err)
	}
	if err := client.CoreV1().Nodes().Delete(t.Context(), "n", metav1.DeleteOptions{}); !apierrors.IsMethodNotSupported(err) {
		t.Errorf("delete a node: %v", err)
	}
	e := &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, Reason: "Because"}
	if got, err := client.EventsV1().Events("default").Create(t.Context(), e, metav1.CreateOptions{}); err != nil || got.Reason != "Because" {
		t.Errorf("create an event: %v, %v", got, err)
	}
	if v, err := client.Discovery().ServerVersion(); err != nil || v.Minor != "37" {
		t.Errorf("version %v, %v", v, err)
	}
	for query, want := range map[string]string{
		"labelSelector=%21%21": "labelSelector", "fieldSelector=status.phase%3Dx": "fieldSelector", "resourceVersion=new": "resourceVersion",
		"watch=perhaps": "watch", "timeoutSeconds=-1": "timeoutSeconds",
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/api/v1/services?"+query, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), want) {
			t.Errorf("%s: %s, %s, %v", query, response.Status, body, err)
		}
	}
}

// TestBookmarks makes sure that a watch on which nothing happens says how far it is.
func TestBookmarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		put(t, s, service("a", "10.0.0.1", nil), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		r := resources()[0]
		sel, err := newSelection("", "", "")
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		w := watcher{
			store: s.store, resource: r, query: query{selection: sel, version: 2, bookmarks: true},
			out: s.negotiate(jsonType, r).stream(&out), flush: func() error { return nil },
		}
		ctx, cancel := context.WithTimeout(t.Context(), bookmarkPeriod+time.Second)
		defer cancel()
		if err := w.run(ctx); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); !strings.Contains(got, `"type":"BOOKMARK"`) || !strings.Contains(got, `"resourceVersion":"3"`) {
			t.Errorf("the watch: %s", got)
		}
	})
}

func TestPutErrors(t *testing.T) {
	s := New()
	if err := s.Put(&corev1.Pod{}); err == nil {
		t.Error("a Pod is no error")
	}
	if err := s.Delete(service("a", "10.0.0.1", nil)); err == nil || len(s.store.collections["services"].objects) > 0 {
		t.Errorf("delete a Service that is not there: %v", err)
	}
}

func TestParsePath(t *testing.T) {
	tests := map[string]string{ // resource, namespace, name
		"/api/v1/services":                          "services//",
		"/api/v1/namespaces/a/services":             "services/a/",
		"/api/v1/namespaces/a/services/b":           "services/a/b",
		"/api/v1/nodes/n":                           "nodes//n",
		"/apis/discovery.k8s.io/v1/endpointslices":  "endpointslices//",
		"/apis/networking.k8s.io/v1/servicecidrs/x": "servicecidrs//x",
		"/api/v1/pods":                              "",
		"/api/discovery.k8s.io/v1/endpointslices":   "",
		"/api/v1/namespaces/a":                      "",
		"/api/v1/services/a/status/b":               "",
		"/":                                         "",
	}
	for text, want := range tests {
		p, ok := parsePath(text)
		got := ""
		if ok {
			got = p.resource.name + "/" + p.namespace + "/" + p.name
		}
		if got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// noWatchList makes a reflector list first, and watch then.
type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

// reflected is a reflector's store that passes on what it is told.
type reflected chan string

func (r reflected) tell(o any) error {
	m, err := meta.Accessor(o)
	if err != nil {
		return fmt.Errorf("what was reflected: %w", err)
	}
	r <- m.GetName() + " is at " + m.GetResourceVersion()
	return nil
}

func (r reflected) Add(o any) error    { return r.tell(o) }
func (r reflected) Update(o any) error { return r.tell(o) }
func (r reflected) Resync() error      { return nil }

func (r reflected) Delete(o any) error {
	m, err := meta.Accessor(o)
	if err != nil {
		return fmt.Errorf("what was reflected: %w", err)
	}
	r <- m.GetName() + " is gone"
	return nil
}

func (r reflected) Replace(all []any, version string) error {
	r <- fmt.Sprintf("%d objects at %s", len(all), version)
	for _, o := range all {
		if err := r.tell(o); err != nil {
			return err
		}
	}
	return nil
}
