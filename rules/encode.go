package rules

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// This file says everything but elements in netlink messages, by way of google/nftables;
// wire.go says elements. They are the only ones in this package that know them. A test
// loads what they encode and what text.go prints into two namespaces and compares the
// listings.

// EncodeTable returns the table of a family.
func EncodeTable(f Family) *nftables.Table {
	family := nftables.TableFamilyIPv4
	if f == IPv6 {
		family = nftables.TableFamilyIPv6
	}
	return &nftables.Table{Name: TableName, Family: family}
}

// Encode returns the chain without its rules.
func (c Chain) Encode(f Family) *nftables.Chain {
	chain := &nftables.Chain{Name: c.Name, Table: EncodeTable(f)}
	if c.Base != nil {
		accept := nftables.ChainPolicyAccept
		chain.Type = nftables.ChainType(c.Base.Type)
		chain.Hooknum = nftables.ChainHookRef(nftables.ChainHook(c.Base.Point))
		chain.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(c.Base.Priority))
		chain.Policy = &accept
	}
	return chain
}

// Encode returns the set without elements. It has no ID: later batches refer to
// it by name.
//
// The slot number's type is "mark": the kernel keeps no types, only names for
// listing, and this is the one of 32 bits in the host's byte order, as numgen
// makes them.
func (s Set) Encode(f Family) *nftables.Set {
	set := &nftables.Set{
		Table:   EncodeTable(f),
		Name:    s.Name,
		IsMap:   s.Value != NoValue,
		KeyType: concatType(f, s.Key...),
		// Ranges in a concatenation want the lengths of its fields.
		Interval:      s.interval(),
		Concatenation: s.interval() && len(s.Key) > 1,
		Dynamic:       s.Clients > 0,
		HasTimeout:    s.Clients > 0,
		Size:          s.Clients,
	}
	switch s.Value {
	case VerdictValue:
		set.DataType = nftables.TypeVerdict
	case EndpointValue:
		set.DataType = concatType(f, DestAddr, DestPort)
	case NoValue:
	}
	return set
}

// concatType returns the datatype of one field or the concatenation of several.
func concatType(f Family, fields ...Field) nftables.SetDatatype {
	types := make([]nftables.SetDatatype, len(fields))
	for i, field := range fields {
		types[i] = field.datatype(f)
	}
	if len(types) == 1 {
		return types[0]
	}
	return nftables.MustConcatSetType(types...)
}

func (f Field) datatype(family Family) nftables.SetDatatype {
	switch f {
	case SourceAddr, SourceRange, DestAddr, DestRange:
		if family == IPv4 {
			return nftables.TypeIPAddr
		}
		return nftables.TypeIP6Addr
	case L4Proto:
		return nftables.TypeInetProto
	case DestPort:
		return nftables.TypeInetService
	default:
		return nftables.TypeMark
	}
}

// lastAddr returns the last address of a range.
func lastAddr(p netip.Prefix) netip.Addr {
	addr := appendAddr(nil, p.Addr())
	for i := p.Bits(); i < 8*len(addr); i++ {
		addr[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(addr)
	return last
}

// appendWireKey appends the key's fields, each padded to a multiple of four bytes, as the
// kernel lays out concatenations. Of a range it is the first address, or the last.
func (e *Element) appendWireKey(b []byte, fields []Field, last bool) []byte {
	for _, field := range fields {
		switch field {
		case SourceAddr, DestAddr:
			b = appendAddr(b, e.Key.Addr)
		case L4Proto:
			b = append(b, byte(e.Key.Protocol), 0, 0, 0)
		case DestPort:
			b = appendPort(b, e.Key.Port)
		case Slot:
			b = binary.NativeEndian.AppendUint32(b, e.Key.Slot)
		case SourceRange, DestRange:
			if last {
				b = appendAddr(b, lastAddr(e.Key.Range))
			} else {
				b = appendAddr(b, e.Key.Range.Addr())
			}
		}
	}
	return b
}

func appendAddr(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		v4 := a.As4()
		return append(b, v4[:]...)
	}
	v6 := a.As16()
	return append(b, v6[:]...)
}

func appendPort(b []byte, port uint16) []byte {
	return append(binary.BigEndian.AppendUint16(b, port), 0, 0)
}

// Encode returns the rule's expressions.
func (r Rule) Encode(f Family) []expr.Any {
	var exprs []expr.Any
	for _, s := range r {
		exprs = append(exprs, encodeStatement(f, s)...)
	}
	return exprs
}

func encodeStatement(f Family, s Statement) []expr.Any {
	if match := encodeMatch(f, s); match != nil {
		return match
	}
	return encodeAction(f, s)
}

// encodeMatch returns the expressions of a statement that is a match, nil for another.
func encodeMatch(f Family, s Statement) []expr.Any {
	switch s := s.(type) {
	case MatchSet:
		return append(s.Set.Set().load(f, 0), &expr.Lookup{SourceRegister: 1, SetName: s.Set.Set().Name, Invert: s.Not})
	case MatchOutside:
		return encodeOutside(f, s)
	case MatchLocal:
		op := expr.CmpOpEq
		if s.Not {
			op = expr.CmpOpNeq
		}
		return []expr.Any{
			&expr.Fib{Register: 1, FlagSADDR: s.Field == SourceAddr, FlagDADDR: s.Field == DestAddr, ResultADDRTYPE: true},
			&expr.Cmp{Op: op, Register: 1, Data: native32(unix.RTN_LOCAL)},
		}
	case MatchNotFrom:
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: s.wireName()},
		}
	case MatchProtocol:
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{byte(s.Protocol)}},
		}
	case MatchNew:
		return matchBits(&expr.Ct{Key: expr.CtKeySTATE, Register: 1}, expr.CtStateBitNEW)
	case MatchDNATed:
		const statusDNAT = 1 << 5 // IPS_DST_NAT of the kernel
		return matchBits(&expr.Ct{Key: expr.CtKeySTATUS, Register: 1}, statusDNAT)
	case MatchMark:
		return []expr.Any{
			&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
			bitwise(4, native32(s.Bit), native32(0)),
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: native32(s.Bit)},
		}
	default:
		return nil
	}
}

