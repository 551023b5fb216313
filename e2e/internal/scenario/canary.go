package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/nftproxy/nftproxy/e2e/internal/object"
	"github.com/nftproxy/nftproxy/e2e/internal/probe"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

const (
	canaryName   = "scenario-canary"
	canaryServer = 64000 // the port of the canary's endpoint on node2
	canaryFirst  = 61000 // the first of its Service's ports
	canaryPorts  = 1000
	canaryLimit  = 100 * time.Millisecond
	// serveLimit is how long a proxy may take until it serves after a start.
	serveLimit = 30 * time.Second
)

// canaryAddresses are the ClusterIPs of the canary.
func canaryAddresses() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("10.96.255.250"), netip.MustParseAddr("fd00:10:96::fffa")}
}

// canary is a Service whose port changes each time: once the newest port works,
// the proxy has caught up with everything before. It needs nothing but what any
// proxy does, so it tells the same of all.
type canary struct {
	driver  Driver
	node    *testnet.Host // that connects
	servers []*probe.Server
	round   int
}

// newCanary starts the canary's servers and creates its endpoints.
func newCanary(ctx context.Context, driver Driver, network *testnet.Network) (*canary, error) {
	c := &canary{driver: driver, node: network.Host(testnet.Node1)}
	for _, like := range canaryAddresses() {
		endpoint := network.Host(testnet.Node2).Address(like)
		server, err := probe.Serve(network.Host(testnet.Node2).Namespace, netip.AddrPortFrom(endpoint, canaryServer))
		if err != nil {
			return c, err
		}
		c.servers = append(c.servers, server)
		slice, err := object.Encode(canarySlice(endpoint))
		if err != nil {
			return c, err
		}
		if err := driver.Apply(ctx, slice); err != nil {
			return c, fmt.Errorf("create the canary: %w", err)
		}
	}
	return c, nil
}

func (c *canary) close() error {
	for _, server := range c.servers {
		if err := server.Close(); err != nil {
			return err
		}
	}
	return nil
}

// change gives the canary a new port.
func (c *canary) change(ctx context.Context) error {
	c.round++
	service, err := object.Encode(canaryService(c.port()))
	if err != nil {
		return err
	}
	if err := c.driver.Apply(ctx, service); err != nil {
		return fmt.Errorf("change the canary: %w", err)
	}
	return nil
}

// errLate says that the proxy has not caught up in time.
var errLate = errors.New("the proxy does not catch up")

// wait waits until the newest port works in both families.
func (c *canary) wait(ctx context.Context, ended <-chan struct{}, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for _, address := range canaryAddresses() {
		to := probe.Target{Protocol: probe.TCP, Address: netip.AddrPortFrom(address, uint16(c.port()))}
		for {
			result, err := probe.Send(ctx, c.node.Namespace, probe.Request{To: to, Limit: canaryLimit})
			if err != nil {
				return err
			}
			if result.Outcome == probe.OK {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%w within %s: %s is %s", errLate, limit, to, result)
			}
			select {
			case <-ended:
				return errEnded
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(pollPause):
			}
		}
	}
	return nil
}

func (c *canary) port() int32 { return int32(canaryFirst + c.round%canaryPorts) }

func canaryService(port int32) *corev1.Service {
	policy := corev1.IPFamilyPolicyRequireDualStack
	service := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: object.Service},
		ObjectMeta: metav1.ObjectMeta{Name: canaryName, Namespace: canaryName},
		Spec: corev1.ServiceSpec{
			IPFamilyPolicy: &policy,
			IPFamilies:     []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports:          []corev1.ServicePort{{Name: "canary", Protocol: corev1.ProtocolTCP, Port: port}},
		},
	}
	for _, address := range canaryAddresses() {
		service.Spec.ClusterIPs = append(service.Spec.ClusterIPs, address.String())
	}
	service.Spec.ClusterIP = service.Spec.ClusterIPs[0]
	return service
}

func canarySlice(endpoint netip.Addr) *discoveryv1.EndpointSlice {
	family, name := discoveryv1.AddressTypeIPv4, canaryName+"-4"
	if endpoint.Is6() {
		family, name = discoveryv1.AddressTypeIPv6, canaryName+"-6"
	}
	return &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: object.EndpointSlice},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: canaryName,
			Labels: map[string]string{discoveryv1.LabelServiceName: canaryName},
		},
		AddressType: family,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{endpoint.String()},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			NodeName:   new(testnet.Node2),
		}},
		Ports: []discoveryv1.EndpointPort{
			{Name: new("canary"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(canaryServer))},
		},
	}
}
