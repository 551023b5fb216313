package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const header = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"

// TestDecode: what is a configuration, and what is said of other files.
func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name, data string
		want       string // part of the error, empty if it is accepted
		warning    string // part of the first warning
	}{
		{"YAML", header + "mode: nftables\nclusterCIDR: 10.244.0.0/16\n", "", ""},
		{"JSON", `{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration","mode":"nftables","clusterCIDR":"10.244.0.0/16"}`, "", ""},
		{"unknown field", header + "mode: nftables\nclusterCIDR: 10.244.0.0/16\nclusterCDIR: 10.0.0.0/8\n", "", `unknown field "clusterCDIR"`},
		{"unknown field below", header + "mode: nftables\nclusterCIDR: 10.244.0.0/16\nnftables: {bit: 3}\n", "", `unknown field "nftables.bit"`},
		{"duplicate field", header + "mode: nftables\nclusterCIDR: 10.0.0.0/8\nclusterCIDR: 10.244.0.0/16\n", "", `key "clusterCIDR" already set`},
		{"empty", "", `apiVersion "" and kind ""`, ""},
		{"no kind", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\n", `kind "", but must have`, ""},
		{"no version", "kind: KubeProxyConfiguration\n", `apiVersion "" and kind "KubeProxyConfiguration", but must have`, ""},
		{"another version", "apiVersion: kubeproxy.config.k8s.io/v1beta1\nkind: KubeProxyConfiguration\n", `apiVersion "kubeproxy.config.k8s.io/v1beta1"`, ""},
		{"another kind", "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeletConfiguration\n", `kind "KubeletConfiguration", but must have`, ""},
		{"a ConfigMap", "apiVersion: v1\nkind: ConfigMap\n", `must have apiVersion "kubeproxy.config.k8s.io/v1alpha1" and kind "KubeProxyConfiguration"`, ""},
		{"no mapping", "kube-proxy", "cannot be read", ""},
		{"broken YAML", header + "clusterCIDR: [", "cannot be read", ""},
		{"colons without quotes", header + "bindAddress: ::\n", "mapping values are not allowed", ""},
		{"wrong type", header + "conntrack: {min: many}\n", "conntrack.min of type int32", ""},
		{"wrong unit", header + "conntrack: {tcpCloseWaitTimeout: 1fortnight}\n", `"1fortnight"`, ""},
		{"wrong type beside an unknown field", header + "foo: 1\nconntrack: {min: many}\n", "conntrack.min of type int32", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := Parse([]byte(c.data))
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got error %v, want one with %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := cfg.Object.ClusterCIDR; got != "10.244.0.0/16" {
				t.Errorf("got clusterCIDR %q", got)
			}
			checkWarnings(t, cfg, c.warning)
		})
	}
}

// checkWarnings checks that there is just one warning with the text, or none.
func checkWarnings(t *testing.T, cfg *Config, want string) {
	t.Helper()
	switch {
	case want == "" && len(cfg.Warnings) == 0:
	case want != "" && len(cfg.Warnings) == 1 && strings.Contains(cfg.Warnings[0], want):
	default:
		t.Errorf("got warnings %q, want one with %q", cfg.Warnings, want)
	}
	for _, w := range cfg.Warnings {
		if strings.Contains(w, "\n") {
			t.Errorf("warning %q has several lines", w)
		}
	}
}

// TestLoad: the file's name is in every error.
func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.conf")
	if _, err := Load(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("missing: got error %v", err)
	}
	for data, want := range map[string]string{
		header + "mode: nftables\n":  "",
		header + "mode: userspace\n": path,
		"kind: Pod":                  path,
	} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, err := Load(path)
		if want == "" {
			if err != nil || cfg == nil {
				t.Errorf("%q: got error %v", data, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got error %v, want one with %q", data, err, want)
		}
	}
}

// TestEveryProblemIsNamed: the error has all problems, each a FieldError.
func TestEveryProblemIsNamed(t *testing.T) {
	_, err := Parse([]byte(header + `
bindAddress: localhost
nftables: {masqueradeBit: 33}
nodePortAddresses: [Primary, 192.0.2.1]
conntrack: {min: -1}
`))
	var fields []string
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("got error %v", err)
	}
	for _, e := range joined.Unwrap() {
		var field *FieldError
		if errors.As(e, &field) {
			fields = append(fields, field.Field)
		}
	}
	want := []string{"bindAddress", "conntrack.min", "nftables.masqueradeBit", "nodePortAddresses[0]", "nodePortAddresses[1]"}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Error(diff)
	}
}
