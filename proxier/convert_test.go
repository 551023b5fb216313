package proxier

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func checkErrors(t *testing.T, err error, want []string) {
	t.Helper()
	var got []string
	for _, e := range each(err) {
		got = append(got, e.Error())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors: want -, got +\n%s", diff)
	}
}

// Every reason says whether it is a mistake in an annotation of ours, and which object
// has it.
func TestProblemsOf(t *testing.T) {
	ref := objectKey{kindService, objectName("ns/web")}.ref("uid-web")
	_, err := NewService(kubeService(func(s *corev1.Service) {
		s.Annotations = map[string]string{WeightsAnnotation: "*"}
		s.Spec.ExternalIPs = []string{"x"}
	}))
	_, sliceErr := NewEndpointSlice(kubeSlice(func(s *discoveryv1.EndpointSlice) {
		s.Annotations = map[string]string{WeightAnnotation: "-1"}
	}), "")
	var got []string
	for _, p := range append(problemsOf(ref, "web", err), problemsOf(ref, "web-abc", sliceErr)...) {
		got = append(got, p.Reason+" "+p.Err.Error())
		if p.Object != (ObjectRef{Kind: "Service", Name: objectName("ns/web"), UID: "uid-web"}) {
			t.Errorf("object %+v", p.Object)
		}
	}
	want := []string{
		`UnusableField web: spec.externalIPs[0]: "x" is not an IP address`,
		`BadAnnotation web: metadata.annotations[nftproxy.dev/weights]: "*" is not selector=weight, separated by commas`,
		`BadAnnotation web-abc: metadata.annotations[nftproxy.dev/weight]: "-1" is not an integer from 0 to 1000`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
	if len(problemsOf(ref, "web", nil)) > 0 {
		t.Error("a problem without an error")
	}
}

// What the proxy does not use makes no difference.
func TestMetadataMakesNoDifference(t *testing.T) {
	meta := func(m *metav1.ObjectMeta) {
		m.ResourceVersion = "2"
		m.Annotations = map[string]string{"a": "b"}
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	}
	service, _ := NewService(kubeService(nil))
	again, _ := NewService(kubeService(func(s *corev1.Service) {
		meta(&s.ObjectMeta)
		s.Spec.Selector = map[string]string{"a": "b"}
		s.Status.Conditions = []metav1.Condition{{Type: "Ready"}}
	}))
	if !service.Equal(again) {
		t.Error("Services differ")
	}
	slice, _ := NewEndpointSlice(kubeSlice(hints([]string{"zone-a", "zone-b"}, []string{"node-1", "node-2"})), "node-1")
	sliceAgain, _ := NewEndpointSlice(kubeSlice(func(s *discoveryv1.EndpointSlice) {
		meta(&s.ObjectMeta)
		hints([]string{"zone-b", "zone-a"}, []string{"node-3", "node-1"})(s)
		s.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "VirtualMachine", Name: "web-0"}
		s.Endpoints[0].Hostname = ptr.To("web-0")
	}), "node-1")
	if !slice.Equal(sliceAgain) {
		t.Error("slices differ")
	}
	node, _ := NewNode(kubeNode(nil))
	nodeAgain, _ := NewNode(kubeNode(func(n *corev1.Node) {
		meta(&n.ObjectMeta)
		n.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", LastHeartbeatTime: metav1.Unix(2000, 0)}}
		n.Status.Images = []corev1.ContainerImage{{SizeBytes: 1}}
		n.Spec.Unschedulable = true
	}))
	if !node.Equal(nodeAgain) {
		t.Error("Nodes differ")
	}
}
