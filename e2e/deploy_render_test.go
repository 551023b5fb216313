package e2e

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/chart/common"
	chartutil "helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// update is set by `go test . -run TestAPIDeploy -update`.
var update = flag.Bool("update", false, "rewrite the expected manifests in testdata/deploy")

const deployDir = "../deploy"

// rendering is a way to deploy nftproxy.
type rendering struct {
	name   string // of the expected manifests
	folder string // of kustomize; of the chart if there are values
	values map[string]any
}

func renderings() []rendering {
	return []rendering{
		{name: "base", folder: "base"},
		{name: "kubeadm", folder: "kubeadm"},
		{name: "monitoring", folder: "monitoring"},
		{name: "chart", folder: "chart", values: map[string]any{
			"apiServer":  "https://api.example.com:6443",
			"config":     map[string]any{"metricsBindAddress": "0.0.0.0:10249", "nftables": map[string]any{"masqueradeAll": true}},
			"podMonitor": map[string]any{"enabled": true, "labels": map[string]any{"release": "prometheus"}},
		}},
		{name: "chart-kubeadm", folder: "chart", values: map[string]any{
			"image":             map[string]any{"repository": "registry.example.com/nftproxy", "tag": "v9.9.9"},
			"imagePullSecrets":  []any{map[string]any{"name": "registry"}},
			"existingConfigMap": "kube-proxy",
			"extraArgs":         []any{"--take-over"},
			"maxUnavailable":    1,
			"affinity": map[string]any{"nodeAffinity": map[string]any{
				"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{"nodeSelectorTerms": []any{
					map[string]any{"matchExpressions": []any{
						map[string]any{"key": "nftproxy.dev/proxy", "operator": "NotIn", "values": []any{"kube-proxy"}},
					}},
				}},
			}},
		}},
	}
}

// render returns the manifests as YAML.
func (c *cluster) render(t *testing.T, r rendering) string {
	t.Helper()
	if r.values == nil {
		return c.kubectl(t, "", "kustomize", filepath.Join(deployDir, r.folder))
	}
	out, err := renderChart(r.values)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// renderChart renders the chart as `helm template` does, sorted by the templates' names.
func renderChart(values map[string]any) (string, error) {
	chart, err := loader.Load(filepath.Join(deployDir, "chart"))
	if err != nil {
		return "", err
	}
	release := common.ReleaseOptions{Name: "nftproxy", Namespace: metav1.NamespaceSystem, Revision: 1, IsInstall: true}
	full, err := chartutil.ToRenderValues(chart, values, release, common.DefaultCapabilities)
	if err != nil {
		return "", err
	}
	rendered, err := engine.Render(chart, full)
	if err != nil {
		return "", err
	}
	var documents []string
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if text := strings.TrimSpace(rendered[name]); text != "" {
			documents = append(documents, text+"\n")
		}
	}
	return strings.Join(documents, "---\n"), nil
}

// parseManifests returns the objects in YAML.
func parseManifests(t *testing.T, manifests string) []*unstructured.Unstructured {
	t.Helper()
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(manifests), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(object); {
		case errors.Is(err, io.EOF):
			return objects
		case err != nil:
			t.Fatal(err)
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}

// checkGolden compares what was rendered with what is expected.
func checkGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", "deploy", name+".yaml")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: the manifests (+) are not the expected (-), see -update:\n%s", name, diff)
	}
}

// checkChart holds that the chart with no more than an API server is the base: only
// the text of the configuration may differ, and not what it says.
func (c *cluster) checkChart(t *testing.T) {
	t.Helper()
	chart, err := renderChart(map[string]any{"apiServer": "https://kubernetes.example.com:6443"})
	if err != nil {
		t.Fatal(err)
	}
	base := byName(t, c.render(t, rendering{folder: "base"}))
	if diff := cmp.Diff(base, byName(t, chart)); diff != "" {
		t.Errorf("the chart with its defaults (+) is not the base (-):\n%s", diff)
	}
	if _, err := renderChart(map[string]any{"image": map[string]any{"tag": "v1"}}); err == nil ||
		!strings.Contains(err.Error(), "apiServer must be the URL of the API server") {
		t.Errorf("the chart without an API server: %v", err)
	}
}

// byName returns objects by kind and name; the texts of a ConfigMap are parsed.
func byName(t *testing.T, manifests string) map[string]any {
	t.Helper()
	objects := map[string]any{}
	for _, object := range parseManifests(t, manifests) {
		data, _, err := unstructured.NestedStringMap(object.Object, "data")
		if err != nil {
			t.Fatal(err)
		}
		for key, text := range data {
			var value any
			if err := yaml.UnmarshalStrict([]byte(text), &value); err != nil {
				t.Fatal(err)
			}
			if err := unstructured.SetNestedField(object.Object, value, "data", key); err != nil {
				t.Fatal(err)
			}
		}
		objects[object.GetKind()+"/"+object.GetName()] = object.Object
	}
	return objects
}

// checkPodMonitors reads the PodMonitors strictly: the API server of this test knows
// the kind, but not its fields.
func checkPodMonitors(t *testing.T, manifests string) {
	t.Helper()
	for _, object := range parseManifests(t, manifests) {
		if object.GetKind() != monitoringv1.PodMonitorsKind {
			continue
		}
		data, err := object.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(bytes.TrimSpace(data), &monitoringv1.PodMonitor{}); err != nil {
			t.Errorf("PodMonitor %s: %v", object.GetName(), err)
		}
	}
}
