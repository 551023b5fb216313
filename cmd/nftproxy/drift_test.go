package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// The metrics about what other programs do to our tables.
const (
	repairs        = "nftproxy_foreign_changes_repaired_total"
	foreignResyncs = `nftproxy_resyncs_total{reason="foreign_change"}`
)

// startOn runs the daemon in a new namespace and waits for its first sync.
func startOn(t *testing.T, manifest string) (*nstest.NS, *process) {
	t.Helper()
	ns := nstest.New(t)
	d := startDaemon(t, ns, "--manifests", write(t, manifest))
	awaitHealthy(t, ns)
	return ns, d
}

// TestDrift has another program change our tables in every way: the daemon notices,
// writes them again, says which program it was, and counts.
func TestDrift(t *testing.T) {
	commands := []string{
		"flush ruleset",
		"delete table ip nftproxy",
		"delete table ip6 nftproxy",
		"add table ip nftproxy { flags dormant; }",
		"delete chain ip nftproxy nat-prerouting",
		"add chain ip nftproxy nat-prerouting { policy drop; }",
		"flush chain ip nftproxy services",
		"delete rule ip nftproxy services handle HANDLE",
		"replace rule ip nftproxy services handle HANDLE drop",
		"insert rule ip nftproxy services drop",
		"add rule ip6 nftproxy filter-forward drop",
		"delete element ip nftproxy endpoints { 10.96.0.1 . tcp . 80 . 0 }",
		"add element ip nftproxy endpoints { 10.96.0.1 . tcp . 80 . 7 : 10.244.0.9 . 8080 }",
		"flush map ip nftproxy service-ips",
		"add chain ip nftproxy other { type filter hook input priority 0; policy drop; }",
		"add set ip nftproxy other { type ipv4_addr; }",
		"delete table ip nftproxy; add table ip nftproxy; add map ip nftproxy endpoints { type ipv4_addr : verdict; }",
	}
	const each = 4 // fewer than what makes a rival
	for some := range slices.Chunk(commands, each) {
		ns, d := startOn(t, manifestOf("10.244.0.1", "10.244.0.2"))
		want := ns.Listing(t)
		for i, command := range some {
			t.Run(command, func(t *testing.T) {
				begin := time.Now()
				ns.MustNFT(t, withHandle(t, ns, command), "-f", "-")
				eventually(t, "a repair", func() bool { return metric(t, ns, repairs) > float64(i) })
				t.Logf("repaired within %s", time.Since(begin))
				if diff := cmp.Diff(want, ns.Listing(t)); diff != "" {
					t.Errorf("after the repair (want -, got +):\n%s", diff)
				}
			})
		}
		if got := metric(t, ns, repairs); got != float64(len(some)) {
			t.Errorf("%v repairs of %d changes", got, len(some))
		}
		told := regexp.MustCompile(`another program has changed our tables.*\(nft\)`).FindAllString(d.stderr.String(), -1)
		if len(told) != len(some) {
			t.Errorf("%d times it is said which program it was", len(told))
		}
		d.stop(t, syscall.SIGTERM)
	}
}

// withHandle puts the handle of the last rule of the chain "services" into a command.
func withHandle(t *testing.T, ns *nstest.NS, command string) string {
	t.Helper()
	if !strings.Contains(command, "HANDLE") {
		return command
	}
	chain := ns.MustNFT(t, "", "-a", "list", "chain", "ip", "nftproxy", "services")
	last := regexp.MustCompile(`# handle (\d+)\n\t}`).FindStringSubmatch(chain)
	if last == nil {
		t.Fatalf("no rule in %s", chain)
	}
	return strings.ReplaceAll(command, "HANDLE", last[1])
}

