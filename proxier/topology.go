package proxier

import (
	"slices"
	"strings"
	"unique"
)

// hint is what the hints of an endpoint say of where this node is.
type hint uint8

const (
	unhinted  hint = iota
	elsewhere      // hints, but none of them names this node, or its zone
	here
)

// nodeHint returns what the hints for nodes say.
func (e *SliceEndpoint) nodeHint() hint {
	switch {
	case e.HintsHere:
		return here
	case e.NodeHinted:
		return elsewhere
	default:
		return unhinted
	}
}

// zoneHint returns what the hints for zones say in a zone, empty for an unknown one.
func (e *SliceEndpoint) zoneHint(zone string) hint {
	if e.ZoneHints == (unique.Handle[string]{}) {
		return unhinted
	}
	for name := range strings.SplitSeq(e.ZoneHints.Value(), ",") {
		if name == zone && zone != "" {
			return here
		}
	}
	return elsewhere
}

// zoned reports whether an endpoint of the slice has hints for zones.
func (s *EndpointSlice) zoned() bool {
	return slices.ContainsFunc(s.Endpoints, func(e SliceEndpoint) bool { return e.ZoneHints != unique.Handle[string]{} })
}

// near keeps, of usable endpoints, those that topology leaves to this node: those
// with hints for this node, if all have hints for nodes and any names it; else those
// with hints for its zone, if all have hints for zones and any names it; else all
// (KEP-3015, KEP-2433). So one endpoint without hints makes those of all others void:
// whoever gives hints divides the whole load. Endpoints that terminate are kept as
// they are; their hints are not kept up to date.
func near(usable []candidate) []candidate {
	if len(usable) == 0 || !usable[0].ready {
		return usable
	}
	for _, hintOf := range []func(candidate) hint{
		func(c candidate) hint { return c.nodeHint },
		func(c candidate) hint { return c.zoneHint },
	} {
		if slices.ContainsFunc(usable, func(c candidate) bool { return hintOf(c) == unhinted }) {
			continue
		}
		if chosen := filter(usable, func(c candidate) bool { return hintOf(c) == here }); len(chosen) > 0 {
			return chosen
		}
	}
	return usable
}
