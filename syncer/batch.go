package syncer

import (
	"fmt"

	"github.com/nftproxy/nftproxy/rules"
)

// Verb is what an operation does.
type Verb uint8

// The verbs, with the nft commands that they stand for.
const (
	AddTable       Verb = iota + 1 // add table; no error if there is one
	FlushTable                     // flush table: deletes the rules of all chains
	AddSet                         // add set, add map
	FlushSet                       // flush set, flush map
	DeleteSet                      // delete set, delete map
	AddChain                       // add chain, without its rules
	FlushChain                     // flush chain: deletes its rules
	DeleteChain                    // delete chain
	AddRule                        // add rule, at the end of the chain
	AddElements                    // add element
	DeleteElements                 // delete element
)

// Op is one operation on the table of a family. Which fields count depends on the
// verb.
type Op struct {
	Verb     Verb
	Family   rules.Family
	Decl     rules.Set       // AddSet
	Set      rules.SetID     // AddElements, DeleteElements
	Name     string          // FlushSet, DeleteSet, FlushChain, DeleteChain, AddRule (the chain)
	IsMap    bool            // FlushSet, DeleteSet: which word nft wants
	Chain    rules.Chain     // AddChain
	Rule     rules.Rule      // AddRule
	Elements []rules.Element // AddElements, DeleteElements
}

// Batch is a sequence of operations that the kernel commits as a whole or not at
// all. The zero Batch is empty.
type Batch struct {
	ops    []Op
	counts Counts
	size   Size
}

// Counts says how much a batch does.
type Counts struct {
	// Elements is the number of elements added and deleted. An element with a new
	// value counts twice.
	Elements int
	// Verdicts is how many of these carry a verdict. The kernel validates the whole
	// table when one is added.
	Verdicts int
	// Objects is the number of operations on tables, sets, chains and rules.
	Objects int
}

// Add returns the sum.
func (c Counts) Add(d Counts) Counts {
	return Counts{c.Elements + d.Elements, c.Verdicts + d.Verdicts, c.Objects + d.Objects}
}

// String returns the counts in words.
func (c Counts) String() string {
	return fmt.Sprintf("%d element operations (%d with a verdict), %d object operations", c.Elements, c.Verdicts, c.Objects)
}

// Size is how much a batch occupies on its way to the kernel.
type Size struct {
	Bytes int // an upper estimate of its netlink messages
}

// Fits reports whether the size is within limits.
func (s Size) Fits(limits Size) bool { return s.Bytes <= limits.Bytes }

// Upper estimates of encoded sizes, in bytes.
const (
	objectBytes    = 256                    // a table, set or chain with its longest names
	statementBytes = 400                    // a statement with up to six expressions
	elementBytes   = 3*8 + 16 + 16 + 4 + 12 // attribute headers and the longest key
	rangeBytes     = 8 + 16 + 16 + 4 + 4    // the other end of a key that is a range
	endpointBytes  = 2*8 + 16 + 4           // a value: address and port
	chainBytes     = 5*8 + 32               // a value: verdict with a chain's name
	commentBytes   = 8 + rules.MaxComment
)

// elementsPerMessage keeps a message's list of elements, whose length is a number
// of 16 bits, under 64 KiB.
const elementsPerMessage = 64 * 1024 / (elementBytes + rangeBytes + chainBytes + commentBytes)

// Ops returns the operations in order. The caller must not change them.
func (b *Batch) Ops() []Op { return b.ops }

// Counts returns how much the batch does.
func (b *Batch) Counts() Counts { return b.counts }

// Size returns how much the batch occupies.
func (b *Batch) Size() Size { return b.size }

// Empty reports whether the batch does nothing.
func (b *Batch) Empty() bool { return len(b.ops) == 0 }

// Add appends operations. Elements are split so that each operation is one
// message; operations on no elements are left out.
func (b *Batch) Add(ops ...Op) {
	for _, op := range ops {
		switch op.Verb {
		case AddElements, DeleteElements:
			for len(op.Elements) > 0 {
				part := op
				part.Elements = op.Elements[:min(len(op.Elements), elementsPerMessage)]
				op.Elements = op.Elements[len(part.Elements):]
				b.add(part)
			}
		default:
			b.add(op)
		}
	}
}

