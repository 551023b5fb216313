package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// featureGates refuses what kube-proxy refuses: features that are there for good
// cannot be switched off. It knows no list of all gates of Kubernetes, so that any
// other name is accepted.
func (r *resolver) featureGates(gates map[string]bool) {
	for _, gate := range []string{"MultiCIDRServiceAllocator", "PreferSameTrafficDistribution"} {
		if on, set := gates[gate]; set && !on {
			r.refuse("featureGates."+gate, "it cannot be switched off")
		}
	}
}

// warnings returns what the operator should know of a valid configuration.
func warnings(c *v1alpha1.KubeProxyConfiguration, name func(field string) string) []string {
	var lines []string
	if c.Mode != modeNFTables {
		lines = append(lines, fmt.Sprintf("%s: %q is taken for nftables, this program has no other mode", name("mode"), c.Mode))
	}
	names := meaningless(c)
	for i, field := range names {
		names[i] = name(field)
	}
	if len(names) > 0 {
		lines = append(lines, "these settings have no meaning for nftproxy: "+strings.Join(names, ", "))
	}
	return lines
}

// meaningless returns the paths of the fields that are set to something else than
// their default but have no meaning here.
func meaningless(c *v1alpha1.KubeProxyConfiguration) []string {
	fields := slices.Concat(meaninglessIPTables(c), []setField{
		{"configSyncPeriod", c.ConfigSyncPeriod.Duration != defaultConfigSync},
		{"showHiddenMetricsForVersion", c.ShowHiddenMetricsForVersion != ""},
		{"logging.flushFrequency", c.Logging.FlushFrequency.Duration.Duration != logsapi.LogFlushFreqDefault},
		{"logging.vmodule", len(c.Logging.VModule) > 0},
		{"logging.options.text.splitStream", c.Logging.Options.Text.SplitStream},
		{"logging.options.text.infoBufferSize", c.Logging.Options.Text.InfoBufferSize.Value() != 0},
		{"logging.options.json.splitStream", c.Logging.Options.JSON.SplitStream},
		{"logging.options.json.infoBufferSize", c.Logging.Options.JSON.InfoBufferSize.Value() != 0},
		{"ipvs.syncPeriod", c.IPVS.SyncPeriod.Duration != defaultSyncPeriod},
		{"ipvs.minSyncPeriod", c.IPVS.MinSyncPeriod.Duration != 0},
		{"ipvs.scheduler", c.IPVS.Scheduler != ""},
		{"ipvs.excludeCIDRs", len(c.IPVS.ExcludeCIDRs) > 0},
		{"ipvs.strictARP", c.IPVS.StrictARP},
		{"ipvs.tcpTimeout", c.IPVS.TCPTimeout.Duration != 0},
		{"ipvs.tcpFinTimeout", c.IPVS.TCPFinTimeout.Duration != 0},
		{"ipvs.udpTimeout", c.IPVS.UDPTimeout.Duration != 0},
		{"winkernel.networkName", c.Winkernel.NetworkName != ""},
		{"winkernel.sourceVip", c.Winkernel.SourceVip != ""},
		{"winkernel.enableDSR", c.Winkernel.EnableDSR},
		{"winkernel.rootHnsEndpointName", c.Winkernel.RootHnsEndpointName != ""},
		{"winkernel.forwardHealthCheckVip", c.Winkernel.ForwardHealthCheckVip},
		{"portRange", c.PortRange != ""},
		{"windowsRunAsService", c.WindowsRunAsService},
	})
	var names []string
	for _, f := range fields {
		if f.set {
			names = append(names, f.path)
		}
	}
	return append(names, meaninglessGates(c.FeatureGates)...)
}

// setField is a field, and whether it is set.
type setField struct {
	path string
	set  bool
}

// meaninglessIPTables looks at the section iptables. What other modes than nftables
// take from it has a meaning.
func meaninglessIPTables(c *v1alpha1.KubeProxyConfiguration) []setField {
	return []setField{
		{"iptables.masqueradeBit", *c.IPTables.MasqueradeBit != *c.NFTables.MasqueradeBit && *c.IPTables.MasqueradeBit != defaultMasqueradeBit},
		{"iptables.masqueradeAll", c.IPTables.MasqueradeAll && !c.NFTables.MasqueradeAll},
		{"iptables.localhostNodePorts", !*c.IPTables.LocalhostNodePorts},
		{"iptables.syncPeriod", c.IPTables.SyncPeriod.Duration != defaultSyncPeriod},
		{"iptables.minSyncPeriod", c.IPTables.MinSyncPeriod.Duration != time.Second},
	}
}

// AllowExternalIPs is the one feature gate that selects something: off, external IPs of
// Services are not served.
const AllowExternalIPs = "AllowServiceExternalIPs"

// meaninglessGates returns the gates that are set to something else than what this
// program does in any case.
func meaninglessGates(gates map[string]bool) []string {
	does := map[string]bool{
		"MultiCIDRServiceAllocator":     true,
		"NFTablesNetlink":               true,
		"PreferSameTrafficDistribution": true,
	}
	var names []string
	for _, gate := range slices.Sorted(maps.Keys(gates)) {
		if always, known := does[gate]; gate != AllowExternalIPs && (!known || gates[gate] != always) {
			names = append(names, "featureGates."+gate)
		}
	}
	return names
}
