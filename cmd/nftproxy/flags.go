package main

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	"github.com/go-logr/zapr"
	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/rules"
)

// sourceFlags say where Services and EndpointSlices come from.
type sourceFlags struct {
	manifests  string
	kubeconfig string
	nodeName   string
}

func (f *sourceFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.manifests, "manifests", "",
		"`path` of a file, or of a folder of *.yaml, *.yml and *.json files, with Services and EndpointSlices as kubectl prints them")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "",
		"`path` of a kubeconfig file of the API server to watch; in a pod neither this nor --manifests is needed")
	flags.StringVar(&f.nodeName, "hostname-override", "", "`name` of this node in the cluster (default: the host name)")
}

// check returns a usage error unless one source is given, and fills in the node's
// name.
func (f *sourceFlags) check() error {
	inPod := os.Getenv("KUBERNETES_SERVICE_HOST") != ""
	switch {
	case f.manifests != "" && f.kubeconfig != "":
		return usagef("give either --manifests or --kubeconfig, not both")
	case f.manifests == "" && f.kubeconfig == "" && !inPod:
		return usagef("give --manifests PATH or --kubeconfig FILE, the source of Services and EndpointSlices")
	}
	name := f.nodeName
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return fmt.Errorf("the host name is not known, give --hostname-override: %w", err)
		}
	}
	// As kube-proxy does: node names are lower-case.
	f.nodeName = strings.ToLower(strings.TrimSpace(name))
	if f.nodeName == "" {
		return usagef("--hostname-override is blank")
	}
	return nil
}

// open returns the source.
func (f *sourceFlags) open(log *zap.Logger) (proxier.Source, error) {
	if f.manifests != "" {
		return proxier.NewManifests(f.manifests, f.nodeName, log), nil
	}
	client, err := proxier.NewClient(f.kubeconfig)
	if err != nil {
		return nil, err
	}
	return proxier.NewAPI(client, f.nodeName, log), nil
}

// rulesFlags are the settings that the ruleset depends on. Names and meanings are
// those of kube-proxy's flags.
type rulesFlags struct {
	clusterCIDR   string
	masqueradeAll bool
}

func (f *rulesFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.clusterCIDR, "cluster-cidr", "",
		"`ranges` of the pods' addresses, separated by commas; traffic to ClusterIPs from elsewhere is masqueraded")
	flags.BoolVar(&f.masqueradeAll, "masquerade-all", false, "masquerade all traffic to ClusterIPs")
}

// config returns the configuration of the ruleset, or a usage error.
func (f *rulesFlags) config() (rules.Config, error) {
	cfg := rules.Config{Families: enabledFamilies(), MasqueradeAll: f.masqueradeAll}
	for _, text := range strings.Split(f.clusterCIDR, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return cfg, usagef("--cluster-cidr: %q is not a range of addresses such as 10.244.0.0/16", text)
		}
		cfg.ClusterCIDRs = append(cfg.ClusterCIDRs, prefix.Masked())
	}
	return cfg, nil
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

// logFlags say what is logged, and how.
type logFlags struct {
	format    string
	verbosity int
}

func (f *logFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.format, "log-format", "console", "`format` of the log on standard error: console or json")
	flags.IntVarP(&f.verbosity, "v", "v", 0, "verbosity `level` of the log: 0 says what an operator must know, 1 every sync, 4 and more what client-go does")
}

// open returns the logger, through which client-go logs too. Call sync at the end.
func (f *logFlags) open() (log *zap.Logger, err error) {
	cfg := zap.NewProductionConfig()
	switch f.format {
	case "console":
		cfg.EncoderConfig = zap.NewDevelopmentEncoderConfig()
		cfg.Encoding = "console"
	case "json":
		cfg.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	default:
		return nil, usagef("--log-format: %q is neither console nor json", f.format)
	}
	if f.verbosity < 0 || f.verbosity > 10 {
		return nil, usagef("-v: %d is not in 0..10", f.verbosity)
	}
	cfg.Level = zap.NewAtomicLevelAt(zapcore.Level(-f.verbosity))
	cfg.DisableCaller, cfg.DisableStacktrace = true, true
	cfg.Sampling = nil
	log, err = cfg.Build()
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	klog.SetLogger(zapr.NewLogger(log.Named("client-go")))
	return log, nil
}
