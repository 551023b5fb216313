package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/synctest"
)

// TestKernel counts what a syncer sends to a kernel, and what goes wrong there.
func TestKernel(t *testing.T) {
	m := newMetrics()
	faulty := synctest.NewKernel(&syncer.Memory{})
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	sync, err := syncer.New(m.Kernel(slowKernel{faulty, clock}, clock), rules.Config{})
	if err != nil {
		t.Fatal(err)
	}
	start, err := sync.Sync(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	added, err := sync.Sync(t.Context(), []syncer.Change{servicePort()})
	if err != nil {
		t.Fatal(err)
	}
	faulty.Inject(synctest.Refuse, synctest.LoseBatch)
	var e *syncer.Error
	if _, err := sync.Resync(t.Context(), nil); !errors.As(err, &e) || e.Cause != syncer.Unknown {
		t.Fatalf("error %v", err)
	}
	total := start.Counts.Add(added.Counts)
	if added.Counts.Verdicts == 0 || start.Batches != 1 || added.Batches != 1 {
		t.Fatalf("the syncer did %+v and %+v", start, added)
	}
	want := []string{
		fmt.Sprintf(`nftproxy_batch_operations_total{kind="element"} %d`, total.Elements-total.Verdicts),
		fmt.Sprintf(`nftproxy_batch_operations_total{kind="object"} %d`, total.Objects),
		fmt.Sprintf(`nftproxy_batch_operations_total{kind="verdict"} %d`, total.Verdicts),
		`nftproxy_commit_duration_seconds_sum 0.5`,
		`nftproxy_commit_duration_seconds_count 2`,
		`nftproxy_kernel_errors_total{cause="refused"} 1`,
		`nftproxy_kernel_errors_total{cause="unknown"} 1`,
	}
	if diff := cmp.Diff(want, scrape(t, m, "nftproxy_")); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

// slowKernel takes 250 ms for a batch.
type slowKernel struct {
	syncer.Kernel
	clock *testingclock.FakeClock
}

func (k slowKernel) Apply(ctx context.Context, b *syncer.Batch) error {
	k.clock.Step(250 * time.Millisecond)
	return k.Kernel.Apply(ctx, b)
}

// servicePort is a new service port with one endpoint.
func servicePort() syncer.Change {
	key := rules.ServicePortKey{
		ServicePortName: rules.ServicePortName{Namespace: "default", Name: "web", Protocol: rules.TCP},
		Family:          rules.IPv4,
	}
	return syncer.Change{Key: key, ServicePort: &rules.ServicePort{
		ServicePortKey: key,
		Frontends:      []rules.Frontend{{Kind: rules.ClusterIP, Addr: netip.MustParseAddrPort("10.96.0.1:80")}},
		Endpoints:      []rules.Endpoint{{Addr: netip.MustParseAddrPort("10.244.0.1:8080"), Weight: 1}},
	}}
}

// TestKernelErrors counts errors by every cause that there is.
func TestKernelErrors(t *testing.T) {
	m := newMetrics()
	for _, err := range []error{
		&syncer.Error{Cause: syncer.Refused, Err: errors.New("no such set")},
		fmt.Errorf("wrapped: %w", &syncer.Error{Cause: syncer.Forbidden, Err: errors.New("no privilege")}),
		&syncer.Error{Cause: syncer.TooLarge, Err: errors.New("many messages")},
		&syncer.Error{Cause: syncer.Unknown, Err: errors.New("no buffer space")},
		errors.New("says nothing"),
	} {
		kernel := m.Kernel(brokenKernel{err: err}, testingclock.NewFakeClock(time.Unix(0, 0)))
		if _, got := kernel.State(t.Context(), rules.Families()); !errors.Is(got, err) {
			t.Errorf("error %v, want %v", got, err)
		}
	}
	want := []string{
		`nftproxy_kernel_errors_total{cause="forbidden"} 1`,
		`nftproxy_kernel_errors_total{cause="refused"} 1`,
		`nftproxy_kernel_errors_total{cause="too_large"} 1`,
		`nftproxy_kernel_errors_total{cause="unknown"} 2`,
	}
	if diff := cmp.Diff(want, scrape(t, m, "nftproxy_")); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

// brokenKernel cannot be read.
type brokenKernel struct {
	syncer.Kernel
	err error
}

func (k brokenKernel) State(context.Context, []rules.Family) (syncer.State, error) { return nil, k.err }
