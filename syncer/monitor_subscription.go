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

const (
	// After a failure the next attempt waits, longer each time.
	firstSubscribeRetry = 20 * time.Millisecond
	lastSubscribeRetry  = 10 * time.Second
	// notificationBytes is more than the kernel puts into one datagram of
	// notifications: NLMSG_GOODSIZE, which is below 8 KiB with pages of any size.
	notificationBytes = 16 << 10
)

// errOverrun says that the kernel dropped notifications, since the receive buffer was
// full or since it could not make one. The socket works on.
var errOverrun = errors.New("the kernel had to drop notifications")

// errChanging says that a dump is not consistent: NLM_F_DUMP_INTR.
var errChanging = errors.New("there were changes while the kernel listed it")

// subscription is a netlink socket that receives notifications. It is not made by
// vishvananda/netlink: the goroutine there that closes the socket cannot be waited for,
// and ENOBUFS comes as a text and ends the subscription. mdlayher/netlink opens it, but
// reads into a new buffer every time.
type subscription struct {
	conn *netlink.Conn
	raw  syscall.RawConn

	buffer []byte
	read   func(fd uintptr) bool // fills the following
	n      int
	from   unix.Sockaddr
	err    error
}

// subscribe opens a socket in a network namespace, see NewNetlink, that receives what
// the kernel sends to the groups: a bit mask, 0 for none yet.
func subscribe(netns, protocol int, groups uint32, receiveBuffer int) (*subscription, error) {
	conn, err := netlink.Dial(protocol, &netlink.Config{NetNS: netns, Groups: groups})
	if err != nil {
		return nil, fmt.Errorf("subscribe to notifications of the kernel: %w", err)
	}
	s := &subscription{conn: conn, buffer: make([]byte, notificationBytes)}
	if err := conn.SetReadBuffer(receiveBuffer); err != nil {
		return nil, errors.Join(fmt.Errorf("size the receive buffer of notifications: %w", err), s.close())
	}
	if s.raw, err = conn.SyscallConn(); err != nil {
		return nil, errors.Join(fmt.Errorf("find the socket of notifications: %w", err), s.close())
	}
	s.read = func(fd uintptr) bool {
		// With MSG_TRUNC n is the size of what was sent, even if it exceeds the buffer.
		s.n, s.from, s.err = unix.Recvfrom(int(fd), s.buffer, unix.MSG_TRUNC)
		return !again(s.err)
	}
	return s, nil
}

// bind ends receive when the context is done, until stop, which waits until that is
// over.
func (s *subscription) bind(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	running := context.AfterFunc(ctx, func() {
		defer close(done)
		_ = s.conn.SetReadDeadline(time.Unix(1, 0))
	})
	return func() {
		if !running() {
			<-done
		}
	}
}

// receive waits for a datagram and returns it, in memory that the next call uses again.
// It is empty if it was not from the kernel. After errOverrun the subscription goes on.
func (s *subscription) receive() ([]byte, error) {
	if err := s.raw.Read(s.read); err != nil {
		return nil, fmt.Errorf("receive notifications of the kernel: %w", err)
	}
	sender, ok := s.from.(*unix.SockaddrNetlink)
	switch {
	case errors.Is(s.err, unix.ENOBUFS):
		return nil, fmt.Errorf("%w: %w", errOverrun, s.err)
	case s.err != nil:
		return nil, fmt.Errorf("receive notifications of the kernel: %w", s.err)
	case s.n > len(s.buffer):
		return nil, fmt.Errorf("%w: %d bytes at once exceed a buffer of %d", errOverrun, s.n, len(s.buffer))
	case !ok || sender.Pid != 0:
		return nil, nil
	}
	return s.buffer[:s.n], nil
}

// drain discards what is queued. It does not go on for ever if more keeps coming.
func (s *subscription) drain() error {
	const most = 100_000
	left, err := most, error(nil)
	readErr := s.raw.Read(func(fd uintptr) bool {
		for ; left > 0 && err == nil; left-- {
			_, _, err = unix.Recvfrom(int(fd), s.buffer, unix.MSG_DONTWAIT)
		}
		return true
	})
	switch {
	case readErr != nil:
		return fmt.Errorf("receive notifications of the kernel: %w", readErr)
	case errors.Is(err, unix.ENOBUFS):
		return fmt.Errorf("%w: %w", errOverrun, err)
	case err != nil && !again(err):
		return fmt.Errorf("receive notifications of the kernel: %w", err)
	}
	return nil
}

func (s *subscription) close() error {
	if err := s.conn.Close(); err != nil {
		return fmt.Errorf("close the socket of notifications: %w", err)
	}
	return nil
}

// trouble counts the failures in a row of one thing that is tried again and again.
type trouble struct {
	failures int
	told     bool
}

// failed takes another failure. It tells of the first one, but of those that happen
// where much changes, and that trying again heals, only if they do not stop. It returns
// the time to the next attempt.
func (t *trouble) failed(err error, tell func(error)) time.Duration {
	t.failures++
	passing := errors.Is(err, errOverrun) || errors.Is(err, errChanging) || errors.Is(err, unix.EINTR)
	if !t.told && (!passing || t.failures >= reportedFailure) {
		t.told = true
		tell(err)
	}
	const most = 16 // doublings, more than it takes
	return min(firstSubscribeRetry<<min(t.failures-1, most), lastSubscribeRetry)
}

// over says that it worked.
func (t *trouble) over() { *t = trouble{} }

// sleep waits for some time, or until the context is done.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
