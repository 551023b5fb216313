package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/rules"
)

// settings are the flags of commands that read a cluster: those of kube-proxy, and
// where the objects are if not in an API server.
type settings struct {
	flags     config.Flags
	manifests string
}

func (s *settings) add(flags *pflag.FlagSet) {
	s.flags.Add(flags)
	flags.StringVar(&s.manifests, "manifests", "",
		"`path` of a file, or of a folder of *.yaml, *.yml and *.json files, with objects as kubectl prints them, in place of an API server")
}

// load returns the configuration that the flags and the file say. What is wrong with
// flags alone is a usage error.
func (s *settings) load() (*config.Config, error) {
	cfg, err := s.flags.Load()
	if err != nil && s.flags.ConfigFile == "" {
		return nil, &usageError{err}
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // says it all
	}
	return cfg, s.checkSource(cfg)
}

// checkSource returns a usage error unless there is one source of objects.
func (s *settings) checkSource(cfg *config.Config) error {
	inPod := os.Getenv("KUBERNETES_SERVICE_HOST") != ""
	server := cfg.ClientConnection.Kubeconfig != "" || cfg.ClientConnection.Master != ""
	switch {
	case s.manifests != "" && server && s.flags.ConfigFile == "":
		return usagef("give either --manifests or --kubeconfig, not both")
	case s.manifests == "" && !server && !inPod:
		return usagef("give --kubeconfig FILE, --config FILE with clientConnection.kubeconfig, or --manifests PATH: the source of Services and EndpointSlices")
	}
	return nil
}

// nodeName returns the name of this node in the cluster.
func nodeName(cfg *config.Config) (string, error) {
	if cfg.HostnameOverride != "" {
		return cfg.HostnameOverride, nil
	}
	name, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("the host name is not known, give --hostname-override: %w", err)
	}
	return strings.ToLower(strings.TrimSpace(name)), nil // as node names are
}

// source returns where the objects come from, and the client of the API server if they
// come from there.
func (s *settings) source(cfg *config.Config, node string, log *zap.Logger) (proxier.Source, kubernetes.Interface, error) {
	if s.manifests != "" {
		return proxier.NewManifests(s.manifests, node, log), nil, nil
	}
	c := cfg.ClientConnection
	client, err := proxier.NewClient(proxier.ClientOptions{
		Kubeconfig: c.Kubeconfig, Master: c.Master,
		AcceptContentTypes: c.AcceptContentTypes, ContentType: c.ContentType,
		QPS: c.QPS, Burst: c.Burst,
	})
	if err != nil {
		return nil, nil, err
	}
	return proxier.NewAPI(client, node, log), client, nil
}

// options returns what the proxier takes from the configuration.
func options(cfg *config.Config, families []rules.Family, log *zap.Logger) proxier.Options {
	opts := proxier.Options{
		Rules: rules.Config{
			Families:       families,
			ClusterCIDRs:   cfg.LocalTraffic.ClusterCIDRs,
			MasqueradeAll:  cfg.MasqueradeAll,
			MasqueradeMark: cfg.MasqueradeMark,
		},
		NodePorts:     cfg.NodePortAddresses,
		BindAddress:   cfg.BindAddress,
		MinSyncPeriod: cfg.MinSyncPeriod,
		Log:           log,
		LongestRetry:  min(cfg.SyncPeriod, longestRetry),
		NoExternalIPs: !allowsExternalIPs(cfg),
	}
	switch cfg.LocalTraffic.Mode {
	case config.LocalModeClusterCIDR:
	case config.LocalModeNodeCIDR:
		opts.NodeCIDR = true
	case config.LocalModeBridgeInterface:
		opts.Rules.PodInterface = cfg.LocalTraffic.Interface
	case config.LocalModeInterfaceNamePrefix:
		opts.Rules.PodInterfacePrefix = cfg.LocalTraffic.Interface
	}
	return opts
}

// longestRetry bounds the pause after failed syncs, whatever the configuration allows.
const longestRetry = 10 * time.Second

// allowsExternalIPs reports whether external IPs of Services count. The gate is on by
// default.
func allowsExternalIPs(cfg *config.Config) bool {
	allowed, set := cfg.FeatureGates[config.AllowExternalIPs]
	return allowed || !set
}

// enabledFamilies returns both families, or IPv4 alone where the kernel has no
// IPv6, or has it turned off, by the same tests as kube-proxy.
func enabledFamilies() []rules.Family {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return []rules.Family{rules.IPv4}
	}
	disabled, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	if err == nil && strings.TrimSpace(string(disabled)) == "1" {
		return []rules.Family{rules.IPv4}
	}
	return rules.Families()
}
