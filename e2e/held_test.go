package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

const (
	// echoPort is the Service's port for held connections, echoEndpointPort that of
	// its endpoints.
	echoPort         = 7
	echoEndpointPort = 7007
	// echoPause is the time between two words over a held connection, and echoLimit
	// how long the answer to one may take: with packets lost, far longer.
	echoPause = 50 * time.Millisecond
	echoLimit = 10 * time.Second
)

// echo starts servers on hosts that send back whatever comes, until the end of the
// test.
func (c *cluster) echo(t *testing.T, hosts ...string) {
	t.Helper()
	for _, name := range hosts {
		host := c.network.Host(name)
		for _, address := range host.Addresses()[:2] {
			listener, err := host.ListenTCP(netip.AddrPortFrom(address, echoEndpointPort))
			if err != nil {
				t.Fatal(err)
			}
			var work sync.WaitGroup
			work.Go(func() {
				for {
					conn, err := listener.Accept()
					if err != nil {
						return // closed
					}
					work.Go(func() {
						_, _ = io.Copy(conn, conn) // ends with whatever the client does
						_ = conn.Close()
					})
				}
			})
			t.Cleanup(func() {
				if err := listener.Close(); err != nil {
					t.Error(err)
				}
				work.Wait()
			})
		}
	}
}

// held are connections over which words go to and fro all the time.
type held struct {
	conns []net.Conn
	stop  context.CancelFunc
	work  sync.WaitGroup
	mu    sync.Mutex
	errs  []error
	words int
}

// hold opens connections to all addresses of the Service from outside the cluster and
// from a pod, some of each.
func (c *cluster) hold(t *testing.T, each int) *held {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	h := &held{stop: stop}
	t.Cleanup(h.end)
	for _, name := range []string{testnet.Client, testnet.PodB} {
		for _, address := range serviceAddresses() {
			for range each {
				to := netip.AddrPortFrom(address, echoPort).String()
				conn, err := c.network.Host(name).DialContext(ctx, "tcp", to)
				if err != nil {
					t.Fatal(err)
				}
				h.conns = append(h.conns, conn)
				h.work.Go(func() { h.talk(ctx, conn) })
			}
		}
	}
	return h
}

// talk sends words and wants them back.
func (h *held) talk(ctx context.Context, conn net.Conn) {
	reader := bufio.NewReader(conn)
	for n := 0; ; n++ {
		word := fmt.Sprintf("word-%d\n", n)
		err := conn.SetDeadline(time.Now().Add(echoLimit))
		if err == nil {
			_, err = io.WriteString(conn, word)
		}
		var answer string
		if err == nil {
			answer, err = reader.ReadString('\n')
		}
		if err == nil && answer != word {
			err = fmt.Errorf("%q came back for %q", answer, word)
		}
		h.mu.Lock()
		h.words++
		if err != nil {
			h.errs = append(h.errs, fmt.Errorf("%s to %s: %w", conn.LocalAddr(), conn.RemoteAddr(), err))
		}
		h.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(echoPause):
		}
		if err != nil {
			return
		}
	}
}

// end closes the connections once the last answers are there.
func (h *held) end() {
	h.stop()
	h.work.Wait()
	for _, conn := range h.conns {
		_ = conn.Close()
	}
	h.conns = nil
}

// check ends the connections; all must have lived until then.
func (h *held) check(t *testing.T) {
	t.Helper()
	count := len(h.conns)
	h.end()
	if err := errors.Join(h.errs...); err != nil {
		t.Errorf("%d of %d connections were lost: %v", len(h.errs), count, err)
	}
	if h.words < 2*count {
		t.Errorf("only %d words went over %d connections", h.words, count)
	}
}
