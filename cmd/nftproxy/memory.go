package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"github.com/nftproxy/nftproxy/proxier"
)

const (
	// gcPercent is how much garbage may pile up once the daemon has settled, in percent of
	// what is in use. It is less than Go's default: what is in use hardly changes, a change
	// makes little garbage, and the daemon is a guest on the node.
	gcPercent = 30
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
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.full:
		}
		if os.Getenv("GOGC") == "" {
			debug.SetGCPercent(gcPercent)
		}
		debug.FreeOSMemory()
		select {
		case <-ctx.Done():
			return
		case <-time.After(freePause):
		}
	}
}
