package config

import (
	"net/netip"
	"time"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// Config is a valid configuration, resolved for this program: every default is
// filled in, every text is a typed value. It is never changed after it was made.
type Config struct {
	// Object is the configuration in kube-proxy's own type with the defaults filled
	// in, to be shown and to be written to a file.
	Object *v1alpha1.KubeProxyConfiguration
	// Warnings are sentences that the operator should see once.
	Warnings []string

	// FeatureGates are the gates that are set. One that is not set has the default of
	// the kube-proxy release.
	FeatureGates map[string]bool
	// ClientConnection says how to reach the API server.
	ClientConnection ClientConnection
	// Logging says what is logged, and how.
	Logging Logging

	// HostnameOverride is this node's name in lower case, empty if it is the host's.
	HostnameOverride string
	// BindAddress is the node IP that overrides the one of its family in the Node, and
	// makes its family the primary one. The zero Addr if there is none. It is no
	// address that a socket is bound to.
	BindAddress netip.Addr
	// HealthzAddress is where the health server listens. The zero AddrPort if it does
	// not, which only the flag --healthz-port=0 asks for.
	HealthzAddress netip.AddrPort
	// MetricsAddress is where the server of metrics listens.
	MetricsAddress netip.AddrPort
	// BindHardFail ends the program if one of the two servers cannot listen.
	BindHardFail bool
	// Profiling adds pprof to the server of metrics.
	Profiling bool

	// MasqueradeAll masquerades all traffic to ClusterIPs.
	MasqueradeAll bool
	// MasqueradeMark is the one bit of the packet mark that requests masquerading.
	MasqueradeMark uint32
	// MinSyncPeriod is the shortest time from the end of a sync to the start of the
	// next one; 0 is no minimum.
	MinSyncPeriod time.Duration
	// SyncPeriod is the longest pause before a failed sync is tried again, and half
	// the time after which the program counts as unhealthy. Positive.
	SyncPeriod time.Duration

	// LocalTraffic tells the traffic of this node's pods.
	LocalTraffic LocalTraffic
	// NodePortAddresses are the addresses of the node on which NodePorts are open.
	NodePortAddresses NodePortAddresses

	// OOMScoreAdj is to be written for this process, -1000..1000.
	OOMScoreAdj int
	// Conntrack are settings of the kernel's connection tracking.
	Conntrack Conntrack

	// content is what the file held that it was read from.
	content []byte
}

// ClientConnection says how to reach the API server.
type ClientConnection struct {
	// Kubeconfig is the path of a kubeconfig file. If it and Master are empty, the
	// program is in a pod.
	Kubeconfig string
	// Master is the API server's URL, which overrides that of the kubeconfig file.
	Master string
	// AcceptContentTypes and ContentType are media types, the first may be empty.
	AcceptContentTypes, ContentType string
	// QPS is how many requests a second may be sent for long, Burst how many at once.
	// A negative QPS is no limit.
	QPS   float32
	Burst int
}

// LogFormat is a format of log lines.
type LogFormat string

// The formats that kube-proxy has.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// MaxVerbosity is the level at which everything is logged.
const MaxVerbosity = 10

// Logging says what is logged, and how.
type Logging struct {
	Format LogFormat
	// Verbosity is the level, 0..MaxVerbosity. A higher one that was asked for is
	// MaxVerbosity.
	Verbosity int
}

// LocalMode is a way to tell the traffic of this node's pods.
type LocalMode string

// The ways that kube-proxy knows.
const (
	// LocalModeClusterCIDR takes what comes from LocalTraffic.ClusterCIDRs.
	LocalModeClusterCIDR LocalMode = "ClusterCIDR"
	// LocalModeNodeCIDR takes what comes from the Node's spec.podCIDRs.
	LocalModeNodeCIDR LocalMode = "NodeCIDR"
	// LocalModeBridgeInterface takes what comes in through the bridge
	// LocalTraffic.Interface.
	LocalModeBridgeInterface LocalMode = "BridgeInterface"
	// LocalModeInterfaceNamePrefix takes what comes in through an interface whose name
	// begins with LocalTraffic.Interface.
	LocalModeInterfaceNamePrefix LocalMode = "InterfaceNamePrefix"
)

// LocalTraffic tells the traffic of this node's pods.
type LocalTraffic struct {
	Mode LocalMode
	// ClusterCIDRs are the ranges of the pods' addresses, at most one a family. Empty
	// in other modes than ClusterCIDR, and if none was given: then nothing is known to
	// be local.
	ClusterCIDRs []netip.Prefix
	// Interface is a name in mode BridgeInterface, the beginning of names in mode
	// InterfaceNamePrefix, and empty in the others. It has at most 15 bytes.
	Interface string
}

// Conntrack are settings of the kernel's connection tracking. A zero field leaves
// the kernel's setting as it is.
type Conntrack struct {
	// MaxPerCore is how many entries to allow for each CPU, and Min how many at least.
	// Min has no meaning if MaxPerCore is 0.
	MaxPerCore, Min int
	// How long an entry stays without packets, by the state of the connection.
	TCPEstablishedTimeout, TCPCloseWaitTimeout time.Duration
	UDPTimeout, UDPStreamTimeout               time.Duration
	// TCPBeLiberal accepts TCP segments that are out of the window.
	TCPBeLiberal bool
}
