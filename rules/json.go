package rules

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
)

// This file says everything in nft's JSON, see libnftables-json(5).

// object is a JSON object; encoding/json prints its keys sorted.
type object = map[string]any

// WriteJSON writes the whole ruleset as `nft -j list ruleset` prints it, less
// the handles.
func (r *Ruleset) WriteJSON(w io.Writer) error {
	out := bufio.NewWriterSize(w, 1<<16)
	_, _ = out.WriteString(`{"nftables": [` + "\n" + `{"metainfo": {"json_schema_version": 1}}`)
	for _, f := range r.Config.Families {
		for _, o := range r.jsonTable(f) {
			text, err := json.Marshal(o)
			if err != nil {
				return fmt.Errorf("encode the ruleset as JSON: %w", err)
			}
			_, _ = out.WriteString(",\n")
			_, _ = out.Write(text)
		}
	}
	_, _ = out.WriteString("\n]}\n")
	if err := out.Flush(); err != nil { // bufio keeps the first error
		return fmt.Errorf("write the ruleset: %w", err)
	}
	return nil
}

// jsonTable returns the objects of one family's table, in nft's order: sets with
// their elements, chains, rules.
func (r *Ruleset) jsonTable(f Family) []object {
	objects := []object{{"table": object{"family": f.Keyword(), "name": TableName}}}
	elements := r.Elements(f)
	for id, set := range r.Sets(f) {
		n := 0
		for n < len(elements) && int(elements[n].Set) == id {
			n++
		}
		objects = append(objects, object{set.Kind(): set.json(f, elements[:n])})
		elements = elements[n:]
	}
	chains := r.Chains(f)
	for _, c := range chains {
		o := object{"family": f.Keyword(), "table": TableName, "name": c.Name}
		if c.Base != nil {
			o["type"], o["hook"], o["prio"], o["policy"] = c.Base.Type, c.Base.Point.String(), c.Base.Priority, "accept"
		}
		objects = append(objects, object{"chain": o})
	}
	for _, c := range chains {
		for _, rule := range c.Rules {
			objects = append(objects, object{"rule": object{
				"family": f.Keyword(), "table": TableName, "chain": c.Name, "expr": rule.json(f),
			}})
		}
	}
	return objects
}

func (s Set) json(f Family, elements []Element) object {
	o := object{"family": f.Keyword(), "table": TableName, "name": s.Name}
	types := make([]any, len(s.Key))
	for i, field := range s.Key {
		types[i] = field.typeName(f)
	}
	o["type"] = unwrapOne(types)
	switch s.Value {
	case VerdictValue:
		o["map"] = "verdict"
	case EndpointValue:
		o["map"] = DestAddr.typeName(f) + " . " + DestPort.typeName(f)
	case NoValue:
	}
	switch {
	case s.interval():
		o["flags"] = []string{"interval"}
	case s.Clients > 0:
		o["flags"], o["size"] = []string{"timeout", "dynamic"}, s.Clients
	}
	if len(elements) > 0 {
		list := make([]any, len(elements))
		for i, e := range elements {
			list[i] = e.json()
		}
		o["elem"] = list
	}
	return o
}

func (e Element) json() any {
	var parts []any
	for _, field := range e.Set.Set().Key {
		switch field {
		case SourceAddr, DestAddr:
			parts = append(parts, e.Key.Addr.String())
		case L4Proto:
			parts = append(parts, e.Key.Protocol.String())
		case DestPort:
			parts = append(parts, e.Key.Port)
		case Slot:
			parts = append(parts, e.Key.Slot)
		case SourceRange, DestRange:
			parts = append(parts, jsonPrefix(e.Key.Range))
		}
	}
	key := concat(parts)
	if e.Comment != "" {
		key = object{"elem": object{"val": key, "comment": e.Comment}}
	}
	switch e.Set.Set().Value {
	case VerdictValue:
		return []any{key, object{"goto": object{"target": e.Chain}}}
	case EndpointValue:
		return []any{key, jsonAddrPort(e.Endpoint)}
	default:
		return key
	}
}

// concat returns a concatenation, or its only part.
func concat(parts []any) any {
	if len(parts) == 1 {
		return parts[0]
	}
	return object{"concat": parts}
}

// unwrapOne returns the list, or its only item.
func unwrapOne(list []any) any {
	if len(list) == 1 {
		return list[0]
	}
	return list
}

func (r Rule) json(f Family) []any {
	statements := make([]any, 0, len(r))
	for _, s := range r {
		statements = append(statements, jsonStatement(f, s))
	}
	return statements
}

