package rules_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/rules"
)

// The networks of random clusters: address(family, network, host, port).
const (
	nodeNet, serviceNet, externalNet, loadBalancerNet = 1, 96, 113, 114
	clientNet, serverNet, podNet                      = 203, 204, 244 // clients and servers outside of the cluster
)

// Hosts of podNet.
const (
	localPod     = 0x101 // the first pod of this node
	podGateway   = 0x1fe // this node's own address among its pods
	remoteServer = 0x201 // the first pod of other nodes that serves
	remoteClient = 0x301
)

// podInterfaces are the interfaces behind which the pods of this node are; everything else comes
// through "eth0".
func podInterfaces() []string { return []string{"cni0", "veth1", "veth2"} }

// generator makes up clusters and packets.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 1))} }

// one returns true once in n times.
func (g generator) one(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g generator, list ...T) T { return list[g.IntN(len(list))] }

// some returns a random part of a list, in random order.
func some[T any](g generator, list []T) []T {
	list = slices.Clone(list)
	g.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	return list[:g.IntN(len(list)+1)]
}

// cluster makes up service ports of both families, of which some know nobody that serves,
// and everything that the node is told.
func (g generator) cluster() *cluster {
	c := &cluster{config: g.config(), nodes: map[rules.Family]rules.Node{}, clients: map[client]netip.AddrPort{}}
	for _, f := range rules.Families() {
		own := nodeAddrs(f)
		c.host.Addresses = append(c.host.Addresses, own...)
		node := rules.Node{Family: f, NodePortIPs: some(g, own)}
		if !g.one(3) {
			node.ServiceCIDRs = []netip.Prefix{network(f, serviceNet, 0, 0), network(f, serviceNet, 0, 4)}
		}
		c.nodes[f] = node
		for range 4 + g.IntN(6) {
			c.services = append(c.services, g.servicePort(c, f))
		}
	}
	return c
}

// nodeAddrs are the node's addresses, of which one is among those of its pods.
func nodeAddrs(f rules.Family) []netip.Addr {
	return []netip.Addr{address(f, nodeNet, 1, 1).Addr(), address(f, nodeNet, 2, 1).Addr(), address(f, podNet, podGateway, 1).Addr()}
}

// network returns the range of a network from a host on that leaves out this many of its
// address's last 16 bits, or with all the whole network.
func network(f rules.Family, net, host, hostBits int) netip.Prefix {
	bits := address(f, net, host, 1).Addr().BitLen() - hostBits
	if hostBits == 0 {
		bits = map[rules.Family]int{rules.IPv4: 16, rules.IPv6: 32}[f]
	}
	return netip.PrefixFrom(address(f, net, host, 1).Addr(), bits).Masked()
}

func (g generator) config() rules.Config {
	cfg := rules.Config{MasqueradeAll: g.one(4), MasqueradeMark: pick[uint32](g, 0, 1, 1<<14, 1<<31)}
	switch g.IntN(8) {
	case 0, 1:
		cfg.ClusterCIDRs = []netip.Prefix{network(rules.IPv4, podNet, 0, 0), network(rules.IPv6, podNet, 0, 0)}
	case 2:
		cfg.ClusterCIDRs = []netip.Prefix{network(rules.IPv4, podNet, 0, 0)}
	case 3: // two ranges of one family
		cfg.ClusterCIDRs = []netip.Prefix{network(rules.IPv6, podNet, localPod, 8), network(rules.IPv6, podNet, remoteClient, 8)}
	case 4:
		cfg.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}
	case 5:
		cfg.PodInterface = podInterfaces()[0]
	case 6:
		cfg.PodInterfacePrefix = "veth"
	default: // it is not known what is a pod
	}
	cfg.NodePortsEverywhere = some(g, rules.Families())
	return cfg
}

