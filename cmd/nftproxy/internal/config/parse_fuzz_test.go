package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/rules"
)

// FuzzParse: no content of a file does harm; what is accepted keeps the promises of
// Config, and means the same once it is written and read again.
func FuzzParse(f *testing.F) {
	kubeadm, err := os.ReadFile(filepath.Join("testdata", "kubeadm.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(kubeadm)
	for _, fields := range []string{
		"",
		"foo: 1",
		"clusterCIDR: \"10.0.0.0/8, fd00::/8\"\nnodePortAddresses: [primary, localhost, 192.0.2.0/24, \"2001:db8::/64\", \"::ffff:10.0.0.0/104\"]",
		"bindAddress: \"::\"\nhealthzBindAddress: 1.2.3.4\nmetricsBindAddress: \"[::1]:80\"\nhostnameOverride: \" A \"",
		"detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: cbr0}\nnftables: {masqueradeBit: 31, minSyncPeriod: 1ms, syncPeriod: 1h}",
		"featureGates: {LoggingAlphaOptions: true}\nlogging: {format: json, flushFrequency: 5, verbosity: 99, options: {json: {infoBufferSize: 1Ki}}}",
		"clientConnection: {qps: -0.5, burst: 3}\nconntrack: {maxPerCore: 0, udpTimeout: 1m}\noomScoreAdj: 1000\niptables: {masqueradeBit: 0}",
	} {
		f.Add([]byte(header + fields))
	}
	f.Add([]byte(`{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","kind":"KubeProxyConfiguration","mode":"ipvs"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := Parse(data)
		if err != nil {
			return
		}
		checkPromises(t, cfg)
		path := filepath.Join(t.TempDir(), "config.conf")
		if err := cfg.WriteFile(path); err != nil {
			t.Fatal(err)
		}
		again, err := Load(path)
		if err != nil {
			t.Fatal(err)
		}
		cfg.Warnings, again.Warnings = nil, nil // of fields that are not known
		if d := diff(cfg, again); d != "" {
			t.Error(d)
		}
	})
}

// checkPromises checks what the comments of Config promise.
func checkPromises(t *testing.T, c *Config) {
	t.Helper()
	switch {
	case c.MasqueradeMark == 0 || c.MasqueradeMark&(c.MasqueradeMark-1) != 0:
		t.Errorf("mark %#x is not one bit", c.MasqueradeMark)
	case c.SyncPeriod <= 0 || c.MinSyncPeriod < 0 || c.MinSyncPeriod > c.SyncPeriod:
		t.Errorf("sync periods %s and %s", c.MinSyncPeriod, c.SyncPeriod)
	case c.BindAddress.IsValid() && c.BindAddress.IsUnspecified():
		t.Error("the bind address is unspecified")
	case !c.HealthzAddress.IsValid() || !c.MetricsAddress.IsValid() || c.HealthzAddress.Port() == 0 || c.MetricsAddress.Port() == 0:
		t.Errorf("servers on %s and %s", c.HealthzAddress, c.MetricsAddress)
	case c.OOMScoreAdj < -1000 || c.OOMScoreAdj > 1000:
		t.Errorf("oom_score_adj %d", c.OOMScoreAdj)
	case c.Logging.Verbosity < 0 || c.Logging.Verbosity > MaxVerbosity:
		t.Errorf("verbosity %d", c.Logging.Verbosity)
	case c.HostnameOverride != strings.ToLower(strings.TrimSpace(c.HostnameOverride)):
		t.Errorf("host name %q", c.HostnameOverride)
	case len(c.LocalTraffic.Interface) > maxInterfaceName || len(c.LocalTraffic.ClusterCIDRs) > 2:
		t.Errorf("local traffic %+v", c.LocalTraffic)
	case min(c.Conntrack.MaxPerCore, c.Conntrack.Min, c.ClientConnection.Burst) < 0:
		t.Errorf("%+v, burst %d", c.Conntrack, c.ClientConnection.Burst)
	}
	for _, p := range c.LocalTraffic.ClusterCIDRs {
		if p != p.Masked() || p.Addr().Is4In6() {
			t.Errorf("cluster CIDR %s", p)
		}
	}
	some := []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")}
	for _, family := range rules.Families() {
		open, all := c.NodePortAddresses.Open(family, some, some)
		for _, addr := range open {
			if all || addr.IsLoopback() || rules.FamilyOf(addr) != family {
				t.Errorf("NodePorts of %s are open on %s, on all is %t", family, addr, all)
			}
		}
	}
}
