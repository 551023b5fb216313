package main

import (
	"os"
	"runtime"
	"sync"

	"github.com/nftproxy/nftproxy/proxier"
)

// slowDown has the daemon use one processor at a time once the first rules are in force,
// unless the environment variable GOMAXPROCS says how many. Changes come one by one from
// then on, and each is handed from goroutine to goroutine: to wake another thread for each
// of them takes longer, and more of the processors that belong to others, than the work.
func slowDown(opts *proxier.Options) {
	if os.Getenv("GOMAXPROCS") != "" {
		return
	}
	next, once := opts.OnSync, sync.Once{}
	opts.OnSync = func(r proxier.Report) {
		if r.Full && r.Err == nil {
			once.Do(func() { runtime.GOMAXPROCS(1) })
		}
		if next != nil {
			next(r)
		}
	}
}
