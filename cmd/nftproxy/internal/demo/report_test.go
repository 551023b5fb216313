package demo

import (
	"bytes"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// goodResults are those of a demo in which everything went well.
func goodResults() *results {
	api := apiTarget()
	reports := apiTarget()
	reports.Name, reports.addr, reports.endpoints = "reports", netip.MustParseAddrPort("10.96.10.50:80"), nil
	return &results{
		targets: []target{api},
		spread: []tally{{answers: map[netip.AddrPort]int{
			api.endpoints[0].Addr: 340, api.endpoints[1].Addr: 660,
		}, slowest: 12 * time.Millisecond}},
		refused: []refusal{{target: reports, tried: 20, refused: 20, slowest: 300 * time.Microsecond}},
		stages: []stageResult{
			{"scaled from 2 to 3 endpoints", 1, 1234, 0}, {"scaled from 3 to 2 endpoints", 1, 766, 0},
		},
		scaled: "shop/frontend:http",
		rollout: tally{answers: map[netip.AddrPort]int{
			api.endpoints[0].Addr: 1000, api.endpoints[1].Addr: 1000,
		}, slowest: 20 * time.Millisecond},
		latencies: latencies{
			first: 12 * time.Millisecond, updates: []time.Duration{200 * time.Microsecond, time.Millisecond},
			elements: 9, verdicts: 4,
		},
		listed:  api,
		listing: []section{{"nft list map ip nftproxy endpoints", []string{"10.96.10.20 . tcp . 80 . 0x00000000 : 10.244.1.20 . 8080"}}},
	}
}

// update is set by `go test ./cmd/nftproxy/internal/demo -run TestReport -update`.
var update = flag.Bool("update", false, "rewrite the expected text in testdata/report.txt")

func TestReport(t *testing.T) {
	var got bytes.Buffer
	faults, err := goodResults().write(&got)
	if err != nil || len(faults) > 0 {
		t.Errorf("faults %q, %v", faults, err)
	}
	golden := filepath.Join("testdata", "report.txt")
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("%s (-want +got)\n%s", golden, diff)
	}
}

func TestReportOfFaults(t *testing.T) {
	foreign := netip.MustParseAddrPort("10.244.9.9:80")
	tests := map[string]struct {
		spoil func(*results)
		want  string
	}{
		"failed connections": {func(r *results) {
			r.spread[0].failed, r.spread[0].reasons = 2, []string{"timed out"}
		}, "shop/api:http: 2 connections failed: timed out"},
		"shares": {func(r *results) {
			r.spread[0].answers[r.targets[0].endpoints[0].Addr] = 660
		}, "shop/api:http: the shares of 1,320 connections do not fit"},
		"no answers": {func(r *results) { r.spread[0].answers = nil }, "the shares of 0 connections do not fit"},
		"a foreign endpoint": {func(r *results) {
			r.spread[0].answers[foreign] = 1
		}, "shop/api:http: 1 connections reached what is no ready endpoint of it"},
		"not refused": {func(r *results) {
			r.refused[0].tried, r.refused[0].refused, r.refused[0].wrong = 3, 2, "timed out"
		}, "shop/reports:http: 1 of 3 connections were not refused: timed out"},
		"failed during changes": {func(r *results) {
			r.stages[1].failed, r.rollout.reasons = 1, []string{"refused"}
		}, "shop/frontend:http: 1 connections failed during the changes: refused"},
		"none during changes": {func(r *results) {
			r.stages[0].made, r.stages[1].made = 0, 0
		}, "shop/frontend:http: no connection was made during the changes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := goodResults()
			test.spoil(r)
			var out bytes.Buffer
			faults, err := r.write(&out)
			if err != nil || len(faults) == 0 || !strings.Contains(faults[0], test.want) {
				t.Errorf("faults %q, %v; want %q", faults, err, test.want)
			}
			if !strings.Contains(out.String(), "FAILED:") || strings.Contains(out.String(), "OK:") {
				t.Errorf("the report does not say so:\n%s", &out)
			}
		})
	}
}

func TestTally(t *testing.T) {
	a, b := netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:1")
	var x, y tally
	x.note(a, 2*time.Second, nil)
	for range 5 {
		x.note(netip.AddrPort{}, time.Hour, os.ErrDeadlineExceeded)
		y.note(netip.AddrPort{}, time.Hour, os.ErrClosed)
	}
	y.note(a, 2*time.Second, nil)
	y.note(b, time.Second, nil)
	x.add(y)
	if x.failed != 10 || len(x.reasons) != maxReasons || x.answered() != 3 || x.answers[a] != 2 || x.slowest != 2*time.Second {
		t.Errorf("%+v", x)
	}
	if diff := cmp.Diff([]string{a.String(), b.String()}, []string{x.sortedAddrs()[0].String(), x.sortedAddrs()[1].String()}); diff != "" {
		t.Error(diff)
	}
}
