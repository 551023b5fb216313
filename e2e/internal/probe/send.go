package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a client's socket. It is used with plain system calls on one
// thread, since the net package hides the error queue: when a host rejects its
// own packet, the ICMP error comes back inside connect, while the socket is
// busy, and then only the error queue has it.
type socket struct {
	fd       int
	deadline time.Time
}

// send makes a probe in the calling thread's namespace. The context has a
// deadline.
func send(ctx context.Context, request Request) (result Result, err error) {
	s, err := open(ctx, request)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, unix.Close(s.fd)) }()
	var rejection *rejectionError
	switch request.To.Protocol {
	case TCP:
		result, err = s.sendTCP(request.To.Address)
	default:
		result, err = s.sendUDP(request.To.Address)
	}
	if errors.As(err, &rejection) {
		result, err = Result{Outcome: Refused, Reason: rejection.Error()}, nil
	}
	if err != nil {
		return Result{}, err
	}
	result.Local, err = s.local()
	return result, err
}

// open opens a socket for a request, with the error queue on.
func open(ctx context.Context, request Request) (*socket, error) {
	deadline, _ := ctx.Deadline()
	family, kind := unix.AF_INET6, unix.SOCK_DGRAM
	if request.To.Address.Addr().Is4() {
		family = unix.AF_INET
	}
	if request.To.Protocol == TCP {
		kind = unix.SOCK_STREAM
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a socket: %w", err)
	}
	s := &socket{fd: fd, deadline: deadline}
	if err := s.prepare(family, kind, request.SourcePort); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return s, nil
}

func (s *socket) prepare(family, kind int, port uint16) error {
	level, option := unix.IPPROTO_IP, unix.IP_RECVERR
	var client unix.Sockaddr = &unix.SockaddrInet4{Port: int(port)}
	if family == unix.AF_INET6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVERR
		client = &unix.SockaddrInet6{Port: int(port)}
		// The same port may be in use over IPv4.
		if err := unix.SetsockoptInt(s.fd, level, unix.IPV6_V6ONLY, 1); err != nil {
			return fmt.Errorf("restrict the socket to IPv6: %w", err)
		}
	}
	if err := unix.SetsockoptInt(s.fd, level, option, 1); err != nil {
		return fmt.Errorf("switch on the error queue: %w", err)
	}
	if kind == unix.SOCK_STREAM {
		// Closing resets the connection, so that neither end keeps the port.
		if err := unix.SetsockoptLinger(s.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			return fmt.Errorf("set linger: %w", err)
		}
	}
	if port == 0 {
		return nil
	}
	if err := unix.Bind(s.fd, client); err != nil {
		return fmt.Errorf("bind to port %d: %w", port, err)
	}
	return nil
}

// sendTCP connects and reads the answer.
func (s *socket) sendTCP(to netip.AddrPort) (Result, error) {
	err := unix.Connect(s.fd, sockaddr(to))
	if err != nil && err != unix.EINPROGRESS {
		return Result{}, fmt.Errorf("connect: %w", err)
	}
	if err := s.wait(unix.POLLOUT); err != nil {
		return orDropped(err, "no answer to SYN")
	}
	var answer []byte
	for {
		if err := s.wait(unix.POLLIN); err != nil {
			return orDropped(err, "connected, but no answer")
		}
		buffer := make([]byte, 256)
		n, err := unix.Read(s.fd, buffer)
		switch {
		case err == unix.EAGAIN || err == unix.EINTR:
		case err != nil:
			return Result{}, asRejection(err)
		case n == 0:
			return decodeResult(string(answer), "")
		}
		answer = append(answer, buffer[:max(n, 0)]...)
	}
}

// sendUDP sends one datagram and reads the answer to it.
func (s *socket) sendUDP(to netip.AddrPort) (Result, error) {
	if err := unix.Connect(s.fd, sockaddr(to)); err != nil {
		return Result{}, fmt.Errorf("connect: %w", err)
	}
	token := rand.Text()
	// A datagram that this host's own filter drops or rejects is EPERM; which of
	// the two it was, the error queue tells.
	if _, err := unix.Write(s.fd, []byte(token)); err != nil && err != unix.EPERM {
		return Result{}, fmt.Errorf("send: %w", err)
	}
	for {
		if err := s.wait(unix.POLLIN); err != nil {
			return orDropped(err, "no answer")
		}
		buffer := make([]byte, 256)
		n, err := unix.Read(s.fd, buffer)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		if err != nil {
			return Result{}, asRejection(err)
		}
		// A late answer to an earlier datagram from this port has another token.
		if result, err := decodeResult(string(buffer[:n]), token); err == nil {
			return result, nil
		}
	}
}

