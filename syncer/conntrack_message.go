package syncer

import (
	"encoding/binary"
	"errors"
	"net/netip"

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
	b := appendRequest(nil, ctMessageGet, unix.NLM_F_DUMP, seq, addressFamily(q.family))
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
	b := appendRequest(buf, ctMessageDelete, unix.NLM_F_ACK, seq, f.family)
	b = append(b, f.tuple...)
	b = append(b, f.zone...)
	b = append(b, f.id...)
	return finish(b), nil
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
