package demo

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/traffic"
	"github.com/nftproxy/nftproxy/rules"
)

const (
	// numClients is how many clients connect at the same time.
	numClients = 8
	// connectTimeout is when a connection counts as failed: long after the kernel
	// has sent a lost packet again, for a machine that is busy.
	connectTimeout = 5 * time.Second
)

// client makes connections from a pod of its own, one after the other.
type client struct {
	addrs map[rules.Family]netip.Addr
}

// newClients makes the clients and gives them addresses on this node.
func newClients(lo netlink.Link, families []rules.Family) ([]client, error) {
	clients := make([]client, numClients)
	for i := range clients {
		clients[i].addrs = map[rules.Family]netip.Addr{}
		for _, f := range families {
			addr := clientAddr(f, i)
			if err := traffic.AddAddr(lo, addr); err != nil {
				return nil, err
			}
			clients[i].addrs[f] = addr
		}
	}
	return clients, nil
}

func clientAddr(f rules.Family, i int) netip.Addr {
	if f == rules.IPv4 {
		return netip.AddrFrom4([4]byte{10, 244, 1, byte(200 + i)})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd00:10:244:1::%d", 200+i))
}

// connect makes a connection and returns who answered.
func (c client) connect(ctx context.Context, t target) (netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	dialer := net.Dialer{KeepAlive: -1}
	from := netip.AddrPortFrom(c.addrs[t.Family], 0)
	if t.Protocol == rules.UDP {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(from)
	} else {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(from)
	}
	conn, err := dialer.DialContext(ctx, t.Protocol.String(), t.addr.String())
	if err != nil {
		return netip.AddrPort{}, err //nolint:wrapcheck // says what was dialled
	}
	defer func() { _ = conn.Close() }() // all that matters was read
	answer, err := ask(ctx, conn)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s %s: %w", t.Protocol, t.addr, err)
	}
	endpoint, err := netip.ParseAddrPort(answer)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%s %s: the answer: %w", t.Protocol, t.addr, err)
	}
	return endpoint, nil
}

// ask returns the answer of a server.
func ask(ctx context.Context, conn net.Conn) (string, error) {
	deadline, _ := ctx.Deadline()
	buf := make([]byte, 128)
	if _, ok := conn.(*net.TCPConn); ok {
		n, err := traffic.ReadAnswer(conn, buf, deadline)
		return string(buf[:n]), err //nolint:wrapcheck // says it all
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err //nolint:wrapcheck // says it all
	}
	if _, err := conn.Write([]byte("who are you?")); err != nil {
		return "", err //nolint:wrapcheck // says it all
	}
	n, err := conn.Read(buf)
	return string(buf[:n]), err //nolint:wrapcheck // says it all
}
