package config

import (
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

// Add adds the flags to those of a command, and panics if that has one of the same
// name. The ones that have no meaning here are accepted, but not shown in the help.
func (f *Flags) Add(flags *pflag.FlagSet) {
	setDefaults(&f.object)
	// Without a file nothing asks for another mode.
	f.object.Mode = modeNFTables
	f.set = pflag.NewFlagSet("kube-proxy", pflag.ContinueOnError)
	f.addGeneral()
	f.addServers()
	f.addRules()
	f.addConntrack()
	f.addLogging()
	f.addIgnored()
	f.set.VisitAll(flags.AddFlag)
}

func (f *Flags) addGeneral() {
	c, fs := &f.object, f.set
	fs.StringVar(&f.ConfigFile, "config", "",
		"`path` of a KubeProxyConfiguration file; only flags for logging, --hostname-override and --master count beside it")
	fs.StringVar(&f.WriteConfigTo, "write-config-to", "", "write the configuration with its defaults to the file `path`, and end")
	fs.BoolVar(&f.Cleanup, "cleanup", false, "remove all rules, and end")
	fs.Var(cliflag.NewMapStringBool(&c.FeatureGates), "feature-gates", "feature `gates` as name=true or name=false, separated by commas")
	fs.StringVar(&c.ClientConnection.Kubeconfig, "kubeconfig", "",
		"`path` of a kubeconfig file of the API server to watch; a pod does without")
	fs.StringVar(&f.master, "master", "", "`URL` of the API server, in place of the one in the kubeconfig file")
	fs.StringVar(&c.ClientConnection.ContentType, "kube-api-content-type", c.ClientConnection.ContentType,
		"media `type` of requests to the API server")
	fs.Float32Var(&c.ClientConnection.QPS, "kube-api-qps", c.ClientConnection.QPS, "requests a second to the API server, in the long run")
	fs.Int32Var(&c.ClientConnection.Burst, "kube-api-burst", c.ClientConnection.Burst, "requests to the API server at once")
	fs.StringVar(&f.hostnameOverride, "hostname-override", "", "`name` of this node in the cluster (default: the host name)")
	fs.Int32Var(c.OOMScoreAdj, "oom-score-adj", *c.OOMScoreAdj, "oom_score_adj of this process, -1000 to 1000")
}

func (f *Flags) addServers() {
	c, fs := &f.object, f.set
	fs.Var((*addressValue)(&c.BindAddress), "bind-address",
		"IP `address` of this node in place of the one in its Node, and of the primary family; nothing is bound to it")
	fs.Var((*addressValue)(&c.HealthzBindAddress), "healthz-bind-address", "`address` and port of the health server")
	fs.Var((*addressValue)(&c.MetricsBindAddress), "metrics-bind-address", "`address` and port of the server of metrics")
	fs.BoolVar(&c.BindAddressHardFail, "bind-address-hard-fail", false, "end if the health server or the one of metrics cannot listen")
	fs.BoolVar(&c.EnableProfiling, "profiling", false, "serve pprof beside the metrics")
	fs.Int32Var(&f.healthzPort, "healthz-port", defaultHealthzPort,
		"deprecated, use --healthz-bind-address: port of the health server if its address has none; 0 for no health server")
	fs.Int32Var(&f.metricsPort, "metrics-port", defaultMetricsPort,
		"deprecated, use --metrics-bind-address: port of the server of metrics if its address has none")
	f.hide("healthz-port", "metrics-port")
}

func (f *Flags) addRules() {
	c, fs := &f.object, f.set
	fs.StringVar((*string)(&c.Mode), "proxy-mode", modeNFTables, "`mode` of kube-proxy; every one is taken for nftables")
	fs.Int32Var(c.IPTables.MasqueradeBit, "iptables-masquerade-bit", *c.IPTables.MasqueradeBit,
		"bit of the packet mark that requests masquerading, 0 to 31, in another mode than nftables")
	fs.BoolVar(&c.NFTables.MasqueradeAll, "masquerade-all", false, "masquerade all traffic to ClusterIPs")
	fs.DurationVar(&f.syncPeriod, "iptables-sync-period", c.NFTables.SyncPeriod.Duration,
		"longest time until a failed sync is tried again, and half the time after which the program counts as unhealthy")
	fs.DurationVar(&f.minSyncPeriod, "iptables-min-sync-period", c.NFTables.MinSyncPeriod.Duration,
		"shortest time from the end of a sync to the start of the next one; 0 for none")
	fs.StringVar((*string)(&c.DetectLocalMode), "detect-local-mode", string(c.DetectLocalMode),
		"`way` to tell the traffic of this node's pods: ClusterCIDR (the default), NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	fs.StringVar(&c.DetectLocal.BridgeInterface, "pod-bridge-interface", "", "`name` of the pods' bridge, for --detect-local-mode BridgeInterface")
	fs.StringVar(&c.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "",
		"`beginning` of the names of the pods' interfaces, for --detect-local-mode InterfaceNamePrefix")
	fs.StringVar(&c.ClusterCIDR, "cluster-cidr", "",
		"`range` of the pods' addresses, or one of each family separated by a comma; traffic to ClusterIPs from elsewhere is masqueraded")
	fs.StringSliceVar(&c.NodePortAddresses, "nodeport-addresses", nil,
		"`ranges` of the node's addresses on which NodePorts are open, or the words primary (the default), localhost and all, separated by commas")
}

func (f *Flags) addConntrack() {
	c, fs := &f.object.Conntrack, f.set
	fs.Int32Var(c.MaxPerCore, "conntrack-max-per-core", *c.MaxPerCore, "conntrack entries to allow for each CPU, 0 to leave the limit as it is")
	fs.Int32Var(c.Min, "conntrack-min", *c.Min, "conntrack entries to allow at least, unless --conntrack-max-per-core is 0")
	fs.DurationVar(&c.TCPEstablishedTimeout.Duration, "conntrack-tcp-timeout-established", c.TCPEstablishedTimeout.Duration,
		"how long an idle TCP connection is kept, 0 to leave it as it is")
	fs.DurationVar(&c.TCPCloseWaitTimeout.Duration, "conntrack-tcp-timeout-close-wait", c.TCPCloseWaitTimeout.Duration,
		"how long a TCP connection in the state CLOSE_WAIT is kept, 0 to leave it as it is")
	fs.BoolVar(&c.TCPBeLiberal, "conntrack-tcp-be-liberal", false, "accept TCP segments that are out of the window")
	fs.DurationVar(&c.UDPTimeout.Duration, "conntrack-udp-timeout", 0, "how long a UDP flow without an answer is kept, 0 to leave it as it is")
	fs.DurationVar(&c.UDPStreamTimeout.Duration, "conntrack-udp-timeout-stream", 0, "how long a UDP flow with answers is kept, 0 to leave it as it is")
}

func (f *Flags) addLogging() {
	c, fs := &f.object.Logging, f.set
	fs.StringVar(&c.Format, "logging-format", c.Format, "`format` of the log on standard error: text or json")
	fs.VarP(logsapi.VerbosityLevelPflag(&c.Verbosity), "v", "v",
		"verbosity `level` of the log: 0 says what an operator must know and each sync, 1 its batch in nft syntax, 4 and more what client-go does")
	fs.DurationVar(&c.FlushFrequency.Duration.Duration, "log-flush-frequency", c.FlushFrequency.Duration.Duration, "ignored")
	fs.Var(logsapi.VModuleConfigurationPflag(&c.VModule), "vmodule", "ignored")
	fs.BoolVar(&c.Options.Text.SplitStream, "log-text-split-stream", false, "ignored")
	fs.Var(&c.Options.Text.InfoBufferSize, "log-text-info-buffer-size", "ignored")
	fs.BoolVar(&c.Options.JSON.SplitStream, "log-json-split-stream", false, "ignored")
	fs.Var(&c.Options.JSON.InfoBufferSize, "log-json-info-buffer-size", "ignored")
	f.hide("log-flush-frequency", "vmodule", "log-text-split-stream", "log-text-info-buffer-size",
		"log-json-split-stream", "log-json-info-buffer-size")
}

// addIgnored adds what has no meaning here.
func (f *Flags) addIgnored() {
	c, fs := &f.object, f.set
	fs.StringVar(&c.ShowHiddenMetricsForVersion, "show-hidden-metrics-for-version", "", "ignored")
	fs.DurationVar(&c.ConfigSyncPeriod.Duration, "config-sync-period", c.ConfigSyncPeriod.Duration, "ignored")
	fs.BoolVar(c.IPTables.LocalhostNodePorts, "iptables-localhost-nodeports", true, "ignored")
	fs.DurationVar(&c.IPVS.SyncPeriod.Duration, "ipvs-sync-period", c.IPVS.SyncPeriod.Duration, "ignored")
	fs.DurationVar(&c.IPVS.MinSyncPeriod.Duration, "ipvs-min-sync-period", 0, "ignored")
	fs.StringVar(&c.IPVS.Scheduler, "ipvs-scheduler", "", "ignored")
	fs.StringSliceVar(&c.IPVS.ExcludeCIDRs, "ipvs-exclude-cidrs", nil, "ignored")
	fs.BoolVar(&c.IPVS.StrictARP, "ipvs-strict-arp", false, "ignored")
	fs.DurationVar(&c.IPVS.TCPTimeout.Duration, "ipvs-tcp-timeout", 0, "ignored")
	fs.DurationVar(&c.IPVS.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", 0, "ignored")
	fs.DurationVar(&c.IPVS.UDPTimeout.Duration, "ipvs-udp-timeout", 0, "ignored")
	fs.String("boot-id-file", "", "ignored")
	fs.String("machine-id-file", "", "ignored")
	f.hide("show-hidden-metrics-for-version", "config-sync-period", "iptables-localhost-nodeports",
		"ipvs-sync-period", "ipvs-min-sync-period", "ipvs-scheduler", "ipvs-exclude-cidrs", "ipvs-strict-arp",
		"ipvs-tcp-timeout", "ipvs-tcpfin-timeout", "ipvs-udp-timeout", "boot-id-file", "machine-id-file")
}

// hide leaves flags out of the help.
func (f *Flags) hide(names ...string) {
	for _, name := range names {
		f.set.Lookup(name).Hidden = true
	}
}

// addressValue is the value of a flag for an address. As with kube-proxy, an empty
// one leaves the default.
type addressValue string

// Set takes the text of the flag.
func (v *addressValue) Set(text string) error {
	if text != "" {
		*v = addressValue(text)
	}
	return nil
}

// String returns the address.
func (v *addressValue) String() string { return string(*v) }

// Type names the type for the help.
func (v *addressValue) Type() string { return "string" }
