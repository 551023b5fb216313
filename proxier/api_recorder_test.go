package proxier

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"
)

// sourceRecorder is a handler that holds what a source delivered, and finds
// violations of the contract.
type sourceRecorder struct {
	t      testing.TB
	busy   atomic.Bool
	ending []func() // what ends with the source before it is searched for leaks

	mu       sync.Mutex
	wake     chan struct{} // gets a value after every call
	services map[string]*Service
	slices   map[string]*EndpointSlice
	node     *Node
	cidrs    map[string][]netip.Prefix // of ServiceCIDRs
	objects  int                       // that were applied so far
	applies  int
	synced   int
	problems []string
	told     []Problem // the same
}

func newSourceRecorder(t testing.TB) *sourceRecorder {
	return &sourceRecorder{
		t: t, wake: make(chan struct{}, 1),
		services: map[string]*Service{}, slices: map[string]*EndpointSlice{}, cidrs: map[string][]netip.Prefix{},
	}
}

// enter is held by every call, and complains if there are two at a time.
func (r *sourceRecorder) enter() (leave func()) {
	if !r.busy.CompareAndSwap(false, true) {
		r.t.Error("the handler was called from two goroutines at a time")
	}
	r.mu.Lock()
	return func() {
		r.mu.Unlock()
		r.busy.Store(false)
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
}

func (r *sourceRecorder) Apply(changes Changes) {
	defer r.enter()()
	r.applies++
	r.objects += len(changes.Services) + len(changes.Slices) + len(changes.ServiceCIDRs)
	if changes.Node != nil {
		r.objects++
		r.node = changes.Node.Node
	}
	for _, c := range changes.ServiceCIDRs {
		if len(c.CIDRs) == 0 {
			delete(r.cidrs, c.Name)
		} else {
			r.cidrs[c.Name] = c.CIDRs
		}
	}
	for _, c := range changes.Services {
		record(r.services, c.Name, c.Service)
	}
	for _, c := range changes.Slices {
		record(r.slices, c.Name, c.Slice)
	}
}

func record[T any](all map[string]*T, name types.NamespacedName, object *T) {
	if object == nil {
		delete(all, name.String())
		return
	}
	all[name.String()] = object
}

func (r *sourceRecorder) Synced() {
	defer r.enter()()
	r.synced++
}

func (r *sourceRecorder) Problem(p Problem) {
	defer r.enter()()
	r.problems, r.told = append(r.problems, p.Err.Error()), append(r.told, p)
}

// names returns the Services, the slices, the Node and the ServiceCIDRs, each sorted.
func (r *sourceRecorder) names() string {
	names := append(slices.Sorted(maps.Keys(r.services)), slices.Sorted(maps.Keys(r.slices))...)
	if r.node != nil {
		names = append(names, r.node.Name)
	}
	return strings.Join(append(names, slices.Sorted(maps.Keys(r.cidrs))...), " ")
}

// hasProblem reports whether a problem has all the texts.
func (r *sourceRecorder) hasProblem(texts ...string) bool {
	return slices.ContainsFunc(r.problems, func(problem string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(problem, text) })
	})
}

// get calls the function while nothing is being delivered.
func (r *sourceRecorder) get(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// wait waits until the condition holds.
func (r *sourceRecorder) wait(what string, condition func() bool) {
	r.t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		var done bool
		r.get(func() { done = condition() })
		if done {
			return
		}
		select {
		case <-r.wake:
		case <-deadline:
			r.get(func() { r.t.Fatalf("no %s; objects: %s; problems: %q", what, r.names(), r.problems) })
		}
	}
}

func (r *sourceRecorder) waitSynced() {
	r.t.Helper()
	r.wait("Synced", func() bool { return r.synced == 1 })
}

// start runs a source until the test ends, or until stop is called, which returns
// once it has ended. Nothing of it may be left then.
func (r *sourceRecorder) start(s Source) (stop func()) {
	r.t.Helper()
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, r) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				r.t.Errorf("Run returned %v", err)
			}
		case <-time.After(20 * time.Second):
			r.t.Error("Run does not end")
		}
		for _, end := range r.ending {
			end()
		}
		goleak.VerifyNone(r.t, before)
	})
	r.t.Cleanup(stop)
	return stop
}
