package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// flagsOf parses a command line.
func flagsOf(t *testing.T, args ...string) *Flags {
	t.Helper()
	var f Flags
	fs := pflag.NewFlagSet("nftproxy", pflag.ContinueOnError)
	f.Add(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	return &f
}

// TestFlags: what flags mean without --config.
func TestFlags(t *testing.T) {
	for _, c := range []struct {
		args string
		want func(*Config) // changes the defaults
	}{
		{"", func(*Config) {}},
		{"--kubeconfig /k --master https://a --kube-api-content-type application/json --kube-api-qps 50 --kube-api-burst 100", func(c *Config) {
			c.ClientConnection = ClientConnection{Kubeconfig: "/k", Master: "https://a", ContentType: "application/json", QPS: 50, Burst: 100}
		}},
		{"--hostname-override Node-A", func(c *Config) { c.HostnameOverride = "node-a" }},
		{"--bind-address 192.0.2.1 --healthz-bind-address 192.0.2.1 --metrics-bind-address [::]:9", func(c *Config) {
			c.BindAddress = netip.MustParseAddr("192.0.2.1")
			c.HealthzAddress, c.MetricsAddress = netip.MustParseAddrPort("192.0.2.1:10256"), netip.MustParseAddrPort("[::]:9")
		}},
		{"--bind-address= --healthz-bind-address= --metrics-bind-address=", func(*Config) {}},
		{"--healthz-port 0", func(c *Config) { c.HealthzAddress = netip.AddrPort{} }},
		{"--healthz-port 80 --metrics-port 81", func(*Config) {}},
		{"--healthz-bind-address ::1 --healthz-port 80 --metrics-bind-address 192.0.2.1:1 --metrics-port 81", func(c *Config) {
			c.HealthzAddress, c.MetricsAddress = netip.MustParseAddrPort("[::1]:80"), netip.MustParseAddrPort("192.0.2.1:1")
		}},
		{"--bind-address-hard-fail --profiling", func(c *Config) { c.BindHardFail, c.Profiling = true, true }},
		{"--masquerade-all", func(c *Config) { c.MasqueradeAll = true }},
		{"--proxy-mode iptables --iptables-masquerade-bit 3", func(c *Config) {
			c.MasqueradeMark = 8
			c.Warnings = []string{`--proxy-mode: "iptables" is taken for nftables, this program has no other mode`}
		}},
		{"--iptables-masquerade-bit 3", func(c *Config) {
			c.Warnings = []string{"these settings have no meaning for nftproxy: --iptables-masquerade-bit"}
		}},
		{"--iptables-sync-period 1m --iptables-min-sync-period 2s", func(c *Config) { c.SyncPeriod, c.MinSyncPeriod = time.Minute, 2*time.Second }},
		{"--iptables-min-sync-period 0", func(*Config) {}},
		{"--detect-local-mode BridgeInterface --pod-bridge-interface cbr0", func(c *Config) {
			c.LocalTraffic = LocalTraffic{Mode: LocalModeBridgeInterface, Interface: "cbr0"}
		}},
		{"--detect-local-mode InterfaceNamePrefix --pod-interface-name-prefix veth", func(c *Config) {
			c.LocalTraffic = LocalTraffic{Mode: LocalModeInterfaceNamePrefix, Interface: "veth"}
		}},
		{"--cluster-cidr 10.244.0.0/16,fd00::/48", func(c *Config) {
			c.LocalTraffic.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00::/48")}
		}},
		{"--nodeport-addresses all", func(c *Config) {
			c.NodePortAddresses = NodePortAddresses{IPv4: NodePortFamily{All: true}, IPv6: NodePortFamily{All: true}}
		}},
		{"--nodeport-addresses 192.0.2.0/24,primary", func(c *Config) {
			c.NodePortAddresses.IPv4.CIDRs = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
		}},
		{"--oom-score-adj 7", func(c *Config) { c.OOMScoreAdj = 7 }},
		{"--conntrack-max-per-core 0 --conntrack-min 1 --conntrack-tcp-timeout-established 1s --conntrack-tcp-timeout-close-wait 2s " +
			"--conntrack-udp-timeout 3s --conntrack-udp-timeout-stream 4s --conntrack-tcp-be-liberal", func(c *Config) {
			c.Conntrack = Conntrack{Min: 1, TCPEstablishedTimeout: time.Second, TCPCloseWaitTimeout: 2 * time.Second,
				UDPTimeout: 3 * time.Second, UDPStreamTimeout: 4 * time.Second, TCPBeLiberal: true}
		}},
		{"-v 3 --logging-format json", func(c *Config) { c.Logging = Logging{Format: LogJSON, Verbosity: 3} }},
		{"--v=3", func(c *Config) { c.Logging.Verbosity = 3 }},
		{"--feature-gates NFTablesNetlink=true,Other=true", func(c *Config) {
			c.FeatureGates = map[string]bool{"NFTablesNetlink": true, "Other": true}
			c.Warnings = []string{"these settings have no meaning for nftproxy: --feature-gates Other"}
		}},
		{"--ipvs-scheduler rr --ipvs-strict-arp --ipvs-sync-period 1s --ipvs-min-sync-period 1s --ipvs-exclude-cidrs 10.0.0.0/8 " +
			"--ipvs-tcp-timeout 1s --ipvs-tcpfin-timeout 1s --ipvs-udp-timeout 1s --config-sync-period 1m --iptables-localhost-nodeports=false " +
			"--show-hidden-metrics-for-version 1.36 --vmodule a=1 --log-flush-frequency 1s --boot-id-file /b --machine-id-file /m", func(c *Config) {
			c.Warnings = []string{"these settings have no meaning for nftproxy: --iptables-localhost-nodeports, --config-sync-period, " +
				"--show-hidden-metrics-for-version, --log-flush-frequency, --vmodule, --ipvs-sync-period, --ipvs-min-sync-period, --ipvs-scheduler, " +
				"--ipvs-exclude-cidrs, --ipvs-strict-arp, --ipvs-tcp-timeout, --ipvs-tcpfin-timeout, --ipvs-udp-timeout",
				"--boot-id-file has no meaning for nftproxy", "--machine-id-file has no meaning for nftproxy"}
		}},
	} {
		t.Run(c.args, func(t *testing.T) {
			cfg, err := flagsOf(t, strings.Fields(c.args)...).Load()
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

// TestInvalidFlags: the error names the flags.
func TestInvalidFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--bind-address", "node-a"}, `--bind-address: "node-a" is not an IP address`},
		{[]string{"--metrics-port", "0"}, `--metrics-bind-address: "" is not an IP address and a port, such as 127.0.0.1:10249`},
		{[]string{"--hostname-override", " "}, "--hostname-override: it is blank; leave it out for the host's own name"},
		{[]string{"--proxy-mode", "userspace"}, `--proxy-mode: "userspace" is none of nftables, iptables and ipvs`},
		{[]string{"--detect-local-mode", "BridgeInterface"}, "--pod-bridge-interface: it is empty, but detectLocalMode BridgeInterface needs it"},
		{[]string{"--nodeport-addresses", "primary,primary"}, `--nodeport-addresses: "primary" is there twice`},
		{[]string{"--iptables-masquerade-bit", "32"}, "--iptables-masquerade-bit: 32 is not in 0..31"},
		{[]string{"--iptables-sync-period", "0", "--cluster-cidr", "x"},
			"--cluster-cidr: \"x\" is not a range of addresses such as 10.244.0.0/16\n--iptables-sync-period: 0s is not above 0"},
		{[]string{"--feature-gates", "PreferSameTrafficDistribution=false"}, "--feature-gates PreferSameTrafficDistribution: it cannot be switched off"},
	} {
		if _, err := flagsOf(t, c.args...).Load(); err == nil || err.Error() != c.want {
			t.Errorf("%q: got error %v, want %s", c.args, err, c.want)
		}
	}
}

// TestFlagsBesideFile: with --config the file counts, but for some flags.
func TestFlagsBesideFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.conf")
	data := withMode("hostnameOverride: from-file\nclusterCIDR: 10.244.0.0/16\nlogging: {format: json, verbosity: 1, vmodule: [{filePattern: b, verbosity: 2}]}")
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	fromFile := func(c *Config) {
		c.HostnameOverride = "from-file"
		c.LocalTraffic.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
		c.Logging = Logging{Format: LogJSON, Verbosity: 1}
	}
	for _, c := range []struct {
		args string
		want func(*Config) // changes what the file says
		err  string        // part of the error
	}{
		{"--v 5 --logging-format text --hostname-override FROM-FLAG --master https://a --vmodule a=1 --cleanup=false --write-config-to /x", func(c *Config) {
			c.Logging = Logging{Format: LogText, Verbosity: 5}
			c.HostnameOverride, c.ClientConnection.Master = "from-flag", "https://a"
			c.Warnings = []string{"these settings have no meaning for nftproxy: --vmodule"}
		}, ""},
		{"--logging-format text --cluster-cidr x --kubeconfig /k --proxy-mode x --ipvs-scheduler rr --healthz-port 0", func(c *Config) {
			c.Logging.Format = LogText
			c.Warnings = []string{"these settings have no meaning for nftproxy: logging.vmodule",
				"the configuration file counts in place of these flags: --cluster-cidr, --healthz-port, --ipvs-scheduler, --kubeconfig, --proxy-mode"}
		}, ""},
		{"--log-text-split-stream", nil, "--log-text-split-stream: the feature gate LoggingAlphaOptions is off"},
		{"--logging-format json", nil, "configuration file " + path + ": logging.vmodule: it is allowed"},
		{"--logging-format xml", nil, "--logging-format: \"xml\" is neither"},
	} {
		t.Run(c.args, func(t *testing.T) {
			flags := flagsOf(t, append(strings.Fields(c.args), "--config", path)...)
			cfg, err := flags.Load()
			if c.want == nil {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("got error %v, want one with %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := defaults()
			fromFile(want)
			c.want(want)
			if d := diff(want, cfg); d != "" {
				t.Error(d)
			}
		})
	}
	flags := flagsOf(t, "--vmodule", "a=1", "--logging-format", "text", "--config", path)
	cfg, err := flags.Load()
	if err != nil {
		t.Fatal(err)
	}
	if v := cfg.Object.Logging.VModule; len(v) != 2 || v[0].FilePattern != "a" || v[1].FilePattern != "b" {
		t.Errorf("got vmodule %v, want that of the flag, then that of the file", v)
	}
}

// TestWriteConfigTo: what is written is never without a health server.
func TestWriteConfigTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.conf")
	flags := flagsOf(t, "--write-config-to", path, "--healthz-port", "0", "--nodeport-addresses", "all")
	cfg, err := flags.Load()
	if err != nil {
		t.Fatal(err)
	}
	if err := cfg.WriteFile(flags.WriteConfigTo); err != nil {
		t.Fatal(err)
	}
	again, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := diff(cfg, again); d != "" {
		t.Error(d)
	}
	if again.HealthzAddress != netip.MustParseAddrPort("0.0.0.0:10256") || !again.NodePortAddresses.IPv4.All {
		t.Errorf("got %+v", again)
	}
}

// TestFlagNames: every flag of kube-proxy is there, but for the ones of the
// program itself, and every field's flag exists.
func TestFlagNames(t *testing.T) {
	want := strings.Fields(`bind-address bind-address-hard-fail boot-id-file cleanup cluster-cidr config config-sync-period
conntrack-max-per-core conntrack-min conntrack-tcp-be-liberal conntrack-tcp-timeout-close-wait conntrack-tcp-timeout-established
conntrack-udp-timeout conntrack-udp-timeout-stream detect-local-mode feature-gates healthz-bind-address healthz-port hostname-override
iptables-localhost-nodeports iptables-masquerade-bit iptables-min-sync-period iptables-sync-period ipvs-exclude-cidrs
ipvs-min-sync-period ipvs-scheduler ipvs-strict-arp ipvs-sync-period ipvs-tcp-timeout ipvs-tcpfin-timeout ipvs-udp-timeout
kube-api-burst kube-api-content-type kube-api-qps kubeconfig log-flush-frequency log-json-info-buffer-size log-json-split-stream
log-text-info-buffer-size log-text-split-stream logging-format machine-id-file masquerade-all master metrics-bind-address metrics-port
nodeport-addresses oom-score-adj pod-bridge-interface pod-interface-name-prefix profiling proxy-mode show-hidden-metrics-for-version
v vmodule write-config-to`)
	var got []string
	flagsOf(t).set.VisitAll(func(f *pflag.Flag) { got = append(got, f.Name) })
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	for field, name := range flagFields() {
		if !slices.Contains(got, name) {
			t.Errorf("field %s: there is no flag --%s", field, name)
		}
	}
}
