package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// iptables runs a program of iptables in a namespace and returns what it prints, but
// for comments.
func iptables(t *testing.T, ns *nstest.NS, stdin, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := ns.Do(cmd.Run); err != nil {
		t.Fatalf("%s: %v: %s", name, err, stderr.String())
	}
	lines := strings.SplitAfter(stdout.String(), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "#") }), "")
}

// saved returns what there is in a namespace: rules of iptables, tables, links.
func saved(t *testing.T, ns *nstest.NS) string {
	t.Helper()
	texts := []string{iptables(t, ns, "", "iptables-nft-save"), iptables(t, ns, "", "ip6tables-nft-save"), ns.MustNFT(t, "", "list", "tables")}
	var links []netlink.Link
	err := ns.Do(func() (err error) { links, err = netlink.LinkList(); return err })
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		texts = append(texts, link.Attrs().Name+"\n")
	}
	return strings.Join(texts, "")
}

// leftovers calls a function in a namespace.
func leftovers(t *testing.T, ns *nstest.NS, fn func(context.Context) (syncer.Leftovers, error)) syncer.Leftovers {
	t.Helper()
	var left syncer.Leftovers
	err := ns.Do(func() (err error) { left, err = fn(t.Context()); return err })
	if err != nil {
		t.Fatal(err)
	}
	return left
}

func removeAll(ctx context.Context) (syncer.Leftovers, error) {
	return syncer.RemoveLeftovers(ctx, true)
}

// xtBase makes the built-in chains and rules of others, which stay.
const xtBase = `*mangle
:PREROUTING ACCEPT [0:0]
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
COMMIT
*filter
:KUBE-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
COMMIT
*nat
:SOMEBODY - [0:0]
-A PREROUTING -p tcp -m tcp --dport 9 -m comment --comment "to KUBE-SERVICES" -j SOMEBODY
-A SOMEBODY -j RETURN
COMMIT
`

