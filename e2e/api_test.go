package e2e

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/nftproxy/nftproxy/e2e/internal/controlplane"
	"github.com/nftproxy/nftproxy/e2e/internal/probe"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

const (
	serviceName  = "web"
	servicePort  = 80
	endpointPort = 8080

	// startSettle is how long the first sync after a start may take.
	startSettle = 15 * time.Second
	// outageSettle is how long a client of the API may take to come back after
	// an outage: it asks less and less often while nobody answers.
	outageSettle = time.Minute
	// still is how long nothing must happen.
	still = time.Second
)

// serviceAddresses returns the ClusterIPs of the Service.
func serviceAddresses() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("10.96.1.10"), netip.MustParseAddr("fd00:10:96::110")}
}

// TestAPI runs the proxy against a real API server, and sends packets to a
// Service while the Service, the proxy and the API server change.
func TestAPI(t *testing.T) {
	begin := time.Now()
	c := newCluster(t)
	c.serve(t, endpointPort, testnet.PodA, testnet.PodC, testnet.PodD, testnet.PodE)
	fmt.Fprintf(t.Output(), "%-6s %6.2fs  the network and the control plane are up\n", "ok", time.Since(begin).Seconds())

	step(t, "without a proxy, packets to a Service are lost", func() {
		c.createService(t)
		c.setEndpoints(t, testnet.PodA, testnet.PodC)
		c.check(t, serviceAddresses(), want{outcome: probe.Dropped})
	})
	c.testChanges(t)
	c.testEvents(t)
	c.testRestart(t)
	c.testOutage(t)
	step(t, "once the Service is deleted, packets to it are lost again", func() {
		c.deleteService(t)
		c.check(t, serviceAddresses(), want{outcome: probe.Dropped})
	})
	step(t, "SIGTERM ends the proxy with exit code 0", func() { c.stopProxy(t) })
}

// testChanges starts the proxy and changes the endpoints.
func (c *cluster) testChanges(t *testing.T) {
	step(t, "packets from outside, a pod and node1 reach exactly the endpoints", func() {
		c.startProxy(t)
		c.reaches(t, startSettle, testnet.PodA, testnet.PodC)
	})
	step(t, "a pod reaches the API server through its own Service", func() { c.reachAPI(t) })
	step(t, "packets follow when an endpoint is replaced, and no connection fails", func() {
		c.underLoad(t, serviceAddresses(), connections(testnet.PodA, testnet.PodC, testnet.PodD), func() {
			c.setEndpoints(t, testnet.PodA, testnet.PodD)
			c.reaches(t, settle, testnet.PodA, testnet.PodD)
		})
	})
	step(t, "without endpoints, packets are refused", func() {
		c.setEndpoints(t)
		c.check(t, serviceAddresses(), want{outcome: probe.Refused})
	})
	step(t, "packets reach the endpoints that come back", func() {
		c.setEndpoints(t, testnet.PodA, testnet.PodD)
		c.reaches(t, settle, testnet.PodA, testnet.PodD)
	})
	step(t, "metadata of an EndpointSlice changes and nothing is sent to the kernel", func() {
		before := c.generation(t)
		c.annotateEndpoints(t)
		time.Sleep(still)
		if after := c.generation(t); after != before {
			t.Errorf("%d transactions", after-before)
		}
		c.reaches(t, settle, testnet.PodA, testnet.PodD)
	})
}

// testRestart stops the proxy and starts it again.
func (c *cluster) testRestart(t *testing.T) {
	step(t, "SIGTERM ends the proxy with exit code 0, and no packet is lost", func() {
		c.underLoad(t, serviceAddresses(), allPackets(testnet.PodA, testnet.PodD), func() { c.stopProxy(t) })
	})
	step(t, "the rules stay and work without the proxy", func() {
		c.reaches(t, settle, testnet.PodA, testnet.PodD)
	})
	step(t, "the proxy starts again, follows what it missed, and no connection fails", func() {
		c.underLoad(t, serviceAddresses(), connections(testnet.PodA, testnet.PodD, testnet.PodE), func() {
			c.setEndpoints(t, testnet.PodA, testnet.PodE)
			c.startProxy(t)
			c.reaches(t, startSettle, testnet.PodA, testnet.PodE)
		})
	})
	step(t, "after the restart, packets follow a change", func() {
		c.setEndpoints(t, testnet.PodC)
		c.reaches(t, settle, testnet.PodC)
	})
}

// testOutage ends the API server and starts it again.
func (c *cluster) testOutage(t *testing.T) {
	c.underLoad(t, serviceAddresses(), allPackets(testnet.PodC), func() {
		step(t, "the API server crashes, the rules stay as they are", func() {
			must(t, c.control.CrashAPIServer())
			c.untouched(t)
			c.reaches(t, settle, testnet.PodC)
			c.proxyRuns(t)
		})
		step(t, "the API server is back, and no packet was lost", func() {
			if err := c.control.StartAPIServer(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.reaches(t, settle, testnet.PodC)
			c.proxyRuns(t)
		})
	})
	step(t, "packets follow a change made after the outage", func() {
		c.setEndpoints(t, testnet.PodA, testnet.PodD)
		c.reaches(t, outageSettle, testnet.PodA, testnet.PodD)
	})
}

// connections is a load of connections only, allPackets one of datagrams too.
func connections(pods ...string) load {
	return load{protocols: []probe.Protocol{probe.TCP}, pods: pods}
}

func allPackets(pods ...string) load {
	return load{protocols: []probe.Protocol{probe.TCP, probe.UDP}, pods: pods}
}

// reaches checks that packets to the Service arrive at all of the pods and at
// nobody else.
func (c *cluster) reaches(t *testing.T, settle time.Duration, pods ...string) {
	t.Helper()
	c.check(t, serviceAddresses(), want{outcome: probe.OK, pods: pods, settle: settle})
}

// reachAPI asks the API server for its version from a pod.
func (c *cluster) reachAPI(t *testing.T) {
	t.Helper()
	config := c.control.RESTConfigFrom(c.network.Host(testnet.PodA).Namespace)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+controlplane.ServiceAddress+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
	if response.StatusCode != http.StatusOK {
		t.Errorf("the API server answers %s", response.Status)
	}
}

// generation returns the number of nftables transactions on node1 so far.
func (c *cluster) generation(t *testing.T) uint32 {
	t.Helper()
	n, err := generation(c.network.Host(testnet.Node1).Namespace)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
