// Package scenario runs scenario cases: a case is a small cluster, changes to it,
// and packets with the outcome that each must have. testdata/cases/README.md is
// the contract of the format; this package reads it, runs it on the test network
// against a proxy, and judges.
package scenario

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/object"
	"github.com/nftproxy/nftproxy/e2e/internal/probe"
)

// DefaultSettle is how long a proxy may take to catch up with a step.
const DefaultSettle = 5 * time.Second

// Case is one scenario.
type Case struct {
	// Name is the file's name without its extension.
	Name  string
	Title string
	// Source says where the behaviour is documented or reported.
	Source string
	// Peer says how kube-proxy fails the case and why; empty if it passes.
	Peer string
	// Config has fields of a KubeProxyConfiguration to set.
	Config map[string]any
	Steps  []Step
}

// Step is a change, and probes that show its effect. Its parts happen in the
// order of the fields, under Load.
type Step struct {
	Load    *Probe
	Stop    bool // the proxy
	Restart bool // the proxy, which may be stopped
	Exec    *Exec
	Delete  []object.Key
	Apply   []*object.Object
	Settle  time.Duration
	Probes  []Probe
}

// Exec is a shell command on a host.
type Exec struct{ On, Run string }

// Probe is packets to send and what must become of them.
type Probe struct {
	From       string
	To         probe.Target
	Count      int
	SourcePort uint16 // 0: a new one each time
	Expect     Expect
}

// String says from where to where.
func (p Probe) String() string { return fmt.Sprintf("%s to %s", p.From, p.To) }

// Expect is the right outcome of a probe.
type Expect struct {
	Result    probe.Outcome
	Endpoints []netip.AddrPort // who may answer; empty for anybody
	All       bool             // and each of them does
	Share     map[netip.AddrPort]Share
	Source    Source
	Same      bool // all answers come from one endpoint
}

// Share is the part of the answers that an endpoint gives, both ends included.
type Share struct{ Min, Max float64 }

// Source is what the endpoint sees as the source.
type Source string

// The sources.
const (
	AnySource  Source = "any"
	SourceKept Source = "kept" // the client's own address
	SourceNode Source = "node" // an address of node1
)

// endpoints returns every address and port of the case's EndpointSlices, each
// once.
func (c *Case) endpoints() ([]netip.AddrPort, error) {
	var all []netip.AddrPort
	seen := map[netip.AddrPort]bool{}
	for _, step := range c.Steps {
		for _, o := range step.Apply {
			endpoints, err := object.Endpoints(o)
			if err != nil {
				return nil, err
			}
			for _, endpoint := range endpoints {
				if !seen[endpoint] {
					seen[endpoint] = true
					all = append(all, endpoint)
				}
			}
		}
	}
	return all, nil
}

// fixedPorts returns the source ports that the case's probes name.
func (c *Case) fixedPorts() map[uint16]bool {
	ports := map[uint16]bool{}
	for _, step := range c.Steps {
		if step.Load != nil {
			ports[step.Load.SourcePort] = true
		}
		for _, p := range step.Probes {
			ports[p.SourcePort] = true
		}
	}
	return ports
}
