package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/metrics"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// search is what a search for leftovers brings.
type search struct {
	left syncer.Leftovers
	err  error
}

// TestTakeOverRounds says when leftovers are looked for after the first sync, and what
// is logged, for what each search brings. After the last one nothing is left.
func TestTakeOverRounds(t *testing.T) {
	some := search{left: syncer.Leftovers{Found: []string{"table ip kube-proxy"}}}
	six := []rules.Family{rules.IPv6}
	part := search{left: syncer.Leftovers{Found: []string{"table ip kube-proxy"}, Failed: six}, err: errors.New("broken")}
	failed := search{left: syncer.Leftovers{Failed: rules.Families()}, err: errors.New("broken")}
	busy := search{left: syncer.Leftovers{Kept: []string{"ipvs"}}}
	const (
		taken   = "info nftproxy has taken over from kube-proxy [table ip kube-proxy]"
		again   = "warn kube-proxy's rules were there again and are removed: does it still run on this node? [table ip kube-proxy]"
		kept    = "info something of kube-proxy has to stay [ipvs]"
		warning = "warn kube-proxy's rules are in force beside those of nftproxy: end kube-proxy on this node, " +
			"then run `nftproxy cleanup --kube-proxy`, or nftproxy with --take-over [table ip kube-proxy]"
	)
	retry := func(in string) string {
		return "error not all that kube-proxy left could be removed, it is tried again in " + in + ": broken"
	}
	tests := map[string]struct {
		remove   bool
		searches []search
		at       []time.Duration
		logged   []string
		failures int // of IPv4 and IPv6 together
	}{
		"nothing there":     {true, nil, []time.Duration{0}, nil, 0},
		"taken over":        {true, []search{some}, []time.Duration{0, time.Minute}, []string{taken}, 0},
		"it comes again":    {true, []search{some, some}, []time.Duration{0, time.Minute, 3 * time.Minute}, []string{taken, again}, 0},
		"failures":          {true, []search{failed, failed}, []time.Duration{0, time.Second, 3 * time.Second}, []string{retry("1s"), retry("2s")}, 4},
		"a part, the rest":  {true, []search{part, some}, []time.Duration{0, time.Second, time.Second + time.Minute}, []string{taken, retry("1s"), taken}, 1},
		"kept, then gone":   {true, []search{busy, some}, []time.Duration{0, time.Minute, 3 * time.Minute}, []string{kept, taken}, 0},
		"only a report":     {false, []search{some}, []time.Duration{0}, []string{warning}, 0},
		"nothing to report": {false, []search{busy}, []time.Duration{0}, nil, 0},
		"a failed report":   {false, []search{failed}, []time.Duration{0}, []string{"warn what kube-proxy left could not be looked for: broken"}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core, logs := observer.New(zapcore.InfoLevel)
				m := metrics.New(rules.Families(), metrics.BuildInfo{})
				opts := proxier.Options{Log: zap.New(core), Observers: proxier.Observers{Metrics: m}}
				take := newTakeOver(test.remove, &opts)
				begin := time.Now()
				var at []time.Duration
				take.find = func(context.Context) (syncer.Leftovers, error) {
					at = append(at, time.Since(begin))
					if n := len(at) - 1; n < len(test.searches) {
						return test.searches[n].left, test.searches[n].err
					}
					return syncer.Leftovers{}, nil
				}
				opts.OnSync(proxier.Report{})
				take.run(t.Context())
				if diff := cmp.Diff(test.at, at); diff != "" {
					t.Errorf("searches (-want +got)\n%s", diff)
				}
				if got := cleanupFailures(t, m); got != test.failures {
					t.Errorf("%d failures are counted, want %d", got, test.failures)
				}
				if diff := cmp.Diff(test.logged, lines(logs)); diff != "" {
					t.Errorf("log (-want +got)\n%s", diff)
				}
			})
		})
	}
}

// cleanupFailures returns how many failures are counted, of both families.
func cleanupFailures(t *testing.T, m *metrics.Metrics) (sum int) {
	t.Helper()
	families, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total" {
			for _, series := range f.GetMetric() {
				sum += int(series.GetCounter().GetValue())
			}
		}
	}
	return sum
}

// lines returns what was logged, as text.
func lines(logs *observer.ObservedLogs) []string {
	var all []string
	for _, entry := range logs.All() {
		line := []string{entry.Level.String(), entry.Message}
		fields := entry.ContextMap()
		for _, name := range []string{"removed", "found", "kept"} {
			if value, ok := fields[name]; ok {
				line = append(line, fmt.Sprint(value))
			}
		}
		if in, ok := fields["in"]; ok {
			line = append(line, "in", fmt.Sprint(in))
		}
		text := strings.Join(line, " ")
		if err, ok := fields["error"]; ok {
			text += fmt.Sprintf(": %v", err)
		}
		all = append(all, text)
	}
	return all
}

// TestTakeOverWaits for a sync that succeeds, and ends with the context at any time.
// Reports go on to whom they went before.
func TestTakeOverWaits(t *testing.T) {
	tests := map[string]struct {
		reports []proxier.Report
		fails   bool // each search
		found   bool // was it looked for
	}{
		"no sync":      {nil, false, false},
		"a failed one": {[]proxier.Report{{Err: errors.New("refused")}}, false, false},
		"then another": {[]proxier.Report{{Err: errors.New("refused")}, {}, {}}, false, true},
		"in a pause":   {[]proxier.Report{{}}, true, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reported := 0
				opts := proxier.Options{Log: zap.NewNop(), OnSync: func(proxier.Report) { reported++ }}
				take := newTakeOver(true, &opts)
				found := false
				take.find = func(context.Context) (syncer.Leftovers, error) {
					found = true
					if test.fails {
						return syncer.Leftovers{}, errors.New("broken")
					}
					return syncer.Leftovers{}, nil
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					take.run(ctx)
				}()
				for _, r := range test.reports {
					opts.OnSync(r)
				}
				synctest.Wait()
				cancel()
				<-ended
				if found != test.found || reported != len(test.reports) {
					t.Errorf("looked for: %t, %d reports", found, reported)
				}
			})
		})
	}
}

// TestDaemonTakesOver: with the real kernel, the rules of kube-proxy stay or go.
func TestDaemonTakesOver(t *testing.T) {
	ns := nstest.New(t)
	ns.MustNFT(t, "table ip kube-proxy { }\ntable ip6 kube-proxy { }\ntable ip others { }\n", "-f", "-")
	path := write(t, manifestOf("10.244.0.1"))

	d := startDaemon(t, ns, "--manifests", path)
	eventually(t, "a warning", func() bool { return strings.Contains(d.stderr.String(), "nftproxy cleanup --kube-proxy") })
	if tables := ns.MustNFT(t, "", "list", "tables"); !strings.Contains(tables, "table ip kube-proxy\n") {
		t.Errorf("there are tables:\n%s", tables)
	}
	d.stop(t, syscall.SIGTERM)

	d = startDaemon(t, ns, "--manifests", path, "--take-over")
	want := "table ip others\ntable ip nftproxy\ntable ip6 nftproxy\n"
	eventually(t, "only its own tables", func() bool { return ns.MustNFT(t, "", "list", "tables") == want })
	eventually(t, "a report", func() bool { return strings.Contains(d.stderr.String(), "taken over") })
	if status := d.stop(t, syscall.SIGTERM); status != exitOK {
		t.Errorf("exit status: %d", status)
	}
}
