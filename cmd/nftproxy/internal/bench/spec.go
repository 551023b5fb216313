package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/rules"
)

// Shape says how the endpoints of a cluster are spread over its Services, and what
// these are like.
type Shape string

// The shapes.
const (
	// Uniform gives every Service the same number of endpoints, one ClusterIP and one
	// port.
	Uniform Shape = "uniform"
	// Realistic draws the numbers of endpoints from a heavy tail, and mixes types,
	// protocols, policies, session affinity and dual-stack.
	Realistic Shape = "realistic"
	// OneBig is one Service with all endpoints.
	OneBig Shape = "one-big"
)

// Shapes returns all shapes.
func Shapes() []Shape { return []Shape{Uniform, Realistic, OneBig} }

// MaxServices is how many Services there are addresses for in a cluster.
const MaxServices = 1_000_000

// maxEndpoints is the same for endpoints.
const maxEndpoints = 4_000_000

// Spec says what a synthetic cluster is like. Equal Specs make equal clusters.
type Spec struct {
	// Services is their number, 1 to 1,000,000; with OneBig it only multiplies
	// EndpointsPerService.
	Services int
	// EndpointsPerService is their number, at least 0; with Realistic the mean, about.
	// All of them together are at most 4,000,000.
	EndpointsPerService int
	Shape               Shape
	Seed                uint64
	// Families are the IP families of the node. With one alone no Service is
	// dual-stack. IPv4 has to be one of them.
	Families []rules.Family
}

// Validate returns an error that says which flag is wrong.
func (s Spec) Validate() error {
	switch {
	case s.Services < 1 || s.Services > MaxServices:
		return fmt.Errorf("--services: %d is not in 1..%d", s.Services, MaxServices)
	case s.EndpointsPerService < 0 || s.EndpointsPerService > maxEndpoints/s.Services:
		return fmt.Errorf("--endpoints-per-service: %d is not in 0..%d, for %d Services", s.EndpointsPerService, maxEndpoints/s.Services, s.Services)
	case !slices.Contains(Shapes(), s.Shape):
		return fmt.Errorf("--shape: %q is none of %s", s.Shape, joined(Shapes()))
	case !slices.Contains(s.Families, rules.IPv4):
		return fmt.Errorf("the benchmark needs IPv4, this machine has %v", s.Families)
	}
	return nil
}

// joined lists names.
func joined[S ~string](names []S) string {
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = string(name)
	}
	return strings.Join(texts, ", ")
}
