package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// pods is the API of Pods, services that of Services.
func (c *cluster) pods() typedcorev1.PodInterface {
	return c.client.CoreV1().Pods(metav1.NamespaceDefault)
}

func (c *cluster) services() typedcorev1.ServiceInterface {
	return c.client.CoreV1().Services(metav1.NamespaceDefault)
}

// selectingService returns a Service of both families that selects Pods by their
// label app, with the addresses if there are any.
func selectingService(app string, addresses ...netip.Addr) *corev1.Service {
	policy := corev1.IPFamilyPolicyRequireDualStack
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: &policy, Selector: map[string]string{"app": app},
			Ports: []corev1.ServicePort{
				{Name: "stream", Protocol: corev1.ProtocolTCP, Port: servicePort, TargetPort: targetPort()},
				{Name: "datagram", Protocol: corev1.ProtocolUDP, Port: servicePort, TargetPort: targetPort()},
			},
		},
	}
	for _, a := range addresses {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, a.String())
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	}
	return s
}

// podAddresses returns the addresses of a host that is a pod, or of an n-th one that
// does not exist.
func (c *cluster) podAddresses(host string) []netip.Addr { return c.network.Host(host).Addresses() }

func madeUpAddresses(n int) []netip.Addr {
	return []netip.Addr{
		netip.AddrFrom4([4]byte{10, 244, 200 + byte(n>>8), byte(n)}),
		netip.MustParseAddr(fmt.Sprintf("fd00:10:244:9::%x", n+1)),
	}
}

// startPod makes a Pod that is ready, as its kubelet would say.
func (c *cluster) startPod(t *testing.T, name, app string, addresses []netip.Addr) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			NodeName:                     testnet.Node2,
			AutomountServiceAccountToken: new(false),
			Containers:                   []corev1.Container{{Name: "main", Image: "example.com/app"}},
		},
	}
	_, err := c.pods().Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	must(t, c.ready(t.Context(), name, addresses))
}

// ready writes the status of a Pod that has started.
func (c *cluster) ready(ctx context.Context, name string, addresses []netip.Addr) error {
	pod, err := c.pods().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pod.Status = corev1.PodStatus{
		Phase:      corev1.PodRunning,
		PodIP:      addresses[0].String(),
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
	}
	for _, a := range addresses {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	_, err = c.pods().UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// endPod takes a Pod away, as its kubelet would once it has ended.
func (c *cluster) endPod(t *testing.T, name string) {
	t.Helper()
	if err := c.pods().Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
		t.Fatal(err)
	}
}

// targetPort is the port of the endpoints.
func targetPort() intstr.IntOrString { return intstr.FromInt32(endpointPort) }
