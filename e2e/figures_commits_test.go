package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
)

// commits notes when the kernel has taken endpoints into its rules, whoever put them
// there. The kernel tells everybody who wants to know of all that a transaction has
// changed, once it is committed. An address is in these messages as it is in packets, or
// in the name of a chain, as kube-proxy has it.
type commits struct {
	socket *nl.NetlinkSocket
	stop   context.CancelFunc
	ended  sync.WaitGroup

	mu           sync.Mutex
	awaited      map[netip.Addr][2][]byte // what is looked for
	times        map[netip.Addr]time.Time
	transactions int
	err          error
}

// watchCommits listens in a namespace, until close.
func watchCommits(t *testing.T, ns *namespace.Namespace) *commits {
	t.Helper()
	c := &commits{awaited: map[netip.Addr][2][]byte{}, times: map[netip.Addr]time.Time{}}
	must(t, ns.Do(func() (err error) {
		c.socket, err = nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
		return err
	}))
	must(t, c.socket.SetReceiveBufferSize(64<<20, true))
	must(t, c.socket.SetReceiveTimeout(&unix.Timeval{Usec: 50_000}))
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	c.ended.Go(func() { c.run(ctx) })
	t.Cleanup(c.close)
	return c
}

func (c *commits) close() {
	c.stop()
	c.ended.Wait()
	c.socket.Close()
}

func (c *commits) run(ctx context.Context) {
	for ctx.Err() == nil {
		messages, _, err := c.socket.Receive()
		now := time.Now()
		if errors.Is(err, unix.EAGAIN) {
			continue
		}
		c.mu.Lock()
		if err != nil {
			c.err = fmt.Errorf("receive notifications of nftables: %w", err)
			c.mu.Unlock()
			return
		}
		for _, m := range messages {
			c.note(m.Header.Type, m.Data, now)
		}
		c.mu.Unlock()
	}
}

func (c *commits) note(kind uint16, data []byte, now time.Time) {
	switch kind & 0xff {
	case unix.NFT_MSG_NEWGEN:
		c.transactions++
		return
	case unix.NFT_MSG_DELSETELEM, unix.NFT_MSG_DELCHAIN, unix.NFT_MSG_DELRULE:
		return
	}
	for address, texts := range c.awaited {
		if bytes.Contains(data, texts[0]) || bytes.Contains(data, texts[1]) {
			c.times[address] = now
			delete(c.awaited, address)
		}
	}
}

// await makes the time noted when the kernel gets an endpoint with the address.
func (c *commits) await(address netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaited[address] = [2][]byte{address.AsSlice(), []byte("__" + address.String() + "/")}
}

// wait waits until the kernel has had all endpoints that were awaited.
func (c *commits) wait(t *testing.T, limit time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		missing, err := len(c.awaited), c.err
		c.mu.Unlock()
		must(t, err)
		if missing == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the kernel never got %d endpoints", missing)
		}
	}
}

// at returns when the kernel got an endpoint.
func (c *commits) at(address netip.Addr) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.times[address]
}

// count returns how many transactions there were.
func (c *commits) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.transactions
}
