package e2e

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	rbacvalidation "k8s.io/component-helpers/auth/rbac/validation"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	kubeadmproxy "k8s.io/kubernetes/cmd/kubeadm/app/phases/addons/proxy"
	kubeadmconfig "k8s.io/kubernetes/cmd/kubeadm/app/util/config"

	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// The DaemonSets of the two proxies.
const (
	nftProxySet  = "nftproxy"
	kubeProxySet = "kube-proxy"
)

// TestAPIDeploy applies the manifests of deploy/ to a real API server with what
// kubeadm itself installs of kube-proxy, runs the commands of deploy/README.md, and
// runs nftproxy with no more than the pod has.
func TestAPIDeploy(t *testing.T) {
	c := newCluster(t)
	c.serve(t, endpointPort, testnet.PodA, testnet.PodC)
	commands := readCommands(t)

	step(t, "kubeadm's kube-proxy is installed", func() { c.installKubeProxy(t, "") })
	step(t, "the API server takes all manifests, and they are the expected ones", func() { c.testManifests(t) })
	step(t, "a chart with its defaults is the base", func() { c.checkChart(t) })
	c.testSwapIn(t, commands["Swap in, in a cluster made by kubeadm"])
	step(t, "nftproxy may do nothing that kube-proxy may not", func() { c.checkRights(t) })
	c.testPod(t, commands["Verify"])
	c.testSwapBack(t, commands["Swap back"])
}

// installKubeProxy does what kubeadm does about kube-proxy at init and at upgrade, with
// patches from a folder if one is named.
func (c *cluster) installKubeProxy(t *testing.T, patches string) {
	t.Helper()
	config, err := kubeadmconfig.DefaultedStaticInitConfiguration()
	if err != nil {
		t.Fatal(err)
	}
	address := c.network.Host(testnet.Control).IPv4.String()
	endpoint := &kubeadmapi.APIEndpoint{AdvertiseAddress: address, BindPort: 6443}
	config.Networking.PodSubnet = clusterCIDRs
	config.ComponentConfigs["kubeproxy.config.k8s.io"].Default(&config.ClusterConfiguration, endpoint, &config.NodeRegistration)
	if err := kubeadmproxy.EnsureProxyAddon(&config.ClusterConfiguration, endpoint, c.client, patches, io.Discard, false); err != nil {
		t.Fatal(err)
	}
}

// testManifests has the API server check every rendering, and compares the objects
// that it would make with the expected ones.
func (c *cluster) testManifests(t *testing.T) {
	t.Helper()
	c.kubectl(t, podMonitorDefinition, "apply", "-f", "-")
	c.kubectl(t, "", "wait", "--for=condition=Established", "crd/podmonitors."+monitoringv1.SchemeGroupVersion.Group)
	for _, r := range renderings() {
		manifests := c.render(t, r)
		checkGolden(t, r.name, manifests)
		checkPodMonitors(t, manifests)
		out := c.kubectl(t, manifests, "apply", "--dry-run=server", "--validate=strict", "-f", "-")
		if got, want := strings.Count(out, "created (server dry run)"), len(parseManifests(t, manifests)); got != want || want == 0 {
			t.Errorf("%s: %d of %d objects would be created:\n%s", r.name, got, want, out)
		}
	}
}

