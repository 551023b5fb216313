package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/e2e/internal/controlplane"
	"github.com/nftproxy/nftproxy/e2e/internal/probe"
	"github.com/nftproxy/nftproxy/e2e/internal/process"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// The addresses that belong to the cluster's pods.
const clusterCIDRs = "10.244.0.0/16,fd00:10:244::/48"

// stopLimit is how long a program may take to stop.
const stopLimit = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program returns the path of a program named by an environment variable.
func program(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Fatalf("%s is not set: it must be the path of a built program, as the make targets set it", variable)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s does not name a program: %v", variable, err)
	}
	return path
}

// cluster is the test network with a control plane and, once started, a proxy
// on node1.
type cluster struct {
	flows     atomic.Uint32 // of datagrams, so far
	network   *testnet.Network
	control   *controlplane.ControlPlane
	client    *kubernetes.Clientset
	proxyPath string
	proxy     *process.Process // nil while stopped
	token     string           // of the proxy's ServiceAccount, once there is one
	logs      string
}

// newCluster starts a cluster with the Nodes node1 and node2, without a proxy.
// It is taken down at the end of the test.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{proxyPath: program(t, "NFTPROXY_BIN"), logs: t.ArtifactDir()}
	apiServer := program(t, "KUBE_APISERVER_BIN")
	var err error
	if c.network, err = testnet.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.takeDown(t) })
	host := c.network.Host(testnet.Control)
	c.control, err = controlplane.Start(t.Context(), host.Namespace, controlplane.Options{
		Etcd: "etcd", APIServer: apiServer, Address: host.IPv4, Dir: t.TempDir(), LogDir: c.logs,
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.client, err = kubernetes.NewForConfig(c.control.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	for name, zone := range map[string]string{testnet.Node1: "zone-a", testnet.Node2: "zone-b"} {
		if _, err := c.client.CoreV1().Nodes().Create(t.Context(), c.node(name, zone), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// takeDown ends everything; after a failure it prints what the programs said
// last.
func (c *cluster) takeDown(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	var errs []error
	if c.proxy != nil {
		if t.Failed() {
			fmt.Fprintf(t.Output(), "%s (%s):\n%s\n", c.proxy.Name(), c.proxy.State(), c.proxy.Tail(40))
		}
		errs = append(errs, c.proxy.Kill())
	}
	if c.client != nil {
		if r, ok := c.client.RESTClient().(*rest.RESTClient); ok {
			utilnet.CloseIdleConnectionsFor(r.Client.Transport)
		}
	}
	if c.control != nil {
		if t.Failed() {
			fmt.Fprintln(t.Output(), c.control.Tail(10))
		}
		errs = append(errs, c.control.Stop(ctx))
	}
	errs = append(errs, c.network.Close())
	if err := errors.Join(errs...); err != nil {
		t.Errorf("take down the cluster: %v", err)
	}
}

// serve starts servers at a port of all addresses of the hosts, until the end
// of the test.
func (c *cluster) serve(t *testing.T, port uint16, hosts ...string) { //nolint:unparam // a test says on which port
	t.Helper()
	for _, name := range hosts {
		host := c.network.Host(name)
		for _, address := range []netip.Addr{host.IPv4, host.IPv6} {
			server, err := probe.Serve(host.Namespace, netip.AddrPortFrom(address, port))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := server.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// startProxy starts the proxy on node1 with the rights of the manifests, perhaps with
// more flags.
func (c *cluster) startProxy(t *testing.T, flags ...string) {
	t.Helper()
	c.startProxyAt(t, c.control.Address(), flags...)
}

// startProxyAt starts the proxy with an address and port of the API server.
func (c *cluster) startProxyAt(t *testing.T, server string, flags ...string) {
	t.Helper()
	kubeconfig, err := c.control.KubeconfigOf(c.accountToken(t), server)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := process.Start(c.network.Host(testnet.Node1).Namespace, process.Config{
		Path: c.proxyPath,
		Args: append([]string{
			"run", "--kubeconfig", kubeconfig,
			"--hostname-override", testnet.Node1, "--cluster-cidr", clusterCIDRs,
		}, flags...),
		LogFile: filepath.Join(c.logs, "nftproxy.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	c.proxy = proxy
}

// accountToken makes the ServiceAccount of the manifests, and its rights, if they are not
// there, and returns a token.
func (c *cluster) accountToken(t *testing.T) string {
	t.Helper()
	if c.token != "" {
		return c.token
	}
	var account []string
	for _, object := range parseManifests(t, c.render(t, rendering{folder: "base"})) {
		switch object.GetKind() {
		case "ServiceAccount", "ClusterRole", "ClusterRoleBinding":
			text, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			account = append(account, string(text))
		}
	}
	c.kubectl(t, strings.Join(account, "\n---\n"), "apply", "-f", "-")
	request := &authenticationv1.TokenRequest{}
	answer, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(t.Context(), nftProxySet, request, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.token = answer.Status.Token
	return c.token
}

// stopProxy asks the proxy to end; it must do so with exit code 0.
func (c *cluster) stopProxy(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stopLimit)
	defer cancel()
	code, err := c.proxy.Stop(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if code != 0 {
		t.Fatalf("the proxy ended with exit code %d; its output ends with:\n%s", code, c.proxy.Tail(20))
	}
	c.proxy = nil
}

// proxyRuns checks that the proxy has not ended.
func (c *cluster) proxyRuns(t *testing.T) {
	t.Helper()
	select {
	case <-c.proxy.Exited():
		t.Fatalf("the proxy has ended; its output ends with:\n%s", c.proxy.Tail(20))
	default:
	}
}

// step runs a step of a test and prints one line about it.
func step(t *testing.T, title string, fn func()) {
	t.Helper()
	begin := time.Now()
	verdict := "FAILED"
	defer func() {
		fmt.Fprintf(t.Output(), "%-6s %6.2fs  %s\n", verdict, time.Since(begin).Seconds(), title)
	}()
	fn()
	if !t.Failed() {
		verdict = "ok"
		return
	}
	t.FailNow() // what follows builds on this step
}
