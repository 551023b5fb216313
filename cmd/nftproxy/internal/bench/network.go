package bench

import (
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/traffic"
)

// AddNode gives the address of the node to an interface of a private namespace.
func AddNode(link netlink.Link) error {
	return traffic.AddAddr(link, netip.MustParseAddr(nodeAddr)) //nolint:wrapcheck // says it all
}
