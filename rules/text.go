package rules

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"time"
)

// This file says everything in nft syntax, as nft 1.0.6 and later read it.

// Keyword returns the family's name in nft syntax: "ip" or "ip6".
func (f Family) Keyword() string {
	if f == IPv4 {
		return "ip"
	}
	return "ip6"
}

// typeName returns the nft datatype of a field. A slot number has none of its
// own: nft infers it from an expression.
func (f Field) typeName(family Family) string {
	switch f {
	case SourceAddr, SourceRange, DestAddr, DestRange:
		if family == IPv4 {
			return "ipv4_addr"
		}
		return "ipv6_addr"
	case L4Proto:
		return "inet_proto"
	case DestPort:
		return "inet_service"
	default:
		return "integer"
	}
}

// expression returns the nft expression of a field; capacity is that of a slot.
func (f Field) expression(family Family, capacity uint32) string {
	switch f {
	case SourceAddr, SourceRange:
		return family.Keyword() + " saddr"
	case DestAddr, DestRange:
		return family.Keyword() + " daddr"
	case L4Proto:
		return "meta l4proto"
	case DestPort:
		return "th dport"
	default:
		return "numgen random mod " + strconv.FormatUint(uint64(capacity), 10)
	}
}

// appendKeyExpression appends the expression that loads the set's key from a
// packet.
func (s Set) appendKeyExpression(b []byte, f Family, capacity uint32) []byte {
	for i, field := range s.Key {
		if i > 0 {
			b = append(b, " . "...)
		}
		b = append(b, field.expression(f, capacity)...)
	}
	return b
}

// Kind returns "set" or "map", the word for the set in nft commands.
func (s Set) Kind() string {
	if s.Value == NoValue {
		return "set"
	}
	return "map"
}

// AppendType appends the set's type as it stands in its declaration, such as
// "type ipv4_addr . inet_proto . inet_service : verdict". A set with a slot in
// its key is declared with typeof.
func (s Set) AppendType(b []byte, f Family) []byte {
	endpoint := DestAddr.typeName(f) + " . " + DestPort.typeName(f)
	if s.Key[len(s.Key)-1] == Slot {
		endpoint = DestAddr.expression(f, 0) + " . " + DestPort.expression(f, 0)
		// Any capacity would do: all slot numbers are integers of 32 bits.
		b = s.appendKeyExpression(append(b, "typeof "...), f, 2)
	} else {
		b = append(b, "type "...)
		for i, field := range s.Key {
			if i > 0 {
				b = append(b, " . "...)
			}
			b = append(b, field.typeName(f)...)
		}
	}
	switch s.Value {
	case VerdictValue:
		b = append(b, " : verdict"...)
	case EndpointValue:
		b = append(append(b, " : "...), endpoint...)
	case NoValue:
	}
	return b
}

// Options returns with what the set is declared beside its type, such as "flags
// interval".
func (s Set) Options() []string {
	switch {
	case s.interval():
		return []string{"flags interval"}
	case s.Clients > 0:
		return []string{"size " + strconv.FormatUint(uint64(s.Clients), 10), "flags dynamic,timeout"}
	default:
		return nil
	}
}

// AppendKey appends the element's key, such as "10.96.0.10 . tcp . 80".
func (e Element) AppendKey(b []byte) []byte { return e.appendKey(b, e.Set.Set()) }

func (e Element) appendKey(b []byte, set Set) []byte {
	for i, field := range set.Key {
		if i > 0 {
			b = append(b, " . "...)
		}
		switch field {
		case SourceAddr, DestAddr:
			b = e.Key.Addr.AppendTo(b)
		case L4Proto:
			b = append(b, e.Key.Protocol.String()...)
		case DestPort:
			b = strconv.AppendUint(b, uint64(e.Key.Port), 10)
		case Slot:
			b = strconv.AppendUint(b, uint64(e.Key.Slot), 10)
		case SourceRange, DestRange:
			b = appendPrefix(b, e.Key.Range)
		}
	}
	return b
}

