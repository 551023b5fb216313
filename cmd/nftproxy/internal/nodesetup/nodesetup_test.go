package nodesetup_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/nodesetup"
)

const (
	netfilter = "proc/sys/net/netfilter/"
	entries   = netfilter + "nf_conntrack_max"
	buckets   = "sys/module/nf_conntrack/parameters/hashsize"
)

// kernel is what a fresh kernel of a small machine has.
func kernel() map[string]string {
	return map[string]string{
		entries: "65536", buckets: "16384",
		netfilter + "nf_conntrack_tcp_timeout_established": "432000",
		netfilter + "nf_conntrack_tcp_timeout_close_wait":  "60",
		netfilter + "nf_conntrack_udp_timeout":             "30",
		netfilter + "nf_conntrack_udp_timeout_stream":      "120",
		netfilter + "nf_conntrack_tcp_be_liberal":          "0",
		"proc/self/oom_score_adj":                          "0",
	}
}

// write makes a root with these files.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// read returns the files of a root.
func read(t *testing.T, root string, names map[string]string) map[string]string {
	t.Helper()
	files := map[string]string{}
	for name := range names {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = strings.TrimSpace(string(text))
	}
	return files
}

func TestConntrack(t *testing.T) {
	tests := map[string]struct {
		cpus   int
		config config.Conntrack
		want   map[string]string // what differs from kernel()
	}{
		"nothing asked":             {2, config.Conntrack{}, nil},
		"kube-proxy's defaults":     {2, config.Conntrack{MaxPerCore: 32768, Min: 131072}, map[string]string{entries: "131072", buckets: "32768"}},
		"many CPUs":                 {8, config.Conntrack{MaxPerCore: 32768, Min: 131072}, map[string]string{entries: "262144", buckets: "65536"}},
		"more CPUs than bounds":     {128, config.Conntrack{MaxPerCore: 32768, Min: 131072}, map[string]string{entries: "1048576", buckets: "262144"}},
		"more than bounds at least": {2, config.Conntrack{MaxPerCore: 1, Min: 2 << 20}, map[string]string{entries: "1048576", buckets: "262144"}},
		"it has more already":       {2, config.Conntrack{MaxPerCore: 1024, Min: 1024}, nil},
		"no limit of ours":          {8, config.Conntrack{Min: 131072}, nil},
		"timeouts": {2, config.Conntrack{
			TCPEstablishedTimeout: 24 * time.Hour, TCPCloseWaitTimeout: time.Hour, UDPTimeout: 1500 * time.Millisecond, UDPStreamTimeout: 3 * time.Minute,
		}, map[string]string{
			netfilter + "nf_conntrack_tcp_timeout_established": "86400",
			netfilter + "nf_conntrack_tcp_timeout_close_wait":  "3600",
			netfilter + "nf_conntrack_udp_timeout":             "1",
			netfilter + "nf_conntrack_udp_timeout_stream":      "180",
		}},
		"liberal": {2, config.Conntrack{TCPBeLiberal: true}, map[string]string{netfilter + "nf_conntrack_tcp_be_liberal": "1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := write(t, kernel())
			setup := nodesetup.Setup{Root: root, CPUs: test.cpus}
			if err := setup.Conntrack(test.config); err != nil {
				t.Fatal(err)
			}
			want := kernel()
			maps.Copy(want, test.want)
			if diff := cmp.Diff(want, read(t, root, want)); diff != "" {
				t.Errorf("settings (want -, got +):\n%s", diff)
			}
		})
	}
}

// TestEachErrorIsItsOwn: a setting that is not there keeps none of the others from being
// written.
func TestEachErrorIsItsOwn(t *testing.T) {
	files := kernel()
	delete(files, entries)
	files[netfilter+"nf_conntrack_udp_timeout"] = "soon"
	root := write(t, files)
	setup := nodesetup.Setup{Root: root, CPUs: 2}
	err := setup.Conntrack(config.Conntrack{MaxPerCore: 1, UDPTimeout: time.Minute, UDPStreamTimeout: time.Minute})
	for _, want := range []string{"nf_conntrack_max", "no such file", "nf_conntrack_udp_timeout", "soon"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if got := read(t, root, files)[netfilter+"nf_conntrack_udp_timeout_stream"]; got != "60" {
		t.Errorf("the other setting is %s", got)
	}
}

func TestOOMScoreAdj(t *testing.T) {
	root := write(t, kernel())
	setup := nodesetup.Setup{Root: root}
	if err := setup.OOMScoreAdj(-999); err != nil {
		t.Fatal(err)
	}
	if got := read(t, root, kernel())["proc/self/oom_score_adj"]; got != "-999" {
		t.Errorf("oom_score_adj is %s", got)
	}
}