// jsonStatement returns an object, or text where nft's JSON has nothing better.
func jsonStatement(f Family, s Statement) any {
	mark := object{"meta": object{"key": "mark"}}
	if match := jsonMatchOf(f, s, mark); match != nil {
		return match
	}
	return jsonAction(f, s, mark)
}

// jsonMatchOf returns the JSON of a statement that is a match, nil for another.
func jsonMatchOf(f Family, s Statement, mark object) object {
	switch s := s.(type) {
	case MatchSet:
		set := s.Set.Set()
		op := "=="
		if s.Not {
			op = "!="
		}
		return jsonMatch(op, set.jsonKey(f, 0), "@"+set.Name)
	case MatchOutside:
		return jsonMatch("!=", s.Field.json(f, 0), jsonPrefix(s.Prefix))
	case MatchLocal:
		op := "=="
		if s.Not {
			op = "!="
		}
		return jsonMatch(op, object{"fib": object{"result": "type", "flags": []string{s.Field.direction()}}}, "local")
	case MatchNotFrom:
		return jsonMatch("!=", object{"meta": object{"key": "iifname"}}, s.pattern())
	case MatchProtocol:
		return jsonMatch("==", L4Proto.json(f, 0), s.Protocol.String())
	case MatchNew:
		return jsonMatch("in", object{"ct": object{"key": "state"}}, "new")
	case MatchDNATed:
		return jsonMatch("in", object{"ct": object{"key": "status"}}, "dnat")
	case MatchMark:
		return jsonMatch("==", object{"&": []any{mark, s.Bit}}, s.Bit)
	default:
		return nil
	}
}

func jsonAction(f Family, s Statement, mark object) any {
	switch s := s.(type) {
	case SetMark:
		return object{"mangle": object{"key": mark, "value": object{"|": []any{mark, s.Bit}}}}
	case FlipMark:
		return object{"mangle": object{"key": mark, "value": object{"^": []any{mark, s.Bit}}}}
	case Dispatch:
		set := s.Map.Set()
		return object{"vmap": object{"key": set.jsonKey(f, s.Capacity), "data": "@" + set.Name}}
	case DrawEndpoint:
		set := s.Map.Set()
		endpoint := object{"map": object{"key": set.jsonKey(f, s.Capacity), "data": "@" + set.Name}}
		return object{"dnat": object{"family": f.Keyword(), "addr": endpoint}}
	case RememberClient: // nft's JSON has nothing for it but the text
		return string(appendStatement(nil, f, s))
	case DNATRemembered:
		endpoint := object{"map": object{"key": SourceAddr.json(f, 0), "data": "@" + s.Map}}
		return object{"dnat": object{"family": f.Keyword(), "addr": endpoint}}
	case DNAT:
		return object{"dnat": object{"addr": s.Endpoint.Addr().String(), "port": s.Endpoint.Port()}}
	case Masquerade:
		return object{"masquerade": object{"flags": "fully-random"}}
	case Reject:
		icmp := map[Family]string{IPv4: "icmp", IPv6: "icmpv6"}[f]
		return object{"reject": object{"type": icmp, "expr": "port-unreachable"}}
	case Drop:
		return object{"drop": nil}
	case Jump:
		return object{"jump": object{"target": s.Chain}}
	default:
		panic(fmt.Sprintf("rules: statement %T has no JSON", s))
	}
}

func jsonAddrPort(a netip.AddrPort) any { return concat([]any{a.Addr().String(), a.Port()}) }

func jsonMatch(op string, left, right any) object {
	return object{"match": object{"op": op, "left": left, "right": right}}
}

// jsonPrefix returns a range of addresses; nft prints one of a single address as
// that address.
func jsonPrefix(p netip.Prefix) any {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return object{"prefix": object{"addr": p.Addr().String(), "len": p.Bits()}}
}

// jsonKey returns the expression that loads the set's key from a packet.
func (s Set) jsonKey(f Family, capacity uint32) any {
	parts := make([]any, len(s.Key))
	for i, field := range s.Key {
		parts[i] = field.json(f, capacity)
	}
	return concat(parts)
}

func (f Field) json(family Family, capacity uint32) object {
	payload := func(protocol, field string) object {
		return object{"payload": object{"protocol": protocol, "field": field}}
	}
	switch f {
	case SourceAddr, SourceRange:
		return payload(family.Keyword(), "saddr")
	case DestAddr, DestRange:
		return payload(family.Keyword(), "daddr")
	case L4Proto:
		return object{"meta": object{"key": "l4proto"}}
	case DestPort:
		return payload("th", "dport")
	default:
		return object{"numgen": object{"mode": "random", "mod": capacity, "offset": 0}}
	}
}
