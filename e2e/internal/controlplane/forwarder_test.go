package controlplane

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"
)

// A forwarder that has stopped keeps what comes, and brings it later.
func TestForwarder(t *testing.T) {
	address := netip.MustParseAddr("192.0.2.10")
	c := &ControlPlane{ns: newNamespace(t, "192.0.2.10/32"), options: Options{Address: address}}
	server, err := c.ns.ListenTCP(netip.AddrPortFrom(address, apiServerPort))
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.StartForwarder(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	conn, err := c.ns.DialContext(t.Context(), "tcp", f.Address())
	if err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(conn)
	say := func(word string, limit time.Duration) error {
		if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
			return err
		}
		if word != "" {
			if _, err := fmt.Fprintln(conn, word); err != nil {
				return err
			}
		}
		_, err := reader.ReadString('\n')
		return err
	}
	if err := say("one", time.Minute); err != nil || f.Connections() != 1 {
		t.Errorf("%v, %d connections", err, f.Connections())
	}
	f.Stop()
	if err := say("two", 100*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("while it is stopped: %v", err)
	}
	f.Go()
	if err := say("", time.Minute); err != nil {
		t.Errorf("what was kept: %v", err)
	}
	f.Stop()
	if err := errors.Join(f.Close(), server.Close()); err != nil {
		t.Error(err)
	}
	if err := say("three", time.Minute); !errors.Is(err, io.EOF) && !isReset(err) {
		t.Errorf("after the end: %v", err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}
