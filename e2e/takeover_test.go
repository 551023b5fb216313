package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/proxy"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// heldOfEach makes 52 held connections: from two hosts to two addresses.
const heldOfEach = 13

// foreign are rules of somebody else, which stay.
const foreign = `*nat
:SOMEBODY - [0:0]
-A PREROUTING -p tcp -m tcp --dport 9 -j SOMEBODY
-A SOMEBODY -m comment --comment "not to KUBE-SERVICES" -j RETURN
COMMIT
`

// TestTakeOver replaces kube-proxy by nftproxy on a node and goes back, while clients
// open connections and hold some. None is lost and none is refused.
func TestTakeOver(t *testing.T) {
	kubeProxy := program(t, "KUBE_PROXY_BIN")
	for mode, config := range map[string]map[string]any{
		"nftables": nil,
		// Otherwise this mode drops what conntrack takes for invalid, such as the answer of an
		// endpoint to a source port that it remembers from a connection a moment ago.
		"iptables": {
			"mode": "iptables", "iptables": map[string]any{"minSyncPeriod": "10ms"},
			"conntrack": map[string]any{"tcpBeLiberal": true},
		},
	} {
		t.Run(mode, func(t *testing.T) {
			c := newCluster(t)
			pods := []string{testnet.PodA, testnet.PodC, testnet.PodD}
			c.serve(t, endpointPort, pods...)
			c.echo(t, pods...)
			c.createService(t)
			c.setEndpoints(t, testnet.PodA, testnet.PodC)
			c.addEcho(t, testnet.PodA, testnet.PodC)
			peer := newSwap(t, c, kubeProxy, config)
			step(t, "kube-proxy serves", func() {
				peer.start(t)
				c.reaches(t, startSettle, testnet.PodA, testnet.PodC)
				c.restore(t, foreign)
			})
			c.underLoad(t, serviceAddresses(), connections(pods...), func() {
				held := c.hold(t, heldOfEach)
				defer held.check(t)
				peer.toNFTProxy(t)
				peer.toKubeProxy(t)
			})
		})
	}
}

// swap is kube-proxy on the node of a cluster.
type swap struct {
	*cluster

	peer   *proxy.Proxy
	config map[string]any
}

func newSwap(t *testing.T, c *cluster, path string, config map[string]any) *swap {
	t.Helper()
	peer, err := proxy.NewKubeProxy(proxy.Options{
		Program: path, Namespace: c.network.Host(testnet.Node1).Namespace, Node: testnet.Node1,
		Kubeconfig: c.control.Kubeconfig(), Dir: t.TempDir(), LogDir: c.logs,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			fmt.Fprintln(t.Output(), peer.Tail(20))
		}
		if err := peer.Kill(); err != nil {
			t.Error(err)
		}
	})
	return &swap{cluster: c, peer: peer, config: config}
}

func (s *swap) start(t *testing.T) {
	t.Helper()
	if err := s.peer.Start(t.Context(), s.config); err != nil {
		t.Fatal(err)
	}
}

// toNFTProxy ends kube-proxy and lets nftproxy take over.
func (s *swap) toNFTProxy(t *testing.T) {
	step(t, "nftproxy without --take-over leaves kube-proxy's rules, and says what to run", func() {
		if err := s.peer.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.startProxy(t)
		eventually(t, "a warning", func() bool { return strings.Contains(s.proxy.Tail(20), "nftproxy cleanup --kube-proxy") })
		s.reaches(t, settle, testnet.PodA, testnet.PodC)
		if !s.served(t) {
			t.Error("kube-proxy's rules are gone")
		}
		s.stopProxy(t)
	})
	step(t, "nftproxy --take-over leaves nothing of kube-proxy's rules, and the others", func() {
		s.startProxy(t, "--take-over")
		eventually(t, "kube-proxy's rules are gone", func() bool { return s.leftovers(t) == "" })
		s.reaches(t, settle, testnet.PodA, testnet.PodC)
		if saved := s.run(t, "", "iptables-save"); !containsAll(saved, strings.Split(foreign, "\n")[2:4]) {
			t.Errorf("rules of others are gone:\n%s", saved)
		}
	})
	step(t, "packets follow a change", func() {
		s.setEndpoints(t, testnet.PodA, testnet.PodC, testnet.PodD)
		s.reaches(t, settle, testnet.PodA, testnet.PodC, testnet.PodD)
	})
}