// servicePort makes up a service port whose frontends no other one of the cluster has.
func (g generator) servicePort(c *cluster, f rules.Family) rules.ServicePort {
	sp := rules.ServicePort{
		ServicePortKey: rules.ServicePortKey{
			ServicePortName: rules.ServicePortName{
				Namespace: "default", Name: fmt.Sprintf("svc-%d", len(c.services)), Protocol: pick(g, rules.TCP, rules.TCP, rules.UDP, rules.SCTP),
			},
			Family: f,
		},
		InternalLocal: g.one(3), ExternalLocal: g.one(2), Served: g.one(2),
	}
	port := pick(g, 53, 80, 443)
	g.frontend(c, &sp, rules.ClusterIP, address(f, serviceNet, 1+g.IntN(8), port))
	for range g.IntN(3) {
		g.frontend(c, &sp, rules.ExternalIP, address(f, externalNet, 1+g.IntN(8), port))
		g.frontend(c, &sp, rules.LoadBalancerIP, address(f, loadBalancerNet, 1+g.IntN(8), port))
	}
	if g.one(4) { // an address of the node itself
		g.frontend(c, &sp, rules.ExternalIP, netip.AddrPortFrom(pick(g, nodeAddrs(f)...), uint16(port)))
	}
	if g.one(2) {
		unspecified := netip.IPv4Unspecified()
		if f == rules.IPv6 {
			unspecified = netip.IPv6Unspecified()
		}
		g.frontend(c, &sp, rules.NodePort, netip.AddrPortFrom(unspecified, uint16(30001+len(c.services))))
	}
	if sp.Restricted = g.one(2); sp.Restricted {
		sp.SourceRanges = some(g, []netip.Prefix{
			network(f, clientNet, 0, 7), network(f, clientNet, 0, 6), network(f, podNet, 0, 0), network(f, nodeNet, 1, 4),
		})
	}
	g.endpoints(&sp)
	if g.one(3) {
		sp.Affinity = time.Hour
		g.remember(c, sp)
	}
	return sp
}

func (g generator) frontend(c *cluster, sp *rules.ServicePort, kind rules.FrontendKind, addr netip.AddrPort) {
	taken := slices.ContainsFunc(append(slices.Clone(c.services), *sp), func(o rules.ServicePort) bool {
		return o.Protocol == sp.Protocol && slices.ContainsFunc(o.Frontends, func(f rules.Frontend) bool { return f.Addr == addr })
	})
	if !taken {
		sp.Frontends = append(sp.Frontends, rules.Frontend{Kind: kind, Addr: addr})
	}
}

// endpoints adds endpoints on this node, the node itself among them, and elsewhere.
func (g generator) endpoints(sp *rules.ServicePort) {
	equal := g.one(2)
	add := func(list *[]rules.Endpoint, local bool, network, host int) {
		e := rules.Endpoint{Addr: address(sp.Family, network, host, 8080+g.IntN(2)), Weight: 1, Local: local}
		if !equal {
			e.Weight = uint16(g.IntN(4))
		}
		*list = append(*list, e)
	}
	if g.one(4) {
		return
	}
	for i := range podInterfaces() {
		for _, list := range []*[]rules.Endpoint{&sp.Endpoints, &sp.LocalEndpoints} {
			if g.one(3) {
				add(list, true, podNet, localPod+i)
			}
		}
	}
	if g.one(4) {
		add(pick(g, &sp.Endpoints, &sp.LocalEndpoints), true, nodeNet, 1)
	}
	for i := range g.IntN(5) {
		add(&sp.Endpoints, false, podNet, remoteServer+i)
	}
}

// remember lets the service port have met some clients.
func (g generator) remember(c *cluster, sp rules.ServicePort) {
	for _, source := range some(g, g.sources(sp.Family)) {
		for local, endpoints := range map[bool][]rules.Endpoint{false: sp.Endpoints, true: sp.LocalEndpoints} {
			used := shares(endpoints)
			i := slices.IndexFunc(endpoints, func(e rules.Endpoint) bool { return used[e.Addr] > 0 })
			if i >= 0 {
				c.clients[client{sp.ServicePortKey, local, source.Source.Addr()}] = endpoints[i].Addr
			}
		}
	}
}

// sources are where packets come from, as packets without anything else: the pods of
// this node, other nodes' pods, the node itself and clients outside.
func (g generator) sources(f rules.Family) []rules.Packet {
	var list []rules.Packet
	for i, name := range podInterfaces() {
		list = append(list, rules.Packet{Source: address(f, podNet, localPod+i, 1), Interface: name})
	}
	for _, a := range nodeAddrs(f) {
		list = append(list, rules.Packet{Source: netip.AddrPortFrom(a, 1)})
	}
	list = append(list, rules.Packet{Source: address(f, podNet, remoteClient, 1), Interface: "eth0"})
	for _, host := range []int{1, 100, 200} {
		list = append(list, rules.Packet{Source: address(f, clientNet, host, 1), Interface: "eth0"})
	}
	return list
}

