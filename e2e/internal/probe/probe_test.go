package probe

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
	"github.com/nftproxy/nftproxy/e2e/internal/namespace/namespacetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParseTarget(t *testing.T) {
	tests := []struct {
		in   string
		want Target
		ok   bool
	}{
		{"tcp://203.0.113.10:80", Target{TCP, netip.MustParseAddrPort("203.0.113.10:80")}, true},
		{"udp://[fd00:10:96::10]:53", Target{UDP, netip.MustParseAddrPort("[fd00:10:96::10]:53")}, true},
		{"sctp://203.0.113.10:80", Target{}, false},
		{"203.0.113.10:80", Target{}, false},
		{"tcp://203.0.113.10", Target{}, false},
		{"tcp://localhost:80", Target{}, false},
		{"", Target{}, false},
	}
	for _, test := range tests {
		got, err := ParseTarget(test.in)
		if got != test.want || (err == nil) != test.ok {
			t.Errorf("ParseTarget(%q) = %v, %v; want %v, ok: %t", test.in, got, err, test.want, test.ok)
		}
		if test.ok && got.String() != test.in {
			t.Errorf("%q is printed as %q", test.in, got)
		}
	}
}

func TestAnswer(t *testing.T) {
	endpoint, source := netip.MustParseAddrPort("[fd00::1]:8080"), netip.MustParseAddrPort("192.0.2.1:4000")
	for _, token := range []string{"", "token"} {
		gotEndpoint, gotSource, err := decode(encode(token, endpoint, source), token)
		if gotEndpoint != endpoint || gotSource != source || err != nil {
			t.Errorf("token %q: %s, %s, %v", token, gotEndpoint, gotSource, err)
		}
	}
	for _, answer := range []string{"", "other [fd00::1]:8080 192.0.2.1:4000", "token", "token fd00::1 192.0.2.1:1", "token [fd00::1]:1 x"} {
		if endpoint, source, err := decode(answer, "token"); err == nil {
			t.Errorf("decode(%q) = %s, %s", answer, endpoint, source)
		}
	}
}

