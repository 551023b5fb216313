package syncer

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// server is a virtual server with real servers.
func server(addr string, realServers ...string) virtualServer {
	v := virtualServer{real: addrPorts(realServers...)}
	if addr != "" {
		v.addr = netip.MustParseAddrPort(addr)
	}
	return v
}

// TestKubeProxyServers says which virtual servers are kube-proxy's.
func TestKubeProxyServers(t *testing.T) {
	onInterface := []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::10")}
	service := server("10.96.0.10:80", "10.244.0.1:8080", "10.244.0.2:8080")
	apiServer := server("10.96.0.1:443", "192.0.2.10:6443")
	tests := map[string]struct {
		server virtualServer
		want   bool
	}{
		"a ClusterIP":                       {server("10.96.0.10:53"), true},
		"a ClusterIP of IPv6":               {server("[fd00::10]:80", "[fd01::1]:8080"), true},
		"a NodePort":                        {server("192.0.2.1:30080", "10.244.0.1:8080", "10.244.0.2:8080"), true},
		"a NodePort, some endpoints":        {server("192.0.2.1:32767", "10.244.0.2:8080"), true},
		"another port, the same endpoints":  {server("192.0.2.1:80", "10.244.0.2:8080"), false},
		"keepalived for API servers":        {server("192.0.2.100:6443", "192.0.2.10:6443"), false},
		"a port like a NodePort, others":    {server("192.0.2.1:30080", "10.244.0.1:8080", "192.0.2.7:80"), false},
		"a port like a NodePort, unused":    {server("192.0.2.1:30080"), false},
		"for marked packets, its endpoints": {server("", "10.244.0.1:8080"), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := kubeProxyServers([]virtualServer{test.server, service, apiServer}, onInterface)
			if want := 2; test.want {
				want++
				if !slices.Equal(got[0].real, test.server.real) || got[0].addr != test.server.addr || len(got) != want {
					t.Errorf("%d servers, first %s", len(got), got[0].addr)
				}
			} else if len(got) != want {
				t.Errorf("%d servers, want %d", len(got), want)
			}
		})
	}
}

// TestRemoveServers: with drain, those that connections use stay.
func TestRemoveServers(t *testing.T) {
	broken := errors.New("broken")
	tests := map[string]struct {
		remove, drain bool
		err           error
		removed       []string
		want          Leftovers
		kept          int
	}{
		"find":   {false, false, nil, nil, Leftovers{Found: []string{"ipvs: 2 virtual servers"}}, 0},
		"remove": {true, false, nil, []string{"10.96.0.1:443", "10.96.0.10:80"}, Leftovers{Found: []string{"ipvs: 2 virtual servers"}}, 0},
		"remove what is gone": {true, false, unix.ESRCH, []string{"10.96.0.1:443", "10.96.0.10:80"},
			Leftovers{Found: []string{"ipvs: 2 virtual servers"}}, 0},
		"drain":  {true, true, nil, []string{"10.96.0.1:443"}, Leftovers{Found: []string{"ipvs: 1 virtual servers"}}, 1},
		"broken": {true, false, broken, []string{"10.96.0.1:443"}, Leftovers{}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			servers := []virtualServer{server("10.96.0.1:443"), server("10.96.0.10:80", "10.244.0.1:8080")}
			servers[1].active = 1
			var removed []string
			for i := range servers {
				servers[i].remove = func() error {
					removed = append(removed, servers[i].addr.String())
					return test.err
				}
			}
			s := sweep{remove: test.remove, drain: test.drain}
			kept, err := s.removeServers(servers)
			if errors.Is(err, broken) != errors.Is(test.err, broken) || err != nil && !errors.Is(test.err, broken) {
				t.Errorf("error %v", err)
			}
			if kept != test.kept {
				t.Errorf("%d kept, want %d", kept, test.kept)
			}
			if diff := cmp.Diff(test.removed, removed); diff != "" {
				t.Errorf("removed (-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(test.want, s.result()); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
