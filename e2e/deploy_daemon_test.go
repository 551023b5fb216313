package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/process"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

const (
	accountFolder = "/var/run/secrets/kubernetes.io/serviceaccount"
	configFolder  = "/var/lib/kube-proxy"
)

// container runs a program as a container runtime would: on a read-only root, with
// read-only sysctls, with no way to more privileges. $1 are the capabilities that it
// may have.
const container = `
mount -o remount,bind,ro /
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
bounding=$1
shift
exec setpriv --no-new-privs --inh-caps=-all --bounding-set="$bounding" -- "$@"
`

// pod is the DaemonSet's pod on node1: its program and what it is given.
type pod struct {
	c         *cluster
	spec      corev1.PodSpec
	container corev1.Container
	dir       string // in place of the volumes
}

// newPod makes the pod of a DaemonSet, with the ConfigMap and the token of its
// ServiceAccount as the API server has them.
func (c *cluster) newPod(t *testing.T, set *appsv1.DaemonSet) *pod {
	t.Helper()
	p := &pod{c: c, spec: set.Spec.Template.Spec, container: set.Spec.Template.Spec.Containers[0], dir: t.TempDir()}
	config, err := c.client.CoreV1().ConfigMaps(set.Namespace).Get(t.Context(), p.spec.Volumes[0].ConfigMap.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range config.Data {
		p.write(t, name, p.inDir(content))
	}
	token, err := c.client.CoreV1().ServiceAccounts(set.Namespace).CreateToken(
		t.Context(), p.spec.ServiceAccountName, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "token", token.Status.Token)
	p.write(t, "ca.crt", string(c.control.RESTConfig().CAData))
	return p
}

func (p *pod) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// inDir replaces the volumes' folders.
func (p *pod) inDir(text string) string {
	return strings.NewReplacer(accountFolder, p.dir, configFolder, p.dir, "$(NODE_NAME)", testnet.Node1).Replace(text)
}

// capabilities returns what the pod may have, as setpriv wants it.
func (p *pod) capabilities() string {
	var words []string
	for _, name := range p.container.SecurityContext.Capabilities.Drop {
		words = append(words, "-"+strings.ToLower(string(name)))
	}
	for _, name := range p.container.SecurityContext.Capabilities.Add {
		words = append(words, "+"+strings.ToLower(string(name)))
	}
	return strings.Join(words, ",")
}

// args are the arguments of unshare.
func (p *pod) args(capabilities string) []string {
	args := []string{"--mount", "sh", "-euc", container, "sh", capabilities, p.c.proxyPath}
	for _, arg := range p.container.Args {
		args = append(args, p.inDir(arg))
	}
	return args
}

// start starts the pod's program with the capabilities of the pod.
func (p *pod) start(t *testing.T) {
	t.Helper()
	proxy, err := process.Start(p.c.network.Host(testnet.Node1).Namespace, process.Config{
		Path: "unshare", Args: p.args(p.capabilities()), LogFile: filepath.Join(p.c.logs, "nftproxy.log"),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.c.proxy = proxy
}

// checkNeeds runs the pod's program without any capability: it must end and say which
// one it needs.
func (p *pod) checkNeeds(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stopLimit)
	defer cancel()
	_, err := p.c.network.Host(testnet.Node1).Command(ctx, "", "unshare", p.args("-all")...)
	if err == nil || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
		t.Errorf("without capabilities: %v", err)
	}
}

// waitProbe waits until a probe of the pod succeeds, asked as the kubelet asks.
func (p *pod) waitProbe(t *testing.T, probe *corev1.Probe) {
	t.Helper()
	var port int32
	for _, declared := range p.container.Ports {
		if declared.Name == probe.HTTPGet.Port.StrVal {
			port = declared.ContainerPort
		}
	}
	host := p.c.network.Host(testnet.Node1)
	client := &http.Client{Transport: &http.Transport{DialContext: host.DialContext}}
	defer client.CloseIdleConnections()
	url := fmt.Sprintf("http://%s:%d%s", host.IPv4, port, probe.HTTPGet.Path)
	deadline := time.Now().Add(startSettle)
	for {
		status, err := ask(t.Context(), client, url)
		if status == http.StatusOK {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: status %d, %v", url, status, err)
		}
		p.c.proxyRuns(t)
		time.Sleep(20 * time.Millisecond)
	}
}

// ask returns the status of the answer to a request.
func ask(ctx context.Context, client *http.Client, url string) (int, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}
