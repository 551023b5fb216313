package driver

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/nftproxy/nftproxy/e2e/internal/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func decode(t *testing.T, text string) *object.Object {
	t.Helper()
	o, err := object.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestManifests(t *testing.T) {
	dir := t.TempDir()
	m := NewManifests(dir)
	service := decode(t, `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"clusterIP": "10.96.0.1"}}`)
	node := decode(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}}`)
	for _, o := range []*object.Object{service, node} {
		if err := m.Apply(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	expectFiles(t, dir, "node__node1.json", "service_default_web.json")
	changed := decode(t, `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"clusterIP": "10.96.0.2"}}`)
	if err := m.Apply(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "service_default_web.json"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(changed.Object, decode(t, string(data)).Object); diff != "" {
		t.Errorf("the file (-want +got)\n%s", diff)
	}
	for range 2 { // the second time there is nothing to delete
		if err := m.Delete(t.Context(), object.KeyOf(service)); err != nil {
			t.Fatal(err)
		}
	}
	expectFiles(t, dir, "node__node1.json")
}

// expectFiles checks which files are in a folder.
func expectFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, entry := range entries {
		got = append(got, entry.Name())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got)\n%s", diff)
	}
}