// xtIPv6 is what kube-proxy leaves of IPv6, in short.
const xtIPv6 = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-SVC-72TNSN4A7FMEIQW3 - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -d fd00:10:96::110/128 -p tcp -m tcp --dport 80 -j KUBE-SVC-72TNSN4A7FMEIQW3
-A KUBE-SVC-72TNSN4A7FMEIQW3 -p tcp -j DNAT --to-destination [fd00::1]:8080
COMMIT
`

const kubeProxyTables = `table ip kube-proxy {
	map service-ips {
		type ipv4_addr : verdict
		elements = { 10.96.0.1 : goto service }
	}
	chain service {
	}
	chain nat-prerouting {
		type nat hook prerouting priority -100
		ip daddr vmap @service-ips
	}
}
table ip6 kube-proxy {
}
`

// leaveBehind makes what kube-proxy leaves in all its modes, beside rules of others. It
// returns what there was before it.
func leaveBehind(t *testing.T, ns *nstest.NS) (before string) {
	t.Helper()
	iptables(t, ns, xtBase, "iptables-nft-restore")
	iptables(t, ns, xtBase, "ip6tables-nft-restore")
	ns.MustNFT(t, "table inet kube-proxy { }\ntable ip kube-proxy-2 { }\ntable ip nftproxy { }\n", "-f", "-")
	before = saved(t, ns)

	listing, err := os.ReadFile("testdata/leftovers/kube-proxy.save")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, line := range strings.SplitAfter(string(listing), "\n") {
		// Objects of nfacct would have to be there, and others' rules are.
		if !strings.Contains(line, "nfacct") && !strings.Contains(line, "SOMEBODY") && !strings.Contains(line, "KUBE-FIREWALL") {
			lines = append(lines, line)
		}
	}
	iptables(t, ns, strings.Join(lines, ""), "iptables-nft-restore", "--noflush")
	iptables(t, ns, xtIPv6, "ip6tables-nft-restore", "--noflush")
	var many strings.Builder
	for i := range 120 { // more than one batch
		fmt.Fprintf(&many, "add chain ip nat KUBE-SEP-%s\n", strings.NewReplacer("0", "A", "1", "B", "8", "C", "9", "D").Replace(fmt.Sprintf("%016d", i)))
	}
	ns.MustNFT(t, many.String(), "-f", "-")
	ns.MustNFT(t, kubeProxyTables, "-f", "-")
	err = ns.Do(func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "kube-ipvs0"}, PeerName: "other-end"})
	})
	if err != nil {
		t.Fatal(err)
	}
	return before
}

// TestRemoveLeftovers removes everything of kube-proxy and nothing else, with iptables
// and without.
func TestRemoveLeftovers(t *testing.T) {
	want := syncer.Leftovers{Found: []string{
		"table ip kube-proxy", "table ip6 kube-proxy",
		"iptables: ip mangle, 1 chains and 0 jumps to them",
		"iptables: ip filter, 6 chains and 9 jumps to them",
		"iptables: ip nat, 136 chains and 3 jumps to them",
		"iptables: ip6 nat, 2 chains and 1 jumps to them",
		"interface kube-ipvs0",
	}}
	slices.Sort(want.Found)
	for name, path := range map[string]string{"with iptables": os.Getenv("PATH"), "without iptables": ""} {
		t.Run(name, func(t *testing.T) {
			ns := nstest.New(t)
			before := leaveBehind(t, ns)
			after := saved(t, ns)
			for _, step := range []struct {
				name string
				do   func(context.Context) (syncer.Leftovers, error)
				want syncer.Leftovers
				then string
			}{
				{"find", syncer.FindLeftovers, want, after},
				{"remove", removeAll, want, before},
				{"remove again", removeAll, syncer.Leftovers{}, before},
				{"find again", syncer.FindLeftovers, syncer.Leftovers{}, before},
			} {
				var got syncer.Leftovers
				t.Run(step.name, func(t *testing.T) {
					t.Setenv("PATH", path)
					got = leftovers(t, ns, step.do)
				})
				slices.Sort(got.Found)
				if diff := cmp.Diff(step.want, got); diff != "" {
					t.Errorf("%s: (-want +got)\n%s", step.name, diff)
				}
				if diff := cmp.Diff(step.then, saved(t, ns)); diff != "" {
					t.Errorf("after %s (-want +got)\n%s", step.name, diff)
				}
			}
		})
	}
}

// TestKeepLeftovers: chains to which rules of others lead stay as they are, with
// iptables and without.
func TestKeepLeftovers(t *testing.T) {
	listing, err := os.ReadFile("testdata/leftovers/others.save")
	if err != nil {
		t.Fatal(err)
	}
	drop, err := os.ReadFile("testdata/leftovers/forward-drop.save")
	if err != nil {
		t.Fatal(err)
	}
	var results []string
	for name, path := range map[string]string{"with iptables": os.Getenv("PATH"), "without iptables": ""} {
		t.Run(name, func(t *testing.T) {
			ns := nstest.New(t)
			iptables(t, ns, string(listing)+string(drop), "iptables-nft-restore")
			want := []string{
				"iptables: ip nat, chain KUBE-MARK-MASQ, which rules of others use",
				"iptables: ip nat, chain KUBE-POSTROUTING, which rules of others use",
				"iptables: ip nat, chain KUBE-SEP-5HFOKFY52EFMO37V, which rules of others use",
				"iptables: ip nat, chain KUBE-SVC-MO7EUACJY2VOX55W, which rules of others use",
				"iptables: ip filter, chain KUBE-FORWARD, without which the policy DROP would end connections",
			}
			slices.Sort(want)
			for range 2 {
				var got syncer.Leftovers
				t.Run("remove", func(t *testing.T) {
					t.Setenv("PATH", path)
					got = leftovers(t, ns, removeAll)
				})
				slices.Sort(got.Kept)
				if diff := cmp.Diff(want, got.Kept); diff != "" {
					t.Errorf("kept (-want +got)\n%s", diff)
				}
			}
			results = append(results, saved(t, ns))
		})
	}
	if len(results) != 2 || results[0] != results[1] || !strings.Contains(results[0], "-j KUBE-FORWARD") {
		t.Errorf("not the same stays:\n%s", cmp.Diff(results[0], results[1]))
	}
}

// TestRemoveTables removes our tables, those of a ruleset that is in use, and nothing
// else.
func TestRemoveTables(t *testing.T) {
	ns := nstest.New(t)
	const others = "table inet nftproxy { }\ntable ip nftproxy-2 { }\ntable ip kube-proxy { }\n"
	ns.MustNFT(t, others, "-f", "-")
	before := ns.MustNFT(t, "", "list", "ruleset")
	if left := leftovers(t, ns, syncer.RemoveTables); !left.None() {
		t.Errorf("there were %s", left)
	}
	k, err := syncer.NewNetlink(ns.FD())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = k.Close() }()
	s := newSyncer(t, k, rules.Config{Families: rules.Families()})
	mustSync(t, s, set(service(1, rules.IPv4, 1, 2), service(1, rules.IPv6, 3)))
	if got, want := leftovers(t, ns, syncer.RemoveTables).String(), "table ip nftproxy, table ip6 nftproxy"; got != want {
		t.Errorf("removed %q, want %q", got, want)
	}
	if diff := cmp.Diff(before, ns.MustNFT(t, "", "list", "ruleset")); diff != "" {
		t.Errorf("others' tables (-before +after)\n%s", diff)
	}
	ns.MustNFT(t, "table ip6 nftproxy { }\n", "-f", "-")
	if got, want := leftovers(t, ns, syncer.RemoveTables).String(), "table ip6 nftproxy"; got != want {
		t.Errorf("removed %q, want %q", got, want)
	}
	if left := leftovers(t, ns, syncer.RemoveTables); !left.None() {
		t.Errorf("there were %s", left)
	}
}

// TestLeftoversCancelled does nothing once the context is done.
func TestLeftoversCancelled(t *testing.T) {
	ns := nstest.New(t)
	ns.MustNFT(t, "table ip nftproxy { }\ntable ip kube-proxy { }\n", "-f", "-")
	before := ns.MustNFT(t, "", "list", "ruleset")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, fn := range []func(context.Context) (syncer.Leftovers, error){syncer.RemoveTables, removeAll} {
		var left syncer.Leftovers
		err := ns.Do(func() (err error) { left, err = fn(ctx); return err })
		if !errors.Is(err, context.Canceled) || !slices.Equal(left.Failed, rules.Families()) {
			t.Errorf("error %v, failed: %v", err, left.Failed)
		}
	}
	if diff := cmp.Diff(before, ns.MustNFT(t, "", "list", "ruleset")); diff != "" {
		t.Errorf("(-before +after)\n%s", diff)
	}
}

// TestLeftoversOfOneFamilyFail: what cannot be removed is told with its family, and all
// else goes.
func TestLeftoversOfOneFamilyFail(t *testing.T) {
	ns := nstest.New(t)
	ns.MustNFT(t, "table ip kube-proxy { }\ntable ip6 kube-proxy { }\n", "-f", "-")
	programs := t.TempDir()
	for name, script := range map[string]string{
		"iptables-save": "exit 0", "iptables-restore": "exit 0",
		"ip6tables-save": "echo broken >&2; exit 3", "ip6tables-restore": "exit 0",
	} {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", programs)
	var left syncer.Leftovers
	err := ns.Do(func() (err error) { left, err = removeAll(t.Context()); return err })
	if err == nil || !strings.Contains(err.Error(), "ip6tables-save: exit status 3: broken") {
		t.Errorf("error %v", err)
	}
	want := syncer.Leftovers{Found: []string{"table ip kube-proxy", "table ip6 kube-proxy"}, Failed: []rules.Family{rules.IPv6}}
	if diff := cmp.Diff(want, left); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
