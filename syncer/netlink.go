package syncer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"syscall"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
)

const (
	// sendBuffer bounds a batch, receiveBuffer the answers to one. The kernel
	// allocates what is used, not what is allowed.
	sendBuffer    = 256 << 20
	receiveBuffer = 64 << 20
	// answerBytes is what one answer occupies of the receive buffer: the kernel
	// counts the memory of its packet, not the message in it.
	answerBytes = 1280
	// answerTimeout is how long an answer may take, at least. The kernel works while
	// it takes the batch, so answers are there at once: 4 s were measured for a
	// million elements.
	answerTimeout = 30 * time.Second
)

// Netlink is the kernel, by way of one netlink socket. After any error the socket
// is closed, since an answer may still be on its way, and the next call opens a
// new one.
type Netlink struct {
	table string // the name of our table; another one only to probe
	netns int    // a namespace's file descriptor, 0 for our own

	sendBuffer, receiveBuffer int // asked for, in bytes

	conn   *nftables.Conn
	socket *netlink.Conn // the socket of conn
	until  time.Time     // how long socket waits for answers
	limits Size
}

var _ Kernel = (*Netlink)(nil)

// NewNetlink opens a socket to the kernel. netns is a file descriptor of a network
// namespace, or 0 for the one of the calling thread. An error says what is missing.
func NewNetlink(netns int) (*Netlink, error) {
	return newNetlink(rules.TableName, netns, sendBuffer, receiveBuffer)
}

func newNetlink(table string, netns, sendBuffer, receiveBuffer int) (*Netlink, error) {
	k := &Netlink{table: table, netns: netns, sendBuffer: sendBuffer, receiveBuffer: receiveBuffer}
	if err := k.open(); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *Netlink) open() error {
	if k.conn != nil {
		return nil
	}
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithNetNSFd(k.netns),
		nftables.WithSockOptions(func(c *netlink.Conn) error {
			k.socket = c
			return k.prepare(c)
		}))
	if err != nil {
		return openError(err)
	}
	k.conn = conn
	return nil
}

// prepare sizes the socket's buffers and learns what the kernel made of that: in
// a user namespace it allows no more than net.core.wmem_max and rmem_max.
func (k *Netlink) prepare(c *netlink.Conn) error {
	if err := c.SetOption(netlink.CapAcknowledge, true); err != nil {
		return fmt.Errorf("ask for answers without the question: %w", err)
	}
	if err := c.SetWriteBuffer(k.sendBuffer); err != nil {
		return fmt.Errorf("size the send buffer: %w", err)
	}
	if err := c.SetReadBuffer(k.receiveBuffer); err != nil {
		return fmt.Errorf("size the receive buffer: %w", err)
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return fmt.Errorf("find the socket: %w", err)
	}
	var snd, rcv int
	var sndErr, rcvErr error
	err = raw.Control(func(fd uintptr) {
		snd, sndErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_SNDBUF)
		rcv, rcvErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF)
	})
	if err := errors.Join(err, sndErr, rcvErr); err != nil {
		return fmt.Errorf("read the size of the buffers: %w", err)
	}
	const reserve = 4096 // batch begin, batch end, the kernel's own part
	k.limits = Size{Bytes: snd - reserve, Messages: rcv / answerBytes}
	return nil
}

// Close closes the socket.
func (k *Netlink) Close() error {
	if k.conn == nil {
		return nil
	}
	err := k.conn.CloseLasting()
	k.conn, k.socket, k.until = nil, nil, time.Time{}
	if err != nil {
		return fmt.Errorf("close the netlink socket: %w", err)
	}
	return nil
}

// Limits returns what fits into the socket's buffers.
func (k *Netlink) Limits() Size { return k.limits }

// Apply sends the batch and waits for the kernel's answers.
func (k *Netlink) Apply(ctx context.Context, b *Batch) error {
	const op = "apply a batch"
	if b.Empty() {
		return nil
	}
	if err := k.send(ctx, op, b, nil); err != nil {
		return kernelError(op, err)
	}
	return nil
}

// Check sends the batch with an impossible last operation, so that the kernel
// examines all of it and commits nothing.
func (k *Netlink) Check(ctx context.Context, b *Batch) error {
	const op = "check a batch"
	var family rules.Family
	for _, o := range b.Ops() {
		family = o.Family
	}
	if family == 0 {
		return nil
	}
	err := k.send(ctx, op, b, func() {
		k.conn.DelChain(&nftables.Chain{Name: "never-added-by-" + rules.TableName, Table: k.tableOf(family)})
	})
	switch leaves := errorLeaves(err); {
	case err == nil:
		return &Error{Op: op, Cause: Unknown, Err: errors.New("the kernel deleted a chain that does not exist")}
	case len(leaves) == 1 && errors.Is(err, syscall.ENOENT):
		return nil
	default:
		return kernelError(op, err)
	}
}

