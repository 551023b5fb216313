package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/traffic"
	"github.com/nftproxy/nftproxy/rules"
)

const (
	// probeTimeout is how long a connection may take.
	probeTimeout = time.Second
	// Between two connections the probe pauses for a share of the time that it has waited,
	// so that it takes little processor time. It gives one up after such a share too: as
	// long as there are no rules, nobody refuses it, and its first packet comes again after
	// a second only. What is measured is at most this much too long.
	probeShare     = 50
	probePause     = 100 * time.Microsecond
	probeShortTime = 20 * time.Millisecond
)

// probe is a Service with two endpoints that answer, of which it has one at a time, and
// the client that asks who does.
type probe struct {
	service   *corev1.Service
	frontend  netip.AddrPort
	endpoints [2]netip.AddrPort
	listeners []net.Listener
	servers   sync.WaitGroup
}

// newProbe makes a probe on an interface of a private namespace. The caller closes it.
func newProbe(ctx context.Context, link netlink.Link) (*probe, error) {
	ip := nth(clusterIPs(rules.IPv4), MaxServices)
	p := &probe{
		service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "zz-probe", Name: "probe", UID: "00000000-0000-4000-b000-000000000000", CreationTimestamp: created(),
			},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: ip.String(), ClusterIPs: []string{ip.String()},
				IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicySingleStack),
				SessionAffinity:       corev1.ServiceAffinityNone,
				InternalTrafficPolicy: ptr.To(corev1.ServiceInternalTrafficPolicyCluster),
				Ports:                 service{}.ports(),
			},
		},
		frontend: netip.AddrPortFrom(ip, servicePort),
	}
	if err := routeTo(link, clusterIPs(rules.IPv4)); err != nil {
		return nil, err
	}
	for i := range p.endpoints {
		p.endpoints[i] = netip.AddrPortFrom(nth(podAddrs(rules.IPv4), 2*maxEndpoints+i), endpointPort)
		if err := p.listen(ctx, link, i); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	return p, nil
}

// routeTo makes packets to a network leave, and come back, by an interface.
func routeTo(link netlink.Link, network netip.Prefix) error {
	err := netlink.RouteAdd(&netlink.Route{
		LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK, Src: net.ParseIP(nodeAddr),
		Dst: &net.IPNet{IP: network.Addr().AsSlice(), Mask: net.CIDRMask(network.Bits(), network.Addr().BitLen())},
	})
	if err != nil {
		return fmt.Errorf("add a route to %s: %w", network, err)
	}
	return nil
}

// listen starts an endpoint, which answers every connection with its number.
func (p *probe) listen(ctx context.Context, link netlink.Link, i int) error {
	if err := traffic.AddAddr(link, p.endpoints[i].Addr()); err != nil {
		return err
	}
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", p.endpoints[i].String())
	if err != nil {
		return fmt.Errorf("start an endpoint: %w", err)
	}
	p.listeners = append(p.listeners, l)
	p.servers.Go(func() { traffic.Answer(l, []byte{byte(i)}) })
	return nil
}

func (p *probe) close() error {
	var errs []error
	for _, l := range p.listeners {
		errs = append(errs, l.Close())
	}
	p.servers.Wait()
	return errors.Join(errs...)
}

// slice returns the EndpointSlice in which the Service has one of its endpoints.
func (p *probe) slice(i int) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.service.Namespace, Name: "probe-0", UID: "00000000-0000-4000-b000-000000000001", CreationTimestamp: created(),
			Labels: map[string]string{discoveryv1.LabelServiceName: p.service.Name},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](endpointPort)}},
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{p.endpoints[i].Addr().String()},
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
			NodeName:   ptr.To(NodeName),
		}},
	}
}

// ask connects to an address and returns the number of the endpoint that answers.
func ask(ctx context.Context, to netip.AddrPort, timeout time.Duration) (int, error) {
	dialer := net.Dialer{Timeout: timeout, KeepAlive: -1}
	conn, err := dialer.DialContext(ctx, "tcp", to.String())
	if err != nil {
		return 0, err //nolint:wrapcheck // says what was dialled
	}
	defer func() { _ = conn.Close() }() // all that matters was read
	var answer [1]byte
	if _, err := traffic.ReadAnswer(conn, answer[:], time.Now().Add(probeTimeout)); err != nil {
		return 0, err //nolint:wrapcheck // says it all
	}
	return int(answer[0]), nil
}

// await asks until an endpoint answers, and returns when it did. It gives up when check
// returns an error, or after some time.
func (p *probe) await(ctx context.Context, endpoint int, timeout time.Duration, check func() error) (time.Time, error) {
	began := time.Now()
	for {
		share := time.Since(began) / probeShare
		answer, err := ask(ctx, p.frontend, min(max(probeShortTime, share), probeTimeout))
		now := time.Now()
		if err == nil && answer == endpoint {
			return now, nil
		}
		if err := check(); err != nil {
			return now, err
		}
		waited := now.Sub(began)
		if waited > timeout {
			return now, fmt.Errorf("no connection to %s was answered by the endpoint %s within %s", p.frontend, p.endpoints[endpoint], timeout)
		}
		if err := traffic.Pause(ctx, max(probePause, share)); err != nil {
			return now, err
		}
	}
}
