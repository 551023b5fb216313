package syncer

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
)

// encoder puts the messages of one batch into one buffer, as they are sent:
//
//	batch begin   0
//	operation     1
//	...
//	operation     n    the only one that is answered, if nothing is wrong
//	batch end     n+1
//
// The numbers are their sequence numbers. Elements are written by rules, objects by
// google/nftables.
type encoder struct {
	table   string // the name of our table
	objects *nftables.Conn
	buf     []byte
	seq     uint32
	last    int // where the last message begins in buf
}

// keptBytes is how large a buffer is kept for the next batch. Those of whole rulesets are
// larger.
const keptBytes = 1 << 16

// newEncoder returns an encoder for a table. Its nftables.Conn has no socket: what it
// would send comes back through the hook that the library has for tests, the one place
// where its messages can be had.
func newEncoder(table string) (*encoder, error) {
	e := &encoder{table: table}
	var err error
	e.objects, err = nftables.New(nftables.AsLasting(), nftables.WithTestDial(e.capture))
	if err != nil {
		return nil, fmt.Errorf("encode netlink messages: %w", err)
	}
	return e, nil
}

// encode encodes a batch, which is not empty. With impossible, an operation that cannot
// succeed comes last.
func (e *encoder) encode(b *Batch, impossible bool) error {
	if size := b.Size().Bytes; size > keptBytes {
		e.buf = make([]byte, 0, size)
	}
	e.buf, e.seq, e.last = e.buf[:0], 0, 0
	e.frame(unix.NFNL_MSG_BATCH_BEGIN)
	var family rules.Family
	for i := range b.ops {
		family = b.ops[i].Family
		if err := e.op(&b.ops[i]); err != nil {
			return err
		}
	}
	if impossible {
		e.objects.DelChain(&nftables.Chain{Name: "never-added-by-" + rules.TableName, Table: e.tableOf(family)})
		if err := e.flush(); err != nil {
			return err
		}
	}
	e.askForAnswer()
	e.frame(unix.NFNL_MSG_BATCH_END)
	return nil
}

// release gives up the buffer if it is large.
func (e *encoder) release() {
	if cap(e.buf) > keptBytes {
		e.buf = nil
	}
}

// op appends the message of an operation.
func (e *encoder) op(op *Op) error {
	switch op.Verb {
	case AddElements:
		e.elements(op, unix.NFT_MSG_NEWSETELEM, rules.EncodeElements)
		return nil
	case DeleteElements:
		e.elements(op, unix.NFT_MSG_DELSETELEM, rules.EncodeKeys)
		return nil
	default:
		if err := e.object(op); err != nil {
			return err
		}
		return e.flush()
	}
}

// elements appends a message about elements.
func (e *encoder) elements(op *Op, messageType uint16, list func([]byte, []rules.Element) []byte) {
	e.header(unix.NFNL_SUBSYS_NFTABLES<<8|messageType, unix.NLM_F_CREATE)
	e.buf = appendFamily(e.buf, addressFamily(op.Family), 0)
	e.buf = appendString(e.buf, unix.NFTA_SET_ELEM_LIST_TABLE, e.table)
	e.buf = appendString(e.buf, unix.NFTA_SET_ELEM_LIST_SET, op.Set.Set().Name)
	e.buf = list(e.buf, op.Elements)
	e.finish()
}

// object has the library encode an operation on something else.
func (e *encoder) object(op *Op) error {
	table := e.tableOf(op.Family)
	switch op.Verb { //nolint:exhaustive // see op
	case AddTable:
		e.objects.AddTable(table)
	case FlushTable:
		e.objects.FlushTable(table)
	case AddSet:
		set := op.Decl.Encode(op.Family)
		set.Table = table
		if err := e.objects.AddSet(set, nil); err != nil {
			return fmt.Errorf("encode the set %s: %w", set.Name, err)
		}
	case FlushSet:
		e.objects.FlushSet(&nftables.Set{Table: table, Name: op.Name})
	case DeleteSet:
		e.objects.DelSet(&nftables.Set{Table: table, Name: op.Name})
	case AddChain:
		chain := op.Chain.Encode(op.Family)
		chain.Table = table
		e.objects.AddChain(chain)
	case FlushChain:
		e.objects.FlushChain(&nftables.Chain{Table: table, Name: op.Name})
	case DeleteChain:
		e.objects.DelChain(&nftables.Chain{Table: table, Name: op.Name})
	case AddRule:
		e.objects.AddRule(&nftables.Rule{
			Table: table, Chain: &nftables.Chain{Table: table, Name: op.Name}, Exprs: op.Rule.Encode(op.Family),
		})
	}
	return nil
}

// flush appends the messages that the library has made.
func (e *encoder) flush() error {
	if err := e.objects.Flush(); err != nil {
		return fmt.Errorf("encode netlink messages: %w", err)
	}
	return nil
}

// capture takes what the library would send: a batch of its own, of one message. It
// implements nltest.Func, where io.EOF says that there are no answers.
func (e *encoder) capture(messages []netlink.Message) ([]netlink.Message, error) {
	for _, m := range messages {
		switch uint16(m.Header.Type) {
		case unix.NFNL_MSG_BATCH_BEGIN, unix.NFNL_MSG_BATCH_END:
		default:
			e.header(uint16(m.Header.Type), uint16(m.Header.Flags&^(netlink.Acknowledge|netlink.Request)))
			e.buf = append(e.buf, m.Data...)
			e.finish()
		}
	}
	return nil, io.EOF
}

func (e *encoder) tableOf(f rules.Family) *nftables.Table {
	t := rules.EncodeTable(f)
	t.Name = e.table
	return t
}

// frame appends the message that begins or ends the batch.
func (e *encoder) frame(messageType uint16) {
	e.header(messageType, 0)
	e.buf = appendFamily(e.buf, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES)
	e.finish()
}

// header begins a message with the next sequence number.
func (e *encoder) header(messageType, flags uint16) {
	e.last = len(e.buf)
	e.buf = appendHeader(e.buf, messageType, flags, e.seq)
	e.seq++
}

// finish ends the message.
func (e *encoder) finish() {
	binary.NativeEndian.PutUint32(e.buf[e.last:], uint32(len(e.buf)-e.last))
}

// askForAnswer asks the kernel to say what became of the last message. It tells of
// others only if they fail.
func (e *encoder) askForAnswer() {
	flags := e.buf[e.last+6:]
	binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
}
