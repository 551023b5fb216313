package main

import (
	"context"
	"errors"
	"runtime/debug"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/syncer"
)

// After a whole ruleset that was written, and no other sync, the garbage collector is
// told to be thrifty.
func TestMemoryAfterFullSyncs(t *testing.T) {
	t.Setenv("GOGC", "")
	const before = 150
	defer debug.SetGCPercent(debug.SetGCPercent(before))
	told := 0
	opts := proxier.Options{OnSync: func(proxier.Report) { told++ }}
	m := newMemory(&opts)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() { defer close(ended); m.run(ctx) }()

	opts.OnSync(proxier.Report{})
	opts.OnSync(proxier.Report{Result: syncer.Result{Full: true}, Err: errors.New("refused")})
	if n := len(m.full); n != 0 || told != 2 {
		t.Errorf("%d syncs count as full, the one who was told before was told %d times", n, told)
	}
	opts.OnSync(proxier.Report{Result: syncer.Result{Full: true}})
	percent := func() int {
		p := debug.SetGCPercent(before)
		debug.SetGCPercent(p)
		return p
	}
	for deadline := time.Now().Add(20 * time.Second); percent() != gcPercent; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("GOGC is %d, want %d", percent(), gcPercent)
		}
	}
	cancel()
	<-ended
}
