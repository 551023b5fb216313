package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// defaults is what a configuration means that sets nothing but mode nftables.
func defaults() *Config {
	return &Config{
		FeatureGates:     map[string]bool{},
		ClientConnection: ClientConnection{ContentType: "application/vnd.kubernetes.protobuf", QPS: 5, Burst: 10},
		Logging:          Logging{Format: LogText},
		HealthzAddress:   netip.MustParseAddrPort("0.0.0.0:10256"),
		MetricsAddress:   netip.MustParseAddrPort("127.0.0.1:10249"),
		MasqueradeMark:   0x4000,
		SyncPeriod:       30 * time.Second,
		LocalTraffic:     LocalTraffic{Mode: LocalModeClusterCIDR},
		NodePortAddresses: NodePortAddresses{
			IPv4: NodePortFamily{Primary: true},
			IPv6: NodePortFamily{Primary: true},
		},
		OOMScoreAdj: -999,
		Conntrack: Conntrack{
			MaxPerCore:            32768,
			Min:                   131072,
			TCPEstablishedTimeout: 24 * time.Hour,
			TCPCloseWaitTimeout:   time.Hour,
		},
	}
}

// diff compares what two configurations mean.
func diff(want, got *Config) string {
	return cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
		cmpopts.IgnoreFields(Config{}, "Object"), cmpopts.IgnoreUnexported(Config{}), cmpopts.EquateEmpty())
}

// TestDefaults: what is not set, null or zero has the default.
func TestDefaults(t *testing.T) {
	cfg, err := Parse([]byte(header + "mode: nftables\n"))
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(defaults(), cfg); d != "" {
		t.Error(d)
	}
	want := defaults()
	want.ClientConnection.Kubeconfig = "/var/lib/kube-proxy/kubeconfig.conf"
	want.LocalTraffic.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	want.Warnings = []string{`mode: "iptables" is taken for nftables, this program has no other mode`}
	cfg, err = Load(filepath.Join("testdata", "kubeadm.yaml"))
	if err != nil {
		t.Fatal("the ConfigMap that kubeadm writes:", err)
	}
	if d := diff(want, cfg); d != "" {
		t.Error("the ConfigMap that kubeadm writes:", d)
	}
}

