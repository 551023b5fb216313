package e2e

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// testEvents makes mistakes in objects, of which the API server must tell their owners.
func (c *cluster) testEvents(t *testing.T) {
	services := c.client.CoreV1().Services(metav1.NamespaceDefault)
	step(t, "weights that cannot be read are an Event on the Service, and all endpoints serve", func() {
		patch := []byte(`{"metadata": {"annotations": {"nftproxy.dev/weights": "pod:api-*=many"}}}`)
		service, err := services.Patch(t.Context(), serviceName, "application/merge-patch+json", patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		c.event(t, service, "BadAnnotation", "many")
		c.reaches(t, settle, testnet.PodA, testnet.PodD)
	})
	step(t, "an address of two Services is an Event on the younger one", func() {
		older := c.external(t, "older")
		// Objects that are equally old, to the second, are ordered by their name.
		younger := c.external(t, "younger")
		c.event(t, younger, "AddressConflict", older.Name)
		for _, s := range []*corev1.Service{older, younger} {
			if err := services.Delete(t.Context(), s.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// external makes a Service with an external IP, always the same.
func (c *cluster) external(t *testing.T, name string) *corev1.Service {
	t.Helper()
	service, err := c.client.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			ExternalIPs: []string{"203.0.113.77"},
			Ports:       []corev1.ServicePort{{Port: servicePort}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

// event waits for an Event about the Service whose note contains the text.
func (c *cluster) event(t *testing.T, about *corev1.Service, reason, text string) {
	t.Helper()
	for deadline := time.Now().Add(startSettle); ; time.Sleep(50 * time.Millisecond) {
		events, err := c.client.EventsV1().Events(about.Namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events.Items {
			if e.Regarding.UID == about.UID && e.Reason == reason && strings.Contains(e.Note, text) {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no Event %s about Service %s among %d", reason, about.Name, len(events.Items))
		}
	}
}
