// Package nstest gives tests private network namespaces: real rules meet real
// packets there and never touch the host's. It needs root, or a user namespace
// of which the test is root (`unshare -rn go test ...`).
package nstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// NS is a network namespace. It is gone when the test ends, however it ends:
// nothing but file descriptors of this process holds it.
type NS struct {
	handle netns.NsHandle
}

// New makes a namespace whose loopback interface is up.
func New(tb testing.TB) *NS {
	tb.Helper()
	ns := &NS{}
	err := onThread(func() error {
		handle, err := netns.New() // the thread is in the new namespace now
		if err != nil {
			return fmt.Errorf("make a network namespace (run as root or under `unshare -rn`): %w", err)
		}
		ns.handle = handle
		return loopbackUp()
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := ns.handle.Close(); err != nil {
			tb.Errorf("close the network namespace: %v", err)
		}
	})
	return ns
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback interface: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("set the loopback interface up: %w", err)
	}
	return nil
}

// FD returns a file descriptor of the namespace, valid until the test ends.
func (ns *NS) FD() int { return int(ns.handle) }

// Do runs f on a thread of its own inside the namespace and returns its error.
// Sockets that f opens and processes that it starts belong to the namespace;
// goroutines that it starts do not.
func (ns *NS) Do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(ns.handle); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return f()
	})
}

// onThread runs f on a new thread, which ends with it: its namespace may have
// changed, so nothing else may run on it.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// NFT runs nft inside the namespace with the given standard input and returns
// its output. A failure is an error with what nft said.
func (ns *NS) NFT(ctx context.Context, stdin string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	err := ns.Do(func() error {
		cmd := exec.CommandContext(ctx, "nft", args...)
		cmd.Stdin = strings.NewReader(stdin)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		return cmd.Run()
	})
	if err != nil {
		return "", errors.Join(fmt.Errorf("nft %s: %w", strings.Join(args, " "), err), errors.New(stderr.String()))
	}
	return stdout.String(), nil
}

// MustNFT is NFT for commands that have to work.
func (ns *NS) MustNFT(tb testing.TB, stdin string, args ...string) string {
	tb.Helper()
	// Listings are wanted in clean-ups too, when the test's context is done.
	out, err := ns.NFT(context.WithoutCancel(tb.Context()), stdin, args...)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}
