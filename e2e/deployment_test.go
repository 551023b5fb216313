package e2e

import (
	"net/netip"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/probe"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// shop is what a user would apply.
const shop = `
apiVersion: v1
kind: Service
metadata:
  name: shop
  labels: {app: shop}
spec:
  ipFamilyPolicy: RequireDualStack
  clusterIP: 10.96.1.20
  clusterIPs: [10.96.1.20, "fd00:10:96::120"]
  selector: {app: shop}
  ports:
    - {name: stream, protocol: TCP, port: 80, targetPort: 8080}
    - {name: datagram, protocol: UDP, port: 80, targetPort: 8080}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: shop
  labels: {app: shop}
spec:
  replicas: 2
  selector:
    matchLabels: {app: shop}
  template:
    metadata:
      labels: {app: shop}
    spec:
      automountServiceAccountToken: false
      containers:
        - name: main
          image: example.com/shop
`

func shopAddresses() []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("10.96.1.20"), netip.MustParseAddr("fd00:10:96::120")}
}

// testDeployment has a user apply, scale, roll and delete a Service and a Deployment.
func (c *cluster) testDeployment(t *testing.T) {
	k := c.startKubelet(t, "shop")
	rolledOut := func(replicas int) {
		t.Helper()
		c.kubectl(t, "", "rollout", "status", "deployment/shop", "--timeout", outageSettle.String())
		eventually(t, "only the Pods that are wanted", func() bool { return len(k.used()) == replicas })
		c.check(t, shopAddresses(), want{outcome: probe.OK, pods: k.used(), settle: outageSettle})
		c.equalsFresh(t, settle)
	}
	step(t, "kubectl applies a Service and a Deployment, and packets reach its Pods", func() {
		c.kubectl(t, shop, "apply", "-f", "-")
		rolledOut(2)
	})
	step(t, "kubectl scales and rolls the Deployment, and no connection fails", func() {
		all := connections(testnet.PodA, testnet.PodC, testnet.PodD, testnet.PodE)
		c.underLoad(t, shopAddresses(), all, func() {
			c.kubectl(t, "", "scale", "deployment/shop", "--replicas=3")
			rolledOut(3)
			c.kubectl(t, "", "rollout", "restart", "deployment/shop")
			rolledOut(3)
			c.kubectl(t, "", "scale", "deployment/shop", "--replicas=1")
			rolledOut(1)
		})
	})
	step(t, "without Pods, packets are refused", func() {
		c.kubectl(t, "", "scale", "deployment/shop", "--replicas=0")
		c.check(t, shopAddresses(), want{outcome: probe.Refused, settle: outageSettle})
	})
	step(t, "kubectl deletes everything, and packets are lost", func() {
		// Here is no garbage collector to delete what belonged to the Deployment.
		c.kubectl(t, "", "delete", "service,deployment,replicaset,endpointslice", "--selector", "app=shop")
		c.check(t, shopAddresses(), want{outcome: probe.Dropped, settle: outageSettle})
		c.equalsFresh(t, settle)
	})
	k.check(t)
}
