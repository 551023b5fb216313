package proxier

import (
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/rules"
)

// Service is what the proxy uses of a Service. It is never changed after it was
// made.
type Service struct {
	Name types.NamespacedName
	// Created decides between two Services that claim the same address: the older
	// one has it.
	Created time.Time
	// ClusterIPs holds at most one address a family, those that spec.ipFamilies
	// name.
	ClusterIPs []netip.Addr
	Ports      []Port
}

// Port is a port of a Service or of an EndpointSlice. In a Service its number is
// that of the frontend, in an EndpointSlice that of the endpoints.
type Port struct {
	Name     string
	Protocol rules.Protocol
	Number   uint16
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
}

// SliceEndpoint is an endpoint of an EndpointSlice, with its conditions.
type SliceEndpoint struct {
	Addr netip.Addr
	// Local is true if the endpoint is on this node.
	Local bool
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
	return s.Name == t.Name && s.Created.Equal(t.Created) &&
		slices.Equal(s.ClusterIPs, t.ClusterIPs) && slices.Equal(s.Ports, t.Ports)
}

// Equal reports whether nothing that the proxy uses differs.
func (s *EndpointSlice) Equal(t *EndpointSlice) bool {
	return s.Name == t.Name && s.Service == t.Service && s.Family == t.Family && s.Weight == t.Weight &&
		slices.Equal(s.Ports, t.Ports) && slices.Equal(s.Endpoints, t.Endpoints)
}
