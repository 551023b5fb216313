package scenario

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/probe"
)

// endpoints returns two that answer.
func endpoints() (a, b netip.AddrPort) {
	return netip.MustParseAddrPort("10.244.1.10:8080"), netip.MustParseAddrPort("10.244.2.10:8080")
}

// answer is one to 192.0.2.200 from an endpoint that saw a source.
func answer(endpoint netip.AddrPort, source string) probe.Result {
	return probe.Result{
		Outcome: probe.OK, Endpoint: endpoint,
		Source: netip.MustParseAddrPort(source), Local: netip.MustParseAddrPort("192.0.2.200:4000"),
	}
}

// answers is so many from either endpoint, which saw 192.0.2.1.
func answers(a, b int) []probe.Result {
	endpointA, endpointB := endpoints()
	var results []probe.Result
	for range a {
		results = append(results, answer(endpointA, "192.0.2.1:4000"))
	}
	for range b {
		results = append(results, answer(endpointB, "192.0.2.1:4000"))
	}
	return results
}

func TestJudge(t *testing.T) {
	node := []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("10.244.1.1")}
	endpointA, endpointB := endpoints()
	both := []netip.AddrPort{endpointA, endpointB}
	kept := []probe.Result{answer(endpointA, "192.0.2.200:1")}
	other := []probe.Result{answer(endpointA, "192.0.2.2:1")}
	refused, dropped := []probe.Result{{Outcome: probe.Refused}}, []probe.Result{{Outcome: probe.Dropped}}
	for name, test := range map[string]struct {
		expect  Expect
		results []probe.Result
		wrong   string // "" when the results are as expected
	}{
		"refused":              {Expect{Result: probe.Refused}, refused, ""},
		"dropped":              {Expect{Result: probe.Dropped}, dropped, ""},
		"refused, not dropped": {Expect{Result: probe.Dropped}, refused, "another result"},
		"dropped, not refused": {Expect{Result: probe.Refused}, dropped, "another result"},
		"answered":             {Expect{Result: probe.Dropped}, answers(1, 0), "another result"},
		"one of many dropped":  {Expect{Result: probe.OK}, append(answers(9, 0), dropped...), "another result"},
		"anybody":              {Expect{Result: probe.OK}, answers(1, 1), ""},
		"one of them":          {Expect{Result: probe.OK, Endpoints: both}, answers(0, 3), ""},
		"somebody else":        {Expect{Result: probe.OK, Endpoints: both[:1]}, answers(5, 1), "10.244.2.10:8080 answered"},
		"all":                  {Expect{Result: probe.OK, Endpoints: both, All: true}, answers(5, 1), ""},
		"not all":              {Expect{Result: probe.OK, Endpoints: both, All: true}, answers(0, 9), "10.244.1.10:8080 never answered"},
		"same":                 {Expect{Result: probe.OK, Same: true}, answers(3, 0), ""},
		"not the same":         {Expect{Result: probe.OK, Same: true}, answers(3, 1), "2 endpoints answered"},
		"node":                 {Expect{Result: probe.OK, Source: SourceNode}, answers(1, 0), ""},
		"not node":             {Expect{Result: probe.OK, Source: SourceNode}, other, "192.0.2.2, which is no address of node1"},
		"kept, not node":       {Expect{Result: probe.OK, Source: SourceNode}, kept, "no address of node1"},
		"kept":                 {Expect{Result: probe.OK, Source: SourceKept}, kept, ""},
		"not kept":             {Expect{Result: probe.OK, Source: SourceKept}, answers(1, 0), "saw 192.0.2.200 as 192.0.2.1"},
		"any":                  {Expect{Result: probe.OK, Source: AnySource}, other, ""},
		"share":                {Expect{Result: probe.OK, Share: map[netip.AddrPort]Share{endpointA: {0.6, 0.7}}}, answers(6, 4), ""},
		"small share":          {Expect{Result: probe.OK, Share: map[netip.AddrPort]Share{endpointA: {0.6, 0.7}}}, answers(5, 5), "gave 0.500 of the answers, not 0.6 to 0.7"},
		"big share":            {Expect{Result: probe.OK, Share: map[netip.AddrPort]Share{endpointB: {0, 0.3}}}, answers(5, 5), "gave 0.500"},
		"no share":             {Expect{Result: probe.OK, Share: map[netip.AddrPort]Share{endpointB: {0.1, 0.3}}}, answers(5, 0), "gave 0.000"},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.expect.Judge(test.results, node)
			switch {
			case test.wrong == "" && err != nil:
				t.Error(err)
			case test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)):
				t.Errorf("%v, want %q", err, test.wrong)
			}
		})
	}
}

func TestMismatch(t *testing.T) {
	endpointA, _ := endpoints()
	p := Probe{
		From: "client", To: probe.Target{Protocol: probe.TCP, Address: netip.MustParseAddrPort("203.0.113.10:80")},
		Expect: Expect{Result: probe.OK, Endpoints: []netip.AddrPort{endpointA}, All: true, Same: true, Source: SourceKept},
	}
	results := []probe.Result{{Outcome: probe.Dropped, Reason: "no answer"}}
	got := mismatch(p, results, p.Expect.Judge(results, nil)).Error()
	want := "client to tcp://203.0.113.10:80: expected ok, from each of [10.244.1.10:8080], always the same, source kept, " +
		"got 1 dropped (no answer)"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
