package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// TestLog: everything goes through one logger, also what client-go says; a sync is one
// line with counts and its duration, and its batch is at level debug.
func TestLog(t *testing.T) {
	ns := nstest.New(t)
	api := newFakeAPI(t, ns)
	api.putNode(t)
	d := startDaemon(t, ns, "--kubeconfig", api.kubeconfig(t), "--hostname-override", "node1", "--logging-format", "json", "-v", "7")
	awaitHealthy(t, ns)
	api.put(t, servicesPath, "lb", balanced(0, corev1.ServiceExternalTrafficPolicyCluster))
	eventually(t, "a sync", func() bool { return strings.Contains(d.stderr.String(), `"synced"`) })
	d.stop(t, syscall.SIGTERM)

	client := 0
	synced := []map[string]any{}
	batches := []string{}
	for line := range strings.Lines(d.stderr.String()) {
		var entry map[string]any
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatalf("%v in the line %q", err, line)
		}
		if entry["logger"] == "client-go" {
			client++
		}
		switch entry["msg"] {
		case "synced":
			synced = append(synced, entry)
		case "batch":
			batches = append(batches, entry["nft"].(string)) //nolint:forcetypeassert // a panic fails the test
			if entry["level"] != "debug" {
				t.Errorf("a batch at level %v", entry["level"])
			}
		}
	}
	if client == 0 {
		t.Error("client-go says nothing")
	}
	if len(synced) != 1 || synced[0]["level"] != "info" {
		t.Fatalf("lines about the sync: %v", synced)
	}
	for _, field := range []string{"servicePorts", "batches", "elements", "verdicts", "objects", "queued", "took"} {
		if synced[0][field] == nil {
			t.Errorf("the line about the sync has no %s: %v", field, synced[0])
		}
	}
	if len(batches) != 2 || !strings.Contains(batches[1], "add element ip nftproxy") {
		t.Errorf("batches: %q", batches)
	}
}

// TestLogOfBatches: at level 1 there are batches, and no answers of the API server, which
// are as large as the cluster.
func TestLogOfBatches(t *testing.T) {
	ns := nstest.New(t)
	api := newFakeAPI(t, ns)
	api.putNode(t)
	d := startDaemon(t, ns, "--kubeconfig", api.kubeconfig(t), "--hostname-override", "node1", "-v", "1")
	awaitHealthy(t, ns)
	d.stop(t, syscall.SIGTERM)
	if log := d.stderr.String(); !strings.Contains(log, "add table ip nftproxy") || strings.Contains(log, "Response Body") || strings.Contains(log, "machineID") {
		t.Errorf("log: %s", log)
	}
}

// TestPagesOfTheDaemon beside its metrics.
func TestPagesOfTheDaemon(t *testing.T) {
	ns := nstest.New(t)
	d := startDaemon(t, ns, "--manifests", write(t, goodService), "--cluster-cidr", "10.244.0.0/16", "--profiling")
	awaitHealthy(t, ns)
	for page, want := range map[string]string{
		"/proxyMode":           "nftables",
		"/configz":             `"clusterCIDR":"10.244.0.0/16"`,
		"/flagz":               "cluster-cidr=10.244.0.0/16",
		"/statusz":             "nftproxy",
		"/healthz":             "ok",
		"/debug/pprof/cmdline": "run",
	} {
		status, body, err := get(t.Context(), ns, strings.Replace(metricsURL, "/metrics", page, 1))
		if err != nil || status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s answers %d, %v, without %q: %.300s", page, status, err, want, body)
		}
	}
	d.stop(t, syscall.SIGTERM)
	d = startDaemon(t, ns, "--manifests", write(t, goodService))
	awaitHealthy(t, ns)
	if status, _, err := get(t.Context(), ns, strings.Replace(metricsURL, "/metrics", "/debug/pprof/cmdline", 1)); err != nil || status != http.StatusNotFound {
		t.Errorf("without --profiling pprof answers %d, %v", status, err)
	}
	d.stop(t, syscall.SIGTERM)
}
