package syncer

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
)

// entry is a flow as tests make it.
type entry struct {
	protocol                      rules.Protocol
	source, destination           string
	replySource, replyDestination string // the latter: the source, if empty
	zone                          uint16
	oneWay                        bool // the zone counts in the original direction only
}

func (e entry) encode(seq uint32) []byte {
	source, destination := netip.MustParseAddrPort(e.source), netip.MustParseAddrPort(e.destination)
	replySource, replyTo := netip.MustParseAddrPort(e.replySource), source
	if e.replyDestination != "" {
		replyTo = netip.MustParseAddrPort(e.replyDestination)
	}
	b := appendRequest(nil, ctMessageNew, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, seq, addressFamily(rules.FamilyOf(source.Addr())))
	tupleZone := uint16(0)
	if e.oneWay {
		tupleZone = e.zone
	}
	b = appendTuple(b, ctaTupleOrig, e.protocol, source, destination, tupleZone)
	b = appendTuple(b, ctaTupleReply, e.protocol, replySource, replyTo, 0)
	if e.zone != 0 && !e.oneWay {
		b = appendAttr(b, ctaZone, binary.BigEndian.AppendUint16(nil, e.zone)...)
	}
	const ctaTimeout, ctaProtoInfo = 7, 4
	b = appendAttr(b, ctaTimeout, binary.BigEndian.AppendUint32(nil, 600)...)
	switch e.protocol {
	case rules.SCTP: // the kernel wants to know its state
		b = appendNested(b, ctaProtoInfo, func(b []byte) []byte {
			return appendNested(b, 3, func(b []byte) []byte { // CTA_PROTOINFO_SCTP
				b = appendAttr(b, 1, 4) // CTA_PROTOINFO_SCTP_STATE: established
				b = appendAttr(b, 2, 0, 0, 0, 1)
				return appendAttr(b, 3, 0, 0, 0, 2)
			})
		})
	case rules.UDP:
	case rules.TCP:
		b = appendNested(b, ctaProtoInfo, func(b []byte) []byte {
			return appendNested(b, 1, func(b []byte) []byte { return appendAttr(b, 1, 3) }) // established
		})
	}
	return finish(b)
}

func appendTuple(b []byte, attr uint16, p rules.Protocol, source, destination netip.AddrPort, zone uint16) []byte {
	src, dst := uint16(ctaIPv4Src), uint16(ctaIPv4Dst)
	if source.Addr().Is6() {
		src, dst = ctaIPv6Src, ctaIPv6Dst
	}
	return appendNested(b, attr, func(b []byte) []byte {
		b = appendNested(b, ctaTupleIP, func(b []byte) []byte {
			b = appendAttr(b, src, source.Addr().AsSlice()...)
			return appendAttr(b, dst, destination.Addr().AsSlice()...)
		})
		if zone != 0 {
			const ctaTupleZone = 3
			b = appendAttr(b, ctaTupleZone, byte(zone>>8), byte(zone))
		}
		return appendNested(b, ctaTupleProto, func(b []byte) []byte {
			b = appendAttr(b, ctaProtoNum, byte(p))
			b = appendAttr(b, ctaProtoSrcPort, binary.BigEndian.AppendUint16(nil, source.Port())...)
			return appendAttr(b, ctaProtoDstPort, binary.BigEndian.AppendUint16(nil, destination.Port())...)
		})
	})
}

func sampleEntries() []entry {
	return []entry{
		{rules.UDP, "192.0.2.1:4000", "10.96.0.1:53", "10.244.0.1:5353", "10.0.0.1:4000", 7, false},
		{rules.SCTP, "[2001:db8::1]:4000", "[fd00::1]:53", "[fd01::1]:5353", "", 0, false},
	}
}

func TestParseFlow(t *testing.T) {
	for _, e := range sampleEntries() {
		m, rest, err := cutMessage(e.encode(1))
		if err != nil || len(rest) > 0 || m.seq != 1 || m.messageType != ctMessageNew {
			t.Fatalf("message %+v, %d more bytes, error %v", m, len(rest), err)
		}
		var f flow
		if !f.parse(m.payload) {
			t.Fatal("not parsed")
		}
		got := entry{f.protocol, e.source, f.destination.String(), f.replySource.String(), e.replyDestination, e.zone, false}
		if got != e || (len(f.zone) > 0) != (e.zone != 0) {
			t.Errorf("got %+v, want %+v", got, e)
		}
	}
}

