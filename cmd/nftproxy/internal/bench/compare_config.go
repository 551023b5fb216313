package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// proxyFiles are the files of a proxy's configuration, in a folder.
type proxyFiles struct {
	config, kubeconfig string
}

// ModeNFTables is the mode of a KubeProxyConfiguration in which a proxy's changes are seen
// by the notifications of nftables.
const ModeNFTables = "nftables"

// writeProxyFiles writes the configuration of a proxy of that mode.
//
// It has a KubeProxyConfiguration, which both programs read. Where kube-proxy's defaults
// would have it wait so as to do many changes at once, it does not: all proxies shall be
// as fast as they can.
func writeProxyFiles(folder, server, mode string) (proxyFiles, error) {
	files := proxyFiles{filepath.Join(folder, "config.json"), filepath.Join(folder, "kubeconfig.json")}
	kubeconfig := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "bench",
		"clusters": []any{map[string]any{"name": "bench", "cluster": map[string]any{"server": server}}},
		"contexts": []any{map[string]any{"name": "bench", "context": map[string]any{"cluster": "bench", "user": "bench"}}},
		"users":    []any{map[string]any{"name": "bench", "user": map[string]any{}}},
	}
	ranges := make([]string, 0, len(PodRanges()))
	for _, p := range PodRanges() {
		ranges = append(ranges, p.String())
	}
	config := map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode":               mode,
		"clientConnection":   map[string]any{"kubeconfig": files.kubeconfig},
		"hostnameOverride":   NodeName,
		"clusterCIDR":        strings.Join(ranges, ","),
		"nodePortAddresses":  []string{"primary"},
		"healthzBindAddress": "127.0.0.1:10256",
		"metricsBindAddress": "127.0.0.1:10249",
		// The limits of conntrack belong to the machine, not to a namespace.
		"conntrack": map[string]any{
			"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s",
		},
		"nftables": map[string]any{"minSyncPeriod": shortestPeriod},
		"iptables": map[string]any{"minSyncPeriod": shortestPeriod},
	}
	for path, content := range map[string]any{files.config: config, files.kubeconfig: kubeconfig} {
		text, err := json.Marshal(content) // which is YAML
		if err != nil {
			return files, fmt.Errorf("write the configuration of a proxy: %w", err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return files, fmt.Errorf("write the configuration of a proxy: %w", err)
		}
	}
	return files, nil
}

// shortestPeriod is the time between two syncs: kube-proxy takes 0 for its default, in
// nftables mode a second.
const shortestPeriod = "1ms"

// placeholders are what a command may contain.
const (
	placeholderConfig     = "{config}"
	placeholderKubeconfig = "{kubeconfig}"
)

// CheckPeer returns an error if a command of a peer is not usable: it needs one of the
// placeholders {config} and {kubeconfig}.
func CheckPeer(command string) error {
	if !strings.Contains(command, placeholderConfig) && !strings.Contains(command, placeholderKubeconfig) {
		return fmt.Errorf("%q does not contain {config}, the path of a KubeProxyConfiguration, or {kubeconfig}", command)
	}
	return nil
}

// command returns a command with the files in their places. It is split at spaces.
func (f proxyFiles) command(text string) []string {
	words := strings.Fields(text)
	for i := range words {
		words[i] = strings.NewReplacer(placeholderConfig, f.config, placeholderKubeconfig, f.kubeconfig).Replace(words[i])
	}
	return words
}
