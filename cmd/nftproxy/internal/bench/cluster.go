package bench

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/nftproxy/nftproxy/rules"
)

const (
	// sliceEndpoints is how many endpoints an EndpointSlice holds at most: the default
	// of Kubernetes' controller.
	sliceEndpoints = 100
	// nodeEndpoints is how many endpoints a node has, about, and minNodes how many nodes
	// there are at least.
	nodeEndpoints = 50
	minNodes      = 3
	// smallEndpoints bounds the endpoints of a Service that is added to a cluster of
	// one big one.
	smallEndpoints = 10
	// NodePorts are 30000 to 32767: the default of the API server.
	firstNodePort = 30000
	lastNodePort  = 32767
	// tail is the exponent of the Pareto distribution of endpoints in a realistic
	// cluster, and longest how many times its smallest value a draw may be.
	tail    = 1.2
	longest = 500
)

// What the Services of a realistic cluster are like, in shares.
const (
	shareEmpty         = 0.03 // without endpoints
	shareDualStack     = 0.20
	shareTwoPorts      = 0.20
	shareUDP           = 0.05
	shareNodePort      = 0.05
	shareLoadBalancer  = 0.05
	shareExternalLocal = 0.50 // of those with load balancers
	shareRestricted    = 0.10 // of those with load balancers: source ranges
	shareInternalLocal = 0.02
	shareAffinity      = 0.01
)

// Cluster is a synthetic cluster. It computes its objects when they are asked for and
// keeps a few bytes for each Service, so that it hardly counts in the memory of a
// process that is measured. It belongs to one goroutine.
type Cluster struct {
	spec     Spec
	services []service       // by number; those that are gone too
	changed  map[int][][]int // the slices of the Services whose endpoints have changed
	alive    []int           // the numbers of the Services that exist, in no order
	added    []int           // those that came after the beginning, oldest first
	next     int             // the number of the next new endpoint
	nodes    int
	nodePort int // the next one
	rng      *rand.Rand
}

// service is what has been drawn for a Service.
type service struct {
	first, count  uint32 // its endpoints at the beginning
	nodePort      uint16
	loadBalancer  bool
	dualStack     bool
	twoPorts      bool
	udp           bool
	restricted    bool
	affinity      bool
	internalLocal bool
	externalLocal bool
	version       uint32 // of its spec
}

// NewCluster returns the cluster that a valid Spec describes.
func NewCluster(spec Spec) *Cluster {
	c := &Cluster{
		spec: spec, changed: map[int][][]int{}, nodePort: firstNodePort,
		rng: rand.New(rand.NewPCG(spec.Seed, 0)), //nolint:gosec // repeatable
	}
	services := spec.Services
	if spec.Shape == OneBig {
		services = 1
	}
	c.services = make([]service, 0, services)
	for range services {
		c.add(c.drawCount(false))
	}
	c.nodes = max(minNodes, c.next/nodeEndpoints)
	return c
}

// add makes another Service with that many endpoints and returns its number.
func (c *Cluster) add(endpoints int) int {
	n := len(c.services)
	s := service{}
	if c.spec.Shape == Realistic {
		s = c.draw()
	}
	s.first, s.count = uint32(c.next), uint32(endpoints) //nolint:gosec // Spec bounds them
	c.next += endpoints
	c.services, c.alive = append(c.services, s), append(c.alive, n)
	return n
}

// drawCount returns how many endpoints the next Service has, one of the beginning or a
// later one.
func (c *Cluster) drawCount(later bool) int {
	mean := c.spec.EndpointsPerService
	switch {
	case c.spec.Shape == OneBig && later:
		return min(mean, smallEndpoints)
	case c.spec.Shape == OneBig:
		return mean * c.spec.Services
	case c.spec.Shape == Uniform || mean == 0:
		return mean
	}
	if c.chance(shareEmpty) {
		return 0
	}
	// The mean of a Pareto distribution that begins at 1 and is cut off.
	cut := math.Pow(longest, 1-tail)
	expected := (tail - cut) / (tail - 1)
	draw := min(math.Pow(1-c.rng.Float64(), -1/tail), longest)
	count := max(1, int(math.Round(draw*float64(mean)/expected)))
	return min(count, maxEndpoints-min(c.next, maxEndpoints)) // the tail is long, the addresses are not
}

// draw returns a Service of a realistic cluster.
func (c *Cluster) draw() service {
	s := service{
		dualStack:     c.chance(shareDualStack) && slices.Contains(c.spec.Families, rules.IPv6),
		twoPorts:      c.chance(shareTwoPorts),
		udp:           c.chance(shareUDP),
		internalLocal: c.chance(shareInternalLocal),
		affinity:      c.chance(shareAffinity),
	}
	kind := c.rng.Float64()
	switch {
	case kind < shareNodePort:
		s.nodePort = c.allocateNodePort()
	case kind < shareNodePort+shareLoadBalancer:
		s.loadBalancer = true
		s.nodePort = c.allocateNodePort()
		s.externalLocal = c.chance(shareExternalLocal)
		s.restricted = c.chance(shareRestricted)
	}
	return s
}

// allocateNodePort returns a NodePort for each of two ports, 0 if none are left.
func (c *Cluster) allocateNodePort() uint16 {
	if c.nodePort >= lastNodePort {
		return 0
	}
	port := c.nodePort
	c.nodePort += 2
	return uint16(port) //nolint:gosec // up to lastNodePort
}

func (c *Cluster) chance(share float64) bool { return c.rng.Float64() < share }

// Services returns how many Services there are.
func (c *Cluster) Services() int { return len(c.alive) }

// Endpoints returns how many endpoints there are; one of a dual-stack Service counts
// once.
func (c *Cluster) Endpoints() int {
	total := 0
	for _, n := range c.alive {
		total += c.count(n)
	}
	return total
}

// count returns how many endpoints a Service has.
func (c *Cluster) count(n int) int {
	slices, ok := c.changed[n]
	if !ok {
		return int(c.services[n].count)
	}
	total := 0
	for _, s := range slices {
		total += len(s)
	}
	return total
}

// slices returns the endpoints of a Service by slice. The caller must not change them.
func (c *Cluster) slices(n int) [][]int {
	if changed, ok := c.changed[n]; ok {
		return changed
	}
	first, count := int(c.services[n].first), int(c.services[n].count)
	all := make([][]int, 0, (count+sliceEndpoints-1)/sliceEndpoints)
	for count > 0 {
		s := make([]int, min(count, sliceEndpoints))
		for i := range s {
			s[i] = first + i
		}
		first, count = first+len(s), count-len(s)
		all = append(all, s)
	}
	return all
}
