package syncer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
)

// This file builds and cuts messages to and from the kernel's netfilter. The libraries
// collect a whole dump; here it is read in the memory that it was received in.

// The layout of netlink messages.
const (
	headerBytes   = unix.SizeofNlMsghdr
	nfgenmsgBytes = 4 // struct nfgenmsg: family, version, a 16-bit ID
	attrBytes     = unix.SizeofNlAttr
)

func addressFamily(f rules.Family) uint8 {
	if f == rules.IPv4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// appendRequest begins a request in the empty b; finish ends it.
func appendRequest(b []byte, messageType, flags uint16, seq uint32, family uint8) []byte {
	return appendFamily(appendHeader(b, messageType, flags, seq), family, 0)
}

// appendHeader begins a message that is a request. Its length is not there yet.
func appendHeader(b []byte, messageType, flags uint16, seq uint32) []byte {
	b = binary.NativeEndian.AppendUint32(b, 0) // the length
	b = binary.NativeEndian.AppendUint16(b, messageType)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	return binary.NativeEndian.AppendUint32(b, 0) // the kernel knows the sender
}

// appendFamily appends struct nfgenmsg, which follows the header.
func appendFamily(b []byte, family uint8, id uint16) []byte {
	return binary.BigEndian.AppendUint16(append(b, family, unix.NFNETLINK_V0), id)
}

func finish(b []byte) []byte {
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

func appendAttr(b []byte, attr uint16, value ...byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, attrBytes+uint16(len(value)))
	b = binary.NativeEndian.AppendUint16(b, attr)
	b = append(b, value...)
	return append(b, make([]byte, align(len(value))-len(value))...)
}

// appendString appends an attribute with a text and the NUL at its end.
func appendString(b []byte, attr uint16, text string) []byte {
	b = binary.NativeEndian.AppendUint16(b, attrBytes+uint16(len(text)+1))
	b = append(binary.NativeEndian.AppendUint16(b, attr), text...)
	return append(b, make([]byte, align(len(text)+1)-len(text))...)
}

func appendNested(b []byte, attr uint16, content func(b []byte) []byte) []byte {
	start := len(b)
	b = content(appendAttr(b, unix.NLA_F_NESTED|attr))
	binary.NativeEndian.PutUint16(b[start:], uint16(len(b)-start))
	return b
}

func align(n int) int { return (n + 3) &^ 3 }

// message is a netlink message in the memory that it was received in.
type message struct {
	messageType, flags uint16
	seq                uint32
	payload            []byte
}

// errCut says that what was received is not made of whole messages.
var errCut = errors.New("a netlink message is not whole")

// cutMessage cuts the first message off what was received.
func cutMessage(b []byte) (m message, rest []byte, err error) {
	if len(b) < headerBytes {
		return m, nil, fmt.Errorf("%w: %d bytes", errCut, len(b))
	}
	length := int(binary.NativeEndian.Uint32(b))
	if length < headerBytes || length > len(b) {
		return m, nil, fmt.Errorf("%w: %d bytes of %d", errCut, len(b), length)
	}
	m = message{
		messageType: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]),
		seq: binary.NativeEndian.Uint32(b[8:]), payload: b[headerBytes:length],
	}
	return m, b[min(align(length), len(b)):], nil
}

// errno returns the error that a message of the types NLMSG_ERROR and NLMSG_DONE
// carries, nil if it is none.
func (m message) errno() error {
	if len(m.payload) < 4 {
		return nil
	}
	if errno := -int32(binary.NativeEndian.Uint32(m.payload)); errno > 0 {
		return syscall.Errno(errno)
	}
	return nil
}

// cutAttr cuts the first attribute off b: its type without flags, its value, and the
// attribute as a whole with its padding. At the end, and where the rest is no
// attribute, ok is false.
func cutAttr(b []byte) (attr uint16, value, whole, rest []byte, ok bool) {
	if len(b) < attrBytes {
		return 0, nil, nil, nil, false
	}
	length := int(binary.NativeEndian.Uint16(b))
	if length < attrBytes || length > len(b) {
		return 0, nil, nil, nil, false
	}
	end := min(align(length), len(b))
	attr = binary.NativeEndian.Uint16(b[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	return attr, b[attrBytes:length], b[:end], b[end:], true
}