// TestParseGarbage cuts messages short and turns their bits: nothing may panic, and a
// length that lies is an error or the end.
func TestParseGarbage(t *testing.T) {
	parse := func(b []byte) {
		m, _, err := cutMessage(b)
		if err == nil {
			_ = m.errno()
			new(flow).parse(m.payload)
		}
	}
	for _, e := range sampleEntries() {
		whole := e.encode(1)
		for n := range whole {
			if _, _, err := cutMessage(whole[:n]); err == nil {
				t.Errorf("%d of %d bytes are a message", n, len(whole))
			}
			short := slices.Clone(whole[:n])
			if n >= headerBytes {
				parse(finish(short))
			}
			for bit := range 8 {
				turned := slices.Clone(whole)
				turned[n] ^= 1 << bit
				parse(turned)
			}
		}
	}
}

func TestErrno(t *testing.T) {
	minus := func(errno syscall.Errno) []byte { return binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno))) }
	for _, test := range []struct {
		payload []byte
		want    error
	}{{nil, nil}, {minus(0), nil}, {minus(unix.ENOENT), unix.ENOENT}} {
		if got := (message{payload: test.payload}).errno(); !errors.Is(got, test.want) {
			t.Errorf("%v: %v", test.payload, got)
		}
	}
}

// TestReadDump reads parts of a dump: what is not its own does not count, a flag on any
// message says that it was interrupted, and an error ends it.
func TestReadDump(t *testing.T) {
	sample := sampleEntries()[0].encode(1)
	message := func(messageType, flags uint16, seq uint32, payload ...byte) []byte {
		b := appendRequest(nil, messageType, flags, seq, 0)
		return finish(append(b[:headerBytes], payload...))
	}
	minus := binary.NativeEndian.AppendUint32(nil, uint32(0xffff_ffff-unix.ENOBUFS+1))
	tests := map[string]struct {
		part              [][]byte
		flows             int
		done, interrupted bool
		err               error
	}{
		"nothing":               {},
		"entries":               {part: [][]byte{sample, sample}, flows: 2},
		"the end":               {part: [][]byte{sample, message(unix.NLMSG_DONE, 0, 1, 0, 0, 0, 0)}, flows: 1, done: true},
		"the end of another":    {part: [][]byte{message(unix.NLMSG_DONE, 0, 2), sample}, flows: 1},
		"interrupted":           {part: [][]byte{message(unix.NLMSG_NOOP, unix.NLM_F_DUMP_INTR, 1), sample}, flows: 1, interrupted: true},
		"an error at the end":   {part: [][]byte{sample, message(unix.NLMSG_DONE, 0, 1, minus...)}, flows: 1, done: true, err: unix.ENOBUFS},
		"an error":              {part: [][]byte{message(unix.NLMSG_ERROR, 0, 1, minus...)}, err: unix.ENOBUFS},
		"an answer, no error":   {part: [][]byte{message(unix.NLMSG_ERROR, 0, 1, 0, 0, 0, 0), sample}, flows: 1},
		"something that is cut": {part: [][]byte{sample, sample[:40]}, flows: 1, err: errCut},
	}
	for name, test := range tests {
		n := 0
		d := dump{seq: 1, answers: ctMessageNew, visit: func([]byte) error { n++; return nil }}
		done, err := d.read(slices.Concat(test.part...))
		if done != test.done || d.interrupted != test.interrupted || n != test.flows || !errors.Is(err, test.err) {
			t.Errorf("%s: %d flows, done %t, interrupted %t, error %v", name, n, done, d.interrupted, err)
		}
	}
}

// TestDeleteNeedsATuple: without one the kernel would empty the table.
func TestDeleteNeedsATuple(t *testing.T) {
	for _, f := range []flow{{}, {tuple: []byte{4, 0, 1, 0}, id: []byte{8, 0, 12, 0, 1, 2, 3, 4}}} {
		if _, err := deleteRequest(nil, 1, &f); err == nil {
			t.Errorf("%+v can be deleted", f)
		}
	}
}

func TestQueries(t *testing.T) {
	targets := map[flowTarget]struct{}{}
	add := func(p rules.Protocol, addrs ...string) {
		for _, a := range addrPorts(addrs...) {
			targets[flowTarget{p, a}] = struct{}{}
		}
	}
	add(rules.UDP, "10.96.0.1:53", "10.96.0.2:53", "[fd00::1]:53", "[fd00::1]:54", "[fd00::2]:53")
	add(rules.SCTP, "10.96.0.1:99")
	want := []query{{rules.IPv4, rules.UDP, 53}, {rules.IPv4, rules.SCTP, 99}, {rules.IPv6, rules.UDP, 0}}
	if diff := cmp.Diff(want, queriesFor(targets), cmp.AllowUnexported(query{})); diff != "" {
		t.Error(diff)
	}
}
