package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// resource is a kind of objects that is served.
type resource struct {
	name    string // in the plural, as in paths
	gv      string // "v1" or group/version
	kind    string
	newList func() runtime.Object
}

// resources returns what is served.
func resources() []resource {
	return []resource{
		{"services", "v1", "Service", func() runtime.Object { return &corev1.ServiceList{} }},
		{"nodes", "v1", "Node", func() runtime.Object { return &corev1.NodeList{} }},
		{"endpointslices", "discovery.k8s.io/v1", "EndpointSlice", func() runtime.Object { return &discoveryv1.EndpointSliceList{} }},
		{"servicecidrs", "networking.k8s.io/v1", "ServiceCIDR", func() runtime.Object { return &networkingv1.ServiceCIDRList{} }},
	}
}

// resourceOf returns the resource that an object is of.
func resourceOf(o runtime.Object) (resource, error) {
	var name string
	switch o.(type) {
	case *corev1.Service:
		name = "services"
	case *corev1.Node:
		name = "nodes"
	case *discoveryv1.EndpointSlice:
		name = "endpointslices"
	case *networkingv1.ServiceCIDR:
		name = "servicecidrs"
	}
	all := resources()
	i := slices.IndexFunc(all, func(r resource) bool { return r.name == name })
	if i < 0 {
		return resource{}, fmt.Errorf("objects of the type %T are not served", o)
	}
	return all[i], nil
}

// event is a change of an object.
type event struct {
	version       uint64
	before, after runtime.Object // nil for none
}

// collection is the objects of one resource. Objects are never changed once they are in
// it.
type collection struct {
	objects map[string]runtime.Object // by namespace and name
	log     []event
}

// store is all objects.
type store struct {
	mu          sync.Mutex
	version     uint64
	collections map[string]*collection
	changed     chan struct{} // closed at the next change
}

func newStore() *store {
	// Version 0 means "any" to clients.
	s := &store{version: 1, collections: map[string]*collection{}, changed: make(chan struct{})}
	for _, r := range resources() {
		s.collections[r.name] = &collection{objects: map[string]runtime.Object{}}
	}
	return s
}

// put takes the newest state of an object, which the caller must not change any more. It
// is gone if deleted is set.
func (s *store) put(o runtime.Object, deleted bool) error {
	r, err := resourceOf(o)
	if err != nil {
		return err
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return fmt.Errorf("find the metadata of an object: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c, key := s.collections[r.name], keyOf(m.GetNamespace(), m.GetName())
	if deleted && c.objects[key] == nil {
		return fmt.Errorf("delete %s %s: there is none", r.kind, key)
	}
	s.version++
	m.SetResourceVersion(formatVersion(s.version))
	e := event{version: s.version, before: c.objects[key], after: o}
	if c.objects[key] = o; deleted {
		// A watch shows what was deleted with the version of the deletion.
		e.before, e.after = o, nil
		delete(c.objects, key)
	}
	c.log = append(c.log, e)
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

func keyOf(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// get returns an object, nil if there is none.
func (s *store) get(r resource, key string) runtime.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.collections[r.name].objects[key]
}

// list returns the selected objects in the order of their names, and the version that
// this is the state of.
func (s *store) list(r resource, sel selection) ([]runtime.Object, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	objects := s.collections[r.name].objects
	keys := make([]string, 0, len(objects))
	for key, o := range objects {
		if sel.matches(o) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	all := make([]runtime.Object, len(keys))
	for i, key := range keys {
		all[i] = objects[key]
	}
	return all, s.version
}

// since returns the events after a version, the version that they lead to, and a channel
// that is closed when there are more.
func (s *store) since(r resource, version uint64) ([]event, uint64, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.collections[r.name].log
	i, _ := slices.BinarySearchFunc(log, version+1, func(e event, v uint64) int {
		switch {
		case e.version < v:
			return -1
		case e.version > v:
			return 1
		}
		return 0
	})
	return log[i:len(log):len(log)], s.version, s.changed
}

// selection is what a client asks for.
type selection struct {
	namespace string // empty for all
	labels    labels.Selector
	fields    fields.Selector
}

// newSelection parses selectors.
func newSelection(namespace, labelSelector, fieldSelector string) (selection, error) {
	l, err := labels.Parse(labelSelector)
	if err != nil {
		return selection{}, fmt.Errorf("labelSelector: %w", err)
	}
	f, err := fields.ParseSelector(fieldSelector)
	if err != nil {
		return selection{}, fmt.Errorf("fieldSelector: %w", err)
	}
	for _, r := range f.Requirements() {
		if !slices.Contains(knownFields(), r.Field) {
			return selection{}, fmt.Errorf("fieldSelector: %q is none of %s", r.Field, strings.Join(knownFields(), ", "))
		}
	}
	return selection{namespace, l, f}, nil
}

func knownFields() []string { return []string{"metadata.name", "metadata.namespace", "spec.clusterIP"} }

func (s selection) matches(o runtime.Object) bool {
	if o == nil {
		return false
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return false
	}
	of := fields.Set{"metadata.name": m.GetName(), "metadata.namespace": m.GetNamespace()}
	if svc, ok := o.(*corev1.Service); ok {
		of["spec.clusterIP"] = svc.Spec.ClusterIP
	}
	return (s.namespace == "" || s.namespace == m.GetNamespace()) && s.labels.Matches(labels.Set(m.GetLabels())) && s.fields.Matches(of)
}

// seen returns how an event looks to whoever sees the selected objects only, an empty
// type if it does not.
func (s selection) seen(e event) (watch.EventType, runtime.Object) {
	before, after := s.matches(e.before), s.matches(e.after)
	switch {
	case before && after:
		return watch.Modified, e.after
	case after:
		return watch.Added, e.after
	case before && e.after == nil:
		return watch.Deleted, e.before
	case before: // it is there, but not selected any more
		return watch.Deleted, e.after
	}
	return "", nil
}
