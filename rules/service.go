package rules

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Family is an IP family. Each family has a table of its own; everything else
// is one code path that takes the family as a parameter.
type Family uint8

// The two families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Families returns both families in the order in which they are printed and
// programmed.
func Families() []Family { return []Family{IPv4, IPv6} }

// FamilyOf returns the family of an address. An IPv4-mapped IPv6 address is
// IPv6: callers unmap addresses where they enter the program.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// unspecified returns 0.0.0.0 or ::.
func (f Family) unspecified() netip.Addr {
	if f == IPv4 {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// String returns "IPv4" or "IPv6", as Kubernetes writes it in spec.ipFamilies.
func (f Family) String() string {
	if f == IPv4 {
		return "IPv4"
	}
	return "IPv6"
}

// Protocol is an IP protocol number of a transport that Services can use.
type Protocol uint8

// The protocols of Services, with their IANA numbers.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the name in nft syntax: "tcp", "udp" or "sctp".
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	default:
		return fmt.Sprintf("protocol %d", uint8(p))
	}
}

// ServicePortName identifies one port of one Service, as kube-proxy does: by
// namespace, name, port name and protocol. It is comparable.
type ServicePortName struct {
	Namespace string
	Name      string
	Port      string // the port's name, empty for a Service's only, unnamed port
	Protocol  Protocol
}

// String returns "namespace/name:port", or "namespace/name" for an unnamed
// port.
func (n ServicePortName) String() string {
	if n.Port == "" {
		return n.Namespace + "/" + n.Name
	}
	return n.Namespace + "/" + n.Name + ":" + n.Port
}

// Compare orders names by namespace, name, port name and protocol.
func (n ServicePortName) Compare(m ServicePortName) int {
	return cmp.Or(
		strings.Compare(n.Namespace, m.Namespace),
		strings.Compare(n.Name, m.Name),
		strings.Compare(n.Port, m.Port),
		cmp.Compare(n.Protocol, m.Protocol),
	)
}

// ServicePortKey identifies a service port in one family: a dual-stack Service
// has two independent sets of elements.
type ServicePortKey struct {
	ServicePortName
	Family Family
}

// Compare orders keys by name, then by family.
func (k ServicePortKey) Compare(l ServicePortKey) int {
	return cmp.Or(k.ServicePortName.Compare(l.ServicePortName), cmp.Compare(k.Family, l.Family))
}

// String returns the name and the family.
func (k ServicePortKey) String() string {
	if k.ServicePortName == (ServicePortName{}) {
		return "the node itself (" + k.Family.String() + ")"
	}
	return k.ServicePortName.String() + " (" + k.Protocol.String() + ", " + k.Family.String() + ")"
}

// FrontendKind says where clients got a frontend's address from.
type FrontendKind uint8

// The kinds of frontends. All but ClusterIP are external: meant for clients
// outside of the cluster, and subject to the external traffic policy.
const (
	// ClusterIP is an address of spec.clusterIPs.
	ClusterIP FrontendKind = iota + 1
	// ExternalIP is an address of spec.externalIPs.
	ExternalIP
	// LoadBalancerIP is an address of status.loadBalancer.ingress.
	LoadBalancerIP
	// NodePort is a port of the node's own addresses, of spec.ports.nodePort.
	NodePort
)

// Frontend is an address and port that clients of a Service use. A NodePort has the
// unspecified address of its family: Node says which ones it is open on.
type Frontend struct {
	Kind FrontendKind
	Addr netip.AddrPort
}

// External reports whether the external traffic policy applies to the frontend.
func (f Frontend) External() bool { return f.Kind != ClusterIP }

// MaxAffinity is the longest affinity: what the API server accepts, a day.
const MaxAffinity = 24 * time.Hour

// MaxWeight is the largest weight of an endpoint. Weights are 0..MaxWeight.
const MaxWeight = 1000

// Endpoint is a destination that is already judged usable from this node.
type Endpoint struct {
	// Addr is the address and port that serve.
	Addr netip.AddrPort
	// Weight is the endpoint's part of the new connections, relative to the
	// other endpoints of the service port: 0..MaxWeight. Endpoints of weight 0
	// are backups: they are used, evenly, only while no endpoint has more.
	Weight uint16
	// Local is true if the endpoint runs on this node.
	Local bool
}

// ServicePort is one port of a Service, resolved for this node and for one
// family: which addresses clients use, and which endpoints may serve them.
type ServicePort struct {
	ServicePortKey
	Frontends []Frontend
	// Endpoints serve where the traffic policy is Cluster.
	Endpoints []Endpoint
	// LocalEndpoints, all on this node, serve where the traffic policy is Local.
	LocalEndpoints []Endpoint
	// InternalLocal is internalTrafficPolicy Local: of ClusterIPs.
	InternalLocal bool
	// ExternalLocal is externalTrafficPolicy Local: of external frontends. Clients on
	// this node, the node itself and its pods, are served as under policy Cluster.
	ExternalLocal bool
	// Restricted is true if only some sources may use load-balancer IPs: those in
	// SourceRanges, which may overlap.
	Restricted   bool
	SourceRanges []netip.Prefix
	// Affinity is for how long after its last new connection a client is sent to the same
	// endpoint again (sessionAffinity ClientIP): whole seconds up to MaxAffinity, 0 for
	// no affinity. What policy Cluster and policy Local remember is kept apart.
	Affinity time.Duration
	// Served is true if an endpoint serves anywhere in the cluster; it goes without
	// saying if a list has one. A frontend without an endpoint that may be used drops
	// packets then, since a client may have better luck on another node, and rejects
	// them if not.
	Served bool
	// Serving holds all endpoints that still serve the flows that they have: those that
	// new ones may go to, and others. Only service ports of UDP and SCTP need it; the
	// rules do not depend on it.
	Serving []netip.AddrPort
}

