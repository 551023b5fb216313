package rules_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"github.com/nftproxy/nftproxy/rules"
)

// TestWalk walks packets over the ruleset of testdata/walk/walk.txtar. The name of each
// other file there is a packet,
//
//	NAME: PROTOCOL SOURCE DESTINATION [INTERFACE]
//
// and its content what the walk says. `go test ./rules -run TestWalk$ -update` writes it.
func TestWalk(t *testing.T) {
	const path = "testdata/walk/walk.txtar"
	archive, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ruleset := readServices(t, archiveFile(archive, inputFile))
	walker := rules.NewWalker(ruleset, rules.IPv4, rules.Host{Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
	for i, file := range archive.Files {
		if file.Name == inputFile {
			continue
		}
		got := formatTrace(walker.Walk(parsePacket(t, file.Name), rememberedClient(ruleset)))
		if diff := cmp.Diff(string(file.Data), got); diff != "" && !*update {
			t.Errorf("%s (want -, got +):\n%s", file.Name, diff)
		}
		archive.Files[i].Data = []byte(got)
	}
	if *update {
		if err := os.WriteFile(path, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func parsePacket(t *testing.T, line string) rules.Packet {
	t.Helper()
	_, text, _ := strings.Cut(line, ": ")
	fields := append(strings.Fields(text), "")
	if len(fields) < 4 {
		t.Fatalf("%q is no packet", line)
	}
	p := rules.Packet{Source: netip.MustParseAddrPort(fields[1]), Dest: netip.MustParseAddrPort(fields[2]), Interface: fields[3]}
	for _, p.Protocol = range []rules.Protocol{rules.TCP, rules.UDP, rules.SCTP} {
		if p.Protocol.String() == fields[0] {
			return p
		}
	}
	t.Fatalf("%q has no protocol", line)
	return p
}

// rememberedClient lets every map of session affinity remember 10.244.1.99, with the
// last endpoint that it may.
func rememberedClient(r *rules.Ruleset) rules.Clients {
	clients := rules.Clients{}
	for _, c := range r.Services {
		for _, table := range c.AffinityTables() {
			clients[table.Map] = map[netip.Addr]netip.AddrPort{netip.MustParseAddr("10.244.1.99"): table.Endpoints[len(table.Endpoints)-1]}
		}
	}
	return clients
}

func formatTrace(trace rules.Trace) string {
	var b strings.Builder
	for _, r := range trace.Results {
		fmt.Fprintf(&b, "%s: %s %.5g", r.Outcome, r.Dest, r.Probability)
		if r.Masqueraded {
			fmt.Fprint(&b, " masqueraded")
		}
		fmt.Fprintln(&b)
	}
	for _, s := range trace.Steps {
		fmt.Fprintf(&b, "%-11s %4d %s %d (%.2g): %s\n", s.Hook.Point, s.Hook.Priority, s.Chain, s.Index, s.Probability, s.Rule.AppendText(nil, rules.IPv4))
	}
	return b.String()
}
