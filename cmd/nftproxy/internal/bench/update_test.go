package bench

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// memoryDaemon runs a proxier on the model of a kernel.
func memoryDaemon(ctx context.Context, source proxier.Source, opts proxier.Options, hooks Hooks) error {
	opts.Flows = hooks.Flows(noFlows{})
	p, err := proxier.New(source, hooks.Kernel(&syncer.Memory{}), opts)
	if err != nil {
		return err
	}
	return p.Run(ctx)
}

// noFlows are Flows that have nothing to do.
type noFlows struct{}

func (noFlows) Prepare([]syncer.Change)                   {}
func (noFlows) Commit(bool)                               {}
func (noFlows) SetNodePortIPs(rules.Family, []netip.Addr) {}
func (noFlows) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func updateOptions(shape Shape) UpdateOptions {
	return UpdateOptions{
		Spec:    Spec{Services: 40, EndpointsPerService: 6, Shape: shape, Seed: 1, Families: []rules.Family{rules.IPv4}},
		Changes: 120, Mix: Kinds(), Daemon: memoryDaemon, Version: "v1", Progress: io.Discard,
	}
}

// TestUpdate measures with every shape, as fast as possible and at a rate. Of figures it
// asks only that they are there.
func TestUpdate(t *testing.T) {
	for _, shape := range Shapes() {
		for _, rate := range []float64{0, 5000} {
			opts := updateOptions(shape)
			opts.Rate = rate
			r, err := Update(t.Context(), opts)
			if err != nil {
				t.Fatalf("%s at %g: %v", shape, rate, err)
			}
			c := NewCluster(opts.Spec)
			if r.Services != c.Services() || r.Endpoints != c.Endpoints() || r.Shape != shape || r.Rate != rate {
				t.Errorf("%s: %+v", shape, r)
			}
			if r.FirstSync <= 0 || r.FirstSyncOperations < r.Services || r.FirstSyncBatches < 1 || r.FirstSyncBytes < 1000 {
				t.Errorf("%s: first sync %+v", shape, r)
			}
			if r.RSS <= 1<<20 || r.RSSEmpty <= 1<<20 || r.Elapsed <= 0 || r.Reached <= 0 {
				t.Errorf("%s: memory or time are missing: %+v", shape, r)
			}
			for _, kind := range Kinds() {
				c := r.Changes[kind]
				if c.Count != 20 || c.P50 <= 0 || c.P50 > c.P90 || c.P90 > c.P99 || c.P99 > c.Max {
					t.Errorf("%s: %s: %+v", shape, kind, c)
				}
			}
			if one := r.Changes[EndpointRemove]; rate == 0 && shape == Uniform && (r.Syncs != 120 || one.OperationsP50 != 1 || one.BytesP50 < 100) {
				t.Errorf("%d syncs, and an endpoint less: %+v", r.Syncs, one)
			}
		}
	}
}

// TestUpdateIsRepeatable makes sure that the same seed costs the same.
func TestUpdateIsRepeatable(t *testing.T) {
	costs := func() map[Kind][]int {
		r, err := Update(t.Context(), updateOptions(Realistic))
		if err != nil {
			t.Fatal(err)
		}
		all := map[Kind][]int{}
		for kind, samples := range r.samples {
			for _, s := range samples {
				all[kind] = append(all[kind], s.operations, s.verdicts, s.bytes)
			}
		}
		return all
	}
	if diff := cmp.Diff(costs(), costs()); diff != "" {
		t.Errorf("the second time other operations:\n%s", diff)
	}
}

func TestUpdateTable(t *testing.T) {
	r, err := Update(t.Context(), updateOptions(Uniform))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := r.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"40 Services with 240 endpoints, shape uniform, seed 1", "First sync: ", "rolling-update", "nftproxy v1, go"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// failingKernel refuses everything after the first batches.
type failingKernel struct {
	syncer.Kernel
	accepted int
}

func (k *failingKernel) Apply(ctx context.Context, b *syncer.Batch) error {
	if k.accepted--; k.accepted < 0 {
		return &syncer.Error{Op: "apply a batch", Cause: syncer.Unknown, Err: errors.New("no buffer space")}
	}
	return k.Kernel.Apply(ctx, b)
}

// TestUpdateFails makes sure that a kernel that fails is no result.
func TestUpdateFails(t *testing.T) {
	for accepted, when := range []string{"at the first sync", "at a change"} {
		opts := updateOptions(Uniform)
		opts.Daemon = func(ctx context.Context, source proxier.Source, o proxier.Options, hooks Hooks) error {
			inner := hooks.Kernel
			hooks.Kernel = func(k syncer.Kernel) syncer.Kernel { return inner(&failingKernel{k, accepted}) }
			return memoryDaemon(ctx, source, o, hooks)
		}
		if _, err := Update(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "no buffer space") {
			t.Errorf("%s: %v", when, err)
		}
	}
}

func TestUpdateInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Update(ctx, updateOptions(Uniform)); err == nil || err.Error() != "interrupted" {
		t.Errorf("error %v", err)
	}
}

// slowKernel takes its time for every batch.
type slowKernel struct{ syncer.Kernel }

func (k slowKernel) Apply(ctx context.Context, b *syncer.Batch) error {
	time.Sleep(time.Second)
	return k.Kernel.Apply(ctx, b)
}

// TestUpdateAtARate says whether it kept up. The clock is one that stands while anything
// works, so that nothing but a slow kernel takes time.
func TestUpdateAtARate(t *testing.T) {
	tests := map[string]struct {
		kernel  func(syncer.Kernel) syncer.Kernel
		rate    float64
		keptUp  bool
		elapsed float64
		verdict string
	}{
		"as fast as possible": {func(k syncer.Kernel) syncer.Kernel { return k }, 0, true, 0, "each as soon as"},
		"a fast kernel":       {func(k syncer.Kernel) syncer.Kernel { return k }, 10, true, 11.9, "10 a second asked for, 10.1 reached: it kept up"},
		// The last change waits for the sync that runs, and then for its own.
		"a slow kernel": {func(k syncer.Kernel) syncer.Kernel { return slowKernel{k} }, 10, false, 13, "it did not keep up"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := updateOptions(Uniform)
				opts.Rate = test.rate
				opts.Daemon = func(ctx context.Context, source proxier.Source, o proxier.Options, hooks Hooks) error {
					inner := hooks.Kernel
					hooks.Kernel = func(k syncer.Kernel) syncer.Kernel { return inner(test.kernel(k)) }
					return memoryDaemon(ctx, source, o, hooks)
				}
				r, err := Update(t.Context(), opts)
				if err != nil {
					t.Fatal(err)
				}
				var table strings.Builder
				if err := r.WriteTable(&table); err != nil {
					t.Fatal(err)
				}
				if r.KeptUp != test.keptUp || r.Elapsed != test.elapsed || !strings.Contains(table.String(), test.verdict) {
					t.Errorf("kept up %t, %g changes a second, %g s:\n%s", r.KeptUp, r.Reached, r.Elapsed, &table)
				}
			})
		})
	}
}
