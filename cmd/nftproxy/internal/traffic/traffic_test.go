package traffic

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve returns a function that connects to a server with that answer, and reads it into a
// buffer.
func serve(t *testing.T, answer string) func(size int, deadline time.Time) (string, error) {
	t.Helper()
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var server sync.WaitGroup
	server.Go(func() { Answer(l, []byte(answer)) })
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		server.Wait()
	})
	return func(size int, deadline time.Time) (string, error) {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		buffer := make([]byte, size)
		n, err := ReadAnswer(conn, buffer, deadline)
		return string(buffer[:n]), err
	}
}

// TestAnswer connects several times, with buffers that are larger, as large and smaller.
func TestAnswer(t *testing.T) {
	ask := serve(t, "abc")
	for size, want := range map[int]string{10: "abc", 3: "abc", 1: "a"} {
		if got, err := ask(size, time.Now().Add(time.Minute)); err != nil || got != want {
			t.Errorf("%d bytes: %q, %v", size, got, err)
		}
	}
}

// TestNoAnswer makes sure that none is an error.
func TestNoAnswer(t *testing.T) {
	if got, err := serve(t, "abc")(1, time.Unix(1, 0)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("too late: %q, %v", got, err)
	}
	if got, err := serve(t, "")(1, time.Now().Add(time.Minute)); !errors.Is(err, io.EOF) {
		t.Errorf("a server that says nothing: %q, %v", got, err)
	}
}

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		for _, d := range []time.Duration{-1, 0, time.Second} {
			if err := Pause(t.Context(), d); err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(began); took != time.Second {
			t.Errorf("paused for %s", took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, d := range []time.Duration{0, time.Second} {
			if err := Pause(ctx, d); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", d, err)
			}
		}
	})
}

func TestAddAddr(t *testing.T) {
	err := nstest.New(t).Do(func() error {
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		addr := netip.MustParseAddr("192.0.2.1")
		if err := AddAddr(lo, addr); err != nil {
			return err
		}
		if err := AddAddr(lo, addr); err == nil {
			t.Error("an address that is there is no error")
		}
		all, err := netlink.AddrList(lo, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		if last := all[len(all)-1]; last.IPNet.String() != "192.0.2.1/32" {
			t.Errorf("added %s", last.IPNet)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