func decodeResult(answer, token string) (Result, error) {
	endpoint, source, err := decode(answer, token)
	if err != nil {
		return Result{}, err
	}
	return Result{Outcome: OK, Endpoint: endpoint, Source: source}, nil
}

// errSilence says that the deadline passed and nothing had happened.
var errSilence = errors.New("nothing came back in time")

// orDropped turns silence into its outcome, and passes other errors on.
func orDropped(err error, reason string) (Result, error) {
	if errors.Is(err, errSilence) {
		return Result{Outcome: Dropped, Reason: reason}, nil
	}
	return Result{}, err
}

// wait waits for one of the events, an error, or the deadline (errSilence). What
// has come before the deadline counts, however late one looks.
func (s *socket) wait(events int16) error {
	for {
		left := max(0, time.Until(s.deadline))
		// Rounded up, so that the last moments are no busy loop.
		fds := []unix.PollFd{{Fd: int32(s.fd), Events: events}}
		n, err := unix.Poll(fds, int((left+time.Millisecond-1)/time.Millisecond))
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("poll: %w", err)
		}
		if n <= 0 && left == 0 {
			return errSilence
		}
		if n <= 0 {
			continue
		}
		if err := s.pendingError(); err != nil {
			return err
		}
		if fds[0].Revents&events != 0 {
			return nil
		}
	}
}

// pendingError returns an error that came for the socket: the one that the
// kernel made of it, or, failing that, an ICMP error in the error queue.
func (s *socket) pendingError() error {
	number, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return fmt.Errorf("read the socket's error: %w", err)
	}
	if number != 0 {
		return asRejection(unix.Errno(number))
	}
	return s.queuedError()
}

// queuedError takes ICMP errors out of the error queue.
func (s *socket) queuedError() error {
	for {
		payload, control := make([]byte, 512), make([]byte, 512)
		_, n, _, _, err := unix.Recvmsg(s.fd, payload, control, unix.MSG_ERRQUEUE)
		if err == unix.EAGAIN {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the error queue: %w", err)
		}
		messages, err := unix.ParseSocketControlMessage(control[:n])
		if err != nil {
			return fmt.Errorf("parse the error queue: %w", err)
		}
		for _, message := range messages {
			if rejection := icmpRejection(message); rejection != nil {
				return rejection
			}
		}
	}
}

// icmpRejection reads the kernel's struct sock_extended_err; it returns nil for
// a message that is no ICMP error.
func icmpRejection(message unix.SocketControlMessage) error {
	if len(message.Data) < 8 {
		return nil
	}
	v4 := message.Header.Level == unix.IPPROTO_IP && message.Header.Type == unix.IP_RECVERR
	v6 := message.Header.Level == unix.IPPROTO_IPV6 && message.Header.Type == unix.IPV6_RECVERR
	origin := message.Data[4]
	isError := v4 && origin == unix.SO_EE_ORIGIN_ICMP || v6 && origin == unix.SO_EE_ORIGIN_ICMP6
	if !isError {
		return nil
	}
	return &rejectionError{
		errno: unix.Errno(binary.NativeEndian.Uint32(message.Data)),
		icmp:  fmt.Sprintf("ICMP type %d code %d", message.Data[5], message.Data[6]),
	}
}

// rejectionError is an error that another host, or the own one in the name of
// another, sent back.
type rejectionError struct {
	errno unix.Errno
	icmp  string
}

// Error says what came back.
func (r *rejectionError) Error() string {
	if r.icmp == "" {
		return r.errno.Error()
	}
	return r.errno.Error() + ", " + r.icmp
}

// asRejection sorts an error of a system call: those that a reset or an ICMP
// error makes are rejections.
func asRejection(err error) error {
	var errno unix.Errno
	if !errors.As(err, &errno) {
		return err
	}
	switch errno {
	case unix.ECONNREFUSED, unix.ECONNRESET, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENOPROTOOPT,
		unix.EPROTO, unix.EACCES, unix.EHOSTDOWN:
		return &rejectionError{errno: errno}
	default:
		return err
	}
}

// local returns the socket's own address and port.
func (s *socket) local() (netip.AddrPort, error) {
	address, err := unix.Getsockname(s.fd)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("read the socket's address: %w", err)
	}
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(a.Addr), uint16(a.Port)), nil
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(a.Addr), uint16(a.Port)), nil
	default:
		return netip.AddrPort{}, fmt.Errorf("socket address of type %T", address)
	}
}

func sockaddr(to netip.AddrPort) unix.Sockaddr {
	if to.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
}
