package config

import (
	"net"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"
)

// Defaults of kube-proxy.
const (
	defaultHealthzPort   = 10256
	defaultMetricsPort   = 10249
	defaultMasqueradeBit = 14
	defaultOOMScoreAdj   = -999
	defaultSyncPeriod    = 30 * time.Second
	defaultConfigSync    = 15 * time.Minute
	modeNFTables         = "nftables"
)

// setDefaults fills in what is not set, where null and zero are not set, as
// kube-proxy does it.
func setDefaults(c *v1alpha1.KubeProxyConfiguration) {
	c.APIVersion, c.Kind = v1alpha1.SchemeGroupVersion.String(), kind
	if c.FeatureGates == nil {
		c.FeatureGates = map[string]bool{}
	}
	setAddressDefaults(c)
	setConntrackDefaults(&c.Conntrack)
	if c.OOMScoreAdj == nil {
		c.OOMScoreAdj = new(int32(defaultOOMScoreAdj))
	}
	if c.IPTables.MasqueradeBit == nil {
		c.IPTables.MasqueradeBit = new(int32(defaultMasqueradeBit))
	}
	if c.IPTables.LocalhostNodePorts == nil {
		c.IPTables.LocalhostNodePorts = new(true)
	}
	setDuration(&c.IPTables.SyncPeriod, defaultSyncPeriod)
	setDuration(&c.IPTables.MinSyncPeriod, time.Second)
	setDuration(&c.IPVS.SyncPeriod, defaultSyncPeriod)
	setDuration(&c.NFTables.SyncPeriod, defaultSyncPeriod)
	setDuration(&c.ConfigSyncPeriod, defaultConfigSync)
	if c.ClientConnection.ContentType == "" {
		c.ClientConnection.ContentType = "application/vnd.kubernetes.protobuf"
	}
	if c.ClientConnection.QPS == 0 {
		c.ClientConnection.QPS = 5
	}
	if c.ClientConnection.Burst == 0 {
		c.ClientConnection.Burst = 10
	}
	logsapi.SetRecommendedLoggingConfiguration(&c.Logging)
}

// setModeDefaults fills in what the mode decides on, after setDefaults and after
// the flags.
func setModeDefaults(c *v1alpha1.KubeProxyConfiguration) {
	if c.NFTables.MasqueradeBit == nil {
		c.NFTables.MasqueradeBit = new(int32(defaultMasqueradeBit))
		if bit := *c.IPTables.MasqueradeBit; c.Mode != modeNFTables && isMarkBit(bit) {
			c.NFTables.MasqueradeBit = new(bit)
		}
	}
	if c.Mode != modeNFTables && c.IPTables.MasqueradeAll {
		c.NFTables.MasqueradeAll = true
	}
	if len(c.NodePortAddresses) == 0 {
		c.NodePortAddresses = []string{keywordPrimary}
	}
	if c.DetectLocalMode == "" {
		c.DetectLocalMode = v1alpha1.LocalMode(LocalModeClusterCIDR)
	}
}

// setAddressDefaults fills in the addresses of the two servers, in the family of
// bindAddress.
func setAddressDefaults(c *v1alpha1.KubeProxyConfiguration) {
	if c.BindAddress == "" {
		c.BindAddress = "0.0.0.0"
	}
	healthz, metrics := "0.0.0.0", "127.0.0.1"
	if netutils.ParseIPSloppy(c.BindAddress).To4() == nil {
		healthz, metrics = "::", "::1"
	}
	if c.HealthzBindAddress == "" {
		c.HealthzBindAddress = healthz
	}
	if c.MetricsBindAddress == "" {
		c.MetricsBindAddress = metrics
	}
	c.HealthzBindAddress = withPort(c.HealthzBindAddress, defaultHealthzPort)
	c.MetricsBindAddress = withPort(c.MetricsBindAddress, defaultMetricsPort)
}

// withPort adds the port to a bare IP address.
func withPort(address string, port int) string {
	if netutils.ParseIPSloppy(address) == nil {
		return address
	}
	return net.JoinHostPort(address, strconv.Itoa(port))
}

func setConntrackDefaults(c *v1alpha1.KubeProxyConntrackConfiguration) {
	if c.MaxPerCore == nil {
		c.MaxPerCore = new(int32(32 << 10))
	}
	if c.Min == nil {
		c.Min = new(int32(128 << 10))
	}
	if c.TCPEstablishedTimeout == nil {
		c.TCPEstablishedTimeout = &metav1.Duration{Duration: 24 * time.Hour}
	}
	if c.TCPCloseWaitTimeout == nil {
		c.TCPCloseWaitTimeout = &metav1.Duration{Duration: time.Hour}
	}
}

func setDuration(d *metav1.Duration, value time.Duration) {
	if d.Duration == 0 {
		d.Duration = value
	}
}
