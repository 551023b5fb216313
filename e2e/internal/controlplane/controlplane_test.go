package controlplane

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
	"github.com/nftproxy/nftproxy/e2e/internal/namespace/namespacetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newNamespace returns a namespace with an address of its own.
func newNamespace(t *testing.T, address string) *namespace.Namespace {
	t.Helper()
	ns := namespacetest.New(t, t.Name())
	links, err := ns.Netlink()
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	lo, err := links.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	a, err := netlink.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := links.AddrAdd(lo, a); err != nil {
		t.Fatal(err)
	}
	return ns
}

func newClient(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := client.RESTClient().(*rest.RESTClient); ok {
		t.Cleanup(func() { utilnet.CloseIdleConnectionsFor(r.Client.Transport) })
	}
	return client
}

func start(t *testing.T) *ControlPlane {
	t.Helper()
	binary := os.Getenv("KUBE_APISERVER_BIN")
	if binary == "" {
		t.Fatal("KUBE_APISERVER_BIN must be the path of a kube-apiserver; `make e2e-api` builds one")
	}
	c, err := Start(t.Context(), newNamespace(t, "192.0.2.10/32"), Options{
		Etcd: "etcd", APIServer: binary,
		Address: netip.MustParseAddr("192.0.2.10"),
		Dir:     t.TempDir(), LogDir: t.ArtifactDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if t.Failed() {
			t.Logf("the control plane's last words:\n%s", c.Tail(20))
		}
		if err := c.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestControlPlane(t *testing.T) {
	begin := time.Now()
	c := start(t)
	t.Logf("started in %s", time.Since(begin))
	client := newClient(t, c.RESTConfig())
	policy := corev1.IPFamilyPolicyRequireDualStack
	service, err := client.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: &policy,
			ClusterIP:      "10.96.5.10",
			ClusterIPs:     []string{"10.96.5.10", "fd00:10:96::510"},
			Ports:          []corev1.ServicePort{{Port: 80}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"10.96.5.10", "fd00:10:96::510"}, service.Spec.ClusterIPs); diff != "" {
		t.Errorf("service addresses (-want +got)\n%s", diff)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil || !strings.HasPrefix(version.GitVersion, "v1.37.") {
		t.Errorf("version %v, %v", version, err)
	}
	t.Run("kubeconfig", func(t *testing.T) { checkKubeconfig(t, c) })
	t.Run("restart", func(t *testing.T) { checkRestart(t, c) })
}

// checkKubeconfig reads the API with what the kubeconfig file says; only the
// namespace to dial from is not in it.
func checkKubeconfig(t *testing.T, c *ControlPlane) {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Dial = c.RESTConfig().Dial
	if _, err := newClient(t, config).CoreV1().Services("").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	config.BearerToken = "wrong"
	if _, err := newClient(t, config).CoreV1().Services("").List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a wrong token may list Services")
	}
}

// checkRestart stops the API server and starts it again: it is away, then all
// objects are back.
func checkRestart(t *testing.T, c *ControlPlane) {
	client := newClient(t, c.RESTConfig())
	if err := c.CrashAPIServer(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{}); err == nil {
		t.Error("a stopped API server answers")
	}
	begin := time.Now()
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("API server started in %s", time.Since(begin))
	if _, err := client.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{}); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}

func TestStartFails(t *testing.T) {
	ns := newNamespace(t, "192.0.2.10/32")
	for name, options := range map[string]Options{
		"no etcd":           {Etcd: "/no/such/etcd", APIServer: "/bin/false"},
		"no API server":     {Etcd: "etcd", APIServer: "/no/such/apiserver"},
		"API server fails":  {Etcd: "etcd", APIServer: "/bin/false"},
		"API server leaves": {Etcd: "etcd", APIServer: "/bin/true"},
	} {
		t.Run(name, func(t *testing.T) {
			options.Address, options.Dir, options.LogDir = netip.MustParseAddr("192.0.2.10"), t.TempDir(), t.TempDir()
			begin := time.Now()
			_, err := Start(t.Context(), ns, options)
			if err == nil {
				t.Fatal("no error")
			}
			t.Logf("after %s: %v", time.Since(begin), err)
		})
	}
}
