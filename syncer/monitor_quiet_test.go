package syncer

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// during is a kernel in which something happens before each batch.
type during struct {
	Kernel

	happens func()
}

func (k during) Apply(ctx context.Context, b *Batch) error {
	k.happens()
	return k.Kernel.Apply(ctx, b)
}

// quietHost is a host with a kernel whose large batches go unheard.
type quietHost struct {
	*ruledHost

	quiet  Kernel
	heard  bool // whether the last batch was
	joined *atomic.Bool
}

// joinedFeed says whether it is joined.
type joinedFeed struct {
	changeFeed

	joined *atomic.Bool
}

func (f joinedFeed) join() error  { f.joined.Store(true); return f.changeFeed.join() }
func (f joinedFeed) leave() error { f.joined.Store(false); return f.changeFeed.leave() }

// newQuietHost returns a host on which something happens before each batch.
func newQuietHost(t *testing.T, happens func(h *quietHost)) *quietHost {
	t.Helper()
	h := &quietHost{joined: &atomic.Bool{}}
	h.ruledHost = newRuledHost(t, func(ns *nstest.NS) (changeFeed, error) {
		feed, err := openChangeFeed(ns.FD())
		return joinedFeed{feed, h.joined}, err
	})
	h.quiet = h.monitor.Quiet(during{h.kernel, func() {
		h.heard = h.joined.Load()
		happens(h)
	}})
	return h
}

// TestQuietBatches: a large batch of ours goes unheard, and whatever comes after it is
// told.
func TestQuietBatches(t *testing.T) {
	h := newQuietHost(t, func(*quietHost) {})
	small, _ := elementBatches(quietElements - 1)
	add, remove := elementBatches(quietElements)
	for _, c := range []struct {
		what  string
		batch *Batch
		heard bool
	}{{"a small batch", small, true}, {"a large batch", add, false}, {"another one", remove, false}} {
		if err := h.quiet.Apply(t.Context(), c.batch); err != nil {
			t.Fatal(err)
		}
		if h.heard != c.heard {
			t.Errorf("%s is heard: %t, want %t", c.what, h.heard, c.heard)
		}
		h.wantNothing(c.what)
	}
}

// TestQuietBatchesOfBusyOthers: what a stranger does during a large batch counts as
// lost. After that large batches are heard.
func TestQuietBatchesOfBusyOthers(t *testing.T) {
	h := newQuietHost(t, func(h *quietHost) {
		h.ns.MustNFT(t, "", "add chain ip nftproxy extra; delete chain ip nftproxy extra")
	})
	add, remove := elementBatches(quietElements)
	if err := h.quiet.Apply(t.Context(), add); err != nil {
		t.Fatal(err)
	}
	if h.heard {
		t.Error("the first large batch is heard")
	}
	h.want("during a large batch", "lost")
	if err := h.quiet.Apply(t.Context(), remove); err != nil {
		t.Fatal(err)
	}
	if !h.heard {
		t.Error("the second large batch goes unheard")
	}
	h.want("during a batch that is heard", byNFT(1, 1, rules.IPv4))
}
