package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/syncer"
)

// recorder finds out which sync took which change, and when the kernel had answered.
//
// A sync is told of its service ports before it begins (Flows.Prepare), of its batches
// when they are sent (Kernel.Apply), and reports at its end (OnSync): all that in one
// goroutine. A change belongs to the first sync with a service port of its Service. At a
// rate, of two changes of one Service within microseconds the second one may be taken for
// part of the first one's sync.
type recorder struct {
	mu      sync.Mutex
	waiting map[types.NamespacedName][]*pending
	count   int // of those that wait
	err     error
	syncs   int
	samples map[Kind][]sample
	idle    chan struct{} // gets a token when none wait any more, or a sync failed
	first   chan syncReport

	// Of the goroutine that syncs:
	taken []*pending // by the sync that runs
	bytes int        // that it has sent
}

// syncReport is the report of a sync, with what it sent and when it ended.
type syncReport struct {
	proxier.Report
	bytes int
	ended time.Time
}

// pending is a change that is not in the kernel yet.
type pending struct {
	kind  Kind
	began time.Time
}

func newRecorder() *recorder {
	return &recorder{
		waiting: map[types.NamespacedName][]*pending{}, samples: map[Kind][]sample{},
		idle: make(chan struct{}, 1), first: make(chan syncReport, 1),
	}
}

// begin notes that a change is about to be handed over.
func (r *recorder) begin(c *slimChange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count++
	r.waiting[c.service] = append(r.waiting[c.service], &pending{c.kind, time.Now()})
}

// prepare notes what the sync that begins will take.
func (r *recorder) prepare(changes []syncer.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range changes {
		name := types.NamespacedName{Namespace: c.Key.Namespace, Name: c.Key.Name}
		r.taken = append(r.taken, r.waiting[name]...)
		delete(r.waiting, name)
	}
}

// synced takes the report of a sync.
func (r *recorder) synced(report proxier.Report) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if report.Err != nil && r.err == nil {
		r.err = fmt.Errorf("a sync failed: %w", report.Err)
	}
	for _, refused := range report.Refused {
		r.err = errors.Join(r.err, fmt.Errorf("%s cannot be installed: %w", refused.Key, refused.Err))
	}
	for _, p := range r.taken {
		r.samples[p.kind] = append(r.samples[p.kind], sample{
			latency:    now.Sub(p.began),
			operations: report.Counts.Elements + report.Counts.Objects,
			verdicts:   report.Counts.Verdicts,
			bytes:      r.bytes,
		})
	}
	r.count -= len(r.taken)
	select {
	case r.first <- syncReport{report, r.bytes, now}: // later ones nobody reads
	default:
	}
	r.syncs++
	r.bytes = 0
	if r.taken = r.taken[:0]; r.count == 0 || r.err != nil {
		select {
		case r.idle <- struct{}{}:
		default:
		}
	}
}

// syncTimeout is how long a change may take: long enough for the largest cluster.
const syncTimeout = 2 * time.Minute

// waitFirst waits for the end of the first sync.
func (r *recorder) waitFirst(ctx context.Context) (syncReport, error) {
	select {
	case <-ctx.Done():
		return syncReport{}, ctx.Err() //nolint:wrapcheck // says it all
	case report := <-r.first:
		return report, r.wait(ctx)
	}
}

// take returns the samples, and the number of syncs since the last call.
func (r *recorder) take() (samples map[Kind][]sample, syncs int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	samples, syncs = r.samples, r.syncs
	r.samples, r.syncs = map[Kind][]sample{}, 0
	return samples, syncs
}

// wait waits until no change waits any more.
func (r *recorder) wait(ctx context.Context) error {
	timeout := time.NewTimer(syncTimeout)
	defer timeout.Stop()
	for {
		r.mu.Lock()
		count, err := r.count, r.err
		r.mu.Unlock()
		if err != nil || count == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err() //nolint:wrapcheck // says it all
		case <-timeout.C:
			return fmt.Errorf("%d changes are not in the kernel after %s", count, syncTimeout)
		case <-r.idle:
		}
	}
}

// kernel returns the kernel, whose batches are counted.
func (r *recorder) kernel(k syncer.Kernel) syncer.Kernel {
	return &countingKernel{Kernel: k, recorder: r}
}

type countingKernel struct {
	syncer.Kernel
	recorder *recorder
}

// Apply implements syncer.Kernel.
func (k *countingKernel) Apply(ctx context.Context, b *syncer.Batch) error {
	k.recorder.bytes += b.Size().Bytes
	return k.Kernel.Apply(ctx, b) //nolint:wrapcheck // the kernel's own error
}

// flows returns the Flows, whose preparations are seen.
func (r *recorder) flows(f proxier.Flows) proxier.Flows { return &seenFlows{Flows: f, recorder: r} }

type seenFlows struct {
	proxier.Flows
	recorder *recorder
}

// Prepare implements proxier.Flows.
func (f *seenFlows) Prepare(changes []syncer.Change) {
	f.recorder.prepare(changes)
	f.Flows.Prepare(changes)
}
