package syncer

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// flowTable is the kernel's conntrack table, open for one pass.
type flowTable interface {
	// dump calls visit with every flow of the query, perhaps with others too, and with
	// some twice. What visit gets is valid only until it returns; its error ends the
	// dump. With any error some flows may have been left out.
	dump(ctx context.Context, q query, visit func(f *flow) error) error
	// delete deletes the entry and reports whether it was still there. It may be
	// called by visit.
	delete(ctx context.Context, f *flow) (bool, error)
	close() error
}

// errInterrupted says that a dump is not consistent: NLM_F_DUMP_INTR.
var errInterrupted = errors.New("the conntrack table changed too much while it was read")

// errNoConntrack says that this kernel, or this process, has no access to conntrack
// entries, and that trying again is of no use.
type errNoConntrack struct{ err error }

// dumpBytes is as much as the kernel puts into one part of a dump (netlink_dump).
const dumpBytes = 32 << 10

// netlinkFlows is the real flowTable. It has a socket to dump and one to delete, so
// that each entry can be deleted as soon as it was judged: between two parts of a
// dump the kernel holds no lock.
type netlinkFlows struct {
	dumps, deletes *flowSocket
}

// openNetlinkFlows opens the conntrack table of a network namespace, see NewNetlink.
func openNetlinkFlows(netns int) (flowTable, error) {
	dumps, err := newFlowSocket(netns, dumpBytes)
	if err != nil {
		return nil, err
	}
	deletes, err := newFlowSocket(netns, 4096)
	if err != nil {
		return nil, errors.Join(err, dumps.close())
	}
	return &netlinkFlows{dumps, deletes}, nil
}

func (t *netlinkFlows) close() error { return errors.Join(t.dumps.close(), t.deletes.close()) }

func (t *netlinkFlows) dump(ctx context.Context, q query, visit func(f *flow) error) error {
	visited := false
	visitAll := func(f *flow) error {
		visited = true
		return visit(f)
	}
	err := t.dumpWith(ctx, q, true, visitAll)
	if !visited && isUnsupported(err) { // a kernel that knows filters, but not this one
		err = t.dumpWith(ctx, q, false, visitAll)
	}
	if !visited && (isUnsupported(err) || errors.Is(err, syscall.EPERM)) {
		return &errNoConntrack{err}
	}
	return err
}

func isUnsupported(err error) bool {
	return errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP)
}

// dumpWith is one dump. The kernel produces each part when it is asked for, so a slow
// reader costs no memory and no entries.
func (t *netlinkFlows) dumpWith(ctx context.Context, q query, filter bool, visit func(f *flow) error) error {
	const op = "read the conntrack table"
	s := t.dumps
	stop := s.bind(ctx)
	defer stop()
	seq := s.next()
	if err := s.send(dumpRequest(seq, q, filter)); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	d := dump{seq: seq, visit: visit}
	for {
		part, err := s.receive(ctx)
		done := false
		if err == nil {
			done, err = d.read(part)
		}
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", op, err)
		case done && d.interrupted:
			return errInterrupted
		case done:
			return nil
		}
	}
}

// dump is a dump that is being read.
type dump struct {
	seq         uint32
	visit       func(f *flow) error
	flow        flow
	interrupted bool
}

// read takes a part of the dump and reports whether it was the last one.
func (d *dump) read(part []byte) (done bool, err error) {
	for len(part) > 0 {
		var m message
		if m, part, err = cutMessage(part); err != nil {
			return false, err
		}
		if m.seq != d.seq {
			continue
		}
		d.interrupted = d.interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
		switch m.messageType {
		case unix.NLMSG_DONE:
			return true, m.errno()
		case unix.NLMSG_ERROR:
			if err := m.errno(); err != nil {
				return false, err
			}
		case ctMessageNew:
			if d.flow.parse(m.payload) {
				if err := d.visit(&d.flow); err != nil {
					return false, err
				}
			}
		}
	}
	return false, nil
}

func (t *netlinkFlows) delete(ctx context.Context, f *flow) (bool, error) {
	s := t.deletes
	stop := s.bind(ctx)
	defer stop()
	seq := s.next()
	request, err := deleteRequest(s.request[:0], seq, f)
	if err != nil {
		return false, err
	}
	s.request = request
	if err := s.send(request); err != nil {
		return false, fmt.Errorf("delete a conntrack entry: %w", err)
	}
	err = s.answer(ctx, seq)
	if errors.Is(err, syscall.ENOENT) { // has ended, or another one is in its place
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("delete a conntrack entry: %w", err)
	}
	return true, nil
}

// flowSocket is a netlink socket that is read part by part into one buffer. The
// library that opens it would collect a whole dump.
type flowSocket struct {
	conn    *netlink.Conn
	raw     syscall.RawConn
	seq     uint32
	buffer  []byte
	request []byte
}

func newFlowSocket(netns, bufferBytes int) (*flowSocket, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		if errors.Is(err, syscall.EPROTONOSUPPORT) || errors.Is(err, syscall.EAFNOSUPPORT) {
			err = &errNoConntrack{err}
		}
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find the netlink socket: %w", err), conn.Close())
	}
	return &flowSocket{conn: conn, raw: raw, buffer: make([]byte, bufferBytes)}, nil
}

func (s *flowSocket) close() error {
	if err := s.conn.Close(); err != nil {
		return fmt.Errorf("close the netlink socket: %w", err)
	}
	return nil
}

func (s *flowSocket) next() uint32 {
	s.seq++
	return s.seq
}

// bind ends what the socket waits for when the context is done, until stop.
func (s *flowSocket) bind(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) })
}

func (s *flowSocket) send(request []byte) error {
	var sendErr error
	err := s.raw.Write(func(fd uintptr) bool {
		sendErr = unix.Sendto(int(fd), request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !again(sendErr)
	})
	return errors.Join(err, sendErr)
}

// receive returns what the kernel sent, in the socket's buffer.
func (s *flowSocket) receive(ctx context.Context) ([]byte, error) {
	// In this order: a deadline that has passed because of the context stays.
	if err := s.conn.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return nil, fmt.Errorf("set the deadline: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("stopped: %w", err)
	}
	var n int
	var from unix.Sockaddr
	var readErr error
	err := s.raw.Read(func(fd uintptr) bool {
		// With MSG_TRUNC n is the size of what was sent, even if it exceeds the buffer.
		n, from, readErr = unix.Recvfrom(int(fd), s.buffer, unix.MSG_TRUNC)
		return !again(readErr)
	})
	if err := errors.Join(err, readErr); err != nil {
		return nil, err
	}
	if n > len(s.buffer) {
		return nil, fmt.Errorf("%d bytes at once exceed a buffer of %d", n, len(s.buffer))
	}
	if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
		return nil, nil // not from the kernel
	}
	return s.buffer[:n], nil
}

// answer waits for the kernel's answer to a request and returns its error.
func (s *flowSocket) answer(ctx context.Context, seq uint32) error {
	for {
		received, err := s.receive(ctx)
		if err != nil {
			return err
		}
		if len(received) == 0 {
			continue
		}
		m, _, err := cutMessage(received)
		if err != nil {
			return err
		}
		if m.seq == seq && m.messageType == unix.NLMSG_ERROR {
			return m.errno()
		}
	}
}

func again(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)
}

// Error says what is missing.
func (e *errNoConntrack) Error() string {
	return e.err.Error() + ": the kernel needs the module nf_conntrack_netlink (CONFIG_NF_CT_NETLINK), and this process CAP_NET_ADMIN"
}

// Unwrap returns the underlying error.
func (e *errNoConntrack) Unwrap() error { return e.err }