// send encodes the batch, and what more adds to it, and flushes it.
func (k *Netlink) send(ctx context.Context, op string, b *Batch, more func()) (err error) {
	if !b.Size().Fits(k.limits) {
		return &Error{Op: op, Cause: TooLarge, Err: fmt.Errorf(
			"%d bytes in %d messages exceed %d and %d: raise the sysctls net.core.wmem_max and net.core.rmem_max",
			b.Size().Bytes, b.Size().Messages, k.limits.Bytes, k.limits.Messages)}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nothing was sent: %w", err)
	}
	if err := k.open(); err != nil {
		return err
	}
	defer func() {
		if err != nil { // an answer may still come, and it is not for the next batch
			err = errors.Join(err, k.Close())
		}
	}()
	for _, o := range b.Ops() {
		if err := k.encode(o); err != nil {
			return &Error{Op: op, Cause: Refused, Err: err}
		}
	}
	if more != nil {
		more()
	}
	stop, err := k.deadline(ctx)
	if err != nil {
		return err
	}
	defer stop()
	return k.conn.Flush()
}

// deadline bounds how long answers are waited for, by answerTimeout and by the
// context. Call stop when they are in.
//
// A deadline is set for twice that time and used again while enough of it is left:
// to set one makes the runtime wake another thread, which takes longer than the
// kernel takes for a small batch.
func (k *Netlink) deadline(ctx context.Context) (stop func(), err error) {
	now := time.Now()
	until, bounded := ctx.Deadline()
	switch {
	case bounded && until.Before(now.Add(answerTimeout)):
	case k.until.Before(now.Add(answerTimeout)):
		until = now.Add(2 * answerTimeout)
	default:
		until = k.until
	}
	if until != k.until {
		if err := k.socket.SetReadDeadline(until); err != nil {
			return nil, fmt.Errorf("set the deadline: %w", err)
		}
		k.until = until
	}
	socket := k.socket
	running := context.AfterFunc(ctx, func() { _ = socket.SetReadDeadline(time.Unix(1, 0)) })
	return func() {
		if !running() {
			k.until = time.Time{} // has passed, or is about to
		}
	}, nil
}

func (k *Netlink) tableOf(f rules.Family) *nftables.Table {
	t := rules.EncodeTable(f)
	t.Name = k.table
	return t
}

// encode adds the operation's message to those that Flush will send.
func (k *Netlink) encode(op Op) error {
	table := k.tableOf(op.Family)
	switch op.Verb {
	case AddTable:
		k.conn.AddTable(table)
	case FlushTable:
		k.conn.FlushTable(table)
	case AddSet:
		set := op.Decl.Encode(op.Family)
		set.Table = table
		return k.conn.AddSet(set, nil)
	case FlushSet:
		k.conn.FlushSet(&nftables.Set{Table: table, Name: op.Name})
	case DeleteSet:
		k.conn.DelSet(&nftables.Set{Table: table, Name: op.Name})
	case AddChain:
		chain := op.Chain.Encode(op.Family)
		chain.Table = table
		k.conn.AddChain(chain)
	case FlushChain:
		k.conn.FlushChain(&nftables.Chain{Table: table, Name: op.Name})
	case DeleteChain:
		k.conn.DelChain(&nftables.Chain{Table: table, Name: op.Name})
	case AddRule:
		k.conn.AddRule(&nftables.Rule{
			Table: table, Chain: &nftables.Chain{Table: table, Name: op.Name}, Exprs: op.Rule.Encode(op.Family),
		})
	case AddElements:
		set := &nftables.Set{Table: table, Name: op.Set.Set().Name}
		return k.conn.SetAddElements(set, rules.EncodeElements(op.Elements))
	case DeleteElements:
		set := &nftables.Set{Table: table, Name: op.Set.Set().Name}
		return k.conn.SetDeleteElements(set, rules.EncodeKeys(op.Elements))
	}
	return nil
}

// State lists our chains and sets. A listing that another commit interrupts may
// have holes, so it is read until it comes out the same twice.
func (k *Netlink) State(ctx context.Context, families []rules.Family) (State, error) {
	const op = "list our tables"
	var last State
	for range 10 {
		state, err := k.state(ctx, families)
		if err != nil {
			return nil, kernelError(op, errors.Join(err, k.Close()))
		}
		if last != nil && reflect.DeepEqual(state, last) {
			return state, nil
		}
		last = state
	}
	return nil, &Error{Op: op, Cause: Unknown, Err: errors.New("another program keeps changing them")}
}

