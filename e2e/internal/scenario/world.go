package scenario

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/nftproxy/nftproxy/e2e/internal/object"
)

// Driver brings objects to the proxy under test.
type Driver interface {
	// Apply creates an object, or replaces the one of that name; its status too.
	Apply(ctx context.Context, o *object.Object) error
	// Delete deletes an object.
	Delete(ctx context.Context, key object.Key) error
}

// world is the cluster's objects: those that are always there, and what cases
// made of them.
type world struct {
	driver Driver
	base   map[object.Key]*object.Object
	now    map[object.Key]*object.Object
}

// newWorld creates the objects that are always there.
func newWorld(ctx context.Context, driver Driver, base []*object.Object) (*world, error) {
	w := &world{driver: driver, base: map[object.Key]*object.Object{}, now: map[object.Key]*object.Object{}}
	for _, o := range base {
		if err := driver.Apply(ctx, o); err != nil {
			return nil, fmt.Errorf("create %s: %w", object.KeyOf(o), err)
		}
		w.base[object.KeyOf(o)] = o
	}
	w.now = maps.Clone(w.base)
	return w, nil
}

// apply brings an object: a Node is merged into what it is now, everything else
// is replaced, but for a status that the object does not have.
func (w *world) apply(ctx context.Context, o *object.Object) error {
	key := object.KeyOf(o)
	o = &object.Object{Object: w.wanted(o)}
	if err := w.driver.Apply(ctx, o); err != nil {
		return fmt.Errorf("apply %s: %w", key, err)
	}
	w.now[key] = o
	return nil
}

func (w *world) wanted(o *object.Object) map[string]any {
	before, ok := w.now[object.KeyOf(o)]
	if o.GetKind() == object.Node {
		if !ok {
			before = &object.Object{}
		}
		return object.Merge(before.Object, o.Object)
	}
	wanted := maps.Clone(o.Object)
	if ok && wanted["status"] == nil && before.Object["status"] != nil {
		wanted["status"] = before.Object["status"]
	}
	return wanted
}

// delete takes an object away.
func (w *world) delete(ctx context.Context, key object.Key) error {
	if _, ok := w.now[key]; !ok {
		return fmt.Errorf("delete %s: there is no such object", key)
	}
	if err := w.driver.Delete(ctx, key); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	delete(w.now, key)
	return nil
}

// putBack undoes what a case did to the objects.
func (w *world) putBack(ctx context.Context) error {
	var errs []error
	for _, key := range sortedKeys(w.now) {
		if _, ok := w.base[key]; !ok {
			errs = append(errs, w.delete(ctx, key))
		}
	}
	for _, key := range sortedKeys(w.base) {
		o := w.base[key]
		if now, ok := w.now[key]; ok && equality.Semantic.DeepEqual(now.Object, o.Object) {
			continue
		}
		if err := w.driver.Apply(ctx, o); err != nil {
			errs = append(errs, fmt.Errorf("put back %s: %w", key, err))
			continue
		}
		w.now[key] = o
	}
	return errors.Join(errs...)
}

func sortedKeys(objects map[object.Key]*object.Object) []object.Key {
	return slices.SortedFunc(maps.Keys(objects), func(a, b object.Key) int {
		return strings.Compare(a.String(), b.String())
	})
}

// shuffler brings the objects of a step into another order.
type shuffler struct{ random *rand.Rand }

// newShuffler returns the shuffler of a case; with seed 0 it leaves everything
// as it is. The order depends on the seed and the case alone, not on the cases
// before it.
func newShuffler(seed uint64, name string) shuffler {
	if seed == 0 {
		return shuffler{}
	}
	hash := fnv.New64a()
	hash.Write([]byte(name))
	return shuffler{random: rand.New(rand.NewPCG(seed, hash.Sum64()))}
}

// objects returns the objects in the order to apply them. A service range is
// always before what may need an address of it, as a namespace is before what is
// in it: an API server accepts nothing else.
func (s shuffler) objects(all []*object.Object) []*object.Object {
	all = slices.Clone(all)
	if s.random != nil {
		s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	slices.SortStableFunc(all, func(a, b *object.Object) int { return rank(a) - rank(b) })
	return all
}

func rank(o *object.Object) int {
	switch o.GetKind() {
	case object.Namespace, object.ServiceCIDR:
		return 0
	default:
		return 1
	}
}

// keys returns the keys in the order to delete them.
func (s shuffler) keys(all []object.Key) []object.Key {
	all = slices.Clone(all)
	if s.random != nil {
		s.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	}
	return all
}
