package scenario

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/nftproxy/nftproxy/e2e/internal/object"
	"github.com/nftproxy/nftproxy/e2e/internal/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hosts are some that cases may name.
func hosts() []string {
	return []string{"client", "client2", "node1", "node2", "pod-a", "pod-b", "pod-c", "pod-d", "pod-e"}
}

const everything = `title: everything that the format knows
source: https://example.com/
peer: fails (it cannot)
config:
  nodePortAddresses: [10.0.0.0/8]
  nftables: {masqueradeBit: 3}
steps:
- apply:
  - apiVersion: v1
    kind: Service
    metadata: {name: off, labels: {a: 'yes'}}
    spec: {clusterIP: 10.96.1.1, ports: [{port: 80}]}
  - apiVersion: v1
    kind: Node
    metadata: {name: node1, labels: {topology.kubernetes.io/zone: null}}
  delete: [Service/default/web, Node/node3]
  settle: 2s
  stop: proxy
- restart: proxy
  exec: {"on": node1, run: "nft flush ruleset"}
  load: {from: client, to: tcp://203.0.113.10:80, source_port: 5, expect: {result: refused}}
  probes:
  - from: pod-a
    to: udp://[fd00:10:96::1]:53
    count: 60
    source_port: 4000
    expect:
      result: ok
      endpoints: [10.244.1.10:8080, '[fd00::1]:8080']
      all: true
      share: {"10.244.1.10:8080": [0.6, 0.9]}
      source: kept
      same: true
`

func TestParse(t *testing.T) {
	got, err := Parse("all", []byte(everything), hosts())
	if err != nil {
		t.Fatal(err)
	}
	v4, v6 := netip.MustParseAddrPort("10.244.1.10:8080"), netip.MustParseAddrPort("[fd00::1]:8080")
	service := &object.Object{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service",
		"metadata": map[string]any{"name": "off", "namespace": "default", "labels": map[string]any{"a": "yes"}},
		"spec":     map[string]any{"clusterIP": "10.96.1.1", "ports": []any{map[string]any{"port": int64(80)}}},
	}}
	node := &object.Object{Object: map[string]any{
		"apiVersion": "v1", "kind": "Node",
		"metadata": map[string]any{"name": "node1", "labels": map[string]any{"topology.kubernetes.io/zone": nil}},
	}}
	want := &Case{
		Name: "all", Title: "everything that the format knows", Source: "https://example.com/", Peer: "fails (it cannot)",
		Config: map[string]any{
			"nodePortAddresses": []any{"10.0.0.0/8"}, "nftables": map[string]any{"masqueradeBit": float64(3)},
		},
		Steps: []Step{{
			Apply:  []*object.Object{service, node},
			Delete: []object.Key{{Kind: "Service", Namespace: "default", Name: "web"}, {Kind: "Node", Name: "node3"}},
			Settle: 2 * time.Second, Stop: true,
		}, {
			Restart: true, Settle: DefaultSettle, Exec: &Exec{On: "node1", Run: "nft flush ruleset"},
			Load: &Probe{
				From: "client", To: probe.Target{Protocol: probe.TCP, Address: netip.MustParseAddrPort("203.0.113.10:80")},
				Count: 1, SourcePort: 5, Expect: Expect{Result: probe.Refused, Source: AnySource},
			},
			Probes: []Probe{{
				From: "pod-a", To: probe.Target{Protocol: probe.UDP, Address: netip.MustParseAddrPort("[fd00:10:96::1]:53")},
				Count: 60, SourcePort: 4000, Expect: Expect{
					Result: probe.OK, Endpoints: []netip.AddrPort{v4, v6}, All: true,
					Share: map[netip.AddrPort]Share{v4: {0.6, 0.9}}, Source: SourceKept, Same: true,
				},
			}},
		}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
		t.Errorf("case (-want +got)\n%s", diff)
	}
}