// packet makes up a packet of a family, most often to something of the cluster.
func (g generator) packet(c *cluster, f rules.Family) rules.Packet {
	p := pick(g, g.sources(f)...)
	p.Source = netip.AddrPortFrom(p.Source.Addr(), uint16(32768+g.IntN(1<<15)))
	p.Protocol = pick(g, rules.TCP, rules.UDP, rules.SCTP)
	if g.one(8) {
		p.Mark = pick(g, 2, c.mark(), c.mark()|2)
	}
	switch g.IntN(8) {
	case 0:
		p.Dest = pick(g,
			address(f, serviceNet, 200, 80), address(f, serviceNet, 20, 80), address(f, externalNet, 1, 9),
			address(f, serverNet, 1, 80), address(f, podNet, localPod, 8080), address(f, podNet, remoteServer, 8080))
	case 1:
		p.Dest = netip.AddrPortFrom(g.nodeAddr(f, p), uint16(pick(g, 22, 80, 53, 8080, 30001)))
	default:
		g.towards(c, f, &p)
	}
	if p.Dest.Addr() == p.Source.Addr() && p.Interface != "" { // would not reach the node
		p.Dest = address(f, serverNet, 1, 80)
	}
	return p
}

// towards sends a packet to a frontend, or past it.
func (g generator) towards(c *cluster, f rules.Family, p *rules.Packet) {
	sp := pick(g, slices.DeleteFunc(slices.Clone(c.services), func(sp rules.ServicePort) bool {
		return sp.Family != f || len(sp.Frontends) == 0
	})...)
	frontend := pick(g, sp.Frontends...)
	addr, port := frontend.Addr.Addr(), frontend.Addr.Port()
	if frontend.Kind == rules.NodePort {
		addr = g.nodeAddr(f, *p)
		if g.one(8) { // just another host that listens there
			addr = address(f, serverNet, 1, 1).Addr()
		}
	}
	if !g.one(8) {
		p.Protocol = sp.Protocol
	}
	if g.one(8) {
		port = 9
	}
	p.Dest = netip.AddrPortFrom(addr, port)
}

// nodeAddr returns an address of the node to which the packet may be: the loopback one is
// only for the node.
func (g generator) nodeAddr(f rules.Family, p rules.Packet) netip.Addr {
	if p.Interface != "" || !g.one(4) {
		return pick(g, nodeAddrs(f)...)
	}
	if f == rules.IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// compile makes the ruleset of a cluster. Its slot tables have holes: the endpoints were
// more and others before.
func (g generator) compile(t *testing.T, c *cluster) *rules.Ruleset {
	t.Helper()
	var services []*rules.Compiled
	for _, sp := range c.services {
		var compiled *rules.Compiled
		before := sp
		for i := range g.IntN(6) {
			before.Endpoints = append(slices.Clone(before.Endpoints), rules.Endpoint{
				Addr: address(sp.Family, podNet, remoteServer+100+i, 80), Weight: 1,
			})
		}
		for _, step := range []rules.ServicePort{before, sp} {
			var err error
			if compiled, err = rules.Compile(c.config, step, compiled); err != nil {
				t.Fatal(err)
			}
		}
		services = append(services, compiled)
	}
	for _, f := range rules.Families() {
		node, err := rules.CompileNode(c.nodes[f])
		if err != nil {
			t.Fatal(err)
		}
		services = append(services, node)
	}
	return rules.NewRuleset(c.config, services)
}

// remembered returns what the maps of session affinity hold.
func (c *cluster) remembered(r *rules.Ruleset) rules.Clients {
	clients := rules.Clients{}
	for _, compiled := range r.Services {
		tables := compiled.AffinityTables()
		for _, local := range []bool{false, true} {
			if len(tables) == 0 || !local && len(compiled.Slots) == 0 {
				continue
			}
			table := map[netip.Addr]netip.AddrPort{}
			for who, endpoint := range c.clients {
				if who.service == compiled.ServicePortKey && who.local == local {
					table[who.addr] = endpoint
				}
			}
			clients[tables[0].Map], tables = table, tables[1:]
		}
	}
	return clients
}
