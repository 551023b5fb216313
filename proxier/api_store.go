package proxier

import (
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// apiStore is what a reflector of one kind writes into, from one goroutine. It
// keeps what the handler got, to know which objects a new list leaves out and
// which changes change nothing; the objects themselves are shared with the
// handler.
type apiStore struct {
	kind     string
	nodeName string
	out      *apiOutput
	health   *apiHealth
	known    map[types.NamespacedName]object
}

// The reflector uses the transformer while it collects a list from a watch.
var _ cache.TransformingStore = (*apiStore)(nil)

func newAPIStore(kind, nodeName string, out *apiOutput, health *apiHealth) *apiStore {
	return &apiStore{kind: kind, nodeName: nodeName, out: out, health: health, known: map[types.NamespacedName]object{}}
}

// apiObject is a converted object in the form that a reflector can collect in a
// list: one with a name.
type apiObject struct {
	metav1.ObjectMeta

	object object
	err    error
}

// Transformer implements [cache.TransformingStore].
func (s *apiStore) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return s.convert(obj), nil }
}

func (s *apiStore) convert(obj any) *apiObject {
	if converted, ok := obj.(*apiObject); ok {
		return converted
	}
	key, o, err := convert(obj, s.nodeName)
	var uid types.UID
	if k, ok := obj.(metav1.Object); ok {
		uid = k.GetUID()
	}
	return &apiObject{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.name.Namespace, Name: key.name.Name, UID: uid},
		object:     o, err: err,
	}
}

// Add implements [cache.ReflectorStore].
func (s *apiStore) Add(obj any) error { return s.Update(obj) }

// Update implements [cache.ReflectorStore].
func (s *apiStore) Update(obj any) error {
	var changes Changes
	_, problems := s.put(s.convert(obj), &changes)
	s.out.apply(s.kind, changes, problems, false)
	return nil
}

// Delete implements [cache.ReflectorStore].
func (s *apiStore) Delete(obj any) error {
	var changes Changes
	converted := s.convert(obj)
	s.set(namespacedName(converted), object{}, &changes)
	s.out.apply(s.kind, changes, nil, false)
	return nil
}

// Replace implements [cache.ReflectorStore]: the list is complete, so that a known
// object that is not in it was deleted while nobody watched.
func (s *apiStore) Replace(list []any, _ string) error {
	var changes Changes
	var problems []Problem
	listed := make(map[types.NamespacedName]bool, len(list))
	for _, obj := range list {
		name, errs := s.put(s.convert(obj), &changes)
		problems = append(problems, errs...)
		listed[name] = true
	}
	for name := range s.known {
		if !listed[name] {
			s.set(name, object{}, &changes)
		}
	}
	s.out.apply(s.kind, changes, problems, true)
	s.health.listed(s.kind)
	return nil
}

// Resync implements [cache.ReflectorStore]. It is never asked for.
func (s *apiStore) Resync() error { return nil }

// put takes an object over, but one of which nothing can be used leaves its last
// good state.
func (s *apiStore) put(o *apiObject, changes *Changes) (name types.NamespacedName, problems []Problem) {
	key := objectKey{s.kind, namespacedName(o)}
	if o.err == nil || o.object.exists() {
		s.set(key.name, o.object, changes)
	}
	return key.name, problemsOf(key.ref(o.UID), key.String(), o.err)
}

// set records the newest state of an object, and adds it to the changes if it is
// another one for the handler.
func (s *apiStore) set(name types.NamespacedName, o object, changes *Changes) {
	if s.known[name].equal(o) {
		return
	}
	if o.exists() {
		s.known[name] = o
	} else {
		delete(s.known, name)
	}
	changes.add(objectKey{s.kind, name}, o)
}

// endingClock is a clock on which nobody waits any more once done is closed. While
// an API server refuses connections, a reflector waits for its back-off of up to a
// minute without looking at its context; this would hold up the end of the
// program (client-go v0.37).
type endingClock struct {
	clock.WithTicker

	done    <-chan struct{}
	pending *sync.WaitGroup // of what still runs for the clock
}

// After implements [clock.Clock].
func (c endingClock) After(d time.Duration) <-chan time.Time {
	timer := c.NewTimer(d)
	after := make(chan time.Time, 1)
	c.pending.Go(func() {
		defer timer.Stop()
		select {
		case now := <-timer.C():
			after <- now
		case <-c.done:
			after <- c.Now()
		}
	})
	return after
}