func encodeAction(f Family, s Statement) []expr.Any {
	switch s := s.(type) {
	case SetMark:
		return changeMark(^s.Bit, s.Bit)
	case FlipMark:
		return changeMark(^uint32(0), s.Bit)
	case Dispatch:
		return append(s.Map.Set().load(f, s.Capacity), &expr.Lookup{
			SourceRegister: 1, SetName: s.Map.Set().Name, IsDestRegSet: true, DestRegister: unix.NFT_REG_VERDICT,
		})
	case DrawEndpoint:
		return encodeDrawEndpoint(f, s)
	case RememberClient:
		return encodeRememberClient(f, s)
	case DNATRemembered:
		return dnat(f, SourceAddr.load(f, 0, 1), &expr.Lookup{SourceRegister: 1, SetName: s.Map, IsDestRegSet: true, DestRegister: 1})
	case DNAT:
		return encodeDNAT(f, s.Endpoint)
	case Masquerade:
		return []expr.Any{&expr.Masq{FullyRandom: true}}
	case Reject:
		const portUnreachable4, portUnreachable6 = 3, 4 // codes of ICMP and ICMPv6
		if f == IPv4 {
			return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreachable4}}
		}
		return []expr.Any{&expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: portUnreachable6}}
	case Drop:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
	case Jump:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: s.Chain}}
	default:
		panic(fmt.Sprintf("rules: statement %T has no encoding", s))
	}
}

// register returns the number of the register that starts at the given 32-bit
// word. Words 0, 4, 8 and 12 are named by the old registers of 16 bytes, as nft
// does.
func register(word int) uint32 {
	if word%4 == 0 {
		return unix.NFT_REG_1 + uint32(word/4)
	}
	return unix.NFT_REG32_00 + uint32(word)
}

// load returns the expressions that load the set's key, one field after another,
// from register 1 on.
func (s Set) load(f Family, capacity uint32) []expr.Any {
	var exprs []expr.Any
	word := 0
	for _, field := range s.Key {
		exprs = append(exprs, field.load(f, capacity, register(word)))
		word += int(field.datatype(f).Bytes+3) / 4
	}
	return exprs
}

func (f Field) load(family Family, capacity, register uint32) expr.Any {
	const dportOffset = 2 // the same in TCP, UDP and SCTP
	switch f {
	case SourceAddr, SourceRange:
		return loadAddr(family, 12, 8, register)
	case DestAddr, DestRange:
		return loadAddr(family, 16, 24, register)
	case L4Proto:
		return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}
	case DestPort:
		return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: dportOffset, Len: 2}
	default:
		return &expr.Numgen{Register: register, Modulus: capacity, Type: unix.NFT_NG_RANDOM}
	}
}

