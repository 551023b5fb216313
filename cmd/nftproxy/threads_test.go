package main

import (
	"errors"
	"runtime"
	"testing"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/syncer"
)

// The daemon uses one processor from the first rules on, unless somebody said how many.
func TestSlowDown(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	full := proxier.Report{Result: syncer.Result{Full: true}}
	t.Setenv("GOMAXPROCS", "2")
	opts := proxier.Options{}
	if slowDown(&opts); opts.OnSync != nil {
		t.Error("GOMAXPROCS does not count")
	}

	t.Setenv("GOMAXPROCS", "")
	told := 0
	opts.OnSync = func(proxier.Report) { told++ }
	slowDown(&opts)
	for _, c := range []struct {
		report proxier.Report
		want   int
	}{
		{proxier.Report{Result: syncer.Result{Full: true}, Err: errors.New("refused")}, 2},
		{proxier.Report{}, 2},
		{full, 1},
		{full, 1},
	} {
		opts.OnSync(c.report)
		if got := runtime.GOMAXPROCS(0); got != c.want {
			t.Errorf("%d processors after %+v, want %d", got, c.report, c.want)
		}
	}
	if told != 4 {
		t.Errorf("the one who was told before was told %d times, want 4", told)
	}
}
