package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func measureScale(t *testing.T) *ScaleResult {
	t.Helper()
	r, err := Scale([]int{5, 50}, func(services int) (*UpdateResult, error) {
		opts := updateOptions(Uniform)
		opts.Spec.Services, opts.Changes = services, 12
		return Update(t.Context(), opts)
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestScale(t *testing.T) {
	r := measureScale(t)
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var decoded struct {
		Sizes []struct {
			Services int                                `json:"services"`
			Changes  map[string]struct{ Count float64 } `json:"changes"`
		} `json:"sizes"`
	}
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatal(err)
	}
	var sizes []int
	for _, s := range decoded.Sizes {
		sizes = append(sizes, s.Services)
		if s.Changes["policy-change"].Count != 2 {
			t.Errorf("%d Services: %v", s.Services, s.Changes)
		}
	}
	if diff := cmp.Diff([]int{5, 50}, sizes); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestScaleReport(t *testing.T) {
	folder := t.TempDir()
	r := measureScale(t)
	if err := r.WriteReport(folder); err != nil {
		t.Fatal(err)
	}
	html := checkReport(t, folder, "scale-latency-p50", "scale-latency-p99", "scale-first-sync", "scale-memory")
	for _, want := range []string{">Services in the cluster</text>", ">endpoint-add</text>", ">CPU</text>", "MiB</text>"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil || !strings.Contains(table.String(), "rolling-update         50") {
		t.Errorf("%v, table:\n%s", err, &table)
	}
}

func TestScaleStopsAtFailure(t *testing.T) {
	failure := errors.New("no more")
	calls := 0
	_, err := Scale([]int{1, 2}, func(int) (*UpdateResult, error) {
		calls++
		return nil, failure
	}, io.Discard)
	if !errors.Is(err, failure) || calls != 1 {
		t.Errorf("%d calls, error %v", calls, err)
	}
}
