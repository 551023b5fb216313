package proxier

import (
	"context"
	"testing"

	"go.uber.org/zap"

	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// countedServices is how many Services there are while one endpoint changes.
const countedServices = 200

// countedSync returns a function that syncs changes, from the changed slim object to the
// kernel's answer, in the calling goroutine; the first ones are in the kernel already.
func countedSync(t *testing.T, first Changes) func(Changes) (Report, error) {
	t.Helper()
	kernel, err := syncer.NewNetlink(nstest.New(t).FD())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kernel.Close(); err != nil {
			t.Error(err)
		}
	})
	var report Report
	p, err := New(nil, kernel, Options{Log: zap.NewNop(), OnSync: func(r Report) { report = r }})
	if err != nil {
		t.Fatal(err)
	}
	sync := func(changes Changes) (Report, error) {
		p.Apply(changes)
		p.sync(context.Background(), p.take())
		return report, report.Err
	}
	p.Synced()
	if _, err := sync(first); err != nil {
		t.Fatal(err)
	}
	return sync
}

// countedChange returns a function that removes an endpoint, and at the next call adds it
// again.
func countedChange(t *testing.T) func() (Report, error) {
	t.Helper()
	sync := countedSync(t, cluster(countedServices))
	with, without := clusterSlice(countedServices/2, endpointsPerService), clusterSlice(countedServices/2, endpointsPerService-1)
	turn := 0
	return func() (Report, error) {
		slice := without
		if turn%2 == 1 {
			slice = with
		}
		turn++
		return sync(Changes{Slices: []SliceChange{{slice.Name, slice}}})
	}
}

// What one endpoint that comes or goes may cost.
const (
	// The batch is sent at once, and its one answer is received.
	maxSyscalls = 2
	// 47, and a few more with the race detector.
	maxAllocations = 50
)

// TestOneEndpointCounts bounds what one endpoint that comes or goes costs, in counts and
// not in time: they are the same on every machine. Who makes it cheaper lowers the bounds.
func TestOneEndpointCounts(t *testing.T) {
	change := countedChange(t)
	const changes = 20
	for range 2 { // there and back, so that all buffers are as large as they must be
		if _, err := change(); err != nil {
			t.Fatal(err)
		}
	}
	for range changes {
		r, err := change()
		if err != nil || r.Batches != 1 || r.Counts != (syncer.Counts{Elements: 1}) {
			t.Fatalf("%d batches, %s, %v; want one of one element operation", r.Batches, r.Counts, err)
		}
	}
	syscalls := countSyscalls(t, func() error {
		for range changes {
			if _, err := change(); err != nil {
				return err
			}
		}
		return nil
	})
	total := 0
	for _, n := range syscalls {
		total += n
	}
	if total > changes*maxSyscalls {
		t.Errorf("%d system calls for %d changes, at most %d each: %v", total, changes, maxSyscalls, syscalls)
	}
	allocations := testing.AllocsPerRun(10*changes, func() {
		if _, err := change(); err != nil {
			t.Error(err)
		}
	})
	if allocations > maxAllocations {
		t.Errorf("%g allocations for a change, at most %d", allocations, maxAllocations)
	}
}
