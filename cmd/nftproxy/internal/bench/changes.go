package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Kind is a kind of change.
type Kind string

// The kinds of changes.
const (
	// EndpointAdd adds an endpoint to a Service drawn at random.
	EndpointAdd Kind = "endpoint-add"
	// EndpointRemove removes one.
	EndpointRemove Kind = "endpoint-remove"
	// RollingUpdate is a step of a rolling update: all endpoints of a Service are
	// replaced, one after the other, each by a change that adds the new one and then one
	// that removes the old one (maxSurge 1, maxUnavailable 0). Then it is another
	// Service's turn.
	RollingUpdate Kind = "rolling-update"
	// ServiceAdd adds a Service with its endpoints.
	ServiceAdd Kind = "service-add"
	// ServiceRemove removes a Service with its endpoints, first those that were added.
	ServiceRemove Kind = "service-remove"
	// PolicyChange changes a Service's internal traffic policy to Local, or back.
	PolicyChange Kind = "policy-change"
)

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{EndpointAdd, EndpointRemove, RollingUpdate, ServiceAdd, ServiceRemove, PolicyChange}
}

// ParseMix parses kinds that are separated by commas. One that is there twice comes
// twice as often.
func ParseMix(text string) ([]Kind, error) {
	var mix []Kind
	for name := range strings.SplitSeq(text, ",") {
		kind := Kind(strings.TrimSpace(name))
		if !slices.Contains(Kinds(), kind) {
			return nil, fmt.Errorf("--mix: %q is none of %s", kind, joined(Kinds()))
		}
		mix = append(mix, kind)
	}
	return mix, nil
}

// Change is one change of a cluster: the newest states of the objects that it touches.
type Change struct {
	Kind    Kind
	Service types.NamespacedName
	Objects []Object
}

// Object is the newest state of a Service or of an EndpointSlice: one of both is set.
type Object struct {
	Service *corev1.Service
	Slice   *discoveryv1.EndpointSlice
	Deleted bool // the object is what was there last
}

// Stream is a sequence of changes of a cluster. It changes the cluster with each of
// them.
type Stream struct {
	cluster *Cluster
	mix     []Kind
	made    int
	rollout rollout
}

// rollout is a rolling update that is under way.
type rollout struct {
	service   int
	remaining []int // the old endpoints
	surge     bool  // a new endpoint was added for the first of them
}

// NewStream returns changes of these kinds, in turn.
func NewStream(c *Cluster, mix []Kind) *Stream { return &Stream{cluster: c, mix: mix} }

// Next makes the next change. An error says why there can be none.
func (s *Stream) Next() (Change, error) {
	kind := s.mix[s.made%len(s.mix)]
	s.made++
	var change Change
	var err error
	switch kind {
	case EndpointAdd:
		change, err = s.addEndpoint()
	case EndpointRemove:
		change, err = s.removeEndpoint()
	case RollingUpdate:
		change, err = s.roll()
	case ServiceAdd:
		change, err = s.cluster.addService(), nil
	case ServiceRemove:
		change, err = s.cluster.removeService()
	case PolicyChange:
		change, err = s.changePolicy()
	}
	if err != nil {
		return Change{}, fmt.Errorf("change %d, %s: %w", s.made, kind, err)
	}
	change.Kind = kind
	return change, nil
}

// errNone is returned when no Service fits a change.
var errNone = errors.New("no Service has an endpoint for it: give other --endpoints-per-service or --mix")

// pick returns the number of a Service, at random, with at least that many endpoints,
// or fewer if such a Service is hard to find.
func (s *Stream) pick(endpoints int) (int, error) {
	c := s.cluster
	const tries = 100
	for ; endpoints >= 0 && len(c.alive) > 0; endpoints-- {
		for range tries {
			if n := c.alive[c.rng.IntN(len(c.alive))]; c.count(n) >= endpoints {
				return n, nil
			}
		}
	}
	return 0, errNone
}

func (s *Stream) addEndpoint() (Change, error) {
	n, err := s.pick(0)
	if err != nil {
		return Change{}, err
	}
	return s.cluster.addEndpoint(n), nil
}

