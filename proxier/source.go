package proxier

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
)

// Source delivers Services and EndpointSlices.
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
	Problem(err error)
}

// Changes are the newest states of some objects.
type Changes struct {
	Services []ServiceChange
	Slices   []SliceChange
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
