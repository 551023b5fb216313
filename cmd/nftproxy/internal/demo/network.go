package demo

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// network is the loopback interface of the private network namespace.
type network struct {
	lo netlink.Link
}

// addAddr makes an address one of this machine.
func (n *network) addAddr(addr netip.Addr) error {
	if err := netlink.AddrAdd(n.lo, loAddr(addr)); err != nil {
		return fmt.Errorf("add the address %s: %w", addr, err)
	}
	return nil
}

func loAddr(addr netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: hostNet(addr), Flags: unix.IFA_F_NODAD}
}

func hostNet(addr netip.Addr) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
}
