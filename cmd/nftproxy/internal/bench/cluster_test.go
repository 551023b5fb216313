package bench

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/rules"
)

func specOf(shape Shape, seed uint64) Spec {
	return Spec{Services: 60, EndpointsPerService: 7, Shape: shape, Seed: seed, Families: rules.Families()}
}

// history is a cluster and what becomes of it.
func history(t *testing.T, spec Spec, changes int) (objects []Object, stream []Change) {
	t.Helper()
	c := NewCluster(spec)
	c.All(func(o Object) { objects = append(objects, o) })
	s := NewStream(c, Kinds())
	for range changes {
		change, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		stream = append(stream, change)
	}
	return objects, stream
}

func TestSameSeedSameHistory(t *testing.T) {
	for _, shape := range Shapes() {
		t.Run(string(shape), func(t *testing.T) {
			objects, stream := history(t, specOf(shape, 1), 200)
			again, streamAgain := history(t, specOf(shape, 1), 200)
			if !reflect.DeepEqual(objects, again) {
				t.Errorf("other objects:\n%s", cmp.Diff(objects, again))
			}
			if !reflect.DeepEqual(stream, streamAgain) {
				t.Errorf("other changes:\n%s", cmp.Diff(stream, streamAgain))
			}
			other, _ := history(t, specOf(shape, 2), 0)
			if reflect.DeepEqual(objects, other) {
				t.Error("another seed makes the same objects")
			}
		})
	}
}

func TestShapes(t *testing.T) {
	tests := map[Shape]struct{ services, fewest, most, largest int }{
		Uniform:   {services: 60, fewest: 420, most: 420, largest: 7},
		Realistic: {services: 60, fewest: 200, most: 1200, largest: 1000},
		OneBig:    {services: 1, fewest: 420, most: 420, largest: 420},
	}
	for shape, want := range tests {
		c := NewCluster(specOf(shape, 3))
		largest := 0
		for _, n := range c.alive {
			largest = max(largest, c.count(n))
		}
		if n := c.Endpoints(); c.Services() != want.services || n < want.fewest || n > want.most || largest > want.largest {
			t.Errorf("%s: %d Services, %d endpoints, %d at most, want %+v", shape, c.Services(), n, largest, want)
		}
	}
}

// TestRealisticHasEverything makes sure that what Services can have is there.
func TestRealisticHasEverything(t *testing.T) {
	missing := map[string]bool{
		"ClusterIP": true, "NodePort": true, "LoadBalancer": true, "dual-stack": true, "affinity": true, "source ranges": true,
		"external Local": true, "internal Local": true, "UDP": true, "two ports": true, "no endpoints": true, "many endpoints": true,
	}
	spec := specOf(Realistic, 1)
	spec.Services = 1000
	c := NewCluster(spec)
	for _, n := range c.alive {
		s := c.Service(n)
		for name, has := range map[string]bool{
			string(s.Spec.Type): true,
			"dual-stack":        len(s.Spec.ClusterIPs) == 2,
			"affinity":          s.Spec.SessionAffinity == corev1.ServiceAffinityClientIP,
			"source ranges":     len(s.Spec.LoadBalancerSourceRanges) > 0,
			"external Local":    s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
			"internal Local":    *s.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
			"UDP":               s.Spec.Ports[0].Protocol == corev1.ProtocolUDP,
			"two ports":         len(s.Spec.Ports) == 2,
			"no endpoints":      c.count(n) == 0,
			"many endpoints":    c.count(n) > 10*spec.EndpointsPerService,
		} {
			if has {
				delete(missing, name)
			}
		}
	}
	if len(missing) > 0 {
		t.Errorf("missing: %v", missing)
	}
}

// TestObjectsAreUsable makes sure that nothing of an object is refused, and that no
// address or NodePort is there twice.
func TestObjectsAreUsable(t *testing.T) {
	for _, shape := range Shapes() {
		t.Run(string(shape), func(t *testing.T) {
			objects, stream := history(t, specOf(shape, 1), 300)
			for _, change := range stream {
				if _, err := newSlimChange(change); err != nil {
					t.Error(err)
				}
			}
			taken := map[string]bool{}
			take := func(what string) {
				if taken[what] {
					t.Errorf("%s is there twice", what)
				}
				taken[what] = true
			}
			for _, o := range objects {
				if s := o.Service; s != nil {
					for _, ip := range s.Spec.ClusterIPs {
						take(ip)
					}
					for _, p := range s.Spec.Ports {
						if p.NodePort != 0 {
							take(fmt.Sprintf("NodePort %d", p.NodePort))
						}
					}
					continue
				}
				if len(o.Slice.Endpoints) > sliceEndpoints {
					t.Errorf("%s has %d endpoints", o.Slice.Name, len(o.Slice.Endpoints))
				}
				for _, e := range o.Slice.Endpoints {
					take(e.Addresses[0])
				}
			}
		})
	}
}

