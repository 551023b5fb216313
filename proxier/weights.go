package proxier

import (
	"net/netip"
	"path"
	"unique"
)

// WeightsAnnotation on a Service says how the new connections are divided among its
// endpoints: `selector=weight` separated by commas, where the first selector that
// matches an endpoint counts. An endpoint that none matches keeps the weight of its
// EndpointSlice.
//
// A weight is that of each endpoint by itself, not of all together that its selector
// matches: under `pod:api-canary-*=5,*=95`, a canary gets 5 parts and each other
// endpoint 95, so 2 canaries beside 3 others get 10 of 295 connections. Parts are of
// what the traffic policy and topology leave to this node.
const WeightsAnnotation = "nftproxy.dev/weights"

// Weight is one `selector=weight` of a WeightsAnnotation.
type Weight struct {
	By SelectBy
	// Pattern is the name of the zone or node, or a pattern of names of pods as
	// path.Match takes it.
	Pattern string
	CIDR    netip.Prefix // of SelectByAddr
	// Weight is 0..rules.MaxWeight, the part of the new connections that each selected
	// endpoint gets; endpoints of weight 0 are backups, used only while no endpoint with
	// more is usable.
	Weight uint16
}

// SelectBy is what a selector looks at.
type SelectBy uint8

// The selectors.
const (
	SelectAll    SelectBy = iota + 1 // *
	SelectByZone                     // zone:NAME
	SelectByNode                     // node:NAME
	SelectByPod                      // pod:GLOB, the endpoint's targetRef
	SelectByAddr                     // addr:CIDR
)

// weigh returns the weight of an endpoint: that of the first selector that matches
// it, else that of its slice.
func weigh(weights []Weight, e *SliceEndpoint, slice uint16) uint16 {
	for i := range weights {
		if weights[i].selects(e) {
			return weights[i].Weight
		}
	}
	return slice
}

// selects reports whether the selector matches an endpoint. What is not said of an
// endpoint matches nothing, nor does a pattern with an error.
func (w *Weight) selects(e *SliceEndpoint) bool {
	switch w.By {
	case SelectAll:
		return true
	case SelectByZone:
		return names(e.Zone, w.Pattern)
	case SelectByNode:
		return names(e.Node, w.Pattern)
	case SelectByPod:
		matched, err := path.Match(w.Pattern, e.Pod)
		return err == nil && matched && e.Pod != ""
	case SelectByAddr:
		return w.CIDR.Contains(e.Addr)
	default:
		return false
	}
}

// names reports whether a name is said, and which.
func names(h unique.Handle[string], name string) bool {
	return h != (unique.Handle[string]{}) && h.Value() == name
}
