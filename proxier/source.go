package proxier

import (
	"context"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"
)

// Source delivers Services and EndpointSlices, and the Node and the ServiceCIDRs that
// they depend on.
type Source interface {
	// Run delivers the objects to the handler, first all that there are, then
	// every change, until the context is done; then it returns nil once nothing of
	// it runs any more. It returns an error if it cannot go on. It calls the
	// handler from one goroutine at a time.
	Run(ctx context.Context, h Handler) error
}

// Handler receives what a Source delivers. No method may block.
type Handler interface {
	// Apply takes changes that belong together. Objects that are equal to the ones
	// known, and deletions of unknown ones, are allowed.
	Apply(changes Changes)
	// Synced is called once, after Apply has taken every object of the first full
	// lists.
	Synced()
	// Problem takes an error about one object or file that cannot be used. The
	// source goes on without it, or with its last good state.
	Problem(p Problem)
}

// Problem is something about an object that whoever made it should know.
type Problem struct {
	// Object is zero if the problem is not of one object, but of a file for example.
	Object ObjectRef
	// Reason is the reason of the Event that tells of it, in UpperCamelCase: one of the
	// constants below.
	Reason string
	Err    error // says the object too
}

// The reasons of the problems that sources find.
const (
	// ReasonBadAnnotation is a WeightAnnotation or WeightsAnnotation that cannot be
	// understood. It is as if it were not there.
	ReasonBadAnnotation = "BadAnnotation"
	// ReasonUnusableField is a field, such as an address or a port, whose value cannot be
	// used. Everything else of the object is; if nothing is left, its last good state is.
	ReasonUnusableField = "UnusableField"
	// ReasonAddressConflict is a Service that does not have one of its addresses, since
	// another one has it.
	ReasonAddressConflict = "AddressConflict"
	// ReasonRefused is a service port that the kernel did not take, or that does not
	// belong into a ruleset.
	ReasonRefused = "Refused"
	// ReasonDuplicateObject is an object that manifests have more than once. The first
	// one is used.
	ReasonDuplicateObject = "DuplicateObject"
	// ReasonBadManifest is a file, or a part of one, that cannot be read as an object.
	ReasonBadManifest = "BadManifest"
)

// ObjectRef refers to an object of Kubernetes.
type ObjectRef struct {
	Kind string               // such as "Service"
	Name types.NamespacedName // without a namespace for a kind that has none
	UID  types.UID            // empty if a manifest does not say it
}

// Changes are the newest states of some objects.
type Changes struct {
	Services []ServiceChange
	Slices   []SliceChange
	// Node is the newest state of this node, nil if it has not changed.
	Node         *NodeChange
	ServiceCIDRs []ServiceCIDRChange
}

// ServiceChange is the newest state of a Service.
type ServiceChange struct {
	Name    types.NamespacedName
	Service *Service // nil if there is none any more, or none for this proxy
}

// SliceChange is the newest state of an EndpointSlice.
type SliceChange struct {
	Name  types.NamespacedName
	Slice *EndpointSlice // nil if there is none any more, or none for this proxy
}

// NodeChange is the newest state of this node's Node.
type NodeChange struct {
	Node *Node // nil if there is none any more
}

// ServiceCIDRChange is the newest state of a ServiceCIDR.
type ServiceCIDRChange struct {
	Name  string
	CIDRs []netip.Prefix // none if there is no such ServiceCIDR any more
}
