package proxier

import (
	"net/netip"
	"slices"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/rules"
)

// Service is what the proxy uses of a Service. It is never changed after it was
// made.
type Service struct {
	Name types.NamespacedName
	// UID is what an Event about the Service refers to; empty if a manifest does not
	// say it.
	UID types.UID
	// Created decides between two Services that claim the same address: the older
	// one has it.
	Created time.Time
	// Addrs holds the addresses that clients use, each once: at most one ClusterIP a
	// family, those that spec.ipFamilies name, and the external ones of these families.
	Addrs []ServiceAddr
	Ports []Port
	// InternalLocal and ExternalLocal are the traffic policies Local. The external one
	// only counts if there is a way in from outside.
	InternalLocal, ExternalLocal bool
	// Restricted is true if only the sources in SourceRanges may use load-balancer IPs.
	Restricted   bool
	SourceRanges []netip.Prefix
	// Affinity is for how long a client that does not come back is remembered, with its
	// endpoint (sessionAffinity ClientIP); 0 for no affinity. Whole seconds.
	Affinity time.Duration
	// HealthCheckNodePort is where load balancers ask whether this node has endpoints; 0
	// for nowhere.
	HealthCheckNodePort uint16
	// Weights say what part of the new connections endpoints get; the first that
	// selects an endpoint counts. Empty: each slice's own weight.
	Weights []Weight
}

// ServiceAddr is an address of a Service.
type ServiceAddr struct {
	Kind rules.FrontendKind
	Addr netip.Addr
}

// Port is a port of a Service or of an EndpointSlice. In a Service its number is
// that of the frontend, in an EndpointSlice that of the endpoints.
type Port struct {
	Name     string
	Protocol rules.Protocol
	Number   uint16
	// NodePort is open on the node's addresses, whatever the type of the Service; 0 if
	// there is none, and in an EndpointSlice.
	NodePort uint16
}

// EndpointSlice is what the proxy uses of an EndpointSlice. It is never changed
// after it was made.
type EndpointSlice struct {
	Name types.NamespacedName
	// Service is the name of the Service, in the same namespace, that the slice
	// belongs to (label kubernetes.io/service-name).
	Service   string
	Family    rules.Family
	Ports     []Port
	Endpoints []SliceEndpoint
	// Weight is the weight of each endpoint, 0..rules.MaxWeight; DefaultWeight
	// where the annotation WeightAnnotation is missing.
	Weight uint16
	// Triggered is when what the slice follows has changed, as its controller says
	// (annotation endpoints.kubernetes.io/last-change-trigger-time); zero if it does not.
	// By itself it is no difference.
	Triggered time.Time
}

// SliceEndpoint is an endpoint of an EndpointSlice, with its conditions.
type SliceEndpoint struct {
	Addr netip.Addr
	// ZoneHints are the zones of hints.forZones, each once, sorted and joined by commas,
	// which no name of a zone contains. Without hints it is the zero Handle, which has no
	// Value: no Handle here is ever one of an empty text.
	ZoneHints unique.Handle[string]
	// Zone and Node are where the endpoint runs, the zero Handle if that is not said, and
	// Pod is the name of the Pod that it is, empty if it is none. They matter to Weights
	// only.
	Zone, Node unique.Handle[string]
	Pod        string
	// Local is true if the endpoint is on this node.
	Local bool
	// NodeHinted is true if the endpoint has hints for nodes (hints.forNodes), HintsHere
	// if one of them names this node.
	NodeHinted, HintsHere bool
	// The conditions, with Kubernetes' defaults for unset ones: ready and serving
	// are true, terminating is false.
	Ready, Serving, Terminating bool
}

const (
	// WeightAnnotation on an EndpointSlice is the weight of all its endpoints.
	WeightAnnotation = "nftproxy.dev/weight"
	// DefaultWeight is the weight of endpoints whose slice has no
	// WeightAnnotation.
	DefaultWeight = 1
)

// Equal reports whether nothing that the proxy uses differs.
func (s *Service) Equal(t *Service) bool {
	return s.Name == t.Name && s.UID == t.UID && s.Created.Equal(t.Created) && s.HealthCheckNodePort == t.HealthCheckNodePort &&
		slices.Equal(s.Ports, t.Ports) && s.sameWays(t)
}

// sameWays reports whether two states of a Service differ in their ports only: they
// have the same addresses, traffic policies, source ranges, affinity and weights.
func (s *Service) sameWays(t *Service) bool {
	return slices.Equal(s.Addrs, t.Addrs) && s.InternalLocal == t.InternalLocal && s.ExternalLocal == t.ExternalLocal &&
		s.Restricted == t.Restricted && slices.Equal(s.SourceRanges, t.SourceRanges) &&
		s.Affinity == t.Affinity && slices.Equal(s.Weights, t.Weights)
}

// Equal reports whether nothing that the proxy uses differs.
func (s *EndpointSlice) Equal(t *EndpointSlice) bool {
	return s.Name == t.Name && s.Service == t.Service && s.Family == t.Family && s.Weight == t.Weight &&
		slices.Equal(s.Ports, t.Ports) && slices.Equal(s.Endpoints, t.Endpoints)
}