func (k *Netlink) state(ctx context.Context, families []rules.Family) (State, error) {
	if err := k.open(); err != nil {
		return nil, err
	}
	stop, err := k.deadline(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	state := State{}
	for _, f := range families {
		table := k.tableOf(f)
		_, err := k.conn.ListTableOfFamily(table.Name, table.Family)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list the table %s %s: %w", f.Keyword(), table.Name, err)
		}
		if state[f], err = k.tableState(table); err != nil {
			return nil, fmt.Errorf("list the table %s %s: %w", f.Keyword(), table.Name, err)
		}
	}
	return state, nil
}

func (k *Netlink) tableState(table *nftables.Table) (TableState, error) {
	ts := TableState{Chains: map[string]*rules.Hook{}, Sets: map[string]bool{}}
	chains, err := k.conn.ListChainsOfTableFamily(table.Family)
	if err != nil {
		return ts, fmt.Errorf("chains: %w", err)
	}
	for _, c := range chains {
		if c.Table.Name == table.Name {
			ts.Chains[c.Name] = hookOf(c)
		}
	}
	sets, err := k.conn.GetSets(table)
	if err != nil {
		return ts, fmt.Errorf("sets: %w", err)
	}
	for _, s := range sets {
		if !s.Anonymous { // an anonymous set goes with its rule
			ts.Sets[s.Name] = s.IsMap
		}
	}
	return ts, nil
}

// hookOf returns the hook of a base chain, nil for a regular chain. A policy other
// than accept makes it a hook that is never wanted.
func hookOf(c *nftables.Chain) *rules.Hook {
	if c.Hooknum == nil || c.Priority == nil {
		return nil
	}
	hook := &rules.Hook{Type: rules.ChainType(c.Type), Point: rules.HookPoint(*c.Hooknum), Priority: int32(*c.Priority)}
	if c.Policy != nil && *c.Policy != nftables.ChainPolicyAccept {
		hook.Type += " with policy drop"
	}
	return hook
}

// kernelError says what an error of the socket means.
func kernelError(op string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	cause := Unknown
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		cause = Forbidden
		err = fmt.Errorf("%w: run as root or with CAP_NET_ADMIN", err)
	case errors.Is(err, syscall.EMSGSIZE):
		cause = TooLarge
	case isRefusal(err):
		cause = Refused
	}
	return &Error{Op: op, Cause: cause, Err: shortened(err)}
}

// openError says what an error of opening the socket means. None is a refusal of a
// batch: descriptors that ran out, for example, may be there again soon.
func openError(err error) error {
	const op = "open a netlink socket"
	switch {
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return kernelError(op, err)
	case errors.Is(err, syscall.EPROTONOSUPPORT), errors.Is(err, syscall.EAFNOSUPPORT):
		return &Error{Op: op, Cause: Refused, Err: noNFTables(err)}
	default:
		return &Error{Op: op, Cause: Unknown, Err: err}
	}
}

func noNFTables(err error) error {
	return fmt.Errorf("%w: the kernel has no nf_tables, load the module or use a kernel with CONFIG_NF_TABLES", err)
}

// shortened keeps the first answers of a batch that all went wrong: there may be
// thousands.
func shortened(err error) error {
	const most = 3
	if leaves := errorLeaves(err); len(leaves) > most {
		return fmt.Errorf("%w (and %d more errors)", errors.Join(leaves[:most]...), len(leaves)-most)
	}
	return err
}

// isRefusal reports whether all answers that are errors are of those with which
// nf_tables refuses a message. Everything else, such as ENOBUFS, EINTR, EAGAIN,
// ENOMEM or a timeout, says nothing about the message.
func isRefusal(err error) bool {
	leaves := errorLeaves(err)
	for _, leaf := range leaves {
		refused := slices.ContainsFunc([]syscall.Errno{
			syscall.EINVAL, syscall.ENOENT, syscall.EEXIST, syscall.EBUSY, syscall.EOPNOTSUPP, syscall.ENOTSUP,
			syscall.ERANGE, syscall.EMLINK, syscall.ELOOP, syscall.ENFILE, syscall.ENOSPC, syscall.EOVERFLOW,
			syscall.ENAMETOOLONG, syscall.E2BIG, syscall.EMFILE,
		}, func(errno syscall.Errno) bool { return errors.Is(leaf, errno) })
		if !refused {
			return false
		}
	}
	return len(leaves) > 0
}

// errorLeaves returns the answers of the kernel in a tree of wrapped and joined
// errors.
func errorLeaves(err error) []error {
	switch e := err.(type) { //nolint:errorlint // the tree itself is walked
	case nil:
		return nil
	case *netlink.OpError:
		return []error{e}
	case interface{ Unwrap() []error }:
		var leaves []error
		for _, inner := range e.Unwrap() {
			leaves = append(leaves, errorLeaves(inner)...)
		}
		return leaves
	case interface{ Unwrap() error }:
		return errorLeaves(e.Unwrap())
	default:
		return []error{e}
	}
}
