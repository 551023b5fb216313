package rules

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// validService returns a service port that is in order, to be broken by tests.
func validService() ServicePort {
	return ServicePort{
		ServicePortKey: ServicePortKey{ServicePortName{"default", "web", "http", TCP}, IPv4},
		Frontends:      []Frontend{frontend("10.96.0.10:80"), frontend("10.96.0.11:80")},
		Endpoints: []Endpoint{
			{Addr: netip.MustParseAddrPort("10.244.1.10:8080"), Weight: 1, Local: true},
			{Addr: netip.MustParseAddrPort("10.244.2.11:8080"), Weight: MaxWeight},
			{Addr: netip.MustParseAddrPort("10.244.2.11:8081"), Weight: 0},
		},
	}
}

func frontend(addr string) Frontend {
	return Frontend{Kind: ClusterIP, Addr: netip.MustParseAddrPort(addr)}
}

func TestValidateAccepts(t *testing.T) {
	for name, change := range map[string]func(*ServicePort){
		"an ordinary service port": func(*ServicePort) {},
		"no endpoints":             func(s *ServicePort) { s.Endpoints = nil },
		"no frontends":             func(s *ServicePort) { s.Frontends = nil },
		"no port name":             func(s *ServicePort) { s.Port = "" },
		"the highest port":         func(s *ServicePort) { s.Frontends[0] = frontend("10.96.0.10:65535") },
		"two ports of one address": func(s *ServicePort) { s.Frontends[0] = frontend("10.96.0.11:443") },
		"letters of any script":    func(s *ServicePort) { s.Name = "größe-日本" },
		"udp":                      func(s *ServicePort) { s.Protocol = UDP },
		"sctp":                     func(s *ServicePort) { s.Protocol = SCTP },
		"serving in any order": func(s *ServicePort) {
			s.Serving = []netip.AddrPort{netip.MustParseAddrPort("10.244.1.11:53"), netip.MustParseAddrPort("10.244.1.10:53")}
		},
		"ipv6": func(s *ServicePort) {
			s.Family = IPv6
			s.Frontends = []Frontend{frontend("[fd00::10]:80")}
			s.Endpoints = []Endpoint{{Addr: netip.MustParseAddrPort("[fd00:10:244::1]:8080"), Weight: 1}}
		},
	} {
		sp := validService()
		change(&sp)
		if err := sp.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestValidateRefuses(t *testing.T) {
	endpoint := func(addr string) func(*ServicePort) {
		return func(s *ServicePort) { s.Endpoints[1].Addr = netip.MustParseAddrPort(addr) }
	}
	front := func(addr string) func(*ServicePort) {
		return func(s *ServicePort) { s.Frontends[1] = frontend(addr) }
	}
	for _, c := range []struct {
		name   string
		change func(*ServicePort)
		want   string
	}{
		{"no family", func(s *ServicePort) { *s = ServicePort{ServicePortKey: ServicePortKey{s.ServicePortName, 0}} }, "family 0 is neither 4 nor 6"},
		{"another protocol", func(s *ServicePort) { s.Protocol = 1 }, "protocol 1 is not one of tcp, udp, sctp"},
		{"a quote in the namespace", func(s *ServicePort) { s.Namespace = `a"b` }, `the name "a\"b" cannot be quoted in nft syntax`},
		{"a line break in the name", func(s *ServicePort) { s.Name = "a\nb" }, `the name "a\nb" cannot be quoted in nft syntax`},
		{"a backslash in the port", func(s *ServicePort) { s.Port = `a\` }, `the name "a\\" cannot be quoted in nft syntax`},
		{"bytes that are no text", func(s *ServicePort) { s.Name = "a\xff" }, `the name "a\xff" cannot be quoted in nft syntax`},
		{"a zero byte", func(s *ServicePort) { s.Name = "a\x00" }, `the name "a\x00" cannot be quoted in nft syntax`},
		{"an invisible character", func(s *ServicePort) { s.Name = "a\u202e" }, `the name "a\u202e" cannot be quoted in nft syntax`},

		{"a frontend without address", func(s *ServicePort) { s.Frontends[1].Addr = netip.AddrPort{} }, "frontend invalid AddrPort: not a usable address"},
		{"an unspecified frontend", front("0.0.0.0:80"), "frontend 0.0.0.0:80: not a usable address"},
		{"a frontend with a zone", front("[fe80::1%eth0]:80"), "frontend [fe80::1%eth0]:80: not a usable address"},
		{"a mapped frontend", front("[::ffff:10.96.0.9]:80"), "frontend [::ffff:10.96.0.9]:80: not a usable address"},
		{"a frontend of the other family", front("[fd00::1]:80"), "frontend [fd00::1]:80: not IPv4"},
		{"a frontend with port 0", front("10.96.0.9:0"), "frontend 10.96.0.9:0: port 0"},
		{"a frontend listed twice", front("10.96.0.10:80"), "frontend 10.96.0.10:80: listed twice"},
		{"a serving endpoint of the other family", func(s *ServicePort) {
			s.Serving = []netip.AddrPort{netip.MustParseAddrPort("[fd00::1]:53")}
		}, "serving endpoint [fd00::1]:53: not IPv4"},
		{"a frontend of no kind", func(s *ServicePort) { s.Frontends[1].Kind = 0 }, "frontend 10.96.0.11:80: unknown kind 0"},
		{"a frontend of a kind to come", func(s *ServicePort) { s.Frontends[1].Kind = 200 }, "frontend 10.96.0.11:80: unknown kind 200"},

		{"an endpoint without address", func(s *ServicePort) { s.Endpoints[1].Addr = netip.AddrPort{} }, "endpoint invalid AddrPort: not a usable address"},
		{"an unspecified endpoint", endpoint("0.0.0.0:80"), "endpoint 0.0.0.0:80: not a usable address"},
		{"an endpoint with a zone", endpoint("[fe80::1%eth0]:80"), "endpoint [fe80::1%eth0]:80: not a usable address"},
		{"a mapped endpoint", endpoint("[::ffff:10.244.0.9]:80"), "endpoint [::ffff:10.244.0.9]:80: not a usable address"},
		{"an endpoint of the other family", endpoint("[fd00::1]:80"), "endpoint [fd00::1]:80: not IPv4"},
		{"an endpoint with port 0", endpoint("10.244.2.11:0"), "endpoint 10.244.2.11:0: port 0"},
		{"an endpoint listed twice", endpoint("10.244.1.10:8080"), "endpoint 10.244.1.10:8080: listed twice"},
		{"too much weight", func(s *ServicePort) { s.Endpoints[1].Weight = MaxWeight + 1 }, "endpoint 10.244.2.11:8080: weight 1001 is over 1000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			sp := validService()
			c.change(&sp)
			err := sp.Validate()
			if err == nil || err.Error() != c.want {
				t.Fatalf("got error %v, want %s", err, c.want)
			}
			if _, err := Compile(Config{}, sp, nil); err == nil || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("Compile says %v, want %s", err, c.want)
			}
		})
	}
}

// A service port is reported once, with everything that is wrong with it, in an
// order that does not depend on the order in which it was listed.
func TestValidateJoinsAllProblems(t *testing.T) {
	sp := validService()
	sp.Name, sp.Protocol = `"`, 0
	sp.Frontends = append(sp.Frontends, frontend("0.0.0.0:1"), frontend("[fd00::1]:80"))
	sp.Endpoints[2].Weight, sp.Endpoints[2].Addr = 2000, sp.Endpoints[0].Addr
	want := []string{
		`the name "\"" cannot be quoted in nft syntax`,
		`protocol 0 is not one of tcp, udp, sctp`,
		`frontend 0.0.0.0:1: not a usable address`,
		`frontend [fd00::1]:80: not IPv4`,
		`endpoint 10.244.1.10:8080: listed twice`,
		`endpoint 10.244.1.10:8080: weight 2000 is over 1000`,
	}
	for range 2 {
		if err := sp.Validate(); err == nil || err.Error() != strings.Join(want, "\n") {
			t.Errorf("got\n%v\nwant\n%s", err, strings.Join(want, "\n"))
		}
		slices.Reverse(sp.Frontends)
	}
	_, err := Compile(Config{}, sp, nil)
	if prefix := `service port default/":http (protocol 0, IPv4): `; err == nil || !strings.HasPrefix(err.Error(), prefix) {
		t.Errorf("got error %v, want prefix %s", err, prefix)
	}
}

func TestNames(t *testing.T) {
	key := ServicePortKey{ServicePortName{"default", "web", "http", TCP}, IPv4}
	unnamed := ServicePortKey{ServicePortName{"kube-system", "dns", "", UDP}, IPv6}
	for _, c := range []struct{ got, want string }{
		{key.ServicePortName.String(), "default/web:http"},
		{key.String(), "default/web:http (tcp, IPv4)"},
		{unnamed.ServicePortName.String(), "kube-system/dns"},
		{unnamed.String(), "kube-system/dns (udp, IPv6)"},
		{SCTP.String(), "sctp"},
		{Protocol(41).String(), "protocol 41"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

func TestKeysAreOrdered(t *testing.T) {
	key := func(namespace, name, port string, p Protocol, f Family) ServicePortKey {
		return ServicePortKey{ServicePortName{namespace, name, port, p}, f}
	}
	ascending := []ServicePortKey{
		key("a", "z", "z", SCTP, IPv6),
		key("b", "a", "z", SCTP, IPv6),
		key("b", "b", "a", SCTP, IPv6),
		key("b", "b", "b", TCP, IPv6),
		key("b", "b", "b", UDP, IPv4),
		key("b", "b", "b", UDP, IPv6),
	}
	for i, a := range ascending {
		for j, b := range ascending {
			if got, want := a.Compare(b), max(-1, min(1, i-j)); got != want {
				t.Errorf("%s compared to %s: %d, want %d", a, b, got, want)
			}
		}
	}
}
