package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// configMap is a folder in which a ConfigMap is mounted: its files are links by way of
// ..data, which is replaced at once.
type configMap struct {
	folder  string
	version int
}

// put makes text the content of config.conf, as the kubelet does it.
func (c *configMap) put(t *testing.T, text string) {
	t.Helper()
	c.version++
	name := fmt.Sprintf("..%d", c.version)
	for _, err := range []error{
		os.Mkdir(filepath.Join(c.folder, name), 0o700),
		os.WriteFile(filepath.Join(c.folder, name, "config.conf"), []byte(text), 0o600),
		os.Symlink(name, filepath.Join(c.folder, "..data_tmp")),
		os.Rename(filepath.Join(c.folder, "..data_tmp"), filepath.Join(c.folder, "..data")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if c.version == 1 {
		if err := os.Symlink("..data/config.conf", c.path()); err != nil {
			t.Fatal(err)
		}
		return
	}
	if err := os.RemoveAll(filepath.Join(c.folder, fmt.Sprintf("..%d", c.version-1))); err != nil {
		t.Fatal(err)
	}
}

func (c *configMap) path() string { return filepath.Join(c.folder, "config.conf") }

// TestConfigMapChanges: a configuration that changes in a mounted ConfigMap comes into
// force without a new process. One that is wrong is told, and the last good one stays.
func TestConfigMapChanges(t *testing.T) {
	ns := nstest.New(t)
	api := newFakeAPI(t, ns)
	api.putNode(t)
	api.put(t, servicesPath, "lb", balanced(0, corev1.ServiceExternalTrafficPolicyCluster))
	c := &configMap{folder: t.TempDir()}
	config := func(port int, more string) string {
		return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: node1
clientConnection: {kubeconfig: %s}
metricsBindAddress: "127.0.0.1:%d"
%s
`, api.kubeconfig(t), port, more)
	}
	c.put(t, config(10249, "clusterCIDR: 10.244.0.0/16"))
	d := startDaemon(t, ns, "--config", c.path())
	awaitHealthy(t, ns)
	rules := func(want string) func() bool {
		return func() bool {
			return strings.Contains(ns.MustNFT(t, "", "list", "chain", "ip", "nftproxy", "services"), want)
		}
	}
	serves := func(port int) func() bool {
		return func() bool {
			status, _, err := get(t.Context(), ns, fmt.Sprintf("http://127.0.0.1:%d/proxyMode", port))
			return err == nil && status == http.StatusOK
		}
	}
	if !rules("10.244.0.0/16")() || !serves(10249)() {
		t.Error("the first configuration is not in force")
	}
	requests := fmt.Sprintf(`rest_client_requests_total{code="200",host=%q,method="GET"}`, strings.TrimPrefix(api.server.URL, "http://"))
	before := metric(t, ns, requests)

	c.put(t, config(10249, "clusterCIDR: 10.245.0.0/16"))
	eventually(t, "another range of pods", rules("10.245.0.0/16"))
	awaitHealthy(t, ns)
	eventually(t, "its requests in the metrics", func() bool { return metric(t, ns, requests) > before })

	c.put(t, config(10249, "clusterCIDR: somewhere"))
	eventually(t, "a complaint", func() bool {
		log := d.stderr.String()
		return strings.Contains(log, "cannot be used; the last good one stays") && strings.Contains(log, `clusterCIDR: \"somewhere\"`)
	})
	if !rules("10.245.0.0/16")() || !serves(10249)() {
		t.Error("the last good configuration is not in force")
	}

	c.put(t, config(10300, "clusterCIDR: 10.246.0.0/16"))
	eventually(t, "all of the next one", func() bool { return rules("10.246.0.0/16")() && serves(10300)() })
	if serves(10249)() {
		t.Error("the old port is open")
	}
	if n := strings.Count(d.stderr.String(), "the configuration was changed"); n != 2 {
		t.Errorf("%d changes of the configuration", n)
	}
	if status := d.stop(t, syscall.SIGTERM); status != exitOK {
		t.Errorf("exit status: %d", status)
	}
}

// TestInitOnly applies what needs privileges, and leaves no table behind.
func TestInitOnly(t *testing.T) {
	ns := nstest.New(t)
	const timeout = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout"
	d := startDaemon(t, ns, "--manifests", write(t, goodService), "--init-only", "--conntrack-max-per-core", "0",
		"--conntrack-udp-timeout", "77s", "--conntrack-tcp-timeout-established", "0", "--conntrack-tcp-timeout-close-wait", "0")
	if status := d.wait(t); status != exitOK {
		t.Fatalf("exit status %d: %s", status, d.stderr)
	}
	var got []byte
	if err := ns.Do(func() (err error) { got, err = os.ReadFile(timeout); return err }); err != nil {
		t.Fatal(err)
	}
	if strings.TrimSpace(string(got)) != "77" {
		t.Errorf("the timeout is %s", got)
	}
	if tables := ns.MustNFT(t, "", "list", "tables"); tables != "" {
		t.Errorf("there are tables: %s", tables)
	}
}

// TestInitOnlyFails when a setting cannot be written.
func TestInitOnlyFails(t *testing.T) {
	ns := nstest.New(t)
	d := startDaemon(t, ns, "--manifests", write(t, goodService), "--init-only", "--conntrack-max-per-core", "0",
		"--conntrack-udp-timeout", (1 << 33 * time.Second).String())
	if status := d.wait(t); status != exitError || !strings.Contains(d.stderr.String(), "nf_conntrack_udp_timeout") {
		t.Errorf("exit status %d: %s", status, d.stderr)
	}
}
