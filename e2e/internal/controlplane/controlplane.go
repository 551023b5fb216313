// Package controlplane runs a real Kubernetes API server and its etcd in a
// network namespace, for tests that need what an API server does and little
// else of a cluster: there are no kubelets, and at most the controllers that make Pods
// and EndpointSlices.
package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
	"github.com/nftproxy/nftproxy/e2e/internal/process"
)

// The ports are below those that the kernel gives to clients: a client that
// tries to reach a stopped server on such a port can end up connected to itself.
const (
	apiServerPort = 6443
	etcdURL       = "http://127.0.0.1:2379"
	etcdPeerURL   = "http://127.0.0.1:2380"
)

// The ranges of service addresses, as the API server's flag has them.
const serviceRanges = "10.96.0.0/16,fd00:10:96::/112"

// ServiceAddress is the ClusterIP of the API server's own Service.
const ServiceAddress = "10.96.0.1"

// How long a program may take until it serves, and until it has ended.
const (
	startLimit = 2 * time.Minute
	stopLimit  = 10 * time.Second
)

// Options say what to run, and where.
type Options struct {
	// Etcd and APIServer are the programs.
	Etcd, APIServer string
	// Address is where the API server is reached: an address of the namespace,
	// not a loopback one, since it is published as an endpoint.
	Address netip.Addr
	// Dir holds data, keys and the kubeconfig; LogDir the programs' output.
	Dir, LogDir string
}

// ControlPlane is a running control plane. Its methods are for one goroutine.
type ControlPlane struct {
	ns        *namespace.Namespace
	options   Options
	ca        []byte
	token     string
	etcd      *process.Process
	apiServer *process.Process // nil while stopped
	manager   *process.Process // nil unless started
}

// Start starts etcd and the API server in a namespace and waits until they
// serve. The caller stops them.
func Start(ctx context.Context, ns *namespace.Namespace, options Options) (*ControlPlane, error) {
	c := &ControlPlane{ns: ns, options: options, token: rand.Text()}
	if err := c.writeFiles(); err != nil {
		return nil, err
	}
	if err := c.startEtcd(ctx); err != nil {
		return nil, errors.Join(err, c.Stop(ctx))
	}
	if err := c.StartAPIServer(ctx); err != nil {
		return nil, errors.Join(err, c.Stop(ctx))
	}
	return c, nil
}

// Stop ends all programs and waits for them.
func (c *ControlPlane) Stop(ctx context.Context) error {
	var err error
	if c.manager != nil {
		err = c.manager.Kill()
		c.manager = nil
	}
	return errors.Join(err, c.CrashAPIServer(), c.stopEtcd(ctx))
}

func (c *ControlPlane) stopEtcd(ctx context.Context) error {
	if c.etcd == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, stopLimit)
	defer cancel()
	_, err := c.etcd.Stop(ctx)
	c.etcd = nil
	return err
}

// CrashAPIServer ends the API server alone, at once, and waits for it; its data
// stay. (An orderly end would take itself out of its own Service's endpoints,
// and wait for its clients to leave.)
func (c *ControlPlane) CrashAPIServer() error {
	if c.apiServer == nil {
		return nil
	}
	server := c.apiServer
	c.apiServer = nil
	return server.Kill()
}

// StartAPIServer starts the API server, after CrashAPIServer too, and waits until
// it serves.
func (c *ControlPlane) StartAPIServer(ctx context.Context) error {
	server, err := process.Start(c.ns, process.Config{
		Path:    c.options.APIServer,
		Args:    c.apiServerArgs(),
		LogFile: filepath.Join(c.options.LogDir, "kube-apiserver.log"),
	})
	if err != nil {
		return err
	}
	c.apiServer = server
	client, err := rest.HTTPClientFor(c.RESTConfig())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	return waitReady(ctx, server, client, "https://"+c.Address()+"/readyz")
}

// RESTConfig returns a client's configuration with all rights. Its connections
// start in the control plane's own namespace.
func (c *ControlPlane) RESTConfig() *rest.Config { return c.RESTConfigFrom(c.ns) }

// RESTConfigFrom returns a client's configuration with all rights, for
// connections that start in a namespace.
func (c *ControlPlane) RESTConfigFrom(ns *namespace.Namespace) *rest.Config {
	return &rest.Config{
		Host:            "https://" + c.Address(),
		BearerToken:     c.token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.ca},
		Dial:            ns.DialContext,
		QPS:             -1, // no limit
	}
}

// Kubeconfig is the path of a kubeconfig file with all rights, for programs in
// any namespace that reaches the API server.
func (c *ControlPlane) Kubeconfig() string {
	return filepath.Join(c.options.Dir, "kubeconfig")
}

