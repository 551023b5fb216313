// Package testnet builds the network that the end-to-end tests send packets
// through. Every host is a network namespace, all links are veth pairs:
//
//	pod-a ─┐                                          ┌─ pod-c
//	       ├─ node1 ─┐                        ┌─ node2 ─ pod-d
//	pod-b ─┘         │                        │       └─ pod-e
//	                 └──────── lan ───────────┘
//	                   │    │     │      │
//	              client client2 control sink
//
// The machines meet on a switch, a bridge in a namespace of its own
// (192.0.2.0/24 and 2001:db8:1::/64); a pod has a link to its node and no
// bridge. The clients send what is for service, external and load-balancer
// addresses to node1, and know no way to the pods; control does. The nodes'
// default route leads to sink, which answers nothing. No namespace but those
// made here is changed.
package testnet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
)

// Host is one host of the test network.
type Host struct {
	*namespace.Namespace
	// IPv4 and IPv6 are the host's addresses on eth0.
	IPv4, IPv6 netip.Addr
	// Node is the name of the node that a pod is on; empty for a machine.
	Node string

	others []netip.Addr
}

// Address returns the host's address on eth0 of the family of another address.
func (h *Host) Address(like netip.Addr) netip.Addr {
	if like.Is4() {
		return h.IPv4
	}
	return h.IPv6
}

// Addresses returns all addresses of the host, but for loopback and link-local
// ones; for a node these are also its ends of the pods' links.
func (h *Host) Addresses() []netip.Addr {
	return append([]netip.Addr{h.IPv4, h.IPv6}, h.others...)
}

// Network is the test network.
type Network struct {
	hosts map[string]*Host
	lan   *namespace.Namespace
}

// New builds the network. The caller closes it.
func New() (*Network, error) {
	n := &Network{hosts: map[string]*Host{}}
	if err := n.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("build the test network: %w", err), n.Close())
	}
	return n, nil
}

// Close takes the network down. Hosts in which there still are processes stay
// until these end.
func (n *Network) Close() error {
	var errs []error
	for _, host := range n.hosts {
		errs = append(errs, host.Close())
	}
	if n.lan != nil {
		errs = append(errs, n.lan.Close())
	}
	return errors.Join(errs...)
}

// Host returns a host by its name, nil if there is none.
func (n *Network) Host(name string) *Host { return n.hosts[name] }

// Names returns the names of all hosts that a packet can be sent from, sorted.
func (n *Network) Names() []string {
	var names []string
	for name := range n.hosts {
		if name != sink {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Owner returns the host that has an address, nil if none has.
func (n *Network) Owner(address netip.Addr) *Host {
	for _, host := range n.hosts {
		if slices.Contains(host.Addresses(), address) {
			return host
		}
	}
	return nil
}

func (n *Network) build() error {
	if err := n.addLAN(); err != nil {
		return err
	}
	for _, machine := range machines() {
		if err := n.addMachine(machine); err != nil {
			return fmt.Errorf("machine %s: %w", machine.name, err)
		}
	}
	for _, pod := range pods() {
		if err := n.addPod(pod); err != nil {
			return fmt.Errorf("pod %s: %w", pod.name, err)
		}
	}
	return nil
}

// addLAN makes the switch.
func (n *Network) addLAN() error {
	ns, err := namespace.New(lan)
	if err != nil {
		return err
	}
	n.lan = ns
	links, err := ns.Netlink()
	if err != nil {
		return err
	}
	defer links.Close()
	// Without a router that asks, a switch that listens to multicast
	// membership forgets who wants neighbour discovery.
	listen := false
	br := &netlink.Bridge{LinkAttrs: attributes(bridge), MulticastSnooping: &listen}
	if err := links.LinkAdd(br); err != nil {
		return fmt.Errorf("add the bridge: %w", err)
	}
	if err := links.LinkSetUp(br); err != nil {
		return fmt.Errorf("bring up the bridge: %w", err)
	}
	return nil
}

// addHost makes a host without interfaces.
func (n *Network) addHost(name string, address4, address6 netip.Addr, router bool) (*Host, error) {
	ns, err := namespace.New(name)
	if err != nil {
		return nil, err
	}
	host := &Host{Namespace: ns, IPv4: address4, IPv6: address6}
	n.hosts[name] = host
	settings := everyHost()
	if router {
		settings = append(settings, routerOnly()...)
	}
	for _, s := range settings {
		if err := ns.SetSysctl(s.key, s.value); err != nil {
			return nil, err
		}
	}
	return host, nil
}

// addMachine makes a host and connects it to the switch.
func (n *Network) addMachine(m machine) error {
	prefixes, err := parsePrefixes(m.address)
	if err != nil {
		return err
	}
	host, err := n.addHost(m.name, prefixes[0].Addr(), prefixes[1].Addr(), m.router)
	if err != nil {
		return err
	}
	port := "port-" + m.name
	if err := connect(host.Namespace, "eth0", n.lan, port); err != nil {
		return err
	}
	if err := plugIn(n.lan, port); err != nil {
		return err
	}
	return configure(host.Namespace, "eth0", prefixes, m.routes)
}

// addPod makes a host and connects it to its node.
func (n *Network) addPod(p pod) error {
	addresses, err := parseAddresses(p.address)
	if err != nil {
		return err
	}
	gateways, err := parseAddresses(gateway(p.node))
	if err != nil {
		return err
	}
	host, err := n.addHost(p.name, addresses[0], addresses[1], false)
	if err != nil {
		return err
	}
	host.Node = p.node
	node := n.hosts[p.node]
	end := "veth-" + p.name
	if err := connect(host.Namespace, "eth0", node.Namespace, end); err != nil {
		return err
	}
	for _, address := range gateways {
		if !slices.Contains(node.others, address) {
			node.others = append(node.others, address)
		}
	}
	atNode := []route{{to: single(addresses[0]).String()}, {to: single(addresses[1]).String()}}
	if err := configure(node.Namespace, end, singles(gateways), atNode); err != nil {
		return err
	}
	atPod := []route{
		{to: single(gateways[0]).String()}, {to: single(gateways[1]).String()},
		{to: everything4, via: gateways[0].String()}, {to: everything6, via: gateways[1].String()},
	}
	return configure(host.Namespace, "eth0", singles(addresses), atPod)
}
