package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/nftproxy/nftproxy/proxier"
)

const (
	// firstGCPercent is how much garbage may pile up before the first rules are installed,
	// in percent of what is in use: nothing is worth collecting then, and to look for it
	// takes as long as to install them.
	firstGCPercent = 300
	// gcPercent is that from then on. It is less than Go's default: what is in use hardly
	// changes, a change makes little garbage, and the daemon is a guest on the node.
	gcPercent = 20
	// freePause is between two times that memory is given back.
	freePause = 10 * time.Second
)

// memory gives the memory back to the system that the writing of a whole ruleset leaves
// behind. With the first one go all the lists that came from the API server.
type memory struct{ full chan struct{} }

// newMemory returns a memory that learns of the syncs.
func newMemory(opts *proxier.Options) memory {
	m := memory{full: make(chan struct{}, 1)}
	next := opts.OnSync
	opts.OnSync = func(r proxier.Report) {
		if next != nil {
			next(r)
		}
		if r.Full && r.Err == nil {
			select {
			case m.full <- struct{}{}:
			default:
			}
		}
	}
	return m
}

// run gives memory back until the context is done. It leaves the pace of the garbage
// collector alone if the environment variable GOGC says what it shall be.
func (m memory) run(ctx context.Context) {
	pace(firstGCPercent)
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.full:
		}
		pace(gcPercent)
		debug.FreeOSMemory()
		select {
		case <-ctx.Done():
			return
		case <-time.After(freePause):
		}
	}
}

func pace(gcPercent int) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
