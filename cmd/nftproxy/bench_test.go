package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/bench"
)

// TestBenchUpdate measures a small cluster on the real kernel.
func TestBenchUpdate(t *testing.T) {
	stdout, stderr, status := demoCommand(t, testCommand, nil, "bench", "update",
		"--services", "20", "--endpoints-per-service=5", "--shape", "realistic", "--changes", "60", "-o", "json")
	if status != exitOK {
		t.Fatalf("exit status %d, standard error:\n%s", status, stderr)
	}
	var r bench.UpdateResult
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.Services != 20 || r.Shape != bench.Realistic || r.FirstSyncOperations < 100 || r.Changes[bench.EndpointAdd].Count != 10 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(stderr, "[2/3] 60 changes ...") {
		t.Errorf("standard error:\n%s", stderr)
	}
}

// TestBenchScale measures two small clusters, each in a process of its own.
func TestBenchScale(t *testing.T) {
	stdout, stderr, status := demoCommand(t, testCommand, nil, "bench", "scale",
		"--sizes", "2,8", "--endpoints-per-service", "3", "--changes", "6", "-o", "json")
	if status != exitOK {
		t.Fatalf("exit status %d, standard error:\n%s", status, stderr)
	}
	var r bench.ScaleResult
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Sizes) != 2 || r.Sizes[0].Endpoints != 6 || r.Sizes[1].Endpoints != 24 {
		t.Errorf("%+v", r)
	}
}

// TestBenchCompare compares nftproxy with itself, from the API server to packets.
func TestBenchCompare(t *testing.T) {
	stdout, stderr, status := demoCommand(t, testCommand, nil, "bench", "compare", "--peer", "/proc/self/exe run --config={config}",
		"--services", "5", "--shape", "realistic", "--changes", "4", "-o", "json")
	if status != exitOK {
		t.Fatalf("exit status %d, standard error:\n%s", status, stderr)
	}
	var r bench.CompareResult
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	if r.Services != 5 || len(r.Proxies) != 2 || r.Proxies[0].Name != "nftproxy" || r.Proxies[1].Name != "exe nftables" {
		t.Fatalf("%+v", r)
	}
	for _, p := range r.Proxies {
		if p.NFTables.Count != 4 || p.Packet.Count != 4 || p.FirstSync <= 0 || p.RSS < 1<<20 {
			t.Errorf("%s: %+v", p.Name, p)
		}
	}
}

// TestBenchCompareFails makes sure that the last words of a proxy that ends are heard.
func TestBenchCompareFails(t *testing.T) {
	stdout, stderr, status := demoCommand(t, testCommand, nil, "bench", "compare", "--only", "peer",
		"--peer", "/proc/self/exe version {config}", "--services", "5")
	if status != exitError || stdout != "" {
		t.Errorf("exit status %d, standard output:\n%s", status, stdout)
	}
	for _, want := range []string{"measure exe nftables: the proxy has ended by itself", "unexpected argument"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("standard error has no %q:\n%s", want, stderr)
		}
	}
}

// TestBenchDataplane makes connections with two sizes and two proxies, both of them
// nftproxy.
func TestBenchDataplane(t *testing.T) {
	stdout, stderr, status := demoCommand(t, testCommand, nil, "bench", "dataplane", "--peer", "/proc/self/exe run --config={config}",
		"--sizes", "1,5", "--connections", "400", "-o", "json")
	if status != exitOK {
		t.Fatalf("exit status %d, standard error:\n%s", status, stderr)
	}
	var r bench.DataplaneResult
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	var runs []string
	for _, run := range r.Runs {
		runs = append(runs, fmt.Sprintf("%s %d: %d, %d", run.Name, run.Services, run.Direct.Count, run.ClusterIP.Count))
		if run.Direct.PerSecond <= 0 || run.ClusterIP.P50 <= 0 || run.Relative <= 0 {
			t.Errorf("%+v", run)
		}
	}
	want := []string{"nftproxy 1: 400, 400", "exe nftables 1: 400, 400", "nftproxy 5: 400, 400", "exe nftables 5: 400, 400"}
	if diff := cmp.Diff(want, runs); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestBenchSandbox makes sure that a command is the same in the private namespace.
func TestBenchSandbox(t *testing.T) {
	stdout, stderr, status := demoCommand(t, testCommand, nil, "bench", "dataplane", "--only", "nftproxy", "--sizes", "3", "--connections", "400")
	if status != exitOK || !strings.Contains(stdout, `"services":3`) {
		t.Errorf("exit status %d, %s, standard error:\n%s", status, stdout, stderr)
	}
}

func TestBenchUsage(t *testing.T) {
	tests := map[string][]string{
		"--peer":               {"compare", "--peer", "kube-proxy"},
		"--only: ":             {"compare", "--peer", "true {config}", "--only", "other"},
		"--connections":        {"dataplane", "--connections", "399"},
		"--only: give one":     {"compare", "--only", "nftproxy", "--services", "5,6"},
		"one number":           {"dataplane", "--only", "nftproxy"},
		"--sizes":              {"scale", "--sizes", "many"},
		"--sizes: 0 is not in": {"dataplane", "--sizes", "0,10"},
		"--report: ":           {"scale", "--report", "/dev/null/report"},
		"1000001":              {"scale", "--sizes", "100,1000001"},
		"unexpected argument":  {"update", "now"},
		"--services":           {"update", "--services", "0"},
		"--shape":              {"update", "--shape", "round"},
		"--mix":                {"update", "--mix", "reboot"},
		"--changes":            {"update", "--changes", "0"},
		"--rate":               {"update", "--rate", "-1"},
		"--output":             {"update", "-o", "xml"},
		"unknown command":      {"upgrade"},
	}
	for want, args := range tests {
		status, stdout, stderr := nftproxy(append([]string{"bench"}, args...)...)
		if status != exitUsage || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit status %d, %q, %q; want %q", args, status, stdout, stderr, want)
		}
	}
}
