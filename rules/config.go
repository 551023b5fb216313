package rules

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Defaults of Config.
const (
	// DefaultMasqueradeMark is bit 14, the default of kube-proxy's
	// masqueradeBit.
	DefaultMasqueradeMark = 1 << 14
	// DefaultMaxSlots bounds the slots of a service port whose endpoints have
	// different weights.
	DefaultMaxSlots = 1 << 16
)

// Config is what the whole ruleset depends on beside the Services.
type Config struct {
	// Families to program, in order. Empty means both.
	Families []Family
	// ClusterCIDRs are the ranges of the pods' addresses. A packet to a
	// ClusterIP from any other source is masqueraded. A family without a range
	// masquerades nothing but hairpin traffic.
	ClusterCIDRs []netip.Prefix
	// PodInterface is the name of the interface (a bridge) through which all packets of
	// this node's pods come, PodInterfacePrefix what the names of these interfaces begin
	// with. At most one of ClusterCIDRs, PodInterface and PodInterfacePrefix says what is
	// a pod.
	PodInterface, PodInterfacePrefix string
	// NodePortsEverywhere lists the families whose NodePorts are open on all addresses of
	// this node but loopback ones; in others they are open on Node.NodePortIPs.
	NodePortsEverywhere []Family
	// MasqueradeAll masquerades every packet to a ClusterIP.
	MasqueradeAll bool
	// MasqueradeMark is the one bit of the packet mark that requests
	// masquerading between the nat hooks. 0 means DefaultMasqueradeMark.
	MasqueradeMark uint32
	// MaxSlots bounds the slots of a service port whose endpoints have
	// different weights; equal weights need one slot an endpoint whatever the
	// bound. 0 means DefaultMaxSlots.
	MaxSlots int
}

// WithDefaults returns the configuration with zero fields replaced by their
// defaults.
func (c Config) WithDefaults() Config {
	if len(c.Families) == 0 {
		c.Families = Families()
	}
	if c.MasqueradeMark == 0 {
		c.MasqueradeMark = DefaultMasqueradeMark
	}
	if c.MaxSlots == 0 {
		c.MaxSlots = DefaultMaxSlots
	}
	return c
}

// Validate returns an error that joins everything wrong with the configuration.
// Zero fields stand for their defaults.
func (c Config) Validate() error {
	c = c.WithDefaults()
	var errs []error
	for i, f := range c.Families {
		if f != IPv4 && f != IPv6 {
			errs = append(errs, fmt.Errorf("family %d is neither 4 nor 6", f))
		}
		if slices.Contains(c.Families[:i], f) {
			errs = append(errs, fmt.Errorf("family %d is listed twice", f))
		}
	}
	for _, p := range c.ClusterCIDRs {
		if !p.IsValid() {
			errs = append(errs, errors.New("a cluster CIDR is not valid"))
		}
	}
	errs = append(errs, c.validatePods()...)
	if m := c.MasqueradeMark; m&(m-1) != 0 {
		errs = append(errs, fmt.Errorf("masquerade mark %#x is not a single bit", m))
	}
	if c.MaxSlots < 1 {
		errs = append(errs, fmt.Errorf("at most %d slots a service port leave no room for an endpoint", c.MaxSlots))
	}
	return errors.Join(errs...)
}

// validatePods checks what says which packets come from pods.
func (c Config) validatePods() []error {
	var errs []error
	ways := 0
	if len(c.ClusterCIDRs) > 0 {
		ways++
	}
	for _, name := range []string{c.PodInterface, c.PodInterfacePrefix} {
		if name == "" {
			continue
		}
		ways++
		if len(name) > maxInterfaceName || strings.ContainsFunc(name, func(r rune) bool {
			return r <= ' ' || r > '~' || strings.ContainsRune(`"\/:*`, r)
		}) {
			errs = append(errs, fmt.Errorf("%q is not the name of an interface", name))
		}
	}
	if ways > 1 {
		errs = append(errs, errors.New("pods are known by their addresses, by one interface or by a prefix of interfaces, not by several of these"))
	}
	return errs
}

// maxInterfaceName is the longest name of an interface in bytes (IFNAMSIZ - 1).
const maxInterfaceName = 15

// Enabled reports whether the family is programmed.
func (c Config) Enabled(f Family) bool { return slices.Contains(c.Families, f) }

// clusterCIDRs returns the ranges of one family.
func (c Config) clusterCIDRs(f Family) []netip.Prefix {
	var of []netip.Prefix
	for _, p := range c.ClusterCIDRs {
		if FamilyOf(p.Addr()) == f {
			of = append(of, p.Masked())
		}
	}
	return of
}