// TestChanges follows the objects through all changes, and compares with the cluster.
func TestChanges(t *testing.T) {
	for _, shape := range Shapes() {
		t.Run(string(shape), func(t *testing.T) {
			c := NewCluster(specOf(shape, 5))
			want, got := map[string]Object{}, map[string]Object{}
			put := func(all map[string]Object) func(Object) {
				return func(o Object) {
					key := "slice/"
					if o.Service != nil {
						key = "service/" + o.Service.Name
					} else {
						key += o.Slice.Name
					}
					if o.Deleted {
						delete(all, key)
					} else {
						all[key] = o
					}
				}
			}
			c.All(put(got))
			s := NewStream(c, Kinds())
			for i := range 300 {
				change, err := s.Next()
				if err != nil {
					t.Fatal(err)
				}
				if kind := Kinds()[i%len(Kinds())]; change.Kind != kind || len(change.Objects) == 0 {
					t.Fatalf("change %d: %s of %d objects, want %s", i, change.Kind, len(change.Objects), kind)
				}
				for _, o := range change.Objects {
					put(got)(o)
				}
			}
			c.All(put(want))
			if !reflect.DeepEqual(want, got) {
				t.Errorf("(-cluster +changes)\n%s", cmp.Diff(want, got))
			}
		})
	}
}

// TestRollingUpdate says what the steps are: one endpoint more, one less, until all of
// them are new.
func TestRollingUpdate(t *testing.T) {
	spec := specOf(Uniform, 1)
	spec.Services, spec.EndpointsPerService = 1, 3
	c := NewCluster(spec)
	s := NewStream(c, []Kind{RollingUpdate})
	var counts []string
	for range 6 {
		change, err := s.Next()
		if err != nil {
			t.Fatal(err)
		}
		counts = append(counts, strconv.Itoa(len(change.Objects[0].Slice.Endpoints)))
	}
	if got := strings.Join(counts, " "); got != "4 3 4 3 4 3" {
		t.Errorf("endpoints after each step: %s", got)
	}
	if diff := cmp.Diff([][]int{{3, 4, 5}}, c.slices(0)); diff != "" {
		t.Errorf("not all endpoints are new: (-want +got)\n%s", diff)
	}
}

func TestImpossibleChanges(t *testing.T) {
	empty := Spec{Services: 1, Shape: Uniform, Families: rules.Families()}
	for _, kind := range []Kind{EndpointRemove, RollingUpdate, ServiceRemove} {
		if _, err := NewStream(NewCluster(empty), []Kind{kind}).Next(); err == nil || !strings.Contains(err.Error(), "--mix") {
			t.Errorf("%s of nothing: %v", kind, err)
		}
	}
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		change func(*Spec)
		want   string // empty: valid
	}{
		"valid":              {func(*Spec) {}, ""},
		"no Services":        {func(s *Spec) { s.Services = 0 }, "--services"},
		"too many Services":  {func(s *Spec) { s.Services = MaxServices + 1 }, "--services"},
		"fewer than none":    {func(s *Spec) { s.EndpointsPerService = -1 }, "--endpoints-per-service"},
		"too many endpoints": {func(s *Spec) { s.EndpointsPerService = maxEndpoints }, "--endpoints-per-service"},
		"unknown shape":      {func(s *Spec) { s.Shape = "round" }, "--shape"},
		"IPv6 alone":         {func(s *Spec) { s.Families = []rules.Family{rules.IPv6} }, "IPv4"},
	}
	for name, test := range tests {
		spec := specOf(Uniform, 1)
		test.change(&spec)
		err := spec.Validate()
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func TestParseMix(t *testing.T) {
	for text, want := range map[string][]Kind{
		"endpoint-add": {EndpointAdd},
		"service-add, service-remove,service-add": {ServiceAdd, ServiceRemove, ServiceAdd},
		"":              nil,
		"endpoint-add,": nil,
		"reboot":        nil,
	} {
		got, err := ParseMix(text)
		if diff := cmp.Diff(want, got); diff != "" || (err == nil) != (want != nil) {
			t.Errorf("%q: error %v (-want +got)\n%s", text, err, diff)
		}
	}
}

// TestHeavyTailEnds makes sure that no draw exceeds what there are addresses for.
func TestHeavyTailEnds(t *testing.T) {
	for seed := range uint64(100) {
		spec := Spec{Services: 4, EndpointsPerService: maxEndpoints / 4, Shape: Realistic, Seed: seed, Families: rules.Families()}
		if got := NewCluster(spec).Endpoints(); got > maxEndpoints {
			t.Errorf("seed %d: %d endpoints", seed, got)
		}
	}
}
