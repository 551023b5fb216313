package main

import (
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// occupy listens on an address of a namespace until the test ends or close is called.
func occupy(t *testing.T, ns *nstest.NS, address string) (release func()) {
	t.Helper()
	var listener net.Listener
	err := ns.Do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", address)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return func() { _ = listener.Close() }
}

// TestPortTaken: the daemon works without a server whose port is taken, and opens it
// later. With --bind-address-hard-fail it ends, and an Event of the Node says why.
func TestPortTaken(t *testing.T) {
	for address, reason := range map[string]string{
		"127.0.0.1:10249": "FailedToStartMetricServer",
		"0.0.0.0:10256":   "FailedToStartProxierHealthcheck",
	} {
		t.Run(address, func(t *testing.T) {
			ns := nstest.New(t)
			api := newFakeAPI(t, ns)
			api.putNode(t)
			release := occupy(t, ns, address)
			args := []string{"--kubeconfig", api.kubeconfig(t), "--hostname-override", "node1", "--kube-api-content-type", "application/json"}

			d := startDaemon(t, ns, append(args, "--bind-address-hard-fail")...)
			if status := d.wait(t); status != exitError {
				t.Errorf("exit status: %d", status)
			}
			if log := d.stderr.String(); !strings.Contains(log, "is the port in use") || !strings.Contains(log, address) {
				t.Errorf("standard error: %s", log)
			}
			want := []string{"Node node1: Normal Starting StartKubeProxy", "Node node1: Warning " + reason + " StartKubeProxy"}
			if diff := cmp.Diff(want, api.events()); diff != "" {
				t.Errorf("Events (want -, got +):\n%s", diff)
			}

			d = startDaemon(t, ns, args...)
			eventually(t, "a complaint, and rules all the same", func() bool {
				return strings.Contains(d.stderr.String(), "a server does not run; trying again") &&
					strings.Contains(ns.MustNFT(t, "", "list", "tables"), "table ip nftproxy")
			})
			release()
			awaitHealthy(t, ns)
			eventually(t, "metrics", func() bool { return metric(t, ns, `nftproxy_resyncs_total{reason="start"}`) == 1 })
			if status := d.stop(t, syscall.SIGTERM); status != exitOK {
				t.Errorf("exit status after SIGTERM: %d", status)
			}
			if slices.Contains(api.events()[2:], want[1]) {
				t.Error("an Event tells of a port that is tried again")
			}
		})
	}
}
