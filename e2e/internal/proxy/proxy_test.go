package proxy

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace/namespacetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stub is a program that ends with a code when it is asked to.
func stub(t *testing.T, code string) Options {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stub")
	script := "#!/bin/sh\ntrap 'exit " + code + "' TERM\necho \"args: $*\"\nwhile :; do sleep 0.05; done\n"
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return Options{
		Program: path, Namespace: namespacetest.New(t, t.Name()), Node: "node1", Manifests: "/manifests",
		Dir: t.TempDir(), LogDir: t.TempDir(),
	}
}

func TestArgs(t *testing.T) {
	for name, test := range map[string]struct {
		options Options
		want    string
	}{
		"manifests":     {Options{Manifests: "/manifests"}, "run --config FILE --manifests /manifests"},
		"an API server": {Options{Kubeconfig: "/kubeconfig"}, "run --config FILE"},
	} {
		if got := strings.Join(NewNFTProxy(test.options).program.args("FILE"), " "); got != test.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestRun(t *testing.T) {
	options := stub(t, "0")
	p := NewNFTProxy(options)
	if p.PID() != 0 {
		t.Error("a process number of what does not run")
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("stop what does not run: %v", err)
	}
	<-p.Ended()
	if err := p.Start(t.Context(), map[string]any{"nftables": map[string]any{"masqueradeAll": true}}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.Ended():
		t.Error("it has ended")
	default:
	}
	if exe, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID())); err != nil || !strings.Contains(string(exe), options.Program) {
		t.Errorf("process %d: %q, %v", p.PID(), exe, err)
	}
	if err := p.Start(t.Context(), nil); err == nil {
		t.Error("started twice")
	}
	data, err := os.ReadFile(filepath.Join(options.Dir, "proxy-config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(data, &config); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "nftables",
		"hostnameOverride": "node1", "clusterCIDR": clusterCIDRs,
		"healthzBindAddress": "127.0.0.1:10256", "metricsBindAddress": "127.0.0.1:10249",
		"conntrack": map[string]any{
			"maxPerCore": 0.0, "min": 0.0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
		},
		"nftables": map[string]any{"masqueradeAll": true},
	}
	if diff := cmp.Diff(want, config); diff != "" {
		t.Errorf("configuration (-want +got)\n%s", diff)
	}
	if err := p.Kill(); err != nil {
		t.Error(err)
	}
	<-p.Ended()
}

func TestStopCode(t *testing.T) {
	for name, test := range map[string]struct {
		peer bool
		code string
		bad  bool
	}{
		"nftproxy, orderly":     {false, "0", false},
		"nftproxy, not orderly": {false, "3", true},
		"the peer":              {true, "3", false},
	} {
		t.Run(name, func(t *testing.T) {
			options := stub(t, test.code)
			options.Kubeconfig = "/kubeconfig"
			p := NewNFTProxy(options)
			if test.peer {
				var err error
				if p, err = NewKubeProxy(options); err != nil {
					t.Fatal(err)
				}
			}
			if err := p.Start(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			for !strings.Contains(p.Tail(1), "args: ") {
				time.Sleep(10 * time.Millisecond) // until it can be asked to end
			}
			if err := p.Stop(t.Context()); (err != nil) != test.bad {
				t.Errorf("stop: %v", err)
			}
		})
	}
}

func TestKubeProxyNeedsAPI(t *testing.T) {
	if _, err := NewKubeProxy(Options{Manifests: "/manifests"}); err == nil {
		t.Error("kube-proxy with manifests")
	}
}
