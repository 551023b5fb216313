package controlplane

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
)

// forwarderPort is below the ports that the kernel gives to clients, too.
const forwarderPort = 6444

// Forwarder is a proxy of TCP connections in front of the API server. It can stop to
// forward: its connections stay open and take what is sent, and nothing arrives.
type Forwarder struct {
	listener *net.TCPListener
	to       func(context.Context) (net.Conn, error)
	ctx      context.Context //nolint:containedctx // of all connections
	cancel   context.CancelFunc
	work     sync.WaitGroup

	mu    sync.Mutex
	going chan struct{} // closed while it forwards
	count int           // of connections so far
}

// StartForwarder starts a forwarder beside the API server. The caller closes it.
func (c *ControlPlane) StartForwarder(ctx context.Context) (*Forwarder, error) {
	listener, err := c.ns.ListenTCP(netip.AddrPortFrom(c.options.Address, forwarderPort))
	if err != nil {
		return nil, err
	}
	f := &Forwarder{listener: listener, going: make(chan struct{})}
	close(f.going)
	f.to = func(ctx context.Context) (net.Conn, error) { return c.ns.DialContext(ctx, "tcp", c.Address()) }
	f.ctx, f.cancel = context.WithCancel(ctx)
	f.work.Go(f.accept)
	return f, nil
}

// Address is where the forwarder listens.
func (f *Forwarder) Address() string { return f.listener.Addr().String() }

// Stop makes the forwarder keep what comes, Go makes it forward again.
func (f *Forwarder) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.going = make(chan struct{})
}

// Go ends a Stop.
func (f *Forwarder) Go() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.going)
}

// Connections returns how many connections there have been so far.
func (f *Forwarder) Connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

// Close ends the forwarder and all its connections.
func (f *Forwarder) Close() error {
	f.cancel()
	err := f.listener.Close()
	f.work.Wait()
	return err
}

func (f *Forwarder) accept() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return // closed
		}
		f.mu.Lock()
		f.count++
		f.mu.Unlock()
		f.work.Go(func() { f.serve(client) })
	}
}

// serve forwards until one side closes its connection, and closes both.
func (f *Forwarder) serve(client net.Conn) {
	server, err := f.to(f.ctx)
	if err != nil {
		_ = client.Close()
		return
	}
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	var work sync.WaitGroup
	for _, direction := range [][2]net.Conn{{client, server}, {server, client}} {
		work.Go(func() {
			defer cancel()
			_, _ = io.Copy(direction[0], waitingReader{direction[1], ctx, f})
		})
	}
	<-ctx.Done()
	_ = errors.Join(client.Close(), server.Close())
	work.Wait()
}

// waitingReader reads what may be forwarded.
type waitingReader struct {
	net.Conn

	ctx       context.Context //nolint:containedctx // of the connection
	forwarder *Forwarder
}

func (r waitingReader) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.forwarder.mu.Lock()
	going := r.forwarder.going
	r.forwarder.mu.Unlock()
	select {
	case <-going:
		return n, err
	case <-r.ctx.Done():
		return 0, context.Cause(r.ctx)
	}
}
