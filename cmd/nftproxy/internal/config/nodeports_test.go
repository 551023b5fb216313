package config

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/rules"
)

func addrs(list string) []netip.Addr {
	out := []netip.Addr{}
	for _, text := range strings.Fields(list) {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

// TestNodePortAddresses: on which addresses NodePorts are open.
func TestNodePortAddresses(t *testing.T) {
	// In no order, and one of them is on two interfaces.
	const local = "2001:db8::2 192.0.2.9 127.0.0.1 ::1 192.0.2.1 10.0.0.1 2001:db8::1 fe80::1%eth0 192.0.2.1 127.0.0.53 10.244.0.1"
	const every = "every address"
	for _, c := range []struct {
		name, list string // as in a file
		nodeIPs    string
		v4, v6     string
	}{
		{"none", "", "192.0.2.1 2001:db8::1", "192.0.2.1", "2001:db8::1"},
		{"primary", "primary", "192.0.2.1 2001:db8::1", "192.0.2.1", "2001:db8::1"},
		{"primary, IPv4 known", "primary", "192.0.2.1", "192.0.2.1", ""},
		{"primary, IPv6 known", "primary", "2001:db8::1", "", "2001:db8::1"},
		{"primary, none known", "primary", "", "", ""},
		{"primary, on no interface", "primary", "203.0.113.1 2001:db8::99", "", ""},
		{"primary, loopback", "primary", "127.0.0.1 ::1", "", ""},
		{"primary, mapped", "primary", "::ffff:192.0.2.1", "192.0.2.1", ""},
		{"all", "all", "192.0.2.1", every, every},
		{"all and more", "primary, all, 10.0.0.0/8", "192.0.2.1", every, every},
		{"localhost", "localhost", "192.0.2.1 2001:db8::1", "", ""},
		{"localhost and primary", "localhost, primary", "192.0.2.1 2001:db8::1", "192.0.2.1", "2001:db8::1"},
		{"IPv4 range", "192.0.2.0/24", "", "192.0.2.1 192.0.2.9", every},
		{"IPv6 range", "2001:db8::/64", "", every, "2001:db8::1 2001:db8::2"},
		{"loopback range", "127.0.0.0/8", "", "", every},
		{"IPv6 loopback range", "\"::1/128\"", "", every, ""},
		{"range with host bits", "192.0.2.77/24", "", "192.0.2.1 192.0.2.9", every},
		{"one address", "10.0.0.1/32", "", "10.0.0.1", every},
		{"several ranges", "192.0.2.8/29, 10.0.0.0/8, 10.0.0.0/8, 10.244.0.0/16", "", "10.0.0.1 10.244.0.1 192.0.2.9", every},
		{"range of nothing", "203.0.113.0/24", "192.0.2.1", "", every},
		{"zero range", "0.0.0.0/0, 10.0.0.0/8", "", every, every},
		{"zero range IPv6", "\"::/0\", 10.0.0.0/8", "", "10.0.0.1 10.244.0.1", every},
		{"range of each family", "10.0.0.0/8, \"::1/128\"", "", "10.0.0.1 10.244.0.1", ""},
		{"range and primary", "10.0.0.0/16, primary", "192.0.2.1", "10.0.0.1 192.0.2.1", ""},
		{"range and localhost", "10.0.0.0/16, localhost", "192.0.2.1", "10.0.0.1", ""},
		{"link-local range", "fe80::/10", "", every, "fe80::1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := Parse([]byte(withMode("nodePortAddresses: [" + c.list + "]")))
			if err != nil {
				t.Fatal(err)
			}
			for family, want := range map[rules.Family]string{rules.IPv4: c.v4, rules.IPv6: c.v6} {
				got, all := cfg.NodePortAddresses.Open(family, addrs(c.nodeIPs), addrs(local))
				if all != (want == every) {
					t.Errorf("%s: all is %t, want %s", family, all, want)
				}
				if all {
					continue
				}
				if d := cmp.Diff(addrs(want), got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
					t.Errorf("%s: %s", family, d)
				}
			}
		})
	}
}
