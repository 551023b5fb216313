package syncer

import (
	"context"

	"github.com/nftproxy/nftproxy/rules"
)

// Examine is what Probe does with a kernel.
func Examine(ctx context.Context, cfg rules.Config, kernel prober) error {
	return examine(ctx, cfg, kernel)
}

// NewNetlinkWithBuffers is NewNetlink with socket buffers of other sizes, in bytes.
func NewNetlinkWithBuffers(netns, sendBuffer, receiveBuffer int) (*Netlink, error) {
	return newNetlink(rules.TableName, netns, sendBuffer, receiveBuffer)
}
