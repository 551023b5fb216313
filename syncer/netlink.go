package syncer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/nftproxy/nftproxy/rules"
)

const (
	// sendBuffer bounds a batch, receiveBuffer the answers to one that is refused. The
	// kernel allocates what is used, not what is allowed.
	sendBuffer    = 256 << 20
	receiveBuffer = 64 << 20
)

// Netlink is the kernel, by way of a netlink socket. After any error the socket is
// closed, since an answer may still be on its way, and the next call opens a new one.
type Netlink struct {
	table string // the name of our table; another one only to probe
	netns int    // a namespace's file descriptor, 0 for our own

	sendBuffer, receiveBuffer int // asked for, in bytes

	encoder *encoder
	socket  *batchSocket // nil while it is closed
	limits  Size
}

var _ Kernel = (*Netlink)(nil)

// NewNetlink opens a socket to the kernel. netns is a file descriptor of a network
// namespace, or 0 for the one of the calling thread. An error says what is missing.
func NewNetlink(netns int) (*Netlink, error) {
	return newNetlink(rules.TableName, netns, sendBuffer, receiveBuffer)
}

func newNetlink(table string, netns, sendBuffer, receiveBuffer int) (*Netlink, error) {
	encoder, err := newEncoder(table)
	if err != nil {
		return nil, err
	}
	k := &Netlink{table: table, netns: netns, sendBuffer: sendBuffer, receiveBuffer: receiveBuffer, encoder: encoder}
	if err := k.open(); err != nil {
		return nil, err
	}
	return k, nil
}

func (k *Netlink) open() error {
	if k.socket != nil {
		return nil
	}
	socket, limit, err := openBatchSocket(k.netns, k.sendBuffer, k.receiveBuffer)
	if err != nil {
		return openError(err)
	}
	const reserve = 4096 // batch begin, batch end, the kernel's own part
	k.socket, k.limits = socket, Size{Bytes: limit - reserve}
	return nil
}

// Close closes the socket.
func (k *Netlink) Close() error {
	if k.socket == nil {
		return nil
	}
	socket := k.socket
	k.socket = nil
	return socket.close()
}

// Limits returns what fits into the socket's send buffer.
func (k *Netlink) Limits() Size { return k.limits }

// Apply sends the batch and waits for the kernel's answer.
func (k *Netlink) Apply(ctx context.Context, b *Batch) error {
	const op = "apply a batch"
	if b.Empty() {
		return nil
	}
	if err := k.send(ctx, op, b, false); err != nil {
		return kernelError(op, err)
	}
	return nil
}

// Check sends the batch with an impossible last operation, so that the kernel examines
// all of it and commits nothing.
func (k *Netlink) Check(ctx context.Context, b *Batch) error {
	const op = "check a batch"
	if b.Empty() {
		return nil
	}
	err := k.send(ctx, op, b, true)
	var refused *refusedError
	switch {
	case err == nil:
		return &Error{Op: op, Cause: Unknown, Err: errors.New("the kernel deleted a chain that does not exist")}
	case errors.As(err, &refused) && len(refused.answers) == 1 && refused.op(0) == nil && refused.answers[0].errno == syscall.ENOENT:
		return nil
	default:
		return kernelError(op, err)
	}
}

// send encodes and sends a batch. With impossible, an operation that cannot succeed comes
// last. An error that is a *refusedError is the kernel's answer.
func (k *Netlink) send(ctx context.Context, op string, b *Batch, impossible bool) (err error) {
	if !b.Size().Fits(k.limits) {
		return &Error{Op: op, Cause: TooLarge, Err: fmt.Errorf(
			"%d bytes exceed %d: raise the sysctl net.core.wmem_max", b.Size().Bytes, k.limits.Bytes)}
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nothing was sent: %w", err)
	}
	if err := k.open(); err != nil {
		return err
	}
	defer k.encoder.release()
	defer func() {
		if err != nil { // an answer may still come, and it is not for the next batch
			err = errors.Join(err, k.Close())
		}
	}()
	if err := k.encoder.encode(b, impossible); err != nil {
		return &Error{Op: op, Cause: Refused, Err: err}
	}
	answers, err := k.socket.exchange(ctx, k.encoder)
	if err == nil && len(answers) > 0 {
		err = &refusedError{b, answers}
	}
	return err
}

// refusedError says which messages of a batch the kernel has refused.
type refusedError struct {
	batch   *Batch
	answers []answer
}

// op returns the operation that an answer is about, nil if it is about none: the whole
// batch, or the impossible one at the end.
func (e *refusedError) op(i int) *Op {
	n := int(e.answers[i].seq) - 1
	if n < 0 || n >= len(e.batch.ops) {
		return nil
	}
	return &e.batch.ops[n]
}

// Error names the first refusals: there may be thousands.
func (e *refusedError) Error() string {
	const most = 3
	var parts []string
	for i := range e.answers[:min(len(e.answers), most)] {
		text := e.answers[i].errno.Error()
		if op := e.op(i); op != nil {
			text = op.summary() + ": " + text
		}
		parts = append(parts, text)
	}
	if more := len(e.answers) - most; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more errors", more))
	}
	return strings.Join(parts, "; ")
}

// Unwrap returns the error numbers.
func (e *refusedError) Unwrap() []error {
	errs := make([]error, len(e.answers))
	for i, a := range e.answers {
		errs[i] = a.errno
	}
	return errs
}
