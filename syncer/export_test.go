package syncer

import "github.com/nftproxy/nftproxy/rules"

// NewNetlinkWithBuffers is NewNetlink with socket buffers of other sizes, in bytes.
func NewNetlinkWithBuffers(netns, sendBuffer, receiveBuffer int) (*Netlink, error) {
	return newNetlink(rules.TableName, netns, sendBuffer, receiveBuffer)
}
