package syncer

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// elementsMessage is an answer with elements of a map, as the kernel makes it: with
// attributes that nobody asked for, and no two in an order that matters.
func elementsMessage(f rules.Family, elements ...[2][]byte) []byte {
	b := appendRequest(nil, elementsNew, 0, 1, addressFamily(f))
	b = appendAttr(b, unix.NFTA_SET_ELEM_LIST_TABLE, []byte(rules.TableName+"\x00")...)
	b = appendAttr(b, unix.NFTA_SET_ELEM_LIST_SET, []byte("affinity-0123456789abcdef\x00")...)
	b = appendNested(b, unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(b []byte) []byte {
		for _, e := range elements {
			b = appendNested(b, unix.NFTA_LIST_ELEM, func(b []byte) []byte {
				b = appendAttr(b, unix.NFTA_SET_ELEM_TIMEOUT, 0, 0, 0, 0, 0, 0, 1, 0)
				b = appendNested(b, unix.NFTA_SET_ELEM_KEY, func(b []byte) []byte { return appendAttr(b, unix.NFTA_DATA_VALUE, e[0]...) })
				return appendNested(b, unix.NFTA_SET_ELEM_DATA, func(b []byte) []byte { return appendAttr(b, unix.NFTA_DATA_VALUE, e[1]...) })
			})
		}
		return b
	})
	return finish(b)
}

// payloadOf returns what follows a message's header.
func payloadOf(b []byte) []byte { return b[headerBytes:] }

func TestEachClient(t *testing.T) {
	v6 := func(last byte, more ...byte) []byte {
		return append([]byte{0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last}, more...)
	}
	tests := map[string]struct {
		family   rules.Family
		elements [][2][]byte
		want     []string
		err      error
	}{
		"none": {family: rules.IPv4},
		"IPv4": {rules.IPv4, [][2][]byte{
			{{192, 0, 2, 1}, {10, 244, 0, 1, 0x1f, 0x90, 0, 0}}, {{192, 0, 2, 2}, {10, 244, 0, 2, 0, 80, 0, 0}},
		}, []string{"192.0.2.1 10.244.0.1:8080", "192.0.2.2 10.244.0.2:80"}, nil},
		"IPv6":            {rules.IPv6, [][2][]byte{{v6(1), v6(2, 0x1f, 0x90, 0, 0)}}, []string{"2001:db8::1 [2001:db8::2]:8080"}, nil},
		"no value":        {rules.IPv4, [][2][]byte{{{192, 0, 2, 1}, nil}}, nil, errNoClient},
		"another value":   {rules.IPv4, [][2][]byte{{{192, 0, 2, 1}, {10, 244, 0, 1}}}, nil, errNoClient},
		"another key":     {rules.IPv4, [][2][]byte{{{192, 0, 2, 1, 0, 80, 0, 0}, {10, 244, 0, 1, 0, 80, 0, 0}}}, nil, errNoClient},
		"another family":  {rules.IPv4, [][2][]byte{{v6(1), v6(2, 0x1f, 0x90, 0, 0)}}, nil, errNoClient},
		"good before bad": {rules.IPv4, [][2][]byte{{{192, 0, 2, 1}, {10, 244, 0, 1, 0, 80, 0, 0}}, {}}, []string{"192.0.2.1 10.244.0.1:80"}, errNoClient},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			err := eachClient(payloadOf(elementsMessage(test.family, test.elements...)), test.family, func(r remembered) error {
				got = append(got, fmt.Sprint(r.client, r.endpoint))
				return nil
			})
			if diff := cmp.Diff(test.want, got); diff != "" || !errors.Is(err, test.err) {
				t.Errorf("error %v, %s", err, diff)
			}
		})
	}
}

// TestEachClientEnds with the error of visit.
func TestEachClientEnds(t *testing.T) {
	message := elementsMessage(rules.IPv4, slices.Repeat([][2][]byte{{{192, 0, 2, 1}, {10, 244, 0, 1, 0, 80, 0, 0}}}, 3)...)
	n := 0
	err := eachClient(payloadOf(message), rules.IPv4, func(remembered) error {
		n++
		return errHalf
	})
	if n != 1 || !errors.Is(err, errHalf) {
		t.Errorf("%d clients, error %v", n, err)
	}
}

// FuzzEachClient: whatever arrives, what is visited is a client of the family with an
// endpoint of it, and there are no more of them than fit.
func FuzzEachClient(f *testing.F) {
	f.Add([]byte{}, false)
	f.Add(payloadOf(elementsMessage(rules.IPv4, [2][]byte{{192, 0, 2, 1}, {10, 244, 0, 1, 0, 80, 0, 0}})), false)
	f.Add(payloadOf(elementsMessage(rules.IPv6, [2][]byte{make([]byte, 16), make([]byte, 20)})), true)
	f.Fuzz(func(t *testing.T, payload []byte, v6 bool) {
		family := rules.IPv4
		if v6 {
			family = rules.IPv6
		}
		n := 0
		err := eachClient(payload, family, func(r remembered) error {
			n++
			if !r.client.IsValid() || rules.FamilyOf(r.client) != family || rules.FamilyOf(r.endpoint.Addr()) != family {
				t.Errorf("%+v is not of %s", r, family)
			}
			return nil
		})
		if err == nil && len(payload) < nfgenmsgBytes || n > len(payload)/(4*attrBytes) {
			t.Errorf("%d clients in %d bytes, error %v", n, len(payload), err)
		}
	})
}