// loadAddr loads an address from the network header, where it is at offset4 of
// IPv4 or offset6 of IPv6.
func loadAddr(f Family, offset4, offset6, register uint32) *expr.Payload {
	p := &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset4, Len: 4}
	if f == IPv6 {
		p.Offset, p.Len = offset6, 16
	}
	return p
}

// encodeOutside compares the whole bytes of the prefix directly, and loads
// no more than these, as nft does; other prefixes are masked first.
func encodeOutside(f Family, s MatchOutside) []expr.Any {
	p := s.Prefix
	addr := appendAddr(nil, p.Addr())
	load, ok := s.Field.load(f, 0, 1).(*expr.Payload)
	if !ok {
		panic("rules: an address is not loaded from the payload")
	}
	if whole := p.Bits() / 8; p.Bits()%8 == 0 && whole > 0 {
		load.Len = uint32(whole)
		return []expr.Any{load, &expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: addr[:whole]}}
	}
	mask := make([]byte, len(addr))
	for i := range p.Bits() {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{
		load,
		bitwise(uint32(len(addr)), mask, make([]byte, len(addr))),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: addr},
	}
}

// encodeDrawEndpoint looks the slot up and translates to the address and port
// found, which the map puts one after the other into the registers.
func encodeDrawEndpoint(f Family, s DrawEndpoint) []expr.Any {
	return dnat(f, append(s.Map.Set().load(f, s.Capacity),
		&expr.Lookup{SourceRegister: 1, SetName: s.Map.Set().Name, IsDestRegSet: true, DestRegister: 1})...)
}

// dnat translates to the address and the port that the expressions have loaded from
// register 1 on.
func dnat(f Family, load ...expr.Any) []expr.Any {
	family, portWord := uint32(unix.NFPROTO_IPV4), 1
	if f == IPv6 {
		family, portWord = unix.NFPROTO_IPV6, 4
	}
	port := register(portWord)
	return append(load, &expr.NAT{
		Type: expr.NATTypeDestNAT, Family: family,
		RegAddrMin: 1, RegAddrMax: 1, RegProtoMin: port, RegProtoMax: port,
		Specified: true,
	})
}

// encodeDNAT puts the address and the port into registers of 16 bytes, as nft does.
func encodeDNAT(f Family, a netip.AddrPort) []expr.Any {
	family := uint32(unix.NFPROTO_IPV4)
	if f == IPv6 {
		family = unix.NFPROTO_IPV6
	}
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: appendAddr(nil, a.Addr())},
		&expr.Immediate{Register: 2, Data: binary.BigEndian.AppendUint16(nil, a.Port())},
		&expr.NAT{
			Type: expr.NATTypeDestNAT, Family: family,
			RegAddrMin: 1, RegAddrMax: 1, RegProtoMin: 2, RegProtoMax: 2,
			Specified: true,
		},
	}
}

// encodeRememberClient loads the client into register 1, and the endpoint's address and
// port into the registers from 2 on; no expression loads more than 16 bytes.
func encodeRememberClient(f Family, s RememberClient) []expr.Any {
	const update = 1 // NFT_DYNSET_OP_UPDATE
	addr := appendAddr(nil, s.Endpoint.Addr())
	return []expr.Any{
		SourceAddr.load(f, 0, 1),
		&expr.Immediate{Register: 2, Data: addr},
		&expr.Immediate{Register: register(4 + len(addr)/4), Data: binary.BigEndian.AppendUint16(nil, s.Endpoint.Port())},
		&expr.Dynset{SrcRegKey: 1, SrcRegData: 2, SetName: s.Map, Operation: update, Timeout: s.Timeout},
	}
}

// wireName returns what an interface's name is compared with: with all of its 16 bytes,
// or with their beginning.
func (s MatchNotFrom) wireName() []byte {
	name := []byte(s.Interface)
	if s.Prefix {
		return name
	}
	return append(name, make([]byte, unix.IFNAMSIZ-len(name))...)
}

// matchBits matches if any of the bits is set in what load puts in register 1.
func matchBits(load expr.Any, bits uint32) []expr.Any {
	return []expr.Any{
		load,
		bitwise(4, native32(bits), native32(0)),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: native32(0)},
	}
}

// changeMark keeps the mark's bits in mask, then flips those in xor.
func changeMark(mask, xor uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		bitwise(4, native32(mask), native32(xor)),
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1, SourceRegister: true},
	}
}

func bitwise(length uint32, mask, xor []byte) *expr.Bitwise {
	return &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: length, Mask: mask, Xor: xor}
}

// native32 returns a number of 32 bits in the host's byte order.
func native32(v uint32) []byte { return binaryutil.NativeEndian.PutUint32(v) }
