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

// errInterrupted says that a dump is not consistent: NLM_F_DUMP_INTR.
var errInterrupted = errors.New("the table changed too much while it was read")

// dumpBytes is as much as the kernel puts into one part of a dump (netlink_dump).
const dumpBytes = 32 << 10

// rawSocket is a netfilter socket that is read part by part into one buffer. The
// library that opens it would collect a whole dump.
type rawSocket struct {
	conn    *netlink.Conn
	raw     syscall.RawConn
	seq     uint32
	buffer  []byte
	request []byte
}

// newRawSocket opens a socket to a network namespace, see NewNetlink.
func newRawSocket(netns, bufferBytes int) (*rawSocket, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, fmt.Errorf("open a netlink socket: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find the netlink socket: %w", err), conn.Close())
	}
	return &rawSocket{conn: conn, raw: raw, buffer: make([]byte, bufferBytes)}, nil
}

func (s *rawSocket) close() error {
	if err := s.conn.Close(); err != nil {
		return fmt.Errorf("close the netlink socket: %w", err)
	}
	return nil
}

func (s *rawSocket) next() uint32 {
	s.seq++
	return s.seq
}

// bind ends what the socket waits for when the context is done, until stop.
func (s *rawSocket) bind(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) })
}

func (s *rawSocket) send(request []byte) error {
	var sendErr error
	err := s.raw.Write(func(fd uintptr) bool {
		sendErr = unix.Sendto(int(fd), request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		return !again(sendErr)
	})
	return errors.Join(err, sendErr)
}

// receive returns what the kernel sent, in the socket's buffer.
func (s *rawSocket) receive(ctx context.Context) ([]byte, error) {
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
func (s *rawSocket) answer(ctx context.Context, seq uint32) error {
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

// dump sends the request of a dump, which has the socket's next number, and calls visit
// with the payload of every answer of a type. What visit gets is valid only until it
// returns; its error ends the dump. The kernel produces each part when it is asked for,
// so a slow reader costs no memory and misses nothing.
func (s *rawSocket) dump(ctx context.Context, request []byte, answers uint16, visit func(payload []byte) error) error {
	stop := s.bind(ctx)
	defer stop()
	if err := s.send(request); err != nil {
		return err
	}
	d := dump{seq: s.seq, answers: answers, visit: visit}
	for {
		part, err := s.receive(ctx)
		done := false
		if err == nil {
			done, err = d.read(part)
		}
		switch {
		case err != nil:
			return err
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
	answers     uint16 // their type
	visit       func(payload []byte) error
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
		case d.answers:
			if err := d.visit(m.payload); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}
