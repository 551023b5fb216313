package proxier

import (
	"fmt"
	"net/netip"

	netutils "k8s.io/utils/net"

	"github.com/nftproxy/nftproxy/rules"
)

// parseAddr parses an address as Kubernetes has always done: leading zeros are
// allowed and mean nothing, an IPv4-mapped IPv6 address is the IPv4 address.
func parseAddr(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		addr, _ = netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	}
	addr = addr.Unmap()
	switch {
	case !addr.IsValid():
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", text)
	case addr.IsUnspecified():
		return netip.Addr{}, fmt.Errorf("%q is not the address of anything", text)
	}
	return addr, nil
}

func parseAddrOf(family rules.Family, text string) (netip.Addr, error) {
	addr, err := parseAddr(text)
	if err == nil && rules.FamilyOf(addr) != family {
		return netip.Addr{}, fmt.Errorf("%q is not an %s address", text, family)
	}
	return addr, err
}

// parseRange parses a range of addresses as Kubernetes has always done: leading zeros
// and bits beyond the prefix mean nothing, a range of IPv4-mapped IPv6 addresses is
// that of the IPv4 addresses.
func parseRange(text string) (netip.Prefix, error) {
	_, network, err := netutils.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a range of addresses", text)
	}
	addr, _ := netip.AddrFromSlice(network.IP)
	bits, _ := network.Mask.Size()
	if addr.Is4In6() && bits >= 96 {
		addr, bits = addr.Unmap(), bits-96
	}
	return netip.PrefixFrom(addr, bits), nil
}

// parseRanges parses the ranges of a field of that name, and leaves out those that
// are none.
func parseRanges(field string, all []string) (ranges []netip.Prefix, errs []error) {
	for i, text := range all {
		prefix, err := parseRange(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s[%d]: %w", field, i, err))
			continue
		}
		ranges = append(ranges, prefix)
	}
	return ranges, errs
}

func familyOf(name string) (rules.Family, bool) {
	for _, f := range rules.Families() {
		if f.String() == name {
			return f, true
		}
	}
	return 0, false
}