// TestParseErrors changes one line of a good case.
func TestParseErrors(t *testing.T) {
	for _, test := range []struct{ old, with, want string }{
		{"settle: 2s", "settles: 2s", `line 17: steps: unknown field "settles"`},
		{"settle: 2s", "settle: 2 s", "line 17: steps: settle: time: unknown unit"},
		{"settle: 2s", "stop: proxy", `line 18: steps: field "stop" is there twice`},
		{"settle: 2s", "restart: proxy", "line 8: steps: stop and restart in one step"},
		{"stop: proxy", "stop: node1", "line 18: steps: stop: "},
		{"ports: [{port: 80}]", "ports: [{prot: 80}]", `line 9: steps: apply: read an object: strict decoding error: unknown field "spec.ports[0].prot"`},
		{"kind: Node", "kind: Nod", "line 13: steps: apply: read an object: "},
		{"Node/node3", "Node", `line 16: steps: delete: object "Node"`},
		{"from: pod-a", "from: pod-z", `line 23: steps: probes: from: there is no host "pod-z"`},
		{"from: pod-a", "form: pod-a", `line 23: steps: probes: unknown field "form"`},
		{"    count: 60\n", "", ""},
		{"count: 60", "count: 0", "line 25: steps: probes: count: 0, want at least 1"},
		{"count: 60", "count: many", `line 25: steps: probes: count: value "many"`},
		{"source_port: 4000", "source_port: 70000", `line 26: steps: probes: source_port: value "70000"`},
		{"source_port: 4000", "source_port: 5", "line 19: steps: load and a probe have the same source_port 5"},
		{"to: udp:", "to: icmp:", "line 24: steps: probes: to: target"},
		{"result: ok", "result: fine", `line 28: steps: probes: expect: result: result "fine"`},
		{"      result: ok\n", "", `line 28: steps: probes: expect: field "result" is missing`},
		{"result: ok", "result: dropped", "line 28: steps: probes: expect: nobody answers when the result is dropped"},
		{"10.244.1.10:8080, '", "10.244.1.10, '", "line 29: steps: probes: expect: endpoints: "},
		{"[0.6, 0.9]", "[0.9, 0.6]", "line 31: steps: probes: expect: share: 10.244.1.10:8080: want [MIN, MAX]"},
		{`{"10.244.1.10:8080"`, `{"10.244.1.11:8080"`, "line 28: steps: probes: expect: share of 10.244.1.11:8080"},
		{"source: kept", "source: lost", `line 32: steps: probes: expect: source: source "lost"`},
		{"{result: refused}", "{result: refused, all: true}", "line 21: steps: load: expect: nobody answers"},
		{"source_port: 5,", "count: 5,", `line 21: steps: load: unknown field "count"`},
		{`{"on": node1,`, "{", `line 20: steps: exec: field "on" is missing`},
		{"peer: fails (it cannot)", "peer: passes", `line 3: peer: "passes"`},
		{"title: everything that the format knows\n", "", `line 1: field "title" is missing`},
		{"title: everything", "--- {}\n---\ntitle: everything", "more than one document"},
		{everything, "title: x\nsource: y\nsteps: []\n", "no steps"},
		{everything, "[]", "line 1: want fields and their values"},
		{everything, "a: [", "not YAML"},
	} {
		if !strings.Contains(everything, test.old) {
			t.Fatalf("%q is not in the case", test.old)
		}
		_, err := Parse("all", []byte(strings.Replace(everything, test.old, test.with, 1)), hosts())
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%q: %v", test.with, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%q: %v, want an error with %q", test.with, err, test.want)
		}
	}
}

func TestReadFolder(t *testing.T) {
	dir := filepath.Join("..", "..", "testdata", "cases")
	cases, err := ReadFolder(dir, hosts())
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil || len(files) != len(cases) {
		t.Errorf("%d cases in %d files, %v", len(cases), len(files), err)
	}
	bad := t.TempDir()
	if _, err := ReadFolder(bad, hosts()); err == nil {
		t.Error("a folder without cases")
	}
	path := filepath.Join(bad, "01-bad.yaml")
	if err := os.WriteFile(path, []byte("titel: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFolder(bad, hosts()); err == nil || err.Error() != path+`: line 1: unknown field "titel"` {
		t.Errorf("a bad case: %v", err)
	}
}
