// Package traffic is what those need who connect through Services to see what the rules
// do: addresses in a private network namespace, servers, and what clients read of them.
package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// AddAddr makes an address one of this machine, on an interface of a private namespace. An
// IPv6 address can be used at once.
func AddAddr(link netlink.Link, addr netip.Addr) error {
	err := netlink.AddrAdd(link, &netlink.Addr{
		IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}, Flags: unix.IFA_F_NODAD,
	})
	if err != nil {
		return fmt.Errorf("add the address %s: %w", addr, err)
	}
	return nil
}

// Answer answers every connection in the same way, until the listener is closed. The
// answer has to fit into a socket's buffer, so that no client can hold it up.
func Answer(l net.Listener, answer []byte) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write(answer) // what the client misses, it counts
		_ = conn.Close()
	}
}

// ReadAnswer reads what a server answers until the buffer is full or that is all, and
// returns how much it is. After that, closing a TCP connection resets it, so that its port
// is free again at once: there would not be enough of them.
func ReadAnswer(conn net.Conn, buffer []byte, deadline time.Time) (int, error) {
	if err := conn.SetDeadline(deadline); err != nil {
		return 0, fmt.Errorf("bound a connection: %w", err)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetLinger(0); err != nil {
			return 0, fmt.Errorf("let a connection be reset: %w", err)
		}
	}
	n, err := io.ReadFull(conn, buffer)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) { // which is the end of an answer
		return n, fmt.Errorf("read an answer: %w", err)
	}
	return n, nil
}

// Pause waits for some time, or returns the context's error.
func Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err() //nolint:wrapcheck // says it all
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // says it all
	case <-timer.C:
		return nil
	}
}
