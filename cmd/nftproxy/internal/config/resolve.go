package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/kube-proxy/config/v1alpha1"
	netutils "k8s.io/utils/net"
)

// maxInterfaceName is the length of the longest name of a network interface,
// IFNAMSIZ without the final zero byte.
const maxInterfaceName = 15

// FieldError is one thing that is wrong with a configuration.
type FieldError struct {
	// Field is the path of the field as a file spells it, such as
	// nftables.masqueradeBit, or the flag if the value came from one.
	Field string
	// Problem says what is wrong with it.
	Problem string
}

// Error returns the field and the problem.
func (e *FieldError) Error() string { return e.Field + ": " + e.Problem }

// resolver turns the texts and numbers of a configuration into typed values, and
// collects what is wrong with them.
type resolver struct {
	name     func(field string) string // what the operator calls a field
	problems []error
}

func (r *resolver) refuse(field, format string, args ...any) {
	r.problems = append(r.problems, &FieldError{Field: r.name(field), Problem: fmt.Sprintf(format, args...)})
}

// resolve returns the typed configuration of an object with all defaults, or an
// error that joins a FieldError for each problem.
func resolve(c *v1alpha1.KubeProxyConfiguration, name func(field string) string) (*Config, error) {
	r := &resolver{name: name}
	cfg := &Config{
		Object:            c,
		FeatureGates:      c.FeatureGates,
		ClientConnection:  r.clientConnection(c),
		Logging:           r.logging(c),
		HostnameOverride:  r.hostname(c.HostnameOverride),
		BindAddress:       r.bindAddress(c.BindAddress),
		MetricsAddress:    r.addrPort("metricsBindAddress", c.MetricsBindAddress),
		BindHardFail:      c.BindAddressHardFail,
		Profiling:         c.EnableProfiling,
		MasqueradeAll:     c.NFTables.MasqueradeAll,
		MinSyncPeriod:     c.NFTables.MinSyncPeriod.Duration,
		SyncPeriod:        c.NFTables.SyncPeriod.Duration,
		LocalTraffic:      r.localTraffic(c),
		NodePortAddresses: r.nodePortAddresses(c.NodePortAddresses),
		OOMScoreAdj:       int(*c.OOMScoreAdj),
		Conntrack:         r.conntrack(&c.Conntrack),
	}
	if c.HealthzBindAddress != "" {
		cfg.HealthzAddress = r.addrPort("healthzBindAddress", c.HealthzBindAddress)
	}
	if r.bit("nftables.masqueradeBit", *c.NFTables.MasqueradeBit) {
		cfg.MasqueradeMark = 1 << *c.NFTables.MasqueradeBit
	}
	r.bit("iptables.masqueradeBit", *c.IPTables.MasqueradeBit)
	r.mode(string(c.Mode))
	r.periods(c)
	r.featureGates(c.FeatureGates)
	if *c.OOMScoreAdj < -1000 || *c.OOMScoreAdj > 1000 {
		r.refuse("oomScoreAdj", "%d is not in -1000..1000", *c.OOMScoreAdj)
	}
	if len(r.problems) > 0 {
		slices.SortStableFunc(r.problems, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
		return nil, errors.Join(r.problems...)
	}
	cfg.Warnings = warnings(c, name)
	return cfg, nil
}

func (r *resolver) clientConnection(c *v1alpha1.KubeProxyConfiguration) ClientConnection {
	r.notNegative("clientConnection.burst", int64(c.ClientConnection.Burst))
	return ClientConnection{
		Kubeconfig:         c.ClientConnection.Kubeconfig,
		AcceptContentTypes: c.ClientConnection.AcceptContentTypes,
		ContentType:        c.ClientConnection.ContentType,
		QPS:                c.ClientConnection.QPS,
		Burst:              int(c.ClientConnection.Burst),
	}
}

// hostname returns the name as kube-proxy uses it: names of Nodes are in lower
// case.
func (r *resolver) hostname(text string) string {
	name := strings.ToLower(strings.TrimSpace(text))
	if name == "" && text != "" {
		r.refuse("hostnameOverride", "it is blank; leave it out for the host's own name")
	}
	return name
}

func (r *resolver) bindAddress(text string) netip.Addr {
	addr, ok := parseAddr(text)
	if !ok {
		r.refuse("bindAddress", "%q is not an IP address", text)
	}
	if addr.IsUnspecified() {
		return netip.Addr{}
	}
	return addr
}

func (r *resolver) addrPort(field, text string) netip.AddrPort {
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		r.refuse(field, "%q is not an IP address and a port, such as 127.0.0.1:10249", text)
		return netip.AddrPort{}
	}
	addr, ok := parseAddr(host)
	if !ok {
		r.refuse(field, "%q is not an IP address", host)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 {
		r.refuse(field, "port %q is not in 1..65535", portText)
	}
	return netip.AddrPortFrom(addr, uint16(port))
}

// bit reports whether the number is one of a bit of the packet mark.
func (r *resolver) bit(field string, bit int32) bool {
	if !isMarkBit(bit) {
		r.refuse(field, "%d is not in 0..31", bit)
		return false
	}
	return true
}

func isMarkBit(bit int32) bool { return 0 <= bit && bit <= 31 }

func (r *resolver) mode(mode string) {
	if !slices.Contains([]string{"", "iptables", "ipvs", modeNFTables}, mode) {
		r.refuse("mode", "%q is none of nftables, iptables and ipvs", mode)
	}
}

func (r *resolver) periods(c *v1alpha1.KubeProxyConfiguration) {
	shortest, longest := c.NFTables.MinSyncPeriod.Duration, c.NFTables.SyncPeriod.Duration
	r.notNegativeTime("nftables.minSyncPeriod", shortest)
	switch {
	case longest <= 0:
		r.refuse("nftables.syncPeriod", "%s is not above 0", longest)
	case shortest > longest:
		r.refuse("nftables.minSyncPeriod", "%s is longer than nftables.syncPeriod, %s", shortest, longest)
	}
	if d := c.ConfigSyncPeriod.Duration; d <= 0 {
		r.refuse("configSyncPeriod", "%s is not above 0", d)
	}
}

func (r *resolver) conntrack(c *v1alpha1.KubeProxyConntrackConfiguration) Conntrack {
	r.notNegative("conntrack.maxPerCore", int64(*c.MaxPerCore))
	r.notNegative("conntrack.min", int64(*c.Min))
	r.notNegativeTime("conntrack.tcpEstablishedTimeout", c.TCPEstablishedTimeout.Duration)
	r.notNegativeTime("conntrack.tcpCloseWaitTimeout", c.TCPCloseWaitTimeout.Duration)
	r.notNegativeTime("conntrack.udpTimeout", c.UDPTimeout.Duration)
	r.notNegativeTime("conntrack.udpStreamTimeout", c.UDPStreamTimeout.Duration)
	return Conntrack{
		MaxPerCore:            int(*c.MaxPerCore),
		Min:                   int(*c.Min),
		TCPEstablishedTimeout: c.TCPEstablishedTimeout.Duration,
		TCPCloseWaitTimeout:   c.TCPCloseWaitTimeout.Duration,
		UDPTimeout:            c.UDPTimeout.Duration,
		UDPStreamTimeout:      c.UDPStreamTimeout.Duration,
		TCPBeLiberal:          c.TCPBeLiberal,
	}
}

func (r *resolver) notNegative(field string, n int64) {
	if n < 0 {
		r.refuse(field, "%d is negative", n)
	}
}

func (r *resolver) notNegativeTime(field string, d time.Duration) {
	if d < 0 {
		r.refuse(field, "%s is negative", d)
	}
}

func (r *resolver) localTraffic(c *v1alpha1.KubeProxyConfiguration) LocalTraffic {
	local := LocalTraffic{Mode: LocalMode(c.DetectLocalMode)}
	switch local.Mode {
	case LocalModeClusterCIDR:
		local.ClusterCIDRs = r.clusterCIDRs(c.ClusterCIDR)
	case LocalModeNodeCIDR:
	case LocalModeBridgeInterface:
		local.Interface = r.interfaceName("detectLocal.bridgeInterface", c.DetectLocal.BridgeInterface, local.Mode)
	case LocalModeInterfaceNamePrefix:
		local.Interface = r.interfaceName("detectLocal.interfaceNamePrefix", c.DetectLocal.InterfaceNamePrefix, local.Mode)
	default:
		r.refuse("detectLocalMode", "%q is none of %s, %s, %s and %s", c.DetectLocalMode,
			LocalModeClusterCIDR, LocalModeNodeCIDR, LocalModeBridgeInterface, LocalModeInterfaceNamePrefix)
	}
	return local
}

func (r *resolver) interfaceName(field, name string, mode LocalMode) string {
	switch {
	case name == "":
		r.refuse(field, "it is empty, but detectLocalMode %s needs it", mode)
	case len(name) > maxInterfaceName:
		r.refuse(field, "%q has more than the %d bytes of an interface's name", name, maxInterfaceName)
	}
	return name
}

// clusterCIDRs reads one range, or one of each family.
func (r *resolver) clusterCIDRs(text string) []netip.Prefix {
	if text == "" {
		return nil
	}
	var prefixes []netip.Prefix
	parts := strings.Split(text, ",")
	for _, part := range parts {
		prefix, ok := parsePrefix(strings.TrimSpace(part))
		if !ok {
			r.refuse("clusterCIDR", "%q is not a range of addresses such as 10.244.0.0/16", part)
			continue
		}
		prefixes = append(prefixes, prefix)
	}
	sameFamily := len(prefixes) == 2 && prefixes[0].Addr().Is4() == prefixes[1].Addr().Is4()
	if len(parts) > 2 || sameFamily {
		r.refuse("clusterCIDR", "%q is neither one range nor one of IPv4 and one of IPv6", text)
	}
	return prefixes
}

// indexed returns the path of an item of a list.
func indexed(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// parseAddr parses an address as Kubernetes does: leading zeros are allowed and
// mean nothing, an IPv4-mapped IPv6 address is the IPv4 address, a zone is not
// allowed.
func parseAddr(text string) (netip.Addr, bool) {
	addr, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	return addr.Unmap(), ok
}

// parsePrefix parses a range of addresses by the same rules. Bits behind the
// prefix are cleared.
func parsePrefix(text string) (netip.Prefix, bool) {
	_, ipnet, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	addr, _ := netip.AddrFromSlice(ipnet.IP)
	ones, bits := ipnet.Mask.Size()
	if addr.Is4In6() && bits == 128 {
		addr, ones = addr.Unmap(), ones-96
	}
	prefix, err := addr.Prefix(ones)
	return prefix, err == nil
}
