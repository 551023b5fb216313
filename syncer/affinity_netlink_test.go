package syncer

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
)

// elementsMessage is an answer with elements of a map, as the kernel makes it: with
// attributes that nobody asked for, and no two in an order that matters.
func elementsMessage(f rules.Family, elements ...[2][]byte) []byte {
	b := appendHeader(nil, elementsNew, 0, 1, addressFamily(f))
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
