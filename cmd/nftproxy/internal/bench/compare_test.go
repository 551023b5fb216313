package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"github.com/spf13/pflag"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/traffic"
)

func TestParseStat(t *testing.T) {
	const rest = " S 1 42 42 0 -1 4194560 500 0 0 0 150 50 20 10 20 0 9 0 100 1000 10"
	want := cpu{user: 1700 * time.Millisecond, kernel: 600 * time.Millisecond}
	for name, text := range map[string]string{
		"plain":                     "42 (kube-proxy)" + rest,
		"a name with blanks":        "42 (a b c)" + rest,
		"a name with a parenthesis": "42 (a) S 1)" + rest,
	} {
		if got, err := parseStat(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
	for name, text := range map[string]string{
		"nothing":        "",
		"too few fields": "42 (x) S 1 2 3",
		"no numbers":     "42 (x)" + strings.Repeat(" x", 20),
	} {
		if got, err := parseStat(text); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("42 (x) S 1 42 42 0 -1 4194560 500 0 0 0 150 50 20 10")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := parseStat(text); err != nil && got != (cpu{}) {
			t.Errorf("%+v with %v", got, err)
		}
	})
}

// TestOwnStat reads the numbers of a real process.
func TestOwnStat(t *testing.T) {
	p := &process{cmd: &exec.Cmd{Process: &os.Process{Pid: os.Getpid()}}}
	used, err := p.cpu()
	if err != nil {
		t.Fatal(err)
	}
	own, err := ownCPU()
	if err != nil || used.total() > own.total()+time.Second {
		t.Errorf("%v of %v, %v", used, own, err)
	}
	if memory, err := p.memory(); err != nil || memory < 1<<20 {
		t.Errorf("%d bytes, %v", memory, err)
	}
}

// TestProxyFiles makes sure that what a proxy reads is what it should: nftproxy reads it
// as kube-proxy does.
func TestProxyFiles(t *testing.T) {
	files, err := writeProxyFiles(t.TempDir(), "http://127.0.0.1:1234", "nftables")
	if err != nil {
		t.Fatal(err)
	}
	var flags config.Flags
	flags.Add(pflag.NewFlagSet("", pflag.ContinueOnError))
	flags.ConfigFile = files.config
	cfg, err := flags.Load()
	if err != nil {
		t.Fatal(err)
	}
	if cfg.HostnameOverride != NodeName || cfg.ClientConnection.Kubeconfig != files.kubeconfig || cfg.MinSyncPeriod != time.Millisecond ||
		!slices.Equal(cfg.LocalTraffic.ClusterCIDRs, PodRanges()) {
		t.Errorf("%+v", cfg)
	}
	want := []string{"kube-proxy", "--config", files.config, "--master=x", "--kubeconfig=" + files.kubeconfig}
	if diff := cmp.Diff(want, files.command("kube-proxy --config  {config} --master=x --kubeconfig={kubeconfig}")); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestCheckPeer(t *testing.T) {
	for command, usable := range map[string]bool{
		"kube-proxy --config {config}": true, "proxy --kubeconfig={kubeconfig}": true, "kube-proxy": false, "": false,
	} {
		if err := CheckPeer(command); (err == nil) != usable {
			t.Errorf("%q: %v", command, err)
		}
	}
}

func TestProcess(t *testing.T) {
	p, err := startProcess([]string{"sleep", "100"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.check(t.Context()); err != nil {
		t.Errorf("while it runs: %v", err)
	}
	p.stop()
	if err := p.check(t.Context()); err == nil || !strings.Contains(err.Error(), "terminated") {
		t.Errorf("after its end: %v", err)
	}
	if _, err := startProcess([]string{filepath.Join(t.TempDir(), "none")}, io.Discard); err == nil {
		t.Error("a program that is not there is no error")
	}
}

func TestLastLines(t *testing.T) {
	late := strings.Repeat("late\n", logLines)
	for text, want := range map[string]string{
		strings.Repeat("early\n", 5) + late: "its output ends with:\n" + strings.TrimSpace(late),
		"one\n":                             "its output ends with:\none",
		"\n":                                "it has printed nothing",
	} {
		path := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastLines(path); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestGenerations says which generation belongs to a change.
func TestGenerations(t *testing.T) {
	g := &generations{came: make(chan struct{})}
	_, came := g.after(time.Time{})
	at := time.Now()
	g.note([]netlink.Message{{Header: netlink.Header{Type: newGeneration}}}, at)
	g.note([]netlink.Message{{Header: netlink.Header{Type: newGeneration}}}, at.Add(time.Second))
	g.note([]netlink.Message{{Header: netlink.Header{Type: newGeneration - 1}}}, at.Add(time.Minute))
	select {
	case <-came:
	default:
		t.Error("nobody is told of a generation")
	}
	for since, want := range map[time.Duration]time.Duration{-time.Second: 0, 0: 0, 1: time.Second, time.Second: time.Second} {
		if got, _ := g.after(at.Add(since)); !got.Equal(at.Add(want)) {
			t.Errorf("since %s: %s", since, got.Sub(at))
		}
	}
	if got, _ := g.after(at.Add(2 * time.Second)); !got.IsZero() {
		t.Errorf("after all: %s", got)
	}
}

// TestProbe asks who answers, of whatever listens on the loopback interface.
func TestProbe(t *testing.T) {
	p := &probe{}
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		t.Fatal("no TCP address")
	}
	p.frontend = addr.AddrPort()
	p.listeners = append(p.listeners, l)
	p.servers.Go(func() { traffic.Answer(l, []byte{1}) })
	unchecked := func() error { return nil }
	if _, err := p.await(t.Context(), 1, time.Minute, unchecked); err != nil {
		t.Errorf("the endpoint that answers: %v", err)
	}
	if _, err := p.await(t.Context(), 0, time.Millisecond, unchecked); err == nil || !strings.Contains(err.Error(), "no connection") {
		t.Errorf("one that does not: %v", err)
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
	if _, err := p.await(t.Context(), 0, time.Minute, func() error { return io.ErrUnexpectedEOF }); err != io.ErrUnexpectedEOF { //nolint:errorlint // itself
		t.Errorf("a proxy that has ended: %v", err)
	}
}

func compareResult() *CompareResult {
	us := func(numbers ...int) Latencies {
		all := make([]time.Duration, len(numbers))
		for i, n := range numbers {
			all[i] = time.Duration(n) * time.Microsecond
		}
		return newLatencies(all)
	}
	return NewCompareResult(specOf(Uniform, 4), []*ProxyResult{
		{Services: 60, Endpoints: 420, Name: "nftproxy", Command: "a b", FirstSync: 0.5, CPU: 0.03, RSS: 50 << 20, NFTables: us(300, 200, 100), Packet: us(150, 250, 350)},
		{Services: 60, Endpoints: 420, Name: "other iptables", Command: "c d", FirstSync: 9, CPU: 3, RSS: 200 << 20, Packet: us(90_000, 300_000, 60_000)},
	})
}

func TestCompareJSON(t *testing.T) {
	text, err := json.Marshal(compareResult())
	if err != nil {
		t.Fatal(err)
	}
	var decoded map[string]any
	if err := json.Unmarshal(text, &decoded); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Fields("endpoints machine proxies seed services shape"), slices.Sorted(maps.Keys(decoded))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	var again CompareResult
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(compareResult(), &again); diff != "" {
		t.Errorf("not the same when it is read again:\n%s", diff)
	}
	want := Latencies{Count: 3, P50: 200, P90: 300, P99: 300, Max: 300, All: []float64{100, 200, 300}}
	if diff := cmp.Diff(want, again.Proxies[0].NFTables); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestCompareGrowth plots several clusters, the largest of which is in the middle.
func TestCompareGrowth(t *testing.T) {
	r := compareResult()
	for _, size := range []int{600, 6} {
		for _, p := range compareResult().Proxies {
			p.Services, p.Endpoints = size, 7*size
			r.Proxies = append(r.Proxies, p)
		}
	}
	folder := t.TempDir()
	if err := r.WriteReport(folder); err != nil {
		t.Fatal(err)
	}
	html := checkReport(t, folder, "compare-costs", "compare-latency-cdf",
		"compare-growth-latency", "compare-growth-cpu", "compare-growth-first-sync", "compare-growth-memory")
	for _, want := range []string{
		">One endpoint replaced, 600 Services, 4,200 endpoints</text>", ">Services in the cluster</text>",
		"60 Services, 420 endpoints; 600 Services, 4,200 endpoints; 6 Services, 42 endpoints",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	for _, c := range r.growth() {
		if len(c.lines) != 2 || len(c.lines[0].points) != 3 || c.lines[1].name != "other iptables" {
			t.Errorf("%s: %+v", c.name, c.lines)
		}
	}
	r.Shape = OneBig
	if c := r.growth()[0]; c.x.label != "endpoints of the Service" || c.lines[0].points[1].X != 4200 {
		t.Errorf("one big Service: %+v", c)
	}
}

func TestCompareReport(t *testing.T) {
	r, folder := compareResult(), t.TempDir()
	if err := r.WriteReport(folder); err != nil {
		t.Fatal(err)
	}
	html := checkReport(t, folder, "compare-costs", "compare-latency-cdf")
	for _, want := range []string{
		">change, p50</text>", ">90 ms</text>", ">200 MiB</text>", ">10 ×</text>", ">nftproxy, seen by nftables</text>", ">nftproxy, seen by packet</text>", ">other iptables, seen by packet</text>",
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	// Neither has a figure for the processor time of the first sync.
	for _, without := range []string{"other iptables, seen by nftables", ">sync, CPU</text>", "NaN", "Inf"} {
		if strings.Contains(html, without) {
			t.Errorf("the page has %q", without)
		}
	}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"60 Services, 420 endpoints", "nftproxy: a b", "10.00 ms", "1.00 s", "90.00 ms", "200.0 MiB"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, &table)
		}
	}
}

// TestGenerationOfOtherModes makes sure that no generation is taken for the effect of a
// proxy that does not program nftables itself: iptables may do so, in several of them.
func TestGenerationOfOtherModes(t *testing.T) {
	for mode, seen := range map[string]bool{ModeNFTables: true, "iptables": false, "ipvs": false} {
		c := &comparison{opts: ProxyOptions{Mode: mode}, generations: &generations{came: make(chan struct{})}}
		at := time.Now()
		c.generations.note([]netlink.Message{{Header: netlink.Header{Type: newGeneration}}}, at)
		if got, ok := c.generation(at); ok != seen || (ok && !got.Equal(at)) {
			t.Errorf("%s: %s, %t", mode, got, ok)
		}
	}
}