// TestFields: each field ends up where it has its meaning.
func TestFields(t *testing.T) {
	prefix, addrPort := netip.MustParsePrefix, netip.MustParseAddrPort
	for _, c := range []struct {
		name, yaml string
		want       func(*Config) // changes the defaults
	}{
		{"client", "clientConnection: {kubeconfig: /k, acceptContentTypes: a/b, contentType: application/json, qps: -1, burst: 7}", func(c *Config) {
			c.ClientConnection = ClientConnection{Kubeconfig: "/k", AcceptContentTypes: "a/b", ContentType: "application/json", QPS: -1, Burst: 7}
		}},
		{"gates", "featureGates: {NFTablesNetlink: true, AllowServiceExternalIPs: true}", func(c *Config) {
			c.FeatureGates = map[string]bool{"NFTablesNetlink": true, "AllowServiceExternalIPs": true}
		}},
		{"logging", "logging: {format: json, verbosity: 4}", func(c *Config) { c.Logging = Logging{Format: LogJSON, Verbosity: 4} }},
		{"more verbose than there is", "logging: {verbosity: 1000}", func(c *Config) { c.Logging.Verbosity = MaxVerbosity }},
		{"host name", `hostnameOverride: " Node-A "`, func(c *Config) { c.HostnameOverride = "node-a" }},
		{"bind address IPv4", "bindAddress: 192.0.2.1", func(c *Config) { c.BindAddress = netip.MustParseAddr("192.0.2.1") }},
		{"bind address with zeros", "bindAddress: 192.0.2.001", func(c *Config) { c.BindAddress = netip.MustParseAddr("192.0.2.1") }},
		{"bind address mapped", `bindAddress: "::ffff:192.0.2.1"`, func(c *Config) { c.BindAddress = netip.MustParseAddr("192.0.2.1") }},
		{"bind address IPv6", `bindAddress: 2001:db8::1`, func(c *Config) {
			c.BindAddress = netip.MustParseAddr("2001:db8::1")
			c.HealthzAddress, c.MetricsAddress = addrPort("[::]:10256"), addrPort("[::1]:10249")
		}},
		{"bind address unspecified IPv6", `bindAddress: "::"`, func(c *Config) {
			c.HealthzAddress, c.MetricsAddress = addrPort("[::]:10256"), addrPort("[::1]:10249")
		}},
		{"servers", "healthzBindAddress: \"192.0.2.1:80\"\nmetricsBindAddress: \"[2001:db8::1]:65535\"", func(c *Config) {
			c.HealthzAddress, c.MetricsAddress = addrPort("192.0.2.1:80"), addrPort("[2001:db8::1]:65535")
		}},
		{"servers without a port", "healthzBindAddress: \"::1\"\nmetricsBindAddress: 0.0.0.0", func(c *Config) {
			c.HealthzAddress, c.MetricsAddress = addrPort("[::1]:10256"), addrPort("0.0.0.0:10249")
		}},
		{"switches", "bindAddressHardFail: true\nenableProfiling: true", func(c *Config) { c.BindHardFail, c.Profiling = true, true }},
		{"masquerading", "nftables: {masqueradeAll: true, masqueradeBit: 31}", func(c *Config) {
			c.MasqueradeAll, c.MasqueradeMark = true, 1<<31
		}},
		{"bit 0", "nftables: {masqueradeBit: 0}", func(c *Config) { c.MasqueradeMark = 1 }},
		{"periods", "nftables: {minSyncPeriod: 250ms, syncPeriod: 1m}", func(c *Config) {
			c.MinSyncPeriod, c.SyncPeriod = 250*time.Millisecond, time.Minute
		}},
		{"equal periods", "nftables: {minSyncPeriod: 30s}", func(c *Config) { c.MinSyncPeriod = 30 * time.Second }},
		{"dual-stack pods", `clusterCIDR: "10.244.3.0/16, fd00:10:244::1/56"`, func(c *Config) {
			c.LocalTraffic.ClusterCIDRs = []netip.Prefix{prefix("10.244.0.0/16"), prefix("fd00:10:244::/56")}
		}},
		{"mapped pods", `clusterCIDR: "::ffff:10.0.0.0/104"`, func(c *Config) {
			c.LocalTraffic.ClusterCIDRs = []netip.Prefix{prefix("10.0.0.0/8")}
		}},
		{"node CIDR", "detectLocalMode: NodeCIDR\nclusterCIDR: unused", func(c *Config) { c.LocalTraffic.Mode = LocalModeNodeCIDR }},
		{"bridge", "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cbr0, interfaceNamePrefix: x}", func(c *Config) {
			c.LocalTraffic = LocalTraffic{Mode: LocalModeBridgeInterface, Interface: "cbr0"}
		}},
		{"prefix", "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: fifteen-bytes-1}", func(c *Config) {
			c.LocalTraffic = LocalTraffic{Mode: LocalModeInterfaceNamePrefix, Interface: "fifteen-bytes-1"}
		}},
		{"oom", "oomScoreAdj: 0", func(c *Config) { c.OOMScoreAdj = 0 }},
		{"conntrack", "conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s, udpTimeout: 30s, udpStreamTimeout: 3m, tcpBeLiberal: true}", func(c *Config) {
			c.Conntrack = Conntrack{UDPTimeout: 30 * time.Second, UDPStreamTimeout: 3 * time.Minute, TCPBeLiberal: true}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := Parse([]byte(withMode(c.yaml)))
			if err != nil {
				t.Fatal(err)
			}
			want := defaults()
			c.want(want)
			if d := diff(want, cfg); d != "" {
				t.Error(d)
			}
		})
	}
}

