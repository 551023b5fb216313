package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// writers is how many requests are under way at a time when many are to be sent.
const writers = 32

// bulk is many Services with endpoints, which nobody answers for.
type bulk struct {
	figures figures
	client  *kubernetes.Clientset
	slices  []bulkSlice
	changed atomic.Uint32 // how many changes there were
}

// bulkSlice is the EndpointSlice of a Service, as the API server has it.
type bulkSlice struct {
	mu    sync.Mutex
	slice *discoveryv1.EndpointSlice
}

func (c *cluster) newBulk(t *testing.T, f figures) *bulk {
	t.Helper()
	config := c.control.RESTConfig()
	config.ContentType = runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	t.Cleanup(func() {
		if r, ok := client.RESTClient().(*rest.RESTClient); ok {
			utilnet.CloseIdleConnectionsFor(r.Client.Transport)
		}
	})
	return &bulk{figures: f, client: client, slices: make([]bulkSlice, f.services)}
}

// create makes all Services and EndpointSlices, and says how far it is.
func (b *bulk) create(t *testing.T) {
	t.Helper()
	begin := time.Now()
	var done atomic.Int32
	must(t, inParallel(b.figures.services, func(n int) error {
		if err := b.createOne(t.Context(), n); err != nil {
			return err
		}
		if count := int(done.Add(1)); count%max(1, b.figures.services/10) == 0 {
			fmt.Fprintf(t.Output(), "       %6.2fs  %d of %d Services\n", time.Since(begin).Seconds(), count, b.figures.services)
		}
		return nil
	}))
}

func (b *bulk) createOne(ctx context.Context, n int) error {
	name := fmt.Sprintf("web-%d", n)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: servicePort, TargetPort: targetPort()}}},
	}
	service, err := b.client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, service, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// As the controller makes it.
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: name + "-x7k2p",
			Labels: map[string]string{
				"app": name, discoveryv1.LabelServiceName: name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(service, corev1.SchemeGroupVersion.WithKind("Service"))},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(endpointPort))}},
	}
	for e := range b.figures.endpoints {
		slice.Endpoints = append(slice.Endpoints, bulkEndpoint(name, bulkAddress(firstEndpoint, n*b.figures.endpoints+e)))
	}
	b.slices[n].slice, err = b.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, slice, metav1.CreateOptions{})
	return err
}

// The addresses of endpoints begin here, and those that come by changes there.
const (
	firstEndpoint = 10<<24 | 128<<16
	firstChange   = 10<<24 | 192<<16
)

func bulkAddress(first uint32, n int) netip.Addr {
	a := first + uint32(n)
	return netip.AddrFrom4([4]byte{byte(a >> 24), byte(a >> 16), byte(a >> 8), byte(a)})
}

// bulkEndpoint is an endpoint as the controller makes it of a Pod.
func bulkEndpoint(service string, address netip.Addr) discoveryv1.Endpoint {
	n := address.As4()
	return discoveryv1.Endpoint{
		Addresses:  []string{address.String()},
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		NodeName:   new(fmt.Sprintf("worker-%d", (int(n[2])<<8|int(n[3]))%500)),
		Zone:       new("zone-a"),
		TargetRef: &corev1.ObjectReference{
			Kind: "Pod", Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("%s-5d8f9c7b6-%x", service, n),
			UID: types.UID(fmt.Sprintf("00000000-0000-4000-8000-0000%x", n)),
		},
	}
}

// change is a change of one endpoint, and how it went on.
type change struct {
	address   netip.Addr // of the endpoint that came
	asked     time.Time  // when the API server was asked for the change
	answered  time.Time  // when it had answered
	committed time.Time  // when the kernel had the endpoint
}

// next returns the next change: an endpoint with an address that was never used.
func (b *bulk) next() change {
	return change{address: bulkAddress(firstChange, int(b.changed.Add(1)))}
}

// apply replaces an endpoint, another one of another Service each time.
func (b *bulk) apply(ctx context.Context, ch *change) error {
	k := ch.address.As4()
	n := int(k[1]-byte(firstChange>>16&0xff))<<16 | int(k[2])<<8 | int(k[3])
	s := &b.slices[n*7919%len(b.slices)]
	s.mu.Lock()
	defer s.mu.Unlock()
	slice := s.slice.DeepCopy()
	slice.Endpoints[n%len(slice.Endpoints)] = bulkEndpoint(slice.Labels[discoveryv1.LabelServiceName], ch.address)
	ch.asked = time.Now()
	slice, err := b.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Update(ctx, slice, metav1.UpdateOptions{})
	ch.answered = time.Now()
	if err != nil {
		return err
	}
	s.slice = slice
	return nil
}

// inParallel calls fn with 0..n-1, from several goroutines, and returns what went wrong.
func inParallel(n int, fn func(int) error) error {
	var next atomic.Int32
	var work sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		work.Go(func() {
			for errs[w] == nil {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				errs[w] = fn(i)
			}
		})
	}
	work.Wait()
	return errors.Join(errs...)
}