// sorted returns the service port with its frontends and endpoints in the order
// of their addresses.
func (s ServicePort) sorted() ServicePort {
	s.Frontends = slices.Clone(s.Frontends)
	slices.SortFunc(s.Frontends, func(a, b Frontend) int { return a.Addr.Compare(b.Addr) })
	s.Endpoints = sortedEndpoints(s.Endpoints)
	s.LocalEndpoints = sortedEndpoints(s.LocalEndpoints)
	s.Serving = slices.Clone(s.Serving)
	slices.SortFunc(s.Serving, netip.AddrPort.Compare)
	return s
}

func sortedEndpoints(endpoints []Endpoint) []Endpoint {
	endpoints = slices.Clone(endpoints)
	slices.SortFunc(endpoints, func(a, b Endpoint) int { return a.Addr.Compare(b.Addr) })
	return endpoints
}

// Validate returns an error that joins everything in the service port that has
// no place in a ruleset: names that no comment can quote, unknown families,
// protocols or kinds, addresses that are invalid, unspecified or of the other
// family, port 0, weights over MaxWeight. An endpoint or frontend that is listed
// twice is an error too. Their order does not matter.
func (s *ServicePort) Validate() error { return s.sorted().validate() }

// validate is Validate of a sorted service port.
func (s ServicePort) validate() error {
	errs := s.validateKey()
	var prev netip.AddrPort
	for _, f := range s.Frontends {
		if err := s.validateFrontend(f, prev); err != nil {
			errs = append(errs, fmt.Errorf("frontend %s: %w", f.Addr, err))
		}
		prev = f.Addr
	}
	if s.Affinity < 0 || s.Affinity > MaxAffinity || s.Affinity%time.Second != 0 {
		errs = append(errs, fmt.Errorf("an affinity of %s is not a number of seconds up to %s", s.Affinity, MaxAffinity))
	}
	errs = append(errs, s.validateEndpoints("endpoint", s.Endpoints)...)
	errs = append(errs, s.validateEndpoints("local endpoint", s.LocalEndpoints)...)
	for _, e := range s.LocalEndpoints {
		if !e.Local {
			errs = append(errs, fmt.Errorf("local endpoint %s: is not on this node", e.Addr))
		}
	}
	errs = append(errs, s.validateServing()...)
	for _, p := range s.SourceRanges {
		if !p.IsValid() || FamilyOf(p.Addr()) != s.Family || p.Addr().Is4In6() {
			errs = append(errs, fmt.Errorf("source range %s: not a range of %s", p, s.Family))
		}
	}
	return errors.Join(errs...)
}

func (s ServicePort) validateEndpoints(what string, endpoints []Endpoint) []error {
	var errs []error
	var prev netip.AddrPort
	for _, e := range endpoints {
		if err := s.validateAddr(e.Addr, prev); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", what, e.Addr, err))
		}
		if e.Weight > MaxWeight {
			errs = append(errs, fmt.Errorf("%s %s: weight %d is over %d", what, e.Addr, e.Weight, MaxWeight))
		}
		prev = e.Addr
	}
	return errs
}

func (s ServicePort) validateServing() []error {
	var errs []error
	var prev netip.AddrPort
	for _, a := range s.Serving {
		if err := s.validateAddr(a, prev); err != nil {
			errs = append(errs, fmt.Errorf("serving endpoint %s: %w", a, err))
		}
		prev = a
	}
	return errs
}

func (s ServicePort) validateKey() []error {
	var errs []error
	for _, name := range []string{s.Namespace, s.Name, s.Port} {
		if !quotable(name) {
			errs = append(errs, fmt.Errorf("the name %q cannot be quoted in nft syntax", name))
		}
	}
	if s.Family != IPv4 && s.Family != IPv6 {
		errs = append(errs, fmt.Errorf("family %d is neither 4 nor 6", s.Family))
	}
	if s.Protocol != TCP && s.Protocol != UDP && s.Protocol != SCTP {
		errs = append(errs, fmt.Errorf("%s is not one of tcp, udp, sctp", s.Protocol))
	}
	return errs
}

func (s ServicePort) validateFrontend(f Frontend, prev netip.AddrPort) error {
	if f.Kind < ClusterIP || f.Kind > NodePort {
		return fmt.Errorf("unknown kind %d", f.Kind)
	}
	if f.Kind != NodePort {
		return s.validateAddr(f.Addr, prev)
	}
	switch {
	case f.Addr.Addr() != s.Family.unspecified():
		return errors.New("a NodePort has no address of its own")
	case f.Addr.Port() == 0:
		return errors.New("port 0")
	case f.Addr == prev:
		return errors.New("listed twice")
	}
	return nil
}

// validateAddr checks the address of a frontend or endpoint; prev is the one that
// sorts before it.
func (s ServicePort) validateAddr(a, prev netip.AddrPort) error {
	switch {
	case !a.IsValid() || a.Addr().IsUnspecified() || a.Addr().Is4In6() || a.Addr().Zone() != "":
		return errors.New("not a usable address")
	case FamilyOf(a.Addr()) != s.Family:
		return fmt.Errorf("not %s", s.Family)
	case a.Port() == 0:
		return errors.New("port 0")
	case a == prev:
		return errors.New("listed twice")
	}
	return nil
}

// quotable reports whether a name can stand in a comment of nft syntax. A quoted
// string knows no escapes there, it ends at the next quote; backslashes and what
// does not print are refused with it. No name that Kubernetes accepts has any of
// them, but names may come from elsewhere.
func quotable(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool {
		return r == '"' || r == '\\' || !unicode.IsPrint(r)
	})
}
