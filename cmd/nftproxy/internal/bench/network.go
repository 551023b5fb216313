package bench

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AddNode gives the address of the node to an interface of a private namespace.
func AddNode(link netlink.Link) error { return addAddr(link, netip.MustParseAddr(nodeAddr)) }

func addAddr(link netlink.Link, addr netip.Addr) error {
	err := netlink.AddrAdd(link, &netlink.Addr{
		IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}, Flags: unix.IFA_F_NODAD,
	})
	if err != nil {
		return fmt.Errorf("add the address %s: %w", addr, err)
	}
	return nil
}
