package proxier

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
	"unique"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

func objectName(s string) types.NamespacedName {
	namespace, name, _ := strings.Cut(s, "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}

// port parses "name:number+nodePort/protocol"; the protocol is TCP if missing, the
// NodePort none.
func port(tb testing.TB, s string) Port {
	tb.Helper()
	p := Port{Protocol: rules.TCP}
	name, rest, _ := strings.Cut(s, ":")
	numbers, protocol, _ := strings.Cut(rest, "/")
	number, nodePort, found := strings.Cut(numbers, "+")
	if _, err := fmt.Sscan(number, &p.Number); err != nil {
		tb.Fatal(err)
	}
	if found {
		if _, err := fmt.Sscan(nodePort, &p.NodePort); err != nil {
			tb.Fatal(err)
		}
	}
	for _, q := range []rules.Protocol{rules.UDP, rules.SCTP} {
		if protocol == q.String() {
			p.Protocol = q
		}
	}
	p.Name = name
	return p
}

// newService makes "namespace/name" with addresses separated by spaces, ClusterIPs
// or after "lb=" or "external=" others, and ports as port parses them. The words
// internal-local and external-local among the addresses are the policies, "from=" and
// a range one of the sources that may use load balancers, "affinity=" and a duration
// the session affinity.
func newService(tb testing.TB, name, addrs string, ports ...string) *Service {
	tb.Helper()
	s := &Service{Name: objectName(name)}
	kinds := map[string]rules.FrontendKind{"": rules.ClusterIP, "lb": rules.LoadBalancerIP, "external": rules.ExternalIP}
	for _, a := range strings.Fields(addrs) {
		kind, text, found := strings.Cut(a, "=")
		switch {
		case a == "internal-local":
			s.InternalLocal = true
		case a == "external-local":
			s.ExternalLocal = true
		case kind == "from":
			s.Restricted = true
			if text != "" {
				s.SourceRanges = append(s.SourceRanges, netip.MustParsePrefix(text))
			}
		case kind == "affinity":
			var err error
			if s.Affinity, err = time.ParseDuration(text); err != nil {
				tb.Fatal(err)
			}
		case found:
			s.Addrs = append(s.Addrs, ServiceAddr{kinds[kind], netip.MustParseAddr(text)})
		default:
			s.Addrs = append(s.Addrs, ServiceAddr{rules.ClusterIP, netip.MustParseAddr(a)})
		}
	}
	for _, p := range ports {
		s.Ports = append(s.Ports, port(tb, p))
	}
	return s
}

func (s *Service) at(seconds int64) *Service {
	s.Created = time.Unix(seconds, 0)
	return s
}

func (s *Service) weigh(weights ...Weight) *Service {
	s.Weights = weights
	return s
}

// newSlice makes a slice of a Service with one port. Endpoints are addresses, each
// followed by letters: l local, n not ready, t terminating, d not serving; then by what
// else is said of it: for-node=here or for-node=elsewhere, for-zones=a,b, zone=, node=
// and pod=.
func newSlice(tb testing.TB, name, service, slicePort string, endpoints ...string) *EndpointSlice {
	tb.Helper()
	s := &EndpointSlice{
		Name: objectName(name), Service: service, Family: rules.IPv4, Weight: DefaultWeight,
		Ports: []Port{port(tb, slicePort)},
	}
	for _, text := range endpoints {
		addr, rest, _ := strings.Cut(text, " ")
		var letters strings.Builder
		attributes := map[string]string{}
		for _, word := range strings.Fields(rest) {
			if name, value, found := strings.Cut(word, "="); found {
				attributes[name] = value
			} else {
				letters.WriteString(word)
			}
		}
		flags := letters.String()
		e := SliceEndpoint{
			Addr: netip.MustParseAddr(addr), Local: strings.Contains(flags, "l"), Ready: !strings.ContainsAny(flags, "nt"),
			Serving: !strings.ContainsAny(flags, "d"), Terminating: strings.Contains(flags, "t"),
			NodeHinted: attributes["for-node"] != "", HintsHere: attributes["for-node"] == "here",
			ZoneHints: said(attributes["for-zones"]), Zone: said(attributes["zone"]), Node: said(attributes["node"]), Pod: attributes["pod"],
		}
		s.Family = rules.FamilyOf(e.Addr)
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// said returns the handle of a text, the zero one for none.
func said(text string) (h unique.Handle[string]) {
	if text != "" {
		h = unique.Make(text)
	}
	return h
}

// inZone is the change to a node in a zone, with addresses separated by spaces.
func inZone(zone, addrs string) Changes {
	node := &Node{Name: "here", Zone: zone}
	for _, a := range strings.Fields(addrs) {
		node.Addrs = append(node.Addrs, netip.MustParseAddr(a))
	}
	return Changes{Node: &NodeChange{node}}
}

func services(list ...*Service) (c Changes) {
	for _, s := range list {
		c.Services = append(c.Services, ServiceChange{s.Name, s})
	}
	return c
}

func endpointSlices(list ...*EndpointSlice) (c Changes) {
	for _, s := range list {
		c.Slices = append(c.Slices, SliceChange{s.Name, s})
	}
	return c
}

// describe prints a difference as "name (protocol, family): without [...], with [...]", and a
// service port as "name (protocol, family): frontends -> endpoints",
// the frontends followed by "from" source ranges and "for" an affinity, and under a policy Local followed by "; local endpoints" and, if it is served at all,
// "; served". An endpoint that is local ends in "*", a weight other than 1 follows as "=weight".
func describe(c syncer.Change) string {
	if c.Delta != nil {
		return fmt.Sprintf("%s: without %v, with %v", c.Key, c.Delta.Removed, c.Delta.Added)
	}
	if c.ServicePort == nil {
		return c.Key.String() + ": gone"
	}
	var b strings.Builder
	b.WriteString(c.Key.String() + ":")
	for _, f := range c.ServicePort.Frontends {
		b.WriteString(" " + f.Addr.String())
	}
	if c.ServicePort.Restricted {
		fmt.Fprintf(&b, " from %v", c.ServicePort.SourceRanges)
	}
	if c.ServicePort.Affinity != 0 {
		fmt.Fprintf(&b, " for %s", c.ServicePort.Affinity)
	}
	b.WriteString(" ->")
	describeEndpoints(&b, c.ServicePort.Endpoints)
	if c.ServicePort.LocalEndpoints != nil || c.ServicePort.InternalLocal || c.ServicePort.ExternalLocal {
		b.WriteString("; local")
		describeEndpoints(&b, c.ServicePort.LocalEndpoints)
		if c.ServicePort.Served {
			b.WriteString("; served")
		}
	}
	return b.String()
}

func describeEndpoints(b *strings.Builder, endpoints []rules.Endpoint) {
	for _, e := range endpoints {
		b.WriteString(" " + e.Addr.String())
		if e.Local {
			b.WriteString("*")
		}
		if e.Weight != DefaultWeight {
			fmt.Fprintf(b, "=%d", e.Weight)
		}
	}
}

func describeAll(changes []syncer.Change) []string {
	all := make([]string, len(changes))
	for i, c := range changes {
		all[i] = describe(c)
	}
	return all
}