// KubeconfigOf writes a kubeconfig file for somebody with a token, who asks for the API
// server at an address and port: Address, or that of a Forwarder. It returns the path.
func (c *ControlPlane) KubeconfigOf(token, address string) (string, error) {
	path := filepath.Join(c.options.Dir, "token.kubeconfig")
	return path, c.writeKubeconfig(path, address, token)
}

// Tail returns the last lines of the programs' output.
func (c *ControlPlane) Tail(lines int) string {
	var out strings.Builder
	for _, p := range []*process.Process{c.etcd, c.apiServer, c.manager} {
		if p != nil {
			fmt.Fprintf(&out, "%s (%s):\n%s\n", p.Name(), p.State(), p.Tail(lines))
		}
	}
	return out.String()
}

// Address is where the API server listens.
func (c *ControlPlane) Address() string {
	return netip.AddrPortFrom(c.options.Address, apiServerPort).String()
}

// writeFiles writes keys, the token file, and the kubeconfig.
func (c *ControlPlane) writeFiles() error {
	var err error
	c.ca, err = writeKeys(c.options.Dir, []net.IP{c.options.Address.AsSlice(), net.ParseIP(ServiceAddress)})
	if err != nil {
		return err
	}
	tokens := c.token + ",admin,admin,system:masters\n"
	if err := writeFiles(c.options.Dir, map[string][]byte{tokenFile: []byte(tokens)}); err != nil {
		return err
	}
	return c.writeKubeconfig(c.Kubeconfig(), c.Address(), c.token)
}

func (c *ControlPlane) writeKubeconfig(path, server, token string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["e2e"] = &clientcmdapi.Cluster{Server: "https://" + server, CertificateAuthorityData: c.ca}
	config.AuthInfos["e2e"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["e2e"] = &clientcmdapi.Context{Cluster: "e2e", AuthInfo: "e2e"}
	config.CurrentContext = "e2e"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write the kubeconfig: %w", err)
	}
	return nil
}

func (c *ControlPlane) startEtcd(ctx context.Context) error {
	etcd, err := process.Start(c.ns, process.Config{
		Path: c.options.Etcd,
		Args: []string{
			"--data-dir=" + c.etcdData(),
			"--listen-client-urls=" + etcdURL,
			"--advertise-client-urls=" + etcdURL,
			"--listen-peer-urls=" + etcdPeerURL,
			"--initial-advertise-peer-urls=" + etcdPeerURL,
			"--initial-cluster=default=" + etcdPeerURL,
		},
		LogFile: filepath.Join(c.options.LogDir, "etcd.log"),
	})
	if err != nil {
		return err
	}
	c.etcd = etcd
	client := &http.Client{Transport: &http.Transport{DialContext: c.ns.DialContext}}
	return waitReady(ctx, etcd, client, etcdURL+"/health")
}

func (c *ControlPlane) apiServerArgs() []string {
	file := func(name string) string { return filepath.Join(c.options.Dir, name) }
	return []string{
		"--etcd-servers=" + etcdURL,
		"--bind-address=" + c.options.Address.String(),
		"--advertise-address=" + c.options.Address.String(),
		fmt.Sprintf("--secure-port=%d", apiServerPort),
		"--tls-cert-file=" + file(servingFile),
		"--tls-private-key-file=" + file(servingKeyFile),
		"--token-auth-file=" + file(tokenFile),
		"--authorization-mode=RBAC",
		// As kubeadm has them.
		"--allow-privileged=true",
		"--kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + file(accountKeyFile),
		"--service-account-signing-key-file=" + file(accountKeyFile),
		"--service-cluster-ip-range=" + serviceRanges,
	}
}

// waitReady asks a program over HTTP until it answers that all is well, has
// ended, or had its time.
func waitReady(ctx context.Context, p *process.Process, client *http.Client, url string) error {
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		err := get(ctx, client, url)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.Exited():
			code, waitErr := p.Wait(ctx)
			return fmt.Errorf("%s ended with code %d before it served (%w); its output ends with:\n%s",
				p.Name(), code, errors.Join(err, waitErr), p.Tail(20))
		case <-ctx.Done():
			return fmt.Errorf("wait until %s serves: %w (%w); its output ends with:\n%s",
				p.Name(), context.Cause(ctx), err, p.Tail(20))
		}
	}
}

// get asks for a URL; everything but status 200 is an error.
func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fmt.Errorf("make a request: %w", err)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return fmt.Errorf("read %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return nil
}
