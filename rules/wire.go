package rules

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// This file says elements in netlink attributes, straight into the message that is sent.
// Almost all that is ever sent is elements, and google/nftables makes five allocations
// for each and copies it four times.

const (
	attrHeader = unix.SizeofNlAttr
	// listElem is NFTA_LIST_ELEM, an element of a list.
	listElem = 1
	// commentType is NFTNL_UDATA_SET_ELEM_COMMENT: what nft shows as an element's comment.
	commentType = 0
)

// EncodeElements appends to a message about the elements of one set the attribute
// NFTA_SET_ELEM_LIST_ELEMENTS: elements with their values and comments. An element that
// is a range and has no other field is two there, its begin and its end. It must not be
// longer than 65,535 bytes; at most 300 for each element are.
func EncodeElements(b []byte, elements []Element) []byte { return encodeList(b, elements, true) }

// EncodeKeys is EncodeElements without values and comments, as a deletion wants it.
func EncodeKeys(b []byte, elements []Element) []byte { return encodeList(b, elements, false) }

func encodeList(b []byte, elements []Element, values bool) []byte {
	if len(elements) == 0 {
		return b
	}
	set := elements[0].Set.Set()
	b, list := openAttr(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	for i := range elements {
		if set.interval() && len(set.Key) == 1 {
			b = encodeRange(b, elements[i].Key.Range)
		} else {
			b = encodeElement(b, set, &elements[i], values)
		}
	}
	return closeAttr(b, list)
}

// encodeRange appends two elements: one where a range begins and one where it ends. What
// reaches to the last address of all has no end.
func encodeRange(b []byte, p netip.Prefix) []byte {
	b, begin := openAttr(b, listElem)
	b, key := openData(b, unix.NFTA_SET_ELEM_KEY)
	b = closeAttr(closeAttr(appendAddr(b, p.Addr()), key.value), key.data)
	b = closeAttr(b, begin)
	after := lastAddr(p).Next()
	if !after.IsValid() {
		return b
	}
	b, end := openAttr(b, listElem)
	b = binary.BigEndian.AppendUint32(appendAttrHeader(b, unix.NFTA_SET_ELEM_FLAGS, 4), unix.NFT_SET_ELEM_INTERVAL_END)
	b, key = openData(b, unix.NFTA_SET_ELEM_KEY)
	b = closeAttr(closeAttr(appendAddr(b, after), key.value), key.data)
	return closeAttr(b, end)
}

func encodeElement(b []byte, set Set, e *Element, values bool) []byte {
	b, element := openAttr(b, listElem)
	b, key := openData(b, unix.NFTA_SET_ELEM_KEY)
	b = closeAttr(closeAttr(e.appendWireKey(b, set.Key, false), key.value), key.data)
	if set.interval() { // the other end of the range; the other fields are equal
		b, key = openData(b, setElemKeyEnd)
		b = closeAttr(closeAttr(e.appendWireKey(b, set.Key, true), key.value), key.data)
	}
	if values && !set.interval() { // those have neither
		b = encodeValue(b, set.Value, e)
		if e.Comment != "" {
			b = encodeComment(b, e.Comment)
		}
	}
	return closeAttr(b, element)
}

// setElemKeyEnd is NFTA_SET_ELEM_KEY_END.
const setElemKeyEnd = 10

func encodeValue(b []byte, value ValueType, e *Element) []byte {
	switch value {
	case VerdictValue:
		b, data := openAttr(b, unix.NFTA_SET_ELEM_DATA)
		b, verdict := openAttr(b, unix.NFTA_DATA_VERDICT)
		const goTo = 1<<32 + unix.NFT_GOTO // which is negative
		b = binary.BigEndian.AppendUint32(appendAttrHeader(b, unix.NFTA_VERDICT_CODE, 4), goTo)
		b = append(appendAttrHeader(b, unix.NFTA_VERDICT_CHAIN, len(e.Chain)+1), e.Chain...)
		b = pad(append(b, 0))
		return closeAttr(closeAttr(b, verdict), data)
	case EndpointValue:
		b, data := openData(b, unix.NFTA_SET_ELEM_DATA)
		b = appendPort(appendAddr(b, e.Endpoint.Addr()), e.Endpoint.Port())
		return closeAttr(closeAttr(b, data.value), data.data)
	default:
		return b
	}
}

// encodeComment appends the comment as nft keeps it: type, length and text with a NUL at
// its end.
func encodeComment(b []byte, comment string) []byte {
	b = appendAttrHeader(b, unix.NFTA_SET_ELEM_USERDATA, 2+len(comment)+1)
	b = append(b, commentType, byte(len(comment)+1))
	return pad(append(append(b, comment...), 0))
}

// appendAttrHeader appends the header of an attribute that is not nested; length is that
// of what follows.
func appendAttrHeader(b []byte, attr uint16, length int) []byte {
	b = binary.NativeEndian.AppendUint16(b, attrHeader+uint16(length))
	return binary.NativeEndian.AppendUint16(b, attr)
}

// openAttr begins a nested attribute at the position that it returns.
func openAttr(b []byte, attr uint16) ([]byte, int) {
	return appendAttrHeader(b, unix.NLA_F_NESTED|attr, 0), len(b)
}

// openedData are the positions of a nested attribute and of the value that begins in it.
type openedData struct{ data, value int }

// openData begins a nested attribute with a value in it.
func openData(b []byte, attr uint16) ([]byte, openedData) {
	b, data := openAttr(b, attr)
	return appendAttrHeader(b, unix.NFTA_DATA_VALUE, 0), openedData{data, len(b)}
}

// closeAttr ends an attribute that began at the position. All that are in use have a
// multiple of four bytes.
func closeAttr(b []byte, start int) []byte {
	binary.NativeEndian.PutUint16(b[start:], uint16(len(b)-start))
	return b
}

// pad appends zeros up to a multiple of four bytes. What precedes the message in b is one.
func pad(b []byte) []byte {
	for len(b)%unix.NLA_ALIGNTO != 0 {
		b = append(b, 0)
	}
	return b
}