// TestOtherTables are nobody's business, whatever happens to them.
func TestOtherTables(t *testing.T) {
	ns, d := startOn(t, manifestOf("10.244.0.1"))
	for _, command := range []string{
		"add table inet other; add chain inet other input { type filter hook input priority 0; }; add rule inet other input counter",
		"flush table inet other", "delete table inet other",
		"add table ip kube-proxy; add chain ip kube-proxy services; delete table ip kube-proxy",
	} {
		ns.MustNFT(t, command, "-f", "-")
	}
	if log := d.stderr.String(); strings.Contains(log, "another program") {
		t.Error("it is said that our tables were changed")
	}
	// A change of ours comes after all of them, and is the only one.
	ns.MustNFT(t, "", "flush", "chain", "ip", "nftproxy", "services")
	eventually(t, "a repair", func() bool { return metric(t, ns, repairs) > 0 })
	if repaired, resyncs := metric(t, ns, repairs), metric(t, ns, foreignResyncs); repaired != 1 || resyncs != 1 {
		t.Errorf("%v repairs, %v full writes", repaired, resyncs)
	}
	if n := strings.Count(d.stderr.String(), "another program"); n != 1 {
		t.Errorf("%d changes are told", n)
	}
}

// TestRival changes our tables again and again, much more often than they are
// repaired. It is said loudly, and once the rival has gone all is well.
func TestRival(t *testing.T) {
	ns, d := startOn(t, manifestOf("10.244.0.1"))
	want := ns.Listing(t)
	changes := 0
	eventually(t, "a loud message", func() bool {
		ns.MustNFT(t, "", "flush", "chain", "ip", "nftproxy", "services")
		changes++
		return changes >= 50 && strings.Contains(d.stderr.String(), "another program keeps changing our tables")
	})
	if got := metric(t, ns, repairs); got >= float64(changes) {
		t.Errorf("%v repairs of %d changes", got, changes)
	}
	eventually(t, "what is wanted, once the rival has gone", func() bool { return cmp.Equal(want, ns.Listing(t)) })
}

// TestRivalUnderChurn changes our tables while endpoints change, so that syncs meet what
// it did. Every full write is a repair, none a retry after a failure; they come less and
// less often; it is said loudly; and once the rival has gone all is well.
func TestRivalUnderChurn(t *testing.T) {
	for name, test := range map[string]struct {
		command string
		fails   bool // a repair may fail: it begins with what there is
	}{
		"deletes elements": {"flush map ip nftproxy endpoints", false},
		"deletes tables":   {"delete table ip nftproxy", true},
	} {
		t.Run(name, func(t *testing.T) {
			manifest := write(t, manifestOf("10.244.0.1"))
			ns := nstest.New(t)
			d := startDaemon(t, ns, "--manifests", manifest)
			awaitHealthy(t, ns)
			changes := 0
			eventually(t, "a loud message, and syncs that met the rival", func() bool {
				if _, err := ns.NFT(t.Context(), test.command, "-f", "-"); err != nil && !strings.Contains(err.Error(), "No such file") {
					t.Fatal(err)
				}
				changes++
				replace(t, manifest, manifestOf("10.244.0.1", fmt.Sprintf("10.244.0.%d", 2+changes%100)))
				log := d.stderr.String()
				return changes >= 20 && strings.Contains(log, "another program keeps changing our tables") &&
					strings.Contains(log, "a sync has met what another program did")
			})
			if got := metric(t, ns, repairs); got >= float64(changes) {
				t.Errorf("%v repairs of %d changes", got, changes)
			}
			replace(t, manifest, manifestOf("10.244.0.1", "10.244.0.250"))
			fresh, _ := startOn(t, manifestOf("10.244.0.1", "10.244.0.250"))
			want := fresh.Listing(t)
			eventually(t, "what is wanted, once the rival has gone", func() bool { return cmp.Equal(want, ns.Listing(t)) })
			failures, foreign := metric(t, ns, `nftproxy_resyncs_total{reason="failure"}`), metric(t, ns, foreignResyncs)
			if repaired := metric(t, ns, repairs); repaired == 0 || !test.fails && (failures != 0 || foreign != repaired) {
				t.Errorf("%v repairs by %v full writes, %v full writes after failures", repaired, foreign, failures)
			}
		})
	}
}
