package examples_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/deploy/examples"
	"github.com/nftproxy/nftproxy/proxier"
)

// TestExamples makes sure that the manifests have no field that Kubernetes does not
// know, and that each EndpointSlice belongs to a Service and has its ports.
func TestExamples(t *testing.T) {
	services := map[string]*corev1.Service{}
	var slices []*discoveryv1.EndpointSlice
	for _, doc := range documents(t) {
		var kind struct{ Kind string }
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			t.Fatal(err)
		}
		var into any
		switch kind.Kind {
		case "Namespace":
			into = &corev1.Namespace{}
		case "Service":
			into = &corev1.Service{}
		case "EndpointSlice":
			into = &discoveryv1.EndpointSlice{}
		default:
			t.Fatalf("kind %q in\n%s", kind.Kind, doc)
		}
		if err := yaml.UnmarshalStrict(doc, into); err != nil {
			t.Errorf("%v in\n%s", err, doc)
		}
		switch o := into.(type) {
		case *corev1.Service:
			services[o.Namespace+"/"+o.Name] = o
		case *discoveryv1.EndpointSlice:
			slices = append(slices, o)
		}
	}
	if len(services) < 5 || len(slices) < len(services) {
		t.Errorf("%d Services, %d EndpointSlices", len(services), len(slices))
	}
	for _, s := range slices {
		service := services[s.Namespace+"/"+s.Labels[discoveryv1.LabelServiceName]]
		if service == nil || len(service.Spec.Ports) != len(s.Ports) {
			t.Errorf("EndpointSlice %s/%s has no Service, or not its ports", s.Namespace, s.Name)
			continue
		}
		for i, p := range service.Spec.Ports {
			if q := s.Ports[i]; p.Name != *q.Name || p.Protocol != *q.Protocol {
				t.Errorf("EndpointSlice %s/%s: port %s is not %s", s.Namespace, s.Name, *q.Name, p.Name)
			}
		}
	}
}

// TestExamplesCanBeUsed makes sure that nftproxy has nothing to say against them.
func TestExamplesCanBeUsed(t *testing.T) {
	_, problems, err := proxier.LoadManifests(".", "node-1")
	if err := errors.Join(append(problems, err)...); err != nil {
		t.Error(err)
	}
}

func documents(t *testing.T) (docs [][]byte) {
	t.Helper()
	names, err := fs.Glob(examples.Files, "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		data, err := examples.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			doc, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			docs = append(docs, doc)
		}
	}
	return docs
}