// AppendText appends the element: key, comment and value.
func (e Element) AppendText(b []byte) []byte { return e.appendText(b, e.Set.Set()) }

func (e Element) appendText(b []byte, set Set) []byte {
	b = e.appendKey(b, set)
	if e.Comment != "" {
		b = append(b, ` comment "`...)
		b = append(b, e.Comment...)
		b = append(b, '"')
	}
	switch set.Value {
	case VerdictValue:
		b = append(b, " : goto "...)
		b = append(b, e.Chain...)
	case EndpointValue:
		b = append(b, " : "...)
		b = appendAddrPort(b, e.Endpoint)
	case NoValue:
	}
	return b
}

// appendPrefix appends a range of addresses; nft prints one of a single address as
// that address.
func appendPrefix(b []byte, p netip.Prefix) []byte {
	if p.IsSingleIP() {
		return p.Addr().AppendTo(b)
	}
	return p.AppendTo(b)
}

// appendAddrPort appends "address . port".
func appendAddrPort(b []byte, a netip.AddrPort) []byte {
	b = a.Addr().AppendTo(b)
	b = append(b, " . "...)
	return strconv.AppendUint(b, uint64(a.Port()), 10)
}

// AppendText appends the rule as it stands in a chain.
func (r Rule) AppendText(b []byte, f Family) []byte {
	for i, s := range r {
		if i > 0 {
			b = append(b, ' ')
		}
		b = appendStatement(b, f, s)
	}
	return b
}

func appendStatement(b []byte, f Family, s Statement) []byte {
	if match, ok := appendMatch(b, f, s); ok {
		return match
	}
	return appendAction(b, f, s)
}

// appendMatch appends a statement that is a match, and reports whether it is one.
func appendMatch(b []byte, f Family, s Statement) (match []byte, ok bool) {
	switch s := s.(type) {
	case MatchSet:
		set := s.Set.Set()
		b = set.appendKeyExpression(b, f, 0)
		if s.Not {
			b = append(b, " !="...)
		}
		b = append(append(b, " @"...), set.Name...)
	case MatchOutside:
		b = appendPrefix(fmt.Appendf(b, "%s != ", s.Field.expression(f, 0)), s.Prefix)
	case MatchLocal:
		not := ""
		if s.Not {
			not = "!= "
		}
		b = fmt.Appendf(b, "fib %s type %slocal", s.Field.direction(), not)
	case MatchNotFrom:
		b = fmt.Appendf(b, "iifname != %q", s.pattern())
	case MatchProtocol:
		b = fmt.Appendf(b, "meta l4proto %s", s.Protocol)
	case MatchNew:
		b = append(b, "ct state new"...)
	case MatchDNATed:
		b = append(b, "ct status dnat"...)
	case MatchMark:
		b = fmt.Appendf(b, "meta mark & %#08x == %#08x", s.Bit, s.Bit)
	default:
		return b, false
	}
	return b, true
}

func appendAction(b []byte, f Family, s Statement) []byte {
	switch s := s.(type) {
	case SetMark:
		return fmt.Appendf(b, "meta mark set meta mark | %#08x", s.Bit)
	case FlipMark:
		return fmt.Appendf(b, "meta mark set meta mark ^ %#08x", s.Bit)
	case Dispatch:
		set := s.Map.Set()
		return append(append(set.appendKeyExpression(b, f, s.Capacity), " vmap @"...), set.Name...)
	case DrawEndpoint:
		set := s.Map.Set()
		b = append(append(append(b, "dnat "...), f.Keyword()...), " to "...)
		return append(append(set.appendKeyExpression(b, f, s.Capacity), " map @"...), set.Name...)
	case RememberClient:
		b = fmt.Appendf(b, "update @%s { %s timeout %s : ", s.Map, SourceAddr.expression(f, 0), durationText(s.Timeout))
		return append(appendAddrPort(b, s.Endpoint), " }"...)
	case DNATRemembered:
		return fmt.Appendf(b, "dnat %s to %s map @%s", f.Keyword(), SourceAddr.expression(f, 0), s.Map)
	case DNAT:
		return fmt.Appendf(b, "dnat to %s", s.Endpoint)
	case Masquerade:
		return append(b, "masquerade fully-random"...)
	case Reject:
		return append(b, "reject"...)
	case Drop:
		return append(b, "drop"...)
	case Jump:
		return append(append(b, "jump "...), s.Chain...)
	default:
		panic(fmt.Sprintf("rules: statement %T has no text", s))
	}
}

