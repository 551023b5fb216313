package bench

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/rules"
)

// FuzzParseMix: what is accepted holds known kinds alone, and is the same once it is
// written and parsed again.
func FuzzParseMix(f *testing.F) {
	for _, text := range []string{"", ",", joined(Kinds()), "endpoint-add,endpoint-add", " policy-change ", "endpoint-add,reboot", "Endpoint-Add"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		mix, err := ParseMix(text)
		if err != nil {
			if len(mix) > 0 || !strings.HasPrefix(err.Error(), "--mix: ") {
				t.Errorf("%v with %v", mix, err)
			}
			return
		}
		if len(mix) != strings.Count(text, ",")+1 {
			t.Errorf("%d kinds in %q", len(mix), text)
		}
		for _, kind := range mix {
			if !slices.Contains(Kinds(), kind) {
				t.Errorf("%q is no kind", kind)
			}
		}
		if again, err := ParseMix(joined(mix)); err != nil || !slices.Equal(again, mix) {
			t.Errorf("%v again is %v, %v", mix, again, err)
		}
	})
}

// FuzzSpec: a Spec that is valid makes a cluster as large as it says, of objects that the
// daemon takes; one that is not names the flag.
func FuzzSpec(f *testing.F) {
	for _, shape := range append(Shapes(), "round") {
		f.Add(100, 10, string(shape), uint64(1))
	}
	f.Add(0, 1, string(Uniform), uint64(0))
	f.Add(1, math.MaxInt, string(OneBig), uint64(0))
	f.Add(MaxServices, maxEndpoints/MaxServices, string(Uniform), uint64(0))
	f.Add(-1, -1, string(Realistic), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, services, endpoints int, shape string, seed uint64) {
		spec := Spec{Services: services, EndpointsPerService: endpoints, Shape: Shape(shape), Seed: seed, Families: rules.Families()}
		if err := spec.Validate(); err != nil {
			if !strings.HasPrefix(err.Error(), "--") {
				t.Errorf("%+v: %v names no flag", spec, err)
			}
			return
		}
		if int64(services)*int64(endpoints) > 10_000 || services > 1_000 {
			return // valid, and only larger
		}
		c := NewCluster(spec)
		want := map[Shape]int{Uniform: services, Realistic: services, OneBig: 1}[spec.Shape]
		if c.Services() != want || (spec.Shape != Realistic && c.Endpoints() != services*endpoints) {
			t.Errorf("%+v: %d Services, %d endpoints", spec, c.Services(), c.Endpoints())
		}
		if objects, err := slimCluster(c); err != nil || len(objects.Services) != want {
			t.Errorf("%+v: %d Services, %v", spec, len(objects.Services), err)
		}
	})
}

// FuzzCommand: a usable command has words and no placeholders that are left.
func FuzzCommand(f *testing.F) {
	for _, text := range []string{"kube-proxy --config {config}", " x{kubeconfig}{config} ", "{config", "{config}", "{conf{config}ig}"} {
		f.Add(text)
	}
	files := proxyFiles{config: "/a", kubeconfig: "/b"}
	f.Fuzz(func(t *testing.T, text string) {
		if CheckPeer(text) != nil {
			return
		}
		words := files.command(text)
		if len(words) == 0 || len(words) != len(strings.Fields(text)) {
			t.Errorf("%q: %q", text, words)
		}
		if !strings.Contains(strings.Join(words, " "), "/") {
			t.Errorf("%q: no file in %q", text, words)
		}
	})
}
