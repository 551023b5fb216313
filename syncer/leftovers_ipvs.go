package syncer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// ipvsInterface is the interface that has all addresses that kube-proxy serves in its
// mode ipvs, but for those of NodePorts. Whatever else that mode leaves is looked for
// only where there is this one, so it goes last.
const ipvsInterface = "kube-ipvs0"

// virtualServer is a virtual server of ipvs.
type virtualServer struct {
	addr   netip.AddrPort // port 0 and no address: one for marked packets
	real   []netip.AddrPort
	active int // connections
	remove func() error
}

// ipvs looks for what the mode ipvs leaves: virtual servers and the interface with their
// addresses.
func (s *sweep) ipvs(ctx context.Context) error {
	link, err := ipvsLink()
	if err != nil || link == nil {
		return err
	}
	addrs, err := linkAddrs(link)
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nothing was done: %w", err)
	}
	servers, done, err := virtualServers()
	if err != nil {
		return err
	}
	defer done()
	kept, err := s.removeServers(kubeProxyServers(servers, addrs))
	if err != nil {
		return err
	}
	if kept > 0 {
		s.kept("ipvs: %d virtual servers that established connections use, and the interface %s", kept, ipvsInterface)
		return nil
	}
	if s.remove {
		if err := netlink.LinkDel(link); err != nil {
			return fmt.Errorf("delete the interface %s: %w", ipvsInterface, err)
		}
	}
	s.found("interface %s", ipvsInterface)
	return nil
}

// removeServers removes virtual servers if that is asked for. It returns how many have
// to be kept.
func (s *sweep) removeServers(servers []virtualServer) (kept int, err error) {
	found := 0
	for _, v := range servers {
		if s.remove && s.drain && v.active > 0 {
			kept++
			continue
		}
		if s.remove {
			if err := v.remove(); err != nil && !errors.Is(err, unix.ESRCH) { // gone meanwhile
				return kept, fmt.Errorf("delete the virtual server %s: %w", v.addr, err)
			}
		}
		found++
	}
	if found > 0 {
		s.found("ipvs: %d virtual servers", found)
	}
	return kept, nil
}

// Kubernetes gives NodePorts from this range, unless it is told another one.
const firstNodePort, lastNodePort = 30000, 32767

// kubeProxyServers returns the virtual servers that are kube-proxy's: those at the
// addresses of its interface, and its NodePorts. These are at addresses of the node, so
// others may have servers there, as keepalived has them for API servers: a NodePort is
// what has a port of the usual range and real servers that all serve an address of the
// interface too.
func kubeProxyServers(servers []virtualServer, addrs []netip.Addr) []virtualServer {
	services := map[netip.AddrPort]bool{} // real servers of addresses of the interface
	for _, v := range servers {
		if slices.Contains(addrs, v.addr.Addr()) {
			for _, r := range v.real {
				services[r] = true
			}
		}
	}
	var list []virtualServer
	for _, v := range servers {
		port := v.addr.Port()
		nodePort := port >= firstNodePort && port <= lastNodePort && len(v.real) > 0 &&
			!slices.ContainsFunc(v.real, func(r netip.AddrPort) bool { return !services[r] })
		if nodePort || slices.Contains(addrs, v.addr.Addr()) {
			list = append(list, v)
		}
	}
	return list
}

// ipvsLink returns the interface, nil if there is none.
func ipvsLink() (netlink.Link, error) {
	link, err := netlink.LinkByName(ipvsInterface)
	var missing netlink.LinkNotFoundError
	switch {
	case errors.As(err, &missing):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("look for the interface %s: %w", ipvsInterface, err)
	}
	return link, nil
}

func linkAddrs(link netlink.Link) ([]netip.Addr, error) {
	list, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", ipvsInterface, err)
	}
	var addrs []netip.Addr
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			addrs = append(addrs, addr.Unmap())
		}
	}
	return addrs, nil
}

// virtualServers returns all virtual servers, none where the kernel has no ipvs. After
// their last use done is to be called.
func virtualServers() (servers []virtualServer, done func(), err error) {
	if _, err := netlink.GenlFamilyGet("IPVS"); err != nil {
		if errors.Is(err, unix.ENOENT) {
			return nil, func() {}, nil
		}
		return nil, nil, fmt.Errorf("look for ipvs in the kernel: %w", err)
	}
	handle, err := ipvs.New("")
	if err != nil {
		return nil, nil, fmt.Errorf("open a netlink socket for ipvs: %w", err)
	}
	services, err := handle.GetServices()
	if err != nil {
		handle.Close()
		return nil, nil, fmt.Errorf("list virtual servers: %w", err)
	}
	for _, service := range services {
		v := virtualServer{remove: func() error { return handle.DelService(service) }}
		if addr, ok := netip.AddrFromSlice(service.Address); ok && service.FWMark == 0 {
			v.addr = netip.AddrPortFrom(addr.Unmap(), service.Port)
		}
		destinations, err := handle.GetDestinations(service)
		if err != nil {
			handle.Close()
			return nil, nil, fmt.Errorf("list the real servers of %s: %w", v.addr, err)
		}
		for _, d := range destinations {
			if addr, ok := netip.AddrFromSlice(d.Address); ok {
				v.real = append(v.real, netip.AddrPortFrom(addr.Unmap(), d.Port))
			}
			v.active += d.ActiveConnections
		}
		servers = append(servers, v)
	}
	return servers, handle.Close, nil
}
