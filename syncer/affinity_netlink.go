package syncer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
)

// remembered is an element of a map of clients.
type remembered struct {
	client   netip.Addr
	endpoint netip.AddrPort
}

// clientTable is the kernel's maps of clients, open for one pass.
type clientTable interface {
	// dump calls visit with every element of a map, perhaps with some twice, and with not
	// all if clients come meanwhile; the error of visit ends the dump. With any error
	// some may have been left out. ENOENT says that there is no such map.
	dump(ctx context.Context, name familyName, visit func(r remembered) error) error
	// forget deletes clients, all or none. ENOENT says that one of them, or the map, is
	// not there any more.
	forget(ctx context.Context, name familyName, clients []netip.Addr) error
	close() error
}

// What nf_tables calls its messages of elements.
const (
	elementsNew = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWSETELEM
	elementsGet = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_GETSETELEM
)

// netlinkClients is the real clientTable. It dumps by itself: the library collects the
// whole dump, does not see that it was interrupted, and loses the number of an error.
type netlinkClients struct {
	dumps *rawSocket
	netns int
	// deletes is opened when there is something to delete. It stays open for the whole pass:
	// a Monitor has to find whose deletions they are.
	deletes *libraryConn
}

// openNetlinkClients opens the maps of a network namespace, see NewNetlink.
func openNetlinkClients(netns int) (clientTable, error) {
	dumps, err := newRawSocket(netns, dumpBytes)
	if err != nil {
		return nil, err
	}
	return &netlinkClients{dumps: dumps, netns: netns}, nil
}

func (t *netlinkClients) close() error {
	err := t.dumps.close()
	if t.deletes != nil {
		err = errors.Join(err, t.deletes.close())
	}
	return err
}

func (t *netlinkClients) dump(ctx context.Context, name familyName, visit func(r remembered) error) error {
	err := t.dumps.dump(ctx, elementsRequest(t.dumps.next(), name), elementsNew, func(payload []byte) error {
		return eachClient(payload, name.family, visit)
	})
	if err != nil {
		return fmt.Errorf("read the clients: %w", err)
	}
	return nil
}

// elementsRequest asks for all elements of a set or map.
func elementsRequest(seq uint32, name familyName) []byte {
	b := appendRequest(nil, elementsGet, unix.NLM_F_DUMP, seq, addressFamily(name.family))
	b = appendString(b, unix.NFTA_SET_ELEM_LIST_TABLE, rules.TableName)
	b = appendString(b, unix.NFTA_SET_ELEM_LIST_SET, name.name)
	return finish(b)
}

// errNoClient says that a map holds something else than clients and endpoints.
var errNoClient = errors.New("an element is not a client with an endpoint: another program has made this map, delete it")

// eachClient calls visit for every element in a message.
func eachClient(payload []byte, f rules.Family, visit func(r remembered) error) error {
	if len(payload) < nfgenmsgBytes {
		return errCut
	}
	for elements := nestedIn(payload[nfgenmsgBytes:], unix.NFTA_SET_ELEM_LIST_ELEMENTS); ; {
		attr, element, _, rest, ok := cutAttr(elements)
		if !ok {
			return nil
		}
		elements = rest
		if attr != unix.NFTA_LIST_ELEM {
			continue
		}
		r, ok := parseClient(element, f)
		if !ok {
			return errNoClient
		}
		if err := visit(r); err != nil {
			return err
		}
	}
}

// nestedIn returns the value of the first attribute of a type, nil if there is none.
func nestedIn(b []byte, want uint16) []byte {
	for {
		attr, value, _, rest, ok := cutAttr(b)
		if !ok || attr == want {
			return value
		}
		b = rest
	}
}

// parseClient reads an element: the key is an address, the value an address and a port
// that is padded to four bytes.
func parseClient(element []byte, f rules.Family) (r remembered, ok bool) {
	addrBytes := 4
	if f == rules.IPv6 {
		addrBytes = 16
	}
	key := nestedIn(nestedIn(element, unix.NFTA_SET_ELEM_KEY), unix.NFTA_DATA_VALUE)
	value := nestedIn(nestedIn(element, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VALUE)
	if len(key) != addrBytes || len(value) != addrBytes+4 {
		return r, false
	}
	r.client, _ = netip.AddrFromSlice(key)
	addr, _ := netip.AddrFromSlice(value[:addrBytes])
	r.endpoint = netip.AddrPortFrom(addr, binary.BigEndian.Uint16(value[addrBytes:]))
	return r, true
}

func (t *netlinkClients) forget(ctx context.Context, name familyName, clients []netip.Addr) error {
	elements := make([]nftables.SetElement, len(clients))
	for i, c := range clients {
		elements[i].Key = c.AsSlice()
	}
	err := t.open()
	if err != nil {
		return err
	}
	err = t.deletes.use(ctx, func(conn *nftables.Conn) error {
		set := &nftables.Set{Table: rules.EncodeTable(name.family), Name: name.name}
		if err := conn.SetDeleteElements(set, elements); err != nil {
			return err //nolint:wrapcheck // see below
		}
		return conn.Flush() //nolint:wrapcheck // see below
	})
	if err != nil {
		return fmt.Errorf("forget clients: %w", err)
	}
	return nil
}

// open opens what deletes, if it is not open.
func (t *netlinkClients) open() (err error) {
	if t.deletes == nil {
		t.deletes, err = openLibraryConn(t.netns)
	}
	return err
}
