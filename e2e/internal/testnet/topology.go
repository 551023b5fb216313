package testnet

import "net/netip"

// The hosts of the test network.
const (
	Node1   = "node1"   // runs the proxy under test
	Node2   = "node2"   // another node, without a proxy
	PodA    = "pod-a"   // on node1, like pod-b
	PodB    = "pod-b"   //
	PodC    = "pod-c"   // on node2, like pod-d and pod-e
	PodD    = "pod-d"   //
	PodE    = "pod-e"   //
	Client  = "client"  // a machine outside the cluster
	Client2 = "client2" // a second one
	Control = "control" // the cluster's control plane

	sink   = "sink" // the nodes' default router, which swallows everything
	lan    = "lan"  // the switch between the machines
	bridge = "br0"
)

// pair is an address of each family.
type pair struct{ v4, v6 string }

// machine is a host with a link to the switch.
type machine struct {
	name    string
	address pair // with the length of the network's prefix
	router  bool // forwards packets
	routes  []route
}

// route leads to a network, or everywhere: by way of another host, on the link
// itself if there is none, or nowhere.
type route struct {
	to, via string
	nowhere bool
}

// pod is a host behind a node, with a link of its own to it.
type pod struct {
	name, node string
	address    pair
}

// Where routes lead.
const (
	everything4 = "0.0.0.0/0"
	everything6 = "::/0"
	node1v4     = "192.0.2.1"
	node1v6     = "2001:db8:1::1"
	node2v4     = "192.0.2.2"
	node2v6     = "2001:db8:1::2"
	sinkv4      = "192.0.2.254"
	sinkv6      = "2001:db8:1::fe"
)

// machines returns the hosts with a link to the switch.
func machines() []machine {
	outside := []route{
		{to: "10.96.0.0/16", via: node1v4}, {to: "fd00:10:96::/112", via: node1v6}, // service addresses
		{to: "203.0.113.0/24", via: node1v4}, {to: "2001:db8:113::/64", via: node1v6}, // external and load-balancer addresses
	}
	return []machine{
		{name: sink, address: pair{sinkv4 + "/24", sinkv6 + "/64"}, routes: []route{
			{to: everything4, nowhere: true}, {to: everything6, nowhere: true},
		}},
		{name: Node1, router: true, address: pair{node1v4 + "/24", node1v6 + "/64"}, routes: []route{
			{to: "10.244.2.0/24", via: node2v4}, {to: "fd00:10:244:2::/64", via: node2v6},
			{to: everything4, via: sinkv4}, {to: everything6, via: sinkv6},
		}},
		{name: Node2, router: true, address: pair{node2v4 + "/24", node2v6 + "/64"}, routes: []route{
			{to: "10.244.1.0/24", via: node1v4}, {to: "fd00:10:244:1::/64", via: node1v6},
			{to: everything4, via: sinkv4}, {to: everything6, via: sinkv6},
		}},
		{name: Client, address: pair{"192.0.2.200/24", "2001:db8:1::200/64"}, routes: outside},
		{name: Client2, address: pair{"192.0.2.201/24", "2001:db8:1::201/64"}, routes: outside},
		{name: Control, address: pair{"192.0.2.10/24", "2001:db8:1::10/64"}, routes: []route{
			{to: "10.244.1.0/24", via: node1v4}, {to: "fd00:10:244:1::/64", via: node1v6},
			{to: "10.244.2.0/24", via: node2v4}, {to: "fd00:10:244:2::/64", via: node2v6},
		}},
	}
}

// pods returns the hosts behind the nodes.
func pods() []pod {
	return []pod{
		{PodA, Node1, pair{"10.244.1.10", "fd00:10:244:1::10"}},
		{PodB, Node1, pair{"10.244.1.11", "fd00:10:244:1::11"}},
		{PodC, Node2, pair{"10.244.2.10", "fd00:10:244:2::10"}},
		{PodD, Node2, pair{"10.244.2.11", "fd00:10:244:2::11"}},
		{PodE, Node2, pair{"10.244.2.12", "fd00:10:244:2::12"}},
	}
}

// gateway returns a node's own addresses on the links to its pods.
func gateway(node string) pair {
	if node == Node1 {
		return pair{"10.244.1.1", "fd00:10:244:1::1"}
	}
	return pair{"10.244.2.1", "fd00:10:244:2::1"}
}

// single returns the network that has an address and no other.
func single(address netip.Addr) netip.Prefix {
	return netip.PrefixFrom(address, address.BitLen())
}

// sysctl is a setting of a namespace.
type sysctl struct{ key, value string }

// everyHost returns the settings of every host: no duplicate address
// detection, no autoconfiguration, no redirects, no filter of source addresses,
// and no limit on ICMP errors. They are set before there are interfaces, since
// an interface takes the defaults of its time.
func everyHost() []sysctl {
	settings := []sysctl{
		{"net/ipv4/icmp_ratelimit", "0"},
		{"net/ipv4/icmp_ratemask", "0"},
		{"net/ipv6/icmp/ratelimit", "0"},
		{"net/ipv6/icmp/ratemask", ""},
	}
	for _, scope := range []string{"all", "default"} {
		v4, v6 := "net/ipv4/conf/"+scope+"/", "net/ipv6/conf/"+scope+"/"
		settings = append(settings,
			sysctl{v4 + "rp_filter", "0"},
			sysctl{v4 + "accept_redirects", "0"},
			sysctl{v4 + "send_redirects", "0"},
			sysctl{v6 + "disable_ipv6", "0"},
			sysctl{v6 + "accept_dad", "0"},
			sysctl{v6 + "accept_ra", "0"},
			sysctl{v6 + "accept_redirects", "0"},
			sysctl{v6 + "router_solicitations", "0"},
		)
	}
	return settings
}

// routerOnly returns the further settings of a host that forwards packets.
func routerOnly() []sysctl {
	return []sysctl{
		{"net/ipv4/ip_forward", "1"},
		{"net/ipv6/conf/all/forwarding", "1"},
	}
}
