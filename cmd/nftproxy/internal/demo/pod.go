package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/traffic"
	"github.com/nftproxy/nftproxy/rules"
)

// port is a port that a pod serves.
type port struct {
	protocol rules.Protocol
	number   uint16
}

// pod is an address with a server for each port, which answers everyone with its own
// address and port.
type pod struct {
	addr    netip.Addr
	sockets []io.Closer
	servers sync.WaitGroup
}

// startPod returns a pod that serves. The caller stops it.
func startPod(ctx context.Context, lo netlink.Link, addr netip.Addr, ports []port) (*pod, error) {
	if err := traffic.AddAddr(lo, addr); err != nil {
		return nil, err
	}
	p := &pod{addr: addr}
	for _, port := range ports {
		if err := p.serve(ctx, port); err != nil {
			return nil, errors.Join(err, p.stop())
		}
	}
	return p, nil
}

func (p *pod) serve(ctx context.Context, port port) error {
	at := netip.AddrPortFrom(p.addr, port.number)
	answer := []byte(at.String())
	var listen net.ListenConfig
	switch port.protocol {
	case rules.TCP:
		l, err := listen.Listen(ctx, "tcp", at.String())
		if err != nil {
			return fmt.Errorf("start an endpoint: %w", err)
		}
		p.sockets = append(p.sockets, l)
		p.servers.Go(func() { traffic.Answer(l, answer) })
	case rules.UDP:
		c, err := listen.ListenPacket(ctx, "udp", at.String())
		if err != nil {
			return fmt.Errorf("start an endpoint: %w", err)
		}
		p.sockets = append(p.sockets, c)
		p.servers.Go(func() { serveUDP(c, answer) })
	default:
		return fmt.Errorf("start an endpoint: there is no server for %s", port.protocol)
	}
	return nil
}

// serveUDP answers until the socket is closed.
func serveUDP(c net.PacketConn, answer []byte) {
	buf := make([]byte, 512)
	for {
		_, from, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = c.WriteTo(answer, from) // what the client misses, it counts
		}
	}
}

// stop ends the servers. The address stays, so that whoever still comes is refused, and
// does not get another chance when the first packet is lost.
func (p *pod) stop() error {
	var errs []error
	for _, s := range p.sockets {
		errs = append(errs, s.Close())
	}
	p.servers.Wait()
	return errors.Join(errs...)
}
