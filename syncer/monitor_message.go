package syncer

import (
	"bytes"
	"encoding/binary"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
)

// newGeneration is the message that ends the notifications of a transaction.
const newGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN

// portOf returns the port ID in a message's header: of the socket that a notification
// is due to.
func portOf(message []byte) uint32 { return binary.NativeEndian.Uint32(message[12:]) }

// tableAttr is how the name of our table begins every notification about it: whatever
// the object, attribute 1 names its table and comes first (the nf_tables_fill functions
// of the kernel's net/netfilter/nf_tables_api.c).
const tableAttr = "\x01\x00" + rules.TableName + "\x00"

// isOurs reports whether the message is about one of our tables or what is in it. There
// may be very many that are not.
func isOurs(m message) bool {
	const nameAt = nfgenmsgBytes + 2 // after the attribute's length
	p := m.payload
	return len(p) >= nameAt+len(tableAttr) && (p[0] == unix.NFPROTO_IPV4 || p[0] == unix.NFPROTO_IPV6) &&
		m.messageType>>8 == unix.NFNL_SUBSYS_NFTABLES && bytes.HasPrefix(p[nameAt:], []byte(tableAttr))
}

// count adds a message that is ours to a change.
func count(c *ForeignChange, m message) {
	family := rules.IPv4
	if m.payload[0] == unix.NFPROTO_IPV6 {
		family = rules.IPv6
	}
	if !slices.Contains(c.Families, family) {
		c.Families = append(c.Families, family)
		slices.Sort(c.Families)
	}
	switch m.messageType & 0xff {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_NEWSET,
		unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_NEWOBJ, unix.NFT_MSG_NEWFLOWTABLE:
		c.Added++
	default: // nothing else is notified of but deletions, which have two kinds of messages
		c.Deleted++
	}
}

// parseGeneration reads who made a generation, as far as it says so.
func parseGeneration(payload []byte) (pid int, process string) {
	for b := payload[min(nfgenmsgBytes, len(payload)):]; ; {
		attr, value, _, rest, ok := cutAttr(b)
		if !ok {
			return pid, process
		}
		b = rest
		switch {
		case attr == unix.NFTA_GEN_PROC_PID && len(value) == 4:
			pid = int(binary.BigEndian.Uint32(value))
		case attr == unix.NFTA_GEN_PROC_NAME:
			name, _, _ := bytes.Cut(value, []byte{0})
			process = string(name)
		}
	}
}
