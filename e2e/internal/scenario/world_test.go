package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/e2e/internal/object"
)

// recorder is a driver that notes what it is asked for.
type recorder struct {
	t      *testing.T
	log    []string
	broken string // the key that it refuses
}

func (r *recorder) Apply(_ context.Context, o *object.Object) error {
	if object.KeyOf(o).String() == r.broken {
		return errors.New("refused")
	}
	data, err := json.Marshal(map[string]any{
		"labels": o.GetLabels(), "spec": o.Object["spec"], "status": o.Object["status"],
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.log = append(r.log, fmt.Sprintf("apply %s %s", object.KeyOf(o), data))
	return nil
}

func (r *recorder) Delete(_ context.Context, key object.Key) error {
	r.log = append(r.log, "delete "+key.String())
	return nil
}

// took returns what was noted since the last call.
func (r *recorder) took() []string {
	log := r.log
	r.log = nil
	return log
}

func decode(t *testing.T, text string) *object.Object {
	t.Helper()
	o, err := object.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestWorld(t *testing.T) {
	driver := &recorder{t: t}
	node := decode(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1", "labels": {"zone": "a", "x": "y"}}}`)
	w, err := newWorld(t.Context(), driver, []*object.Object{node})
	if err != nil {
		t.Fatal(err)
	}
	const base = `apply Node/node1 {"labels":{"x":"y","zone":"a"},"spec":null,"status":null}`
	expect(t, driver, "the base is created", base)

	service := `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"clusterIP": "10.96.0.%d"}%s}`
	steps := []struct {
		name string
		fn   func() error
		want []string
	}{
		{"a Node is merged", func() error {
			return w.apply(t.Context(), decode(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1", "labels": {"zone": null, "new": "1"}}}`))
		}, []string{`apply Node/node1 {"labels":{"new":"1","x":"y"},"spec":null,"status":null}`}},
		{"a Service with a status", func() error {
			return w.apply(t.Context(), decode(t, fmt.Sprintf(service, 1, `, "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.1"}]}}`)))
		}, []string{`apply Service/default/web {"labels":null,"spec":{"clusterIP":"10.96.0.1"},"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.1"}]}}}`}},
		{"a Service is replaced but for its status", func() error {
			return w.apply(t.Context(), decode(t, fmt.Sprintf(service, 2, "")))
		}, []string{`apply Service/default/web {"labels":null,"spec":{"clusterIP":"10.96.0.2"},"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.1"}]}}}`}},
		{"everything is put back", func() error { return w.putBack(t.Context()) }, []string{"delete Service/default/web", base}},
		{"nothing is left to put back", func() error { return w.putBack(t.Context()) }, nil},
		{"a Node that was deleted comes back", func() error {
			return errors.Join(w.delete(t.Context(), object.Key{Kind: object.Node, Name: "node1"}), w.putBack(t.Context()))
		}, []string{"delete Node/node1", base}},
	}
	for _, step := range steps {
		if err := step.fn(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		expect(t, driver, step.name, step.want...)
	}
	if err := w.delete(t.Context(), object.Key{Kind: object.Node, Name: "node9"}); err == nil {
		t.Error("an object that is not there was deleted")
	}
	driver.broken = "Service/default/web"
	if err := w.apply(t.Context(), decode(t, fmt.Sprintf(service, 2, ""))); err == nil {
		t.Error("the driver's error is lost")
	}
}

func expect(t *testing.T, driver *recorder, name string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, driver.took()); diff != "" {
		t.Errorf("%s (-want +got)\n%s", name, diff)
	}
}

func TestShuffler(t *testing.T) {
	var all []*object.Object
	for i := range 20 {
		all = append(all, decode(t, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s%02d"}}`, i)))
	}
	all = append(all, decode(t, `{"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "c"}}`))
	names := func(objects []*object.Object) string {
		var names []string
		for _, o := range objects {
			names = append(names, o.GetName())
		}
		return strings.Join(names, " ")
	}
	inOrder := names(newShuffler(0, "a").objects(all))
	if inOrder != "c "+strings.TrimSuffix(names(all), " c") {
		t.Errorf("seed 0: %s", inOrder)
	}
	orders := []string{inOrder}
	for _, s := range []shuffler{newShuffler(1, "a"), newShuffler(2, "a"), newShuffler(1, "b")} {
		got := names(s.objects(all))
		if slices.Contains(orders, got) || len(got) != len(inOrder) || !strings.HasPrefix(got, "c ") {
			t.Errorf("order: %s", got)
		}
		orders = append(orders, got)
	}
	if got := names(newShuffler(1, "a").objects(all)); got != orders[1] {
		t.Errorf("the same seed, another order: %s, before %s", got, orders[1])
	}
	keys := []object.Key{{Name: "a"}, {Name: "b"}}
	if diff := cmp.Diff(keys, newShuffler(0, "a").keys(keys)); diff != "" {
		t.Errorf("keys (-want +got)\n%s", diff)
	}
	for seed := uint64(1); slices.Equal(newShuffler(seed, "a").keys(keys), keys); seed++ {
		if seed == 50 {
			t.Fatal("keys are never shuffled")
		}
	}
}