func (s *Stream) removeEndpoint() (Change, error) {
	n, err := s.pick(2)
	if err != nil {
		return Change{}, err
	}
	if s.cluster.count(n) == 0 {
		return Change{}, errNone
	}
	return s.cluster.removeEndpoint(n, s.cluster.rng.IntN(s.cluster.count(n))), nil
}

func (s *Stream) roll() (Change, error) {
	c, r := s.cluster, &s.rollout
	if len(r.remaining) == 0 || !slices.Contains(c.alive, r.service) {
		n, err := s.pick(1)
		if err != nil {
			return Change{}, err
		}
		*r = rollout{service: n, remaining: slices.Concat(c.slices(n)...)}
		if len(r.remaining) == 0 {
			return Change{}, errNone
		}
	}
	if !r.surge {
		r.surge = true
		return c.addEndpoint(r.service), nil
	}
	for len(r.remaining) > 0 {
		at := slices.Index(slices.Concat(c.slices(r.service)...), r.remaining[0])
		r.remaining = r.remaining[1:]
		if at >= 0 { // another change may have removed it
			r.surge = false
			return c.removeEndpoint(r.service, at), nil
		}
	}
	r.surge = false
	return s.roll()
}

func (s *Stream) changePolicy() (Change, error) {
	n, err := s.pick(0)
	if err != nil {
		return Change{}, err
	}
	c := s.cluster
	c.services[n].internalLocal = !c.services[n].internalLocal
	c.services[n].version++
	return Change{Service: nameOf(n), Objects: []Object{{Service: c.Service(n)}}}, nil
}

// addEndpoint adds a new endpoint to the last slice of a Service, or to a new one if it
// is full.
func (c *Cluster) addEndpoint(n int) Change {
	all := c.edit(n)
	if len(all) == 0 || len(all[len(all)-1]) >= sliceEndpoints {
		all = append(all, nil)
	}
	i := len(all) - 1
	all[i] = append(all[i], c.next)
	c.next++
	c.changed[n] = all
	return c.sliceChange(n, i)
}

// removeEndpoint removes the endpoint at a place of a Service's. Slices stay when they
// are empty.
func (c *Cluster) removeEndpoint(n, at int) Change {
	all := c.edit(n)
	i := 0
	for ; at >= len(all[i]); i++ {
		at -= len(all[i])
	}
	all[i] = slices.Delete(all[i], at, at+1)
	return c.sliceChange(n, i)
}

// edit returns the slices of a Service, to be changed.
func (c *Cluster) edit(n int) [][]int {
	c.changed[n] = c.slices(n)
	return c.changed[n]
}

// sliceChange returns the change of a slice, of every family.
func (c *Cluster) sliceChange(n, i int) Change {
	change := Change{Service: nameOf(n)}
	for _, f := range c.families(n) {
		change.Objects = append(change.Objects, Object{Slice: c.slice(n, i, f)})
	}
	return change
}

func (c *Cluster) addService() Change {
	n := c.add(c.drawCount(true))
	c.added = append(c.added, n)
	return Change{Service: nameOf(n), Objects: c.objects(n)}
}

func (c *Cluster) removeService() (Change, error) {
	if len(c.alive) < 2 {
		return Change{}, errors.New("the last Service stays: put service-add before it into --mix")
	}
	n := c.alive[c.rng.IntN(len(c.alive))]
	if len(c.added) > 0 {
		n, c.added = c.added[0], c.added[1:]
	}
	gone := c.objects(n)
	for i := range gone {
		gone[i].Deleted = true
	}
	i := slices.Index(c.alive, n)
	c.alive[i] = c.alive[len(c.alive)-1]
	c.alive = c.alive[:len(c.alive)-1]
	delete(c.changed, n)
	return Change{Service: nameOf(n), Objects: gone}, nil
}

// objects returns a Service and its EndpointSlices.
func (c *Cluster) objects(n int) []Object {
	all := []Object{{Service: c.Service(n)}}
	for _, s := range c.Slices(n) {
		all = append(all, Object{Slice: s})
	}
	return all
}

// All calls visit with every object of the cluster, each Service before its
// EndpointSlices.
func (c *Cluster) All(visit func(Object)) {
	for _, n := range slices.Sorted(slices.Values(c.alive)) {
		for _, o := range c.objects(n) {
			visit(o)
		}
	}
}
