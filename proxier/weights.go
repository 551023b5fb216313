package proxier

import "net/netip"

// WeightsAnnotation on a Service says which endpoints get what part of the new
// connections: `selector=weight` separated by commas, where the first selector that
// matches an endpoint counts, for example `pod:api-canary-*=5,*=95`.
const WeightsAnnotation = "nftproxy.dev/weights"

// Weight is one `selector=weight` of a WeightsAnnotation.
type Weight struct {
	By SelectBy
	// Pattern is the name of the zone or node, or a pattern of names of pods as
	// path.Match takes it.
	Pattern string
	CIDR    netip.Prefix // of SelectByAddr
	// Weight is 0..rules.MaxWeight; endpoints of weight 0 are backups, used only while no
	// endpoint with more is usable.
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