// podMonitorDefinition makes the API server know the kind PodMonitor.
const podMonitorDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: podmonitors.monitoring.coreos.com
spec:
  group: monitoring.coreos.com
  names: {kind: PodMonitor, listKind: PodMonitorList, plural: podmonitors, singular: podmonitor}
  scope: Namespaced
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
`

// testSwapIn runs the commands that bring nftproxy to node1 and then to all nodes.
func (c *cluster) testSwapIn(t *testing.T, blocks []string) {
	if len(blocks) != 4 {
		t.Fatalf("%d blocks of commands", len(blocks))
	}
	// kube-controller-manager would make it, for pods.
	c.kubectl(t, "", "create", "serviceaccount", "default")
	step(t, "nftproxy is there, and kube-proxy still on every node", func() {
		c.runCommands(t, blocks[0])
		c.checkNodes(t, map[string][]string{kubeProxySet: {testnet.Node1, testnet.Node2}, nftProxySet: nil})
	})
	step(t, "node1 changes over", func() {
		c.runCommands(t, blocks[1])
		c.checkNodes(t, map[string][]string{kubeProxySet: {testnet.Node2}, nftProxySet: {testnet.Node1}})
	})
	step(t, "a pod on node1 can remove the rules of kube-proxy", func() {
		c.checkDebugPod(t, blocks[2], "kube-proxy --cleanup", func(s *corev1.SecurityContext) bool {
			return s.Privileged != nil && *s.Privileged
		})
	})
	step(t, "all nodes have nftproxy", func() {
		c.runCommands(t, blocks[3])
		c.checkNodes(t, map[string][]string{kubeProxySet: nil, nftProxySet: {testnet.Node1, testnet.Node2}})
	})
	step(t, "an upgrade by kubeadm with the patch leaves it so", func() {
		c.installKubeProxy(t, deployDir+"/kubeadm/patches")
		c.checkNodes(t, map[string][]string{kubeProxySet: nil, nftProxySet: {testnet.Node1, testnet.Node2}})
	})
}

// testSwapBack runs the commands that bring kube-proxy back to node1, to all nodes, and
// remove nftproxy.
func (c *cluster) testSwapBack(t *testing.T, blocks []string) {
	if len(blocks) != 4 {
		t.Fatalf("%d blocks of commands", len(blocks))
	}
	step(t, "node1 changes back", func() {
		c.runCommands(t, blocks[0])
		c.checkNodes(t, map[string][]string{kubeProxySet: {testnet.Node1}, nftProxySet: {testnet.Node2}})
	})
	step(t, "a pod on node1 can remove the rules of nftproxy", func() {
		c.checkDebugPod(t, blocks[1], "nftproxy cleanup", func(s *corev1.SecurityContext) bool {
			return s.Capabilities != nil && slices.Contains(s.Capabilities.Add, "NET_ADMIN")
		})
	})
	step(t, "all nodes change back", func() {
		c.runCommands(t, blocks[2])
		c.checkNodes(t, map[string][]string{kubeProxySet: {testnet.Node1, testnet.Node2}, nftProxySet: nil})
	})
	step(t, "everything is as it was", func() {
		c.runCommands(t, blocks[3])
		c.checkNodes(t, map[string][]string{kubeProxySet: {testnet.Node1, testnet.Node2}})
		nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "nftproxy.dev/proxy"})
		if err != nil || len(nodes.Items) > 0 {
			t.Errorf("nodes with a label: %v, %v", nodes.Items, err)
		}
	})
}

// testPod runs nftproxy on node1 with the arguments, the configuration, the rights and
// the capabilities of its pod, until packets arrive, and then the commands that verify it.
func (c *cluster) testPod(t *testing.T, blocks []string) {
	if len(blocks) != 1 {
		t.Fatalf("%d blocks of commands", len(blocks))
	}
	c.createService(t)
	c.setEndpoints(t, testnet.PodA, testnet.PodC)
	p := c.newPod(t, c.daemonSet(t, nftProxySet))
	step(t, "without NET_ADMIN, nftproxy says that it needs it", func() { p.checkNeeds(t) })
	step(t, "with what the pod has, packets reach the endpoints and the probes succeed", func() {
		p.start(t)
		for _, probe := range []*corev1.Probe{p.container.StartupProbe, p.container.ReadinessProbe, p.container.LivenessProbe} {
			p.waitProbe(t, probe)
		}
		c.reaches(t, startSettle, testnet.PodA, testnet.PodC)
	})
	step(t, "the commands that verify it succeed", func() {
		out := strings.ReplaceAll(c.runCommands(t, blocks[0]), " ", "")
		if !strings.Contains(out, `"healthy":true`) || strings.Contains(out, `"healthy":false`) {
			t.Errorf("they print %s", out)
		}
	})
	step(t, "it ends in order, had all rights it asked for, and said which sysctls stay", func() {
		log := c.proxy.Tail(1000)
		if strings.Contains(log, "orbidden") || !strings.Contains(log, "settings of connection tracking stay as they are") {
			t.Errorf("its output:\n%s", log)
		}
		c.stopProxy(t)
	})
}

func (c *cluster) daemonSet(t *testing.T, name string) *appsv1.DaemonSet {
	t.Helper()
	set, err := c.client.AppsV1().DaemonSets(metav1.NamespaceSystem).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// checkNodes checks which DaemonSets there are, and on which nodes each has a pod.
func (c *cluster) checkNodes(t *testing.T, want map[string][]string) {
	t.Helper()
	sets, err := c.client.AppsV1().DaemonSets(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := c.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, set := range sets.Items {
		spec := set.Spec.Template.Spec
		required := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity)
		got[set.Name] = nil
		for _, node := range nodes.Items {
			match, err := required.Match(&node)
			if err != nil {
				t.Fatal(err)
			}
			if match {
				got[set.Name] = append(got[set.Name], node.Name)
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("nodes of the proxies (-want +got)\n%s", diff)
	}
}

// checkRights compares the role of nftproxy with kube-proxy's, which the API server
// brings.
func (c *cluster) checkRights(t *testing.T) {
	t.Helper()
	roles := c.client.RbacV1().ClusterRoles()
	ours, err := roles.Get(t.Context(), nftProxySet, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := roles.Get(t.Context(), "system:node-proxier", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if covered, wider := rbacvalidation.Covers(theirs.Rules, ours.Rules); !covered {
		t.Errorf("kube-proxy may not do %v", wider)
	}
}

// checkDebugPod runs commands that make a pod on node1, which must be in the node's
// network with the command and the privileges wanted.
func (c *cluster) checkDebugPod(t *testing.T, block, command string, privileged func(*corev1.SecurityContext) bool) {
	t.Helper()
	c.runCommands(t, block)
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods.Items {
		run := p.Spec.Containers[0]
		if strings.Join(run.Command, " ") == command && p.Spec.NodeName == testnet.Node1 &&
			p.Spec.HostNetwork && run.SecurityContext != nil && privileged(run.SecurityContext) {
			return
		}
	}
	t.Errorf("none of the pods is right for %q: %v", command, pods.Items)
}