// TestManyClientsInTheKernel reads and empties a map that takes many messages.
func TestManyClientsInTheKernel(t *testing.T) {
	const many = 20_000
	for _, f := range rules.Families() {
		t.Run(f.String(), func(t *testing.T) {
			ns := nstest.New(t)
			name := familyName{f, "affinity-0123456789abcdef"}
			endpoints := clientMap(t, ns, name, many)
			table := openClients(t, ns)
			// While the hash table is resized, in the background, a dump may leave some out.
			want := func(clients int) {
				t.Helper()
				seen := map[netip.Addr]bool{}
				for deadline := time.Now().Add(10 * time.Second); len(seen) != clients && time.Now().Before(deadline); {
					clear(seen)
					err := table.dump(t.Context(), name, func(r remembered) error {
						seen[r.client] = true
						if !containsEndpoint(endpoints, r.endpoint) {
							t.Fatalf("a client is at %s", r.endpoint)
						}
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				if len(seen) != clients {
					t.Fatalf("%d clients, not %d", len(seen), clients)
				}
			}
			want(many)

			a := newAffinity(func() (clientTable, error) { return table, nil }, nil)
			endpoints = endpoints[1:]
			a.Sweep([]rules.AffinityTable{{Family: f, Map: name.name, Endpoints: endpoints, Stale: true}})
			if err := a.sweep(t.Context(), table, name); err != nil {
				t.Fatal(err)
			}
			want(many / 2)
			if s := a.Stats(); s.Forgotten != many/2 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestMissingClients: what is not there is ENOENT.
func TestMissingClients(t *testing.T) {
	ns := nstest.New(t)
	table := openClients(t, ns)
	nothing := familyName{rules.IPv4, "nothing"}
	visit := func(remembered) error { return errHalf }
	client := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	for _, when := range []string{"no table", "no map"} {
		if err := table.dump(t.Context(), nothing, visit); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: dump: %v", when, err)
		}
		if err := table.forget(t.Context(), nothing, client); !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: forget: %v", when, err)
		}
		clientMap(t, ns, familyName{rules.IPv4, "something"}, 1)
	}
	if err := table.forget(t.Context(), familyName{rules.IPv4, "something"}, client); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no client: forget: %v", err)
	}
	if err := table.dump(t.Context(), familyName{rules.IPv4, "something"}, visit); !errors.Is(err, errHalf) {
		t.Errorf("dump: %v", err)
	}
}

func openClients(t *testing.T, ns *nstest.NS) clientTable {
	t.Helper()
	table, err := openNetlinkClients(ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.close(); err != nil {
			t.Error(err)
		}
	})
	return table
}

// clientMap makes a map of clients that are remembered with two endpoints by turns, which
// it returns.
func clientMap(t *testing.T, ns *nstest.NS, name familyName, clients int) []netip.AddrPort {
	t.Helper()
	k, err := NewNetlink(ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	b := &Batch{}
	b.Add(Op{Verb: AddTable, Family: name.family}, Op{Verb: AddSet, Family: name.family, Decl: rules.Set{
		Name: name.name, Key: []rules.Field{rules.SourceAddr}, Value: rules.EndpointValue, Clients: 1 << 20,
	}})
	if err := k.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	addr, endpoints := netip.MustParseAddr("10.1.0.0"), addrPorts("10.244.0.1:8080", "10.244.0.2:8080")
	if name.family == rules.IPv6 {
		addr, endpoints = netip.MustParseAddr("2001:db8::"), addrPorts("[fd00::1]:8080", "[fd00::2]:8080")
	}
	var elements []nftables.SetElement
	for i := range clients {
		addr = addr.Next()
		e := endpoints[i%2]
		value := append(e.Addr().AsSlice(), byte(e.Port()>>8), byte(e.Port()), 0, 0)
		elements = append(elements, nftables.SetElement{Key: addr.AsSlice(), Val: value, Timeout: time.Hour})
	}
	for part := range slices.Chunk(elements, 500) {
		err := withConn(t.Context(), ns.FD(), func(conn *nftables.Conn) error {
			set := &nftables.Set{Table: rules.EncodeTable(name.family), Name: name.name, HasTimeout: true}
			return errors.Join(conn.SetAddElements(set, part), conn.Flush())
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return endpoints
}
