package e2e

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// miss makes a Service and a Pod that the proxy does not see now.
func (c *cluster) miss(t *testing.T, name string, n int) {
	t.Helper()
	_, err := c.services().Create(t.Context(), selectingService(name), metav1.CreateOptions{})
	must(t, err)
	c.startPod(t, name, name, madeUpAddresses(1000+n))
}

// testOutages has the API server fail in all ways, while changes are made that the proxy
// does not see. The rules stay and work meanwhile.
func (c *cluster) testOutages(t *testing.T) {
	for n, outage := range []struct {
		title string
		begin func() error
		end   func() error
		after bool // changes are made once the API server is back, before the proxy is
	}{
		{"the API server is killed", c.control.CrashAPIServer, func() error { return c.control.StartAPIServer(t.Context()) }, true},
		{"connections stall", func() error { return c.control.Stall(t.Context()) }, func() error { return c.control.Unstall(t.Context()) }, false},
		{
			"connections stall until the API server has forgotten what was meanwhile",
			func() error { return c.control.Stall(t.Context()) },
			func() error {
				must(t, c.control.ForgetHistory(t.Context()))
				return c.control.Unstall(t.Context())
			},
			false,
		},
	} {
		step(t, outage.title+": the rules stay meanwhile, and are right afterwards", func() {
			c.underLoad(t, serviceAddresses(), connections(testnet.PodD, testnet.PodE), func() {
				must(t, outage.begin())
				if !outage.after {
					c.miss(t, fmt.Sprintf("missed-%d", n), n)
				}
				c.untouched(t)
				must(t, outage.end())
				if outage.after {
					c.miss(t, fmt.Sprintf("missed-%d", n), n)
				}
			})
			c.recovers(t)
		})
	}
}

// testForwarder has a proxy between nftproxy and the API server that stops forwarding.
func (c *cluster) testForwarder(t *testing.T) {
	forwarder, err := c.control.StartForwarder(t.Context())
	must(t, err)
	t.Cleanup(func() {
		if err := forwarder.Close(); err != nil {
			t.Error(err)
		}
	})
	step(t, "a proxy before the API server stops forwarding: the rules stay meanwhile, and are right afterwards", func() {
		c.underLoad(t, serviceAddresses(), connections(testnet.PodD, testnet.PodE), func() {
			c.stopProxy(t)
			c.startProxyAt(t, forwarder.Address())
			c.miss(t, "forwarded", 100)
			c.equalsFresh(t, startSettle)
			forwarder.Stop()
			connections := forwarder.Connections()
			c.miss(t, "not-forwarded", 101)
			c.untouched(t)
			eventually(t, "nftproxy gives the connection up", func() bool { return forwarder.Connections() > connections })
			forwarder.Go()
		})
		c.recovers(t)
	})
	step(t, "without that proxy again", func() {
		c.stopProxy(t)
		c.startProxy(t)
		c.recovers(t)
	})
}

// testRestore has etcd restored from a snapshot, after which changes were made that the
// proxy has seen. They are undone.
func (c *cluster) testRestore(t *testing.T) {
	step(t, "etcd is restored from a snapshot: the rules stay meanwhile, and follow what it undoes", func() {
		c.underLoad(t, serviceAddresses(), connections(testnet.PodA, testnet.PodD, testnet.PodE), func() {
			must(t, c.control.Snapshot(t.Context()))
			c.spendVersions(t)
			must(t, c.services().Delete(t.Context(), fmt.Sprintf("many-%d", many-1), metav1.DeleteOptions{}))
			c.miss(t, "undone", 200)
			c.startPod(t, testnet.PodA, serviceName, c.podAddresses(testnet.PodA))
			c.reaches(t, 2*outageSettle, testnet.PodA, testnet.PodD, testnet.PodE)
			c.equalsFresh(t, settle)
			must(t, c.control.Restore(t.Context()))
		})
		c.recovers(t)
	})
}

// spendVersions makes changes that nobody needs to know of: many more than a restored API
// server makes when it starts, so that it is older than what was seen before the restore.
func (c *cluster) spendVersions(t *testing.T) {
	t.Helper()
	for n := range 300 {
		patch := fmt.Appendf(nil, `{"metadata": {"annotations": {"example.com/note": "%d"}}}`, n)
		_, err := c.services().Patch(t.Context(), serviceName, types.MergePatchType, patch, metav1.PatchOptions{})
		must(t, err)
	}
}

// untouched checks that the rules stay as they are for a while.
func (c *cluster) untouched(t *testing.T) {
	t.Helper()
	before := c.generation(t)
	time.Sleep(still)
	if after := c.generation(t); after != before {
		t.Errorf("%d transactions", after-before)
	}
}

// recovers checks that the proxy, after an outage, has caught up with everything.
func (c *cluster) recovers(t *testing.T) {
	t.Helper()
	c.proxyRuns(t)
	c.equalsFresh(t, 2*outageSettle)
	c.reaches(t, settle, testnet.PodD, testnet.PodE)
}
