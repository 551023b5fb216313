package syncer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
)

// What ctnetlink calls its messages and their attributes: enums of the kernel's
// include/uapi/linux/netfilter/nfnetlink_conntrack.h.
const (
	ctMessageNew    = unix.NFNL_SUBSYS_CTNETLINK << 8   // IPCTNL_MSG_CT_NEW, 0: an entry
	ctMessageGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET
	ctMessageDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2 // IPCTNL_MSG_CT_DELETE

	ctaTupleOrig  = 1
	ctaTupleReply = 2
	ctaID         = 12
	ctaZone       = 18
	ctaFilter     = 25

	ctaTupleIP    = 1 // of a tuple
	ctaTupleProto = 2

	ctaIPv4Src = 1 // of ctaTupleIP
	ctaIPv4Dst = 2
	ctaIPv6Src = 3
	ctaIPv6Dst = 4

	ctaProtoNum     = 1 // of ctaTupleProto
	ctaProtoSrcPort = 2
	ctaProtoDstPort = 3

	ctaFilterOrigFlags = 1 // of ctaFilter

	// Which attributes of the tuple a dump compares: net/netfilter/nf_internals.h, not
	// among the exported headers, but the meaning of an exported attribute.
	ctFilterProtoNum     = 1 << 3
	ctFilterProtoDstPort = 1 << 5
)

// The layout of netlink messages.
const (
	headerBytes   = unix.SizeofNlMsghdr
	nfgenmsgBytes = 4 // struct nfgenmsg: family, version, a 16-bit ID
	attrBytes     = unix.SizeofNlAttr
)

// flow is an entry of the conntrack table: what it takes to judge and to delete it.
type flow struct {
	protocol    rules.Protocol
	destination netip.AddrPort // of the original direction
	replySource netip.AddrPort // of the reply direction
	family      uint8
	// The attributes that name the entry, as the kernel wrote them: the original
	// tuple, zone and ID, the latter two if there are any. They share the memory of
	// the dump.
	tuple, zone, id []byte
}

// query says which flows a dump is about. The kernel may know less of it and return
// more.
type query struct {
	family   rules.Family
	protocol rules.Protocol
	port     uint16 // of the destination, 0 for any
}

// dumpRequest asks for the flows of a query.
//
// All kernels compare the family. Since 5.8 they compare those attributes of the
// original tuple that CTA_FILTER names; older ones ignore both. Ports are compared
// for UDP and TCP only. Addresses are left out: for those of IPv6 the comparison is
// the wrong way round (ctnetlink_filter_match_tuple, up to 6.18 at least).
func dumpRequest(seq uint32, q query, filter bool) []byte {
	b := appendHeader(nil, ctMessageGet, unix.NLM_F_DUMP, seq, addressFamily(q.family))
	if filter {
		flags := uint32(ctFilterProtoNum)
		b = appendNested(b, ctaTupleOrig, func(b []byte) []byte {
			return appendNested(b, ctaTupleProto, func(b []byte) []byte {
				b = appendAttr(b, ctaProtoNum, byte(q.protocol))
				if q.port != 0 {
					flags |= ctFilterProtoDstPort
					b = appendAttr(b, ctaProtoDstPort, byte(q.port>>8), byte(q.port))
				}
				return b
			})
		})
		b = appendNested(b, ctaFilter, func(b []byte) []byte {
			return appendAttr(b, ctaFilterOrigFlags, binary.NativeEndian.AppendUint32(nil, flags)...)
		})
	}
	return finish(b)
}

// deleteRequest asks for the deletion of one entry.
//
// It names the entry with the kernel's own words: a tuple may hold a zone that
// counts in its direction only. With the ID, the kernel refuses to delete an entry
// that has come in place of the one that was seen, unless that is in the very same
// memory (nf_ct_get_id).
//
// A request without a tuple would empty the whole table (ctnetlink_del_conntrack):
// never send one.
func deleteRequest(buf []byte, seq uint32, f *flow) ([]byte, error) {
	if len(f.tuple) <= attrBytes {
		return nil, errors.New("a conntrack entry without a tuple")
	}
	b := appendHeader(buf, ctMessageDelete, unix.NLM_F_ACK, seq, f.family)
	b = append(b, f.tuple...)
	b = append(b, f.zone...)
	b = append(b, f.id...)
	return finish(b), nil
}

func addressFamily(f rules.Family) uint8 {
	if f == rules.IPv4 {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// appendHeader begins a request in the empty b; finish ends it.
func appendHeader(b []byte, messageType, flags uint16, seq uint32, family uint8) []byte {
	b = binary.NativeEndian.AppendUint32(b, 0) // the length: see finish
	b = binary.NativeEndian.AppendUint16(b, messageType)
	b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST|flags)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0) // the kernel knows the sender
	return append(b, family, unix.NFNETLINK_V0, 0, 0)
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

// parse reads an entry and reports whether it is a whole one that has ports.
func (f *flow) parse(payload []byte) bool {
	*f = flow{}
	if len(payload) < nfgenmsgBytes {
		return false
	}
	f.family = payload[0]
	for b := payload[nfgenmsgBytes:]; ; {
		attr, value, whole, rest, ok := cutAttr(b)
		if !ok {
			break
		}
		b = rest
		switch attr {
		case ctaTupleOrig:
			f.tuple = whole
			f.protocol, _, f.destination = parseTuple(value)
		case ctaTupleReply:
			_, f.replySource, _ = parseTuple(value)
		case ctaZone:
			f.zone = whole
		case ctaID:
			f.id = whole
		}
	}
	return f.destination.IsValid() && f.replySource.IsValid()
}

// parseTuple reads one direction of an entry. What is missing stays invalid.
func parseTuple(b []byte) (p rules.Protocol, source, destination netip.AddrPort) {
	var from, to netip.Addr
	var fromPort, toPort uint16
	for {
		attr, value, _, rest, ok := cutAttr(b)
		if !ok {
			break
		}
		b = rest
		switch attr {
		case ctaTupleIP:
			from, to = parseAddrs(value)
		case ctaTupleProto:
			p, fromPort, toPort = parseProto(value)
		}
	}
	return p, netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort)
}

func parseAddrs(b []byte) (source, destination netip.Addr) {
	for {
		attr, value, _, rest, ok := cutAttr(b)
		if !ok {
			return source, destination
		}
		b = rest
		switch attr {
		case ctaIPv4Src, ctaIPv6Src:
			source, _ = netip.AddrFromSlice(value)
		case ctaIPv4Dst, ctaIPv6Dst:
			destination, _ = netip.AddrFromSlice(value)
		}
	}
}

func parseProto(b []byte) (p rules.Protocol, source, destination uint16) {
	for {
		attr, value, _, rest, ok := cutAttr(b)
		if !ok {
			return p, source, destination
		}
		b = rest
		switch {
		case attr == ctaProtoNum && len(value) == 1:
			p = rules.Protocol(value[0])
		case attr == ctaProtoSrcPort && len(value) == 2:
			source = binary.BigEndian.Uint16(value)
		case attr == ctaProtoDstPort && len(value) == 2:
			destination = binary.BigEndian.Uint16(value)
		}
	}
}
