package bench

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSummarize(t *testing.T) {
	var samples []sample
	for i := 100; i > 0; i-- { // in no order
		samples = append(samples, sample{
			latency: time.Duration(i) * time.Microsecond, operations: 101 - i, verdicts: i % 2, bytes: 10 * i,
		})
	}
	want := ChangeResult{
		Count: 100, P50: 50, P90: 90, P99: 99, Max: 100,
		OperationsP50: 50, OperationsMax: 100, BytesP50: 500, BytesMax: 1000,
	}
	if diff := cmp.Diff(want, summarize(samples)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestMicro(t *testing.T) {
	for us, want := range map[float64]string{0: "0.0 µs", 99.94: "99.9 µs", 1000: "1.00 ms", 260_000: "260.00 ms", 1.5e6: "1.50 s"} {
		if got := micro(us); got != want {
			t.Errorf("micro(%g) = %q, want %q", us, got, want)
		}
	}
}