// durationText returns whole seconds as nft prints them, such as "4h30m".
func durationText(d time.Duration) string {
	var text []byte
	seconds := int64(d / time.Second)
	for _, unit := range []struct {
		seconds int64
		name    byte
	}{{24 * 60 * 60, 'd'}, {60 * 60, 'h'}, {60, 'm'}, {1, 's'}} {
		if n := seconds / unit.seconds; n > 0 {
			text = append(strconv.AppendInt(text, n, 10), unit.name)
			seconds -= n * unit.seconds
		}
	}
	return string(text)
}

// direction returns the word for the field in a fib expression: "saddr" or "daddr".
func (f Field) direction() string {
	if f == SourceAddr {
		return "saddr"
	}
	return "daddr"
}

// pattern returns the names of interfaces in nft syntax, where * stands for any end.
func (s MatchNotFrom) pattern() string {
	if s.Prefix {
		return s.Interface + "*"
	}
	return s.Interface
}

// AppendText appends the hook as it stands in a base chain's declaration.
func (h Hook) AppendText(b []byte) []byte {
	return fmt.Appendf(b, "type %s hook %s priority %d; policy accept;", h.Type, h.Point, h.Priority)
}

// WriteText writes the whole ruleset in nft syntax. The text can be loaded with
// `nft -f` where there is no such table yet.
func (r *Ruleset) WriteText(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16)
	for _, f := range r.Config.Families {
		r.writeTable(out, f)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the ruleset: %w", err)
	}
	return nil
}

// writeTable leaves errors to the Flush of the bufio.Writer, which keeps them.
func (r *Ruleset) writeTable(out *bufio.Writer, f Family) {
	var line []byte
	_, _ = fmt.Fprintf(out, "table %s %s {\n", f.Keyword(), TableName)
	elements := r.Elements(f)
	for id, set := range r.Sets(f) {
		_, _ = fmt.Fprintf(out, "\t%s %s {\n\t\t%s\n", set.Kind(), set.Name, set.AppendType(line[:0], f))
		for _, option := range set.Options() {
			_, _ = fmt.Fprintf(out, "\t\t%s\n", option)
		}
		for first := true; len(elements) > 0 && int(elements[0].Set) == id; elements = elements[1:] {
			line = append(line[:0], ",\n\t\t\t     "...)
			if first {
				line = append(line[:0], "\t\telements = { "...)
			}
			first = false
			line = elements[0].appendText(line, set)
			_, _ = out.Write(line)
			if len(elements) == 1 || int(elements[1].Set) != id {
				_, _ = out.WriteString(" }\n")
			}
		}
		_, _ = out.WriteString("\t}\n\n")
	}
	for i, c := range r.Chains(f) {
		if i > 0 {
			_ = out.WriteByte('\n')
		}
		_, _ = fmt.Fprintf(out, "\tchain %s {\n", c.Name)
		if c.Base != nil {
			_, _ = fmt.Fprintf(out, "\t\t%s\n", c.Base.AppendText(line[:0]))
		}
		for _, rule := range c.Rules {
			_, _ = fmt.Fprintf(out, "\t\t%s\n", rule.AppendText(line[:0], f))
		}
		_, _ = out.WriteString("\t}\n")
	}
	_, _ = out.WriteString("}\n")
}
