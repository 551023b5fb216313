package syncer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// quietElements is from how many elements on a batch is applied unheard.
const quietElements = 10_000

// Quiet returns a Kernel that does what k does, in the Monitor's namespace. While it
// applies a large batch the Monitor does not listen: as soon as anybody does, the kernel
// makes a notification of every element, which takes it as long again as the element
// itself. What others commit meanwhile is seen by the number of generations, and is told
// as lost; then no batch goes unheard any more, lest busy others make it so for ever.
func (m *Monitor) Quiet(k Kernel) Kernel { return &quietKernel{Kernel: k, monitor: m} }

type quietKernel struct {
	Kernel

	monitor *Monitor
	never   bool // others are too busy
}

// Apply implements Kernel.
func (k *quietKernel) Apply(ctx context.Context, b *Batch) error {
	if k.never || b.Counts().Elements < quietElements {
		return k.Kernel.Apply(ctx, b)
	}
	before, err := k.monitor.generation(ctx)
	if err != nil || !k.monitor.leave() {
		return k.Kernel.Apply(ctx, b)
	}
	applyErr := k.Kernel.Apply(ctx, b)
	k.monitor.rejoin()
	// What comes from here on is heard.
	if after, err := k.monitor.generation(ctx); applyErr == nil && (err != nil || after != before+1) {
		k.never = true
		k.monitor.lost()
	}
	return applyErr
}

// leave makes the Monitor deaf. It returns false if it was so already.
func (m *Monitor) leave() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.feed != nil && m.feed.leave() == nil
}

// rejoin ends that. If it cannot, the Monitor begins anew and tells of a loss.
func (m *Monitor) rejoin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.feed != nil && m.feed.join() != nil {
		_ = m.feed.close() // what is received from now on is an error
	}
}

// attach says which feed is joined, nil for none.
func (m *Monitor) attach(feed changeFeed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.feed = feed
}

// readGeneration asks for the number of transactions in a network namespace, see
// NewNetlink.
func readGeneration(ctx context.Context, netns int) (n uint32, err error) {
	socket, err := newRawSocket(netns, dumpBytes)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, socket.close()) }()
	stop := socket.bind(ctx)
	defer stop()
	request := appendRequest(nil, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0, socket.next(), unix.AF_UNSPEC)
	if err := socket.send(finish(request)); err != nil {
		return 0, fmt.Errorf("ask for the generation: %w", err)
	}
	for {
		received, err := socket.receive(ctx)
		if err != nil {
			return 0, fmt.Errorf("ask for the generation: %w", err)
		}
		if len(received) == 0 {
			continue
		}
		m, _, err := cutMessage(received)
		switch {
		case err != nil:
			return 0, err
		case m.messageType == unix.NLMSG_ERROR:
			return 0, fmt.Errorf("ask for the generation: %w", m.errno())
		}
		if id := nestedIn(m.payload[min(nfgenmsgBytes, len(m.payload)):], unix.NFTA_GEN_ID); m.messageType == newGeneration && len(id) == 4 {
			return binary.BigEndian.Uint32(id), nil
		}
	}
}