func (b *Batch) add(op Op) {
	b.ops = append(b.ops, op)
	b.size.Bytes += objectBytes
	switch op.Verb {
	case AddElements, DeleteElements:
		b.counts.Elements += len(op.Elements)
		perElement := elementBytes + endpointBytes
		if op.Set.Value() == rules.VerdictValue {
			b.counts.Verdicts += len(op.Elements)
			perElement = elementBytes + chainBytes
		}
		switch op.Set { //nolint:exhaustive // the others have single keys
		case rules.AllowedSources:
			perElement += rangeBytes
		case rules.ServiceCIDRs: // two messages
			perElement *= 2
		}
		b.size.Bytes += len(op.Elements) * perElement
		for _, e := range op.Elements {
			if e.Comment != "" {
				b.size.Bytes += commentBytes
			}
		}
	case AddRule:
		b.size.Bytes += len(op.Rule) * statementBytes
		b.counts.Objects++
	default:
		b.counts.Objects++
	}
}

// String returns the batch as nft commands, one a line, which `nft -f` takes.
// Versions of nft that fail with "conflicting protocols specified: ip vs. th", such
// as 1.0.6, take a rule that draws an endpoint only together with the commands that
// made the map, in one file; the kernel itself does not care.
func (b *Batch) String() string {
	var text []byte
	for _, op := range b.ops {
		text = append(op.appendText(text), '\n')
	}
	return string(text)
}

// summary is the nft command of the operation, without its elements.
func (op Op) summary() string {
	op.Elements = nil
	return string(op.appendText(nil))
}

// appendText appends the nft command of the operation.
func (op Op) appendText(b []byte) []byte {
	table := op.Family.Keyword() + " " + rules.TableName
	switch op.Verb {
	case AddTable:
		return fmt.Appendf(b, "add table %s", table)
	case FlushTable:
		return fmt.Appendf(b, "flush table %s", table)
	case AddSet:
		set := op.Decl
		b = fmt.Appendf(b, "add %s %s %s { %s; ", set.Kind(), table, set.Name, set.AppendType(nil, op.Family))
		for _, option := range set.Options() {
			b = append(b, option+"; "...)
		}
		return append(b, '}')
	case FlushSet:
		return fmt.Appendf(b, "flush %s %s %s", op.kind(), table, op.Name)
	case DeleteSet:
		return fmt.Appendf(b, "delete %s %s %s", op.kind(), table, op.Name)
	case AddChain:
		b = fmt.Appendf(b, "add chain %s %s", table, op.Chain.Name)
		if op.Chain.Base != nil {
			b = append(op.Chain.Base.AppendText(append(b, " { "...)), " }"...)
		}
		return b
	case FlushChain:
		return fmt.Appendf(b, "flush chain %s %s", table, op.Name)
	case DeleteChain:
		return fmt.Appendf(b, "delete chain %s %s", table, op.Name)
	case AddRule:
		return op.Rule.AppendText(fmt.Appendf(b, "add rule %s %s ", table, op.Name), op.Family)
	case AddElements:
		return op.appendElements(fmt.Appendf(b, "add element %s %s", table, op.Set.Set().Name), rules.Element.AppendText)
	case DeleteElements:
		return op.appendElements(fmt.Appendf(b, "delete element %s %s", table, op.Set.Set().Name), rules.Element.AppendKey)
	default:
		panic(fmt.Sprintf("syncer: no verb %d", op.Verb))
	}
}

func (op Op) kind() string {
	if op.IsMap {
		return "map"
	}
	return "set"
}

func (op Op) appendElements(b []byte, text func(rules.Element, []byte) []byte) []byte {
	if len(op.Elements) == 0 {
		return b
	}
	for i, e := range op.Elements {
		if i == 0 {
			b = append(b, " { "...)
		} else {
			b = append(b, ", "...)
		}
		b = text(e, b)
	}
	return append(b, " }"...)
}
