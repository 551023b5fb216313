package main

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// TestNodeCheck says each thing that does not fit once, and again when it is back.
func TestNodeCheck(t *testing.T) {
	cfg, err := config.Parse([]byte(`
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: 10.0.0.0/8
nodePortAddresses: [192.0.2.0/24]
`))
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.InfoLevel)
	check := &nodeCheck{cfg: cfg, families: rules.Families(), log: zap.New(core)}
	four := &proxier.Node{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}
	six := &proxier.Node{Addrs: []netip.Addr{netip.MustParseAddr("2001:db8::1")}}
	told := 0
	for i, step := range []struct {
		node *proxier.Node
		want []string
	}{
		{nil, nil},
		{four, nil},
		{six, []string{"nodePortAddresses", "clusterCIDR"}},
		{six, nil},
		{four, nil},
		{six, []string{"nodePortAddresses", "clusterCIDR"}},
	} {
		if err := check.check(step.node); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
		var got []string
		for _, entry := range logs.All()[told:] {
			field, _, _ := strings.Cut(fmt.Sprint(entry.ContextMap()["problem"]), ":")
			got = append(got, field)
		}
		told = logs.Len()
		if !slices.Equal(got, step.want) {
			t.Errorf("step %d: told about %v, want %v", i, got, step.want)
		}
	}
}

// TestNodeWithoutItsFamily: a daemon that cannot serve its node ends, and leaves the
// kernel alone.
func TestNodeWithoutItsFamily(t *testing.T) {
	ns := nstest.New(t)
	err := ns.Do(func() error { return os.WriteFile("/proc/sys/net/ipv6/conf/all/disable_ipv6", []byte("1"), 0) })
	if err != nil {
		t.Skip("IPv6 cannot be turned off here:", err)
	}
	d := startDaemon(t, ns, "--hostname-override", "node1", "--manifests", write(t, `
apiVersion: v1
kind: Node
metadata: {name: node1}
status: {addresses: [{type: InternalIP, address: "2001:db8::1"}]}
`))
	if status := d.wait(t); status != exitError {
		t.Errorf("exit status: %d", status)
	}
	if log := d.stderr.String(); !strings.Contains(log, "nftproxy: the kernel has no IPv6, but 2001:db8::1 of this node") {
		t.Errorf("standard error: %s", log)
	}
	if tables := ns.MustNFT(t, "", "list", "tables"); tables != "" {
		t.Errorf("there are tables: %s", tables)
	}
}