// toKubeProxy ends nftproxy, and removes its rules once those of kube-proxy are there.
func (s *swap) toKubeProxy(t *testing.T) {
	step(t, "kube-proxy installs its rules beside those of nftproxy", func() {
		s.stopProxy(t)
		s.start(t)
		eventually(t, "kube-proxy's rules are there", func() bool { return s.served(t) })
		s.reaches(t, settle, testnet.PodA, testnet.PodC, testnet.PodD)
	})
	step(t, "nftproxy cleanup removes its own rules, once", func() {
		for _, want := range []string{"removed: table ip nftproxy, table ip6 nftproxy\n", "nothing to remove\n"} {
			if got := s.run(t, "", s.proxyPath, "cleanup"); got != want {
				t.Errorf("it says %q, want %q", got, want)
			}
		}
		if tables := s.run(t, "", "nft", "list", "tables"); strings.Contains(tables, "nftproxy") {
			t.Errorf("there are tables:\n%s", tables)
		}
		if !s.served(t) {
			t.Error("kube-proxy's rules are gone")
		}
	})
	step(t, "packets follow a change", func() {
		s.setEndpoints(t, testnet.PodA, testnet.PodC)
		s.reaches(t, settle, testnet.PodA, testnet.PodC)
	})
}

// restore adds rules of iptables.
func (c *cluster) restore(t *testing.T, text string) {
	t.Helper()
	c.run(t, text, "iptables-restore", "--noflush")
}

// run runs a command on node1 and returns what it prints.
func (c *cluster) run(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	out, err := c.network.Host(testnet.Node1).Command(t.Context(), stdin, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// leftovers returns the names of kube-proxy's tables and lines with the names of its
// chains, empty if there are none. KUBE-FIREWALL is the kubelet's.
func (c *cluster) leftovers(t *testing.T) string {
	t.Helper()
	var found []string
	for _, command := range [][]string{{"nft", "list", "tables"}, {"iptables-save"}, {"ip6tables-save"}} {
		for line := range strings.Lines(c.run(t, "", command[0], command[1:]...)) {
			others := strings.NewReplacer("KUBE-FIREWALL", "", "not to KUBE-SERVICES", "").Replace(line)
			if strings.Contains(others, "KUBE-") || strings.Contains(others, "kube-proxy") {
				found = append(found, line)
			}
		}
	}
	return strings.Join(found, "")
}

// served tells whether the Service's addresses are in rules of kube-proxy, in both
// families.
func (c *cluster) served(t *testing.T) bool {
	t.Helper()
	node := c.network.Host(testnet.Node1).Namespace
	for _, address := range serviceAddresses() {
		list, save := []string{"list", "table", "ip", "kube-proxy"}, "iptables-save"
		if address.Is6() {
			list[2], save = "ip6", "ip6tables-save"
		}
		table, _ := node.Command(t.Context(), "", "nft", list...) // an error: there is none
		if !strings.Contains(table+c.run(t, "", save), address.String()) {
			return false
		}
	}
	return true
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(startSettle); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// addEcho adds a port for held connections to the Service, and another pair of
// EndpointSlices for it, since the pods serve it all the time.
func (c *cluster) addEcho(t *testing.T, pods ...string) {
	t.Helper()
	services := c.client.CoreV1().Services(metav1.NamespaceDefault)
	service, err := services.Get(t.Context(), serviceName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: "echo", Protocol: corev1.ProtocolTCP, Port: echoPort})
	if _, err := services.Update(t.Context(), service, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, address := range serviceAddresses() {
		slice := c.slice(address, pods)
		slice.Name += "-echo"
		slice.Ports = []discoveryv1.EndpointPort{{Name: new("echo"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(echoEndpointPort))}}
		if _, err := c.slices().Create(t.Context(), slice, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}
