package rules

// elementIndex finds elements by their set and what their keys have beside slots and
// ranges, of which there may be several.
type elementIndex map[indexKey][]Element

type indexKey struct {
	set SetID
	key Key // without Slot and Range
}

func newElementIndex(elements []Element) elementIndex {
	index := elementIndex{}
	for _, e := range elements {
		k := indexKey{e.Set, e.Key}
		k.key.Slot, k.key.Range = Key{}.Slot, Key{}.Range
		index[k] = append(index[k], e)
	}
	return index
}

// find returns the elements that match a packet, whatever their slots.
func (x elementIndex) find(id SetID, p Packet) []Element {
	k := indexKey{set: id}
	var inRange func(Element) bool
	for _, field := range id.Set().Key {
		switch field {
		case SourceAddr:
			k.key.Addr = p.Source.Addr()
		case DestAddr:
			if k.key.Addr.IsValid() && k.key.Addr != p.Dest.Addr() {
				return nil // a key with both has the same address twice
			}
			k.key.Addr = p.Dest.Addr()
		case L4Proto:
			k.key.Protocol = p.Protocol
		case DestPort:
			k.key.Port = p.Dest.Port()
		case SourceRange:
			inRange = func(e Element) bool { return e.Key.Range.Contains(p.Source.Addr()) }
		case DestRange:
			inRange = func(e Element) bool { return e.Key.Range.Contains(p.Dest.Addr()) }
		case Slot:
		}
	}
	found := x[k]
	if inRange == nil {
		return found
	}
	for i, e := range found {
		if inRange(e) {
			return found[i : i+1] // ranges do not overlap
		}
	}
	return nil
}

// draw returns the elements that a lookup in a map may hit, each with the same
// probability, and the probability that it hits none. The key's slot, if it has one, is
// random and below capacity.
func (x elementIndex) draw(id SetID, capacity uint32, p Packet) (hits []Element, each, miss float64) {
	hits = x.find(id, p)
	if len(hits) == 0 {
		return nil, 0, 1
	}
	if capacity == 0 { // the key has no slot
		return hits, 1, 0
	}
	n := 0
	for n < len(hits) && hits[n].Key.Slot < capacity { // they are sorted
		n++
	}
	return hits[:n], 1 / float64(capacity), float64(int(capacity)-n) / float64(capacity)
}
