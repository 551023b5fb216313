package driver

import (
	"context"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/nftproxy/nftproxy/e2e/internal/controlplane"
	"github.com/nftproxy/nftproxy/e2e/internal/object"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// newAPI starts a control plane and returns a driver for it.
func newAPI(t *testing.T) *API {
	t.Helper()
	binary := os.Getenv("KUBE_APISERVER_BIN")
	if binary == "" {
		t.Fatal("KUBE_APISERVER_BIN must be the path of a kube-apiserver; `make e2e-unit` builds one")
	}
	dir, logs := t.TempDir(), t.ArtifactDir()
	network, err := testnet.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Close(); err != nil {
			t.Error(err)
		}
	})
	control, err := controlplane.Start(t.Context(), network.Host(testnet.Control).Namespace, controlplane.Options{
		Etcd: "etcd", APIServer: binary, Address: netip.MustParseAddr("192.0.2.10"), Dir: dir, LogDir: logs,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := control.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	api, err := NewAPI(control.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	return api
}

func TestAPI(t *testing.T) {
	api := newAPI(t)
	const status = `, "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.5", "ipMode": "VIP"}]}}`
	first := `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "new"},
		"spec": {"type": "LoadBalancer", "clusterIP": "10.96.5.1", "ports": [{"port": 80, "nodePort": 31005}]}` + status + `}`
	second := `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "new", "labels": {"a": "b"}},
		"spec": {"type": "LoadBalancer", "clusterIP": "10.96.5.1", "ports": [{"port": 81, "nodePort": 31005}]}}`
	moved := `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "new"},
		"spec": {"type": "NodePort", "clusterIP": "10.96.5.2", "ports": [{"port": 81, "nodePort": 31005}]}}`
	for _, step := range []struct{ name, text, clusterIP, ingress string }{
		{"created, with its namespace and status", first, "10.96.5.1", "203.0.113.5"},
		{"replaced, the status stays", second, "10.96.5.1", "203.0.113.5"},
		{"made anew for what cannot be changed", moved, "10.96.5.2", ""},
	} {
		if err := api.Apply(t.Context(), decode(t, step.text)); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		got := get(t, api, object.Key{Kind: object.Service, Namespace: "new", Name: "web"})
		clusterIP, _, _ := unstructured.NestedString(got.Object, "spec", "clusterIP")
		ingress, _, _ := unstructured.NestedSlice(got.Object, "status", "loadBalancer", "ingress")
		address := ""
		if len(ingress) > 0 {
			first, _ := ingress[0].(map[string]any)
			address, _, _ = unstructured.NestedString(first, "ip")
		}
		if clusterIP != step.clusterIP || address != step.ingress {
			t.Errorf("%s: clusterIP %s, ingress %q", step.name, clusterIP, address)
		}
	}
	key := object.Key{Kind: object.Service, Namespace: "new", Name: "web"}
	for range 2 { // the second time there is nothing to delete
		if err := api.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	bad := decode(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "Not A Name"}}`)
	if err := api.Apply(t.Context(), bad); err == nil {
		t.Error("a bad name is no error")
	}
	checkNode(t, api)
}

// checkNode changes a Node's labels and status.
func checkNode(t *testing.T, api *API) {
	t.Helper()
	for _, text := range []string{
		`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node9", "labels": {"a": "1", "b": "2"}},
			"spec": {"podCIDR": "10.244.9.0/24", "podCIDRs": ["10.244.9.0/24"]},
			"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}}`,
		`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node9", "labels": {"b": "3"}},
			"spec": {"podCIDR": "10.244.9.0/24", "podCIDRs": ["10.244.9.0/24"]},
			"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.10"}]}}`,
	} {
		o := decode(t, text)
		if err := api.Apply(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		got := get(t, api, object.KeyOf(o))
		if diff := cmp.Diff(o.GetLabels(), got.GetLabels()); diff != "" {
			t.Errorf("labels (-want +got)\n%s", diff)
		}
		want, _, _ := unstructured.NestedSlice(o.Object, "status", "addresses")
		addresses, _, _ := unstructured.NestedSlice(got.Object, "status", "addresses")
		if diff := cmp.Diff(want, addresses); diff != "" {
			t.Errorf("addresses (-want +got)\n%s", diff)
		}
	}
}

func get(t *testing.T, api *API, key object.Key) *object.Object {
	t.Helper()
	client, err := api.of(key)
	if err != nil {
		t.Fatal(err)
	}
	o, err := client.Get(t.Context(), key.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}
