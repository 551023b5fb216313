package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// generations notes when the kernel makes new generations of nftables, whoever asks for
// them: every transaction ends with one.
type generations struct {
	conn *netlink.Conn

	mu    sync.Mutex
	times []time.Time
	came  chan struct{} // closed at the next one
}

// newGeneration is the type of its notification: NFT_MSG_NEWGEN of the subsystem.
const newGeneration = unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWGEN

// watchGenerations subscribes in the network namespace of this process.
func watchGenerations() (*generations, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	if err != nil {
		return nil, fmt.Errorf("subscribe to notifications of nftables: %w", err)
	}
	g := &generations{conn: conn, came: make(chan struct{})}
	filter, err := generationFilter()
	if err == nil {
		err = conn.SetBPF(filter)
	}
	if err == nil {
		err = conn.SetOption(netlink.NoENOBUFS, true)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("subscribe to notifications of nftables: %w", err), conn.Close())
	}
	return g, nil
}

// generationFilter lets through new generations alone: each comes in a packet of its own,
// and there may be a million of the others.
func generationFilter() ([]bpf.RawInstruction, error) {
	// The type is at offset 4, in the machine's order; the filter reads the network's.
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], newGeneration)
	filter, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: 4, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(binary.BigEndian.Uint16(b[:])), SkipFalse: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return nil, fmt.Errorf("make a socket filter: %w", err)
	}
	return filter, nil
}

// run receives until the context is done, and closes the socket.
func (g *generations) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = g.conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	for {
		messages, err := g.conn.Receive()
		now := time.Now()
		if ctx.Err() != nil {
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("receive notifications of nftables: %w", err)
		}
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, g.conn.Close())
		}
		g.note(messages, now)
	}
}

func (g *generations) note(messages []netlink.Message, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, m := range messages {
		if m.Header.Type == newGeneration {
			g.times = append(g.times, now)
			close(g.came)
			g.came = make(chan struct{})
		}
	}
}

// after returns the time of the first generation since a time, zero if there is none, and
// a channel that is closed when there is another one.
func (g *generations) after(t time.Time) (time.Time, <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range g.times {
		if !at.Before(t) {
			return at, g.came
		}
	}
	return time.Time{}, g.came
}

// quiet waits until there was no generation for some time.
func (g *generations) quiet(ctx context.Context, d time.Duration) error {
	for {
		_, came := g.after(time.Now())
		timer := time.NewTimer(d)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err() //nolint:wrapcheck // says it all
		case <-timer.C:
			return nil
		case <-came:
			timer.Stop()
		}
	}
}