// withMode makes a configuration of mode nftables of some fields.
func withMode(yaml string) string { return header + "mode: nftables\n" + yaml + "\n" }

// TestInvalid: what kube-proxy refuses is refused, with the field and its value.
func TestInvalid(t *testing.T) {
	for _, c := range []struct{ yaml, want string }{
		{"mode: userspace", `mode: "userspace" is none of nftables, iptables and ipvs`},
		{"mode: NFTables", `mode: "NFTables" is none of nftables, iptables and ipvs`},
		{"nftables: {masqueradeBit: 33}", "nftables.masqueradeBit: 33 is not in 0..31"},
		{"nftables: {masqueradeBit: -1}", "nftables.masqueradeBit: -1 is not in 0..31"},
		{"iptables: {masqueradeBit: 32}", "iptables.masqueradeBit: 32 is not in 0..31"},
		{"mode: nftables\niptables: {masqueradeBit: 32}", "iptables.masqueradeBit: 32 is not in 0..31"},
		{"nftables: {syncPeriod: -1s}", "nftables.syncPeriod: -1s is not above 0"},
		{"nftables: {minSyncPeriod: -1s}", "nftables.minSyncPeriod: -1s is negative"},
		{"nftables: {minSyncPeriod: 31s}", "nftables.minSyncPeriod: 31s is longer than nftables.syncPeriod, 30s"},
		{"configSyncPeriod: -1s", "configSyncPeriod: -1s is not above 0"},
		{"clientConnection: {burst: -1}", "clientConnection.burst: -1 is negative"},
		{`hostnameOverride: " "`, "hostnameOverride: it is blank; leave it out for the host's own name"},
		{"bindAddress: 192.0.2.1:80", `bindAddress: "192.0.2.1:80" is not an IP address`},
		{"bindAddress: fe80::1%eth0", `bindAddress: "fe80::1%eth0" is not an IP address`},
		{"healthzBindAddress: localhost:10256", `healthzBindAddress: "localhost" is not an IP address`},
		{"healthzBindAddress: localhost", `healthzBindAddress: "localhost" is not an IP address and a port, such as 127.0.0.1:10249`},
		{"metricsBindAddress: 127.0.0.1:0", `metricsBindAddress: port "0" is not in 1..65535`},
		{"metricsBindAddress: 127.0.0.1:65536", `metricsBindAddress: port "65536" is not in 1..65535`},
		{"metricsBindAddress: 127.0.0.1:http", `metricsBindAddress: port "http" is not in 1..65535`},
		{"detectLocalMode: clusterCIDR", `detectLocalMode: "clusterCIDR" is none of ClusterCIDR, NodeCIDR, BridgeInterface and InterfaceNamePrefix`},
		{"detectLocalMode: BridgeInterface", "detectLocal.bridgeInterface: it is empty, but detectLocalMode BridgeInterface needs it"},
		{"detectLocalMode: InterfaceNamePrefix", "detectLocal.interfaceNamePrefix: it is empty, but detectLocalMode InterfaceNamePrefix needs it"},
		{"detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: sixteen-bytes-12}",
			`detectLocal.bridgeInterface: "sixteen-bytes-12" has more than the 15 bytes of an interface's name`},
		{"clusterCIDR: 10.244.0.0", `clusterCIDR: "10.244.0.0" is not a range of addresses such as 10.244.0.0/16`},
		{"clusterCIDR: 10.0.0.0/8,172.16.0.0/12", `clusterCIDR: "10.0.0.0/8,172.16.0.0/12" is neither one range nor one of IPv4 and one of IPv6`},
		{`clusterCIDR: "10.0.0.0/8,fd00::/8,fc00::/8"`, `clusterCIDR: "10.0.0.0/8,fd00::/8,fc00::/8" is neither one range nor one of IPv4 and one of IPv6`},
		{"nodePortAddresses: [Primary]", `nodePortAddresses[0]: "Primary" is neither a range of addresses such as 192.0.2.0/24 nor one of the keywords primary, localhost and all`},
		{"nodePortAddresses: [all, 192.0.2.1]", `nodePortAddresses[1]: "192.0.2.1" is neither a range of addresses such as 192.0.2.0/24 nor one of the keywords primary, localhost and all`},
		{"nodePortAddresses: [primary, 192.0.2.0/24, primary]", `nodePortAddresses[2]: "primary" is there twice`},
		{"oomScoreAdj: -1001", "oomScoreAdj: -1001 is not in -1000..1000"},
		{"oomScoreAdj: 1001", "oomScoreAdj: 1001 is not in -1000..1000"},
		{"conntrack: {maxPerCore: -1}", "conntrack.maxPerCore: -1 is negative"},
		{"conntrack: {min: -1}", "conntrack.min: -1 is negative"},
		{"conntrack: {tcpEstablishedTimeout: -1s}", "conntrack.tcpEstablishedTimeout: -1s is negative"},
		{"conntrack: {tcpCloseWaitTimeout: -1s}", "conntrack.tcpCloseWaitTimeout: -1s is negative"},
		{"conntrack: {udpTimeout: -1s}", "conntrack.udpTimeout: -1s is negative"},
		{"conntrack: {udpStreamTimeout: -1s}", "conntrack.udpStreamTimeout: -1s is negative"},
		{"featureGates: {MultiCIDRServiceAllocator: false}", "featureGates.MultiCIDRServiceAllocator: it cannot be switched off"},
		{"logging: {format: xml}", `logging.format: "xml" is neither text nor json`},
		{"logging: {flushFrequency: -1}", "logging.flushFrequency: -1ns is not above 0"},
		{"logging: {verbosity: 4294967295}", "logging.verbosity: 4294967295 is above 2147483647"},
		{"logging: {format: json, vmodule: [{filePattern: a, verbosity: 1}]}", "logging.vmodule: it is allowed in the format text alone"},
		{"logging: {vmodule: [{verbosity: 1}]}", "logging.vmodule[0].filePattern: it is empty"},
		{"logging: {vmodule: [{filePattern: a=b}]}", `logging.vmodule[0].filePattern: "a=b" has an equals sign or a comma`},
		{"logging: {options: {text: {splitStream: true}}}", "logging.options.text.splitStream: the feature gate LoggingAlphaOptions is off"},
		{"logging: {options: {json: {infoBufferSize: 1Ki}}}", "logging.options.json.infoBufferSize: the feature gate LoggingAlphaOptions is off"},
	} {
		t.Run(c.yaml, func(t *testing.T) {
			if _, err := Parse([]byte(header + c.yaml)); err == nil || err.Error() != c.want {
				t.Errorf("got error\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

// TestOtherModes: a cluster that ran in another mode keeps what it set for it.
func TestOtherModes(t *testing.T) {
	for _, c := range []struct {
		yaml     string
		mark     uint32
		all      bool
		warnings []string
	}{
		{"mode: nftables\niptables: {masqueradeBit: 5, masqueradeAll: true}", 1 << 14, false,
			[]string{"these settings have no meaning for nftproxy: iptables.masqueradeBit, iptables.masqueradeAll"}},
		{"mode: iptables\niptables: {masqueradeBit: 5, masqueradeAll: true}", 1 << 5, true,
			[]string{`mode: "iptables" is taken for nftables, this program has no other mode`}},
		{"mode: ipvs\niptables: {masqueradeBit: 5, masqueradeAll: true}", 1 << 5, true,
			[]string{`mode: "ipvs" is taken for nftables, this program has no other mode`}},
		{"iptables: {masqueradeBit: 5}\nnftables: {masqueradeBit: 6, masqueradeAll: true}", 1 << 6, true, []string{
			`mode: "" is taken for nftables, this program has no other mode`,
			"these settings have no meaning for nftproxy: iptables.masqueradeBit"}},
	} {
		cfg, err := Parse([]byte(header + c.yaml))
		if err != nil {
			t.Errorf("%s: %v", c.yaml, err)
			continue
		}
		if cfg.MasqueradeMark != c.mark || cfg.MasqueradeAll != c.all {
			t.Errorf("%s: got mark %#x, all %t", c.yaml, cfg.MasqueradeMark, cfg.MasqueradeAll)
		}
		if d := cmp.Diff(c.warnings, cfg.Warnings); d != "" {
			t.Errorf("%s: %s", c.yaml, d)
		}
	}
}

// TestMeaningless: what is set and has no meaning is named once, in one warning.
func TestMeaningless(t *testing.T) {
	cfg, err := Parse([]byte(header + `
mode: nftables
featureGates: {KubeProxyNFTablesLocalhostNodePorts: true, LoggingAlphaOptions: true, NFTablesNetlink: false}
configSyncPeriod: 1m
showHiddenMetricsForVersion: "1.36"
portRange: 1-2
windowsRunAsService: true
logging:
  flushFrequency: 1s
  vmodule: [{filePattern: a, verbosity: 1}]
  options: {text: {splitStream: true, infoBufferSize: 1Ki}, json: {splitStream: true, infoBufferSize: 1Ki}}
iptables: {localhostNodePorts: false, syncPeriod: 1m, minSyncPeriod: 2s}
ipvs: {syncPeriod: 1m, minSyncPeriod: 1s, scheduler: rr, excludeCIDRs: [10.0.0.0/8], strictARP: true, tcpTimeout: 1s, tcpFinTimeout: 1s, udpTimeout: 1s}
winkernel: {networkName: a, sourceVip: b, enableDSR: true, rootHnsEndpointName: c, forwardHealthCheckVip: true}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"these settings have no meaning for nftproxy: " +
		"iptables.localhostNodePorts, iptables.syncPeriod, iptables.minSyncPeriod, configSyncPeriod, showHiddenMetricsForVersion, " +
		"logging.flushFrequency, logging.vmodule, logging.options.text.splitStream, logging.options.text.infoBufferSize, " +
		"logging.options.json.splitStream, logging.options.json.infoBufferSize, " +
		"ipvs.syncPeriod, ipvs.minSyncPeriod, ipvs.scheduler, ipvs.excludeCIDRs, ipvs.strictARP, ipvs.tcpTimeout, ipvs.tcpFinTimeout, ipvs.udpTimeout, " +
		"winkernel.networkName, winkernel.sourceVip, winkernel.enableDSR, winkernel.rootHnsEndpointName, winkernel.forwardHealthCheckVip, " +
		"portRange, windowsRunAsService, " +
		"featureGates.KubeProxyNFTablesLocalhostNodePorts, featureGates.LoggingAlphaOptions, featureGates.NFTablesNetlink"}
	if d := cmp.Diff(want, cfg.Warnings); d != "" {
		t.Error(d)
	}
}

// TestWriteFile: what is written has every default, and means the same when it is
// read.
func TestWriteFile(t *testing.T) {
	cfg, err := Parse([]byte(withMode("nodePortAddresses: [192.0.2.0/24]\nclusterCIDR: 10.244.0.0/16\nfeatureGates: {NFTablesNetlink: true}")))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.conf")
	if err := cfg.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	again, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(cfg, again) + cmp.Diff(cfg.Object, again.Object); d != "" {
		t.Error(d)
	}
	written, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile(filepath.Join("testdata", "written.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(golden), string(written)); d != "" {
		t.Error(d)
	}
	if err := cfg.WriteFile(filepath.Join(path, "config.conf")); err == nil {
		t.Error("a file below a file was written")
	}
}
