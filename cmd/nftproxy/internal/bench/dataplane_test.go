package bench

import (
	"bytes"
	"encoding/json"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/traffic"
)

// TestWay makes connections over the loopback interface.
func TestWay(t *testing.T) {
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal("no TCP address")
	}
	var server sync.WaitGroup
	server.Go(func() { traffic.Answer(l, []byte{1}) })
	w := way{from: netip.MustParseAddrPort("127.0.0.2:0"), to: addr.AddrPort()}
	for range 2 {
		if err := w.measure(t.Context(), 50); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.summarize(); got.Count != 100 || got.PerSecond <= 0 || got.P50 <= 0 || got.P99 < got.P50 || len(w.rates) != 2 {
		t.Errorf("%+v, %v", got, w.rates)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	server.Wait()
	if err := w.measure(t.Context(), 10); err == nil || !strings.Contains(err.Error(), "no connection succeeds") {
		t.Errorf("connections to nobody: %v", err)
	}
}

func TestRelative(t *testing.T) {
	d := dataplane{direct: way{rates: []float64{100, 200, 400}}, clusterIP: way{rates: []float64{50, 190, 396}}}
	if got := d.relative(); got != 0.95 {
		t.Errorf("%g, want 0.95: the median of 0.5, 0.95 and 0.99", got)
	}
}

func TestSummarizeWay(t *testing.T) {
	w := way{elapsed: 2 * time.Second}
	for i := 100; i > 0; i-- {
		w.latencies = append(w.latencies, time.Duration(i)*time.Microsecond)
	}
	if diff := cmp.Diff(Connections{Count: 100, PerSecond: 50, P50: 50, P99: 99}, w.summarize()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestDataplaneReport(t *testing.T) {
	run := func(name string, services int, relative float64) *DataplaneRun {
		return &DataplaneRun{
			Name: name, Services: services, Relative: relative,
			Direct: Connections{Count: 100, PerSecond: 20_000, P50: 90, P99: 200}, ClusterIP: Connections{Count: 100, PerSecond: 19_000, P50: 95, P99: 210},
		}
	}
	r := &DataplaneResult{Runs: []*DataplaneRun{
		run("nftproxy", 10, 0.97), run("other nftables", 10, 0.9), run("nftproxy", 1000, 0.965), run("other nftables", 1000, 0.88),
	}}
	folder := t.TempDir()
	if err := r.WriteReport(folder); err != nil {
		t.Fatal(err)
	}
	html := checkReport(t, folder, "dataplane-relative")
	for _, want := range []string{">relative to direct</text>", ">other nftables</text>", "19,000/s", "96.5 %"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if lines := r.chart().lines; len(lines) != 2 || len(lines[0].points) != 2 {
		t.Errorf("%+v", lines)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"runs", "name", "services", "endpoints", "direct", "cluster_ip", "failed", "per_second", "p50_us", "p99_us", "relative", "machine"} {
		if !bytes.Contains(text, []byte(`"`+name+`":`)) {
			t.Errorf("no field %q in %s", name, text)
		}
	}
}
