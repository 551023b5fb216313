package rules

import (
	"cmp"
	"net/netip"
)

// Key is an element's key. Which of its fields count is said by the set; the
// others are zero. It is comparable.
type Key struct {
	// Addr stands for every address in the key: the only key with two, that of
	// Hairpin, has the same address twice.
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
	Slot     uint32
	Range    netip.Prefix // of addresses, in place of a single one
}

// Compare orders keys by address, protocol, port, slot and range.
func (k Key) Compare(l Key) int {
	return cmp.Or(
		k.Addr.Compare(l.Addr),
		cmp.Compare(k.Protocol, l.Protocol),
		cmp.Compare(k.Port, l.Port),
		cmp.Compare(k.Slot, l.Slot),
		k.Range.Addr().Compare(l.Range.Addr()),
		cmp.Compare(k.Range.Bits(), l.Range.Bits()),
	)
}

// Element is an element of a set or map of one family's table.
type Element struct {
	Set SetID
	Key Key
	// Chain is where a map with verdicts sends a packet.
	Chain string
	// Endpoint is the value in a map of endpoints.
	Endpoint netip.AddrPort
	// Comment tells an administrator whose element this is. At most
	// MaxComment bytes.
	Comment string
}

// Compare orders elements by set and key.
func (e Element) Compare(f Element) int {
	return cmp.Or(cmp.Compare(e.Set, f.Set), e.Key.Compare(f.Key))
}

// MaxComment is the longest comment in bytes that nft accepts for an element
// (NFT_USERDATA_MAXLEN allows more, nft's parser does not).
const MaxComment = 128

// clipComment cuts a comment to MaxComment bytes without cutting a character.
func clipComment(s string) string {
	if len(s) <= MaxComment {
		return s
	}
	n := MaxComment
	for n > 0 && s[n]&0xC0 == 0x80 { // a continuation byte of UTF-8
		n--
	}
	return s[:n]
}
