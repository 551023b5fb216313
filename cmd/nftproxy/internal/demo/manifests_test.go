package demo

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/nftproxy/nftproxy/deploy/examples"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/rules"
)

func bothFamilies() []rules.Family { return rules.Families() }

// exampleFolder returns a folder with the examples.
func exampleFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := copyManifests(folder, examples.Files); err != nil {
		t.Fatal(err)
	}
	return folder
}

func TestLoadTargets(t *testing.T) {
	targets, err := loadTargets(exampleFolder(t), bothFamilies())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]float64{}
	for _, target := range targets {
		got[target.ServicePortName.String()+" "+target.Protocol.String()+" "+target.addr.String()] = target.shares()
	}
	third := 1. / 3
	want := map[string][]float64{
		"kube-system/kube-dns:dns udp 10.96.0.10:53":     {0.5, 0.5},
		"kube-system/kube-dns:dns-tcp tcp 10.96.0.10:53": {0.5, 0.5},
		"shop/api:http tcp 10.96.10.20:80":               {0.3, 0.3, 0.1, 0.3},
		"shop/db:postgres tcp 10.96.10.40:5432":          {1},
		"shop/frontend:http tcp 10.96.10.10:80":          {third, third, third},
		"shop/frontend:http tcp [fd00:10:96::a0a]:80":    {third, third, third},
		"shop/payments:grpc tcp [fd00:10:96::a1e]:443":   {0.5, 0.5},
		"shop/reports:http tcp 10.96.10.50:80":           {},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	for _, target := range targets {
		want := map[string]int{"payments": 1, "reports": 1}[target.Name]
		if len(target.notReady) != want {
			t.Errorf("%s: %v are not ready, want %d", target.ServicePortName, target.notReady, want)
		}
	}
	if n := countEndpoints(targets); n != 15 {
		t.Errorf("%d endpoints, want 15", n)
	}
}

func TestSharesOfBackups(t *testing.T) {
	endpoints := func(weights ...uint16) target {
		var target target
		for _, w := range weights {
			target.endpoints = append(target.endpoints, rules.Endpoint{Weight: w})
		}
		return target
	}
	for _, test := range []struct {
		target target
		want   []float64
	}{
		{endpoints(3, 0, 1), []float64{0.75, 0, 0.25}},
		{endpoints(0, 0), []float64{0.5, 0.5}},
	} {
		if diff := cmp.Diff(test.want, test.target.shares()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
}

// TestPublish publishes other pods and reads the file as the daemon does.
func TestPublish(t *testing.T) {
	folder := exampleFolder(t)
	m, err := readScaledManifest(filepath.Join(folder, scaledService+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	replicas, err := m.replicas()
	if err != nil {
		t.Fatal(err)
	}
	if len(replicas) != 3 || replicas[2].name != "frontend-3" || replicas[2].node != "node-3" || len(replicas[2].addrs) != 2 {
		t.Errorf("replicas in the file: %v", replicas)
	}
	before, _, err := proxier.LoadManifests(m.path, nodeName)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.publish(replicas); err != nil {
		t.Fatal(err)
	}
	after, problems, err := proxier.LoadManifests(m.path, nodeName)
	if diff := cmp.Diff(before, after, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" || err != nil || len(problems) > 0 {
		t.Errorf("the same pods, published: %v, %v (-want +got)\n%s", err, problems, diff)
	}

	if err := m.publish([]replica{replicas[1], newReplica(scaledService, 3)}); err != nil {
		t.Fatal(err)
	}
	targets, err := loadTargets(folder, bothFamilies())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, target := range targets {
		for _, e := range target.endpoints {
			if target.Name == scaledService {
				got = append(got, e.Addr.String())
			}
		}
	}
	want := []string{"10.244.1.63:8080", "10.244.2.10:8080", "[fd00:10:244:1::63]:8080", "[fd00:10:244:2::10]:8080"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("endpoints (-want +got)\n%s", diff)
	}
	files, err := os.ReadDir(folder)
	if names, _ := examples.Files.ReadDir("."); len(files) != len(names) || err != nil {
		t.Errorf("%d files, want %d: %v", len(files), len(names), err)
	}
}

func TestReadScaledManifestErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.yaml")
	if _, err := readScaledManifest(path); err == nil {
		t.Error("no error for a file that does not exist")
	}
	for _, text := range []string{
		"kind: EndpointSlice\nendpoints: [{addresses: [10.0.0.1]}]",
		"kind: EndpointSlice\nendpoints: [{addresses: [x], nodeName: n, targetRef: {name: p}}]",
	} {
		if err := replaceFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		m, err := readScaledManifest(path)
		if err == nil {
			_, err = m.replicas()
		}
		if err == nil {
			t.Errorf("no error for %q", text)
		}
	}
}
