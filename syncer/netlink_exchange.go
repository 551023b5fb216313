package syncer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// batchSocket is the socket of batches. The kernel works on a batch while it is sent and
// has answered when that returns. So nobody has to wait for answers, and the socket is
// none that the Go runtime polls: for every answer it would wake a thread of the runtime,
// which takes longer than the kernel takes for a small batch.
type batchSocket struct {
	fd     int
	answer []byte // what is received
}

const (
	// answerTimeout is how long an answer may take that is not there at once.
	answerTimeout = 30 * time.Second
	// cancelInterval is how often the context is looked at meanwhile.
	cancelInterval = 50 * time.Millisecond
	// longestAnswer has room for the answer to one message, which does not repeat it
	// (NETLINK_CAP_ACK).
	longestAnswer = 4096
)

// openBatchSocket opens a socket to a network namespace, see NewNetlink, and returns how
// large a batch may be. In a user namespace the kernel allows no more than
// net.core.wmem_max.
func openBatchSocket(netns, sendBuffer, receiveBuffer int) (s *batchSocket, limit int, err error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{NetNS: netns})
	if err != nil {
		return nil, 0, err //nolint:wrapcheck // says it all
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetOption(netlink.CapAcknowledge, true); err != nil {
		return nil, 0, fmt.Errorf("ask for answers without the question: %w", err)
	}
	if err := conn.SetWriteBuffer(sendBuffer); err != nil {
		return nil, 0, fmt.Errorf("size the send buffer: %w", err)
	}
	if err := conn.SetReadBuffer(receiveBuffer); err != nil {
		return nil, 0, fmt.Errorf("size the receive buffer: %w", err)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, 0, fmt.Errorf("find the socket: %w", err)
	}
	s = &batchSocket{answer: make([]byte, longestAnswer)}
	var dupErr error
	err = raw.Control(func(fd uintptr) { s.fd, dupErr = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err := errors.Join(err, dupErr); err != nil {
		return nil, 0, fmt.Errorf("keep the socket: %w", err)
	}
	limit, err = unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err == nil { // whoever else sends to it is refused
		err = unix.Connect(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("prepare the socket: %w", err), s.close())
	}
	return s, limit, nil
}

func (s *batchSocket) close() error {
	if err := unix.Close(s.fd); err != nil {
		return fmt.Errorf("close the netlink socket: %w", err)
	}
	return nil
}

// exchange sends a batch and returns the kernel's answers that are errors. If it returns
// an error itself, more answers may follow.
func (s *batchSocket) exchange(ctx context.Context, e *encoder) ([]answer, error) {
	for {
		_, err := unix.Write(s.fd, e.buf)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, os.NewSyscallError("send", err)
		}
	}
	a := answers{end: e.seq - 2} // the last but the end of the batch
	deadline := time.Now().Add(answerTimeout)
	for {
		n, err := unix.Read(s.fd, s.answer)
		switch {
		case err == nil:
			if err = a.read(s.answer[:n]); err == nil && a.complete {
				return a.outcome()
			}
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			if len(a.errors) > 0 || a.lost != nil {
				return a.outcome()
			}
			err = s.wait(ctx, deadline)
		case errors.Is(err, unix.ENOBUFS):
			// Some answers found no room. What the others say holds all the same.
			a.lost = os.NewSyscallError("receive", err)
			continue
		default:
			err = os.NewSyscallError("receive", err)
		}
		if err != nil {
			return nil, err
		}
	}
}

// wait waits for an answer.
func (s *batchSocket) wait(ctx context.Context, deadline time.Time) error {
	for {
		switch n, err := unix.Poll([]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLIN}}, int(cancelInterval.Milliseconds())); {
		case err != nil && !errors.Is(err, unix.EINTR):
			return os.NewSyscallError("poll", err)
		case n > 0:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("the kernel has not answered: %w", ctx.Err())
		case time.Now().After(deadline):
			return fmt.Errorf("the kernel has not answered within %s: %w", answerTimeout, os.ErrDeadlineExceeded)
		}
	}
}

// answer is the kernel's error about a message of a batch.
type answer struct {
	seq   uint32
	errno syscall.Errno
}

// answers are those to a batch.
type answers struct {
	end      uint32 // the last message, which is answered in any case
	errors   []answer
	complete bool // the last message was answered, after all others
	lost     error
}

// read takes a datagram.
func (a *answers) read(datagram []byte) error {
	for len(datagram) > 0 {
		m, rest, err := cutMessage(datagram)
		if err != nil {
			return err
		}
		datagram = rest
		if m.messageType != unix.NLMSG_ERROR {
			continue
		}
		a.complete = a.complete || m.seq == a.end
		if errno, ok := m.errno().(syscall.Errno); ok { //nolint:errorlint // it is not wrapped
			a.errors = append(a.errors, answer{m.seq, errno})
		}
	}
	return nil
}

// outcome returns the errors once all answers are in.
func (a *answers) outcome() ([]answer, error) {
	if len(a.errors) == 0 && a.lost != nil {
		return nil, a.lost
	}
	return a.errors, nil
}
