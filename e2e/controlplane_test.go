package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// many is how many Services there are beside the one that gets packets, each with two
// Pods.
const many = 40

// TestControlPlane runs the proxy with the rights of the manifests against an API server
// and the controllers that make Pods of Deployments and EndpointSlices of Pods. All
// change in all ways and have all kinds of outages; then the rules are what a computation
// from nothing makes.
func TestControlPlane(t *testing.T) {
	// How long a connection may be silent until client-go asks whether it is still there,
	// and how long it waits for the answer, in seconds. The defaults are 30 and 15.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "2")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "2")
	controllers := program(t, "KUBE_CONTROLLER_MANAGER_BIN")
	c := newCluster(t)
	c.serve(t, endpointPort, testnet.PodA, testnet.PodC, testnet.PodD, testnet.PodE)
	if err := c.control.StartControllers(controllers); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // Pods must have one
	if _, err := c.client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.testPods(t)
	c.testDeployment(t)
	c.testManyServices(t)
	step(t, "the proxy had all rights that it asked for", func() {
		if log := c.proxy.Tail(100_000); strings.Contains(log, "orbidden") {
			t.Errorf("its output:\n%s", log)
		}
	})
	c.testOutages(t)
	c.testForwarder(t)
	c.testRestore(t)
	step(t, "SIGTERM ends the proxy with exit code 0", func() { c.stopProxy(t) })
}

// testPods starts the proxy and brings up, scales, rolls and takes away Pods.
func (c *cluster) testPods(t *testing.T) {
	step(t, "a Service and its Pods are made, and packets reach them", func() {
		if _, err := c.services().Create(t.Context(), selectingService(serviceName, serviceAddresses()...), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, pod := range []string{testnet.PodA, testnet.PodC} {
			c.startPod(t, pod, serviceName, c.podAddresses(pod))
		}
		c.startProxy(t)
		c.reaches(t, outageSettle, testnet.PodA, testnet.PodC)
		c.equalsFresh(t, settle)
	})
	step(t, "the Service is scaled and rolled, and no connection fails", func() {
		c.underLoad(t, serviceAddresses(), connections(testnet.PodA, testnet.PodC, testnet.PodD, testnet.PodE), func() {
			for _, pod := range []string{testnet.PodD, testnet.PodE} {
				c.startPod(t, pod, serviceName, c.podAddresses(pod))
			}
			c.reaches(t, outageSettle, testnet.PodA, testnet.PodC, testnet.PodD, testnet.PodE)
			c.endPod(t, testnet.PodA)
			c.reaches(t, outageSettle, testnet.PodC, testnet.PodD, testnet.PodE)
			c.endPod(t, testnet.PodC)
			c.reaches(t, outageSettle, testnet.PodD, testnet.PodE)
		})
		c.equalsFresh(t, settle)
	})
}

// testManyServices makes many Services with Pods, rolls their Pods, and deletes half.
func (c *cluster) testManyServices(t *testing.T) {
	name := func(n int) string { return fmt.Sprintf("many-%d", n) }
	step(t, "many Services are made with their Pods", func() {
		for n := range many {
			if _, err := c.services().Create(t.Context(), selectingService(name(n)), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			for pod := range 2 {
				c.startPod(t, fmt.Sprintf("%s-%d", name(n), pod), name(n), madeUpAddresses(4*n+pod))
			}
		}
		c.settled(t, many)
	})
	step(t, "their Pods are rolled", func() {
		for n := range many {
			for pod := range 2 {
				c.startPod(t, fmt.Sprintf("%s-%d", name(n), 2+pod), name(n), madeUpAddresses(4*n+2+pod))
				c.endPod(t, fmt.Sprintf("%s-%d", name(n), pod))
			}
		}
		c.settled(t, many)
	})
	step(t, "half of them are deleted", func() {
		for n := range many / 2 {
			if err := c.services().Delete(t.Context(), name(n), metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		c.settled(t, many) // slices without a Service stay: here is no garbage collector
	})
}

// settled waits until the controller has made slices of all Pods of the many Services,
// two a Service, and none of others, and checks the rules.
func (c *cluster) settled(t *testing.T, services int) {
	t.Helper()
	deadline := time.Now().Add(outageSettle)
	for {
		list, err := c.slices().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		count, complete := 0, true
		for _, slice := range list.Items {
			if strings.HasPrefix(slice.Name, "many-") {
				count++
				complete = complete && len(slice.Endpoints) == 2
			}
		}
		if complete && count == 2*services {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d slices, complete: %t, want %d", count, complete, 2*services)
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.equalsFresh(t, outageSettle)
}