func TestSummary(t *testing.T) {
	endpoint, client := netip.MustParseAddrPort("10.244.1.10:80"), netip.MustParseAddrPort("192.0.2.200:4000")
	ok := Result{Outcome: OK, Endpoint: endpoint, Source: client, Local: client}
	got := Summary([]Result{ok, {Outcome: Dropped, Reason: "no answer"}, ok})
	want := "1 dropped (no answer); 2 ok from 10.244.1.10:80, which saw 192.0.2.200 as 192.0.2.200"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// rules make one host refuse and drop its own packets and those that come in,
// in every way that a proxy may use.
const rules = `
table inet test {
	chain out {
		type filter hook output priority 0
		tcp dport 101 counter reject
		tcp dport 102 counter reject with tcp reset
		tcp dport 103 counter drop
		tcp dport 104 counter reject with icmpx admin-prohibited
		udp dport 101 counter reject
		udp dport 103 counter drop
		udp dport 104 counter reject with icmpx admin-prohibited
	}
	chain in {
		type filter hook input priority 0
		tcp dport 111 counter reject
		tcp dport 112 counter reject with tcp reset
		tcp dport 113 counter drop
		udp dport 111 counter reject
		udp dport 113 counter drop
	}
}`

func serve(t *testing.T, ns *namespace.Namespace, at string) *Server {
	t.Helper()
	server, err := Serve(ns, netip.MustParseAddrPort(at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

func TestSendOnOneHost(t *testing.T) {
	ns := namespacetest.New(t, t.Name())
	if _, err := ns.Command(t.Context(), rules, "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name     string
		protocol Protocol
		port     uint16
		source   uint16
		want     Outcome
	}{
		{name: "a TCP server", protocol: TCP, port: 80, want: OK},
		{name: "a TCP server, fixed source port", protocol: TCP, port: 80, source: 4000, want: OK},
		{name: "the same source port again", protocol: TCP, port: 80, source: 4000, want: OK},
		{name: "a UDP server", protocol: UDP, port: 80, want: OK},
		{name: "a UDP server, fixed source port", protocol: UDP, port: 80, source: 4000, want: OK},
		{name: "the same UDP source port again", protocol: UDP, port: 80, source: 4000, want: OK},
		{name: "no TCP server", protocol: TCP, port: 81, want: Refused},
		{name: "no UDP server", protocol: UDP, port: 81, want: Refused},
		{name: "SYN rejected on its way out", protocol: TCP, port: 101, want: Refused},
		{name: "SYN reset on its way out", protocol: TCP, port: 102, want: Refused},
		{name: "SYN dropped on its way out", protocol: TCP, port: 103, want: Dropped},
		{name: "SYN prohibited on its way out", protocol: TCP, port: 104, want: Refused},
		{name: "datagram rejected on its way out", protocol: UDP, port: 101, want: Refused},
		{name: "datagram dropped on its way out", protocol: UDP, port: 103, want: Dropped},
		{name: "datagram prohibited on its way out", protocol: UDP, port: 104, want: Refused},
		{name: "SYN rejected on its way in", protocol: TCP, port: 111, want: Refused},
		{name: "SYN reset on its way in", protocol: TCP, port: 112, want: Refused},
		{name: "SYN dropped on its way in", protocol: TCP, port: 113, want: Dropped},
		{name: "datagram rejected on its way in", protocol: UDP, port: 111, want: Refused},
		{name: "datagram dropped on its way in", protocol: UDP, port: 113, want: Dropped},
	}
	for _, address := range []string{"127.0.0.1", "::1"} {
		host := netip.MustParseAddr(address)
		server := serve(t, ns, netip.AddrPortFrom(host, 80).String())
		for _, test := range tests {
			t.Run(test.name+" at "+address, func(t *testing.T) {
				to := Target{test.protocol, netip.AddrPortFrom(host, test.port)}
				begin := time.Now()
				got, err := Send(t.Context(), ns, Request{To: to, SourcePort: test.source, Limit: 300 * time.Millisecond})
				if err != nil || got.Outcome != test.want {
					t.Fatalf("%s: %v, %v; want %s", to, got, err, test.want)
				}
				if took := time.Since(begin); (took >= 300*time.Millisecond) != (test.want == Dropped) {
					t.Errorf("%s took %s", got, took)
				}
				if got.Outcome == OK && (got.Endpoint != server.Address() || got.Source != got.Local || !got.SourceKept()) {
					t.Errorf("%s: %+v, want an answer of %s to %s", to, got, server.Address(), got.Local)
				}
				if test.source != 0 && got.Local.Port() != test.source {
					t.Errorf("sent from port %d, want %d", got.Local.Port(), test.source)
				}
			})
		}
	}
}

func TestSendErrors(t *testing.T) {
	ns := namespacetest.New(t, t.Name())
	for _, target := range []string{"tcp://192.0.2.1:80", "udp://192.0.2.1:80", "tcp://[2001:db8::1]:80"} {
		to, err := ParseTarget(target)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Send(t.Context(), ns, Request{To: to}); err == nil {
			t.Errorf("%s without a route: %s", target, got)
		}
	}
}

func TestLoad(t *testing.T) {
	ns := namespacetest.New(t, t.Name())
	server := serve(t, ns, "127.0.0.1:80")
	load := StartLoad(t.Context(), ns, Request{To: Target{TCP, server.Address()}}, time.Millisecond)
	time.Sleep(200 * time.Millisecond)
	results, err := load.Stop()
	if err != nil {
		t.Fatal(err)
	}
	if len(results) < 10 {
		t.Errorf("%d probes in 200 ms", len(results))
	}
	for _, result := range results {
		if result.Outcome != OK {
			t.Errorf("one probe: %s", result)
		}
	}
}

func TestRepeat(t *testing.T) {
	ns := namespacetest.New(t, t.Name())
	server := serve(t, ns, "127.0.0.1:80")
	for _, protocol := range []Protocol{TCP, UDP} {
		begin := time.Now()
		results, err := Repeat(t.Context(), ns, Request{To: Target{protocol, server.Address()}, SourcePort: 5000}, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if got := Summary(results); got != "1000 ok from 127.0.0.1:80, which saw 127.0.0.1 as 127.0.0.1" {
			t.Errorf("%s: %s", protocol, got)
		}
		t.Logf("1000 probes over %s: %s", protocol, time.Since(begin))
	}
}
