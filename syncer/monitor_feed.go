package syncer

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// changeBuffer holds the notifications of another program that writes some 100,000
// elements in one batch, even if this process does not run meanwhile.
const changeBuffer = 32 << 20

// netlinkFeed is the real changeFeed.
type netlinkFeed struct{ *subscription }

func openChangeFeed(netns int) (changeFeed, error) {
	return newNetlinkFeed(netns, changeBuffer)
}

func newNetlinkFeed(netns, receiveBuffer int) (changeFeed, error) {
	s, err := subscribe(netns, unix.NETLINK_NETFILTER, 0, receiveBuffer)
	if err != nil {
		return nil, err
	}
	return netlinkFeed{s}, nil
}

func (f netlinkFeed) join() error {
	if err := f.conn.JoinGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return fmt.Errorf("subscribe to notifications of nf_tables: %w", err)
	}
	return nil
}

func (f netlinkFeed) leave() error {
	if err := f.conn.LeaveGroup(unix.NFNLGRP_NFTABLES); err != nil {
		return fmt.Errorf("unsubscribe from notifications of nf_tables: %w", err)
	}
	return nil
}

func (f netlinkFeed) ignore(ports []uint32) error {
	program, err := bpf.Assemble(ignoring(ports))
	if err != nil {
		return fmt.Errorf("assemble a filter of notifications: %w", err)
	}
	if err := f.conn.SetBPF(program); err != nil {
		return fmt.Errorf("attach a filter of notifications: %w", err)
	}
	return nil
}

// ignoring returns a socket filter that drops what is due to these port IDs, before it
// takes room in the receive buffer and before anyone wakes up. The kernel puts many
// messages into one datagram, but only of one transaction, and new generations into
// their own: the first header says it.
func ignoring(ports []uint32) []bpf.Instruction {
	const drop, take = 0, 1<<32 - 1 // bytes
	program := []bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 2}, // the type
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(swapped16(newGeneration)), SkipTrue: 1},
		bpf.RetConstant{Val: take},
		bpf.LoadAbsolute{Off: 12, Size: 4}, // the port ID
	}
	for _, port := range ports {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: swapped32(port), SkipTrue: 1},
			bpf.RetConstant{Val: drop})
	}
	return append(program, bpf.RetConstant{Val: take})
}

// Filters read numbers in network byte order, netlink has the host's.

func swapped16(n uint16) uint16 {
	return binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, n))
}

func swapped32(n uint32) uint32 {
	return binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, n))
}
