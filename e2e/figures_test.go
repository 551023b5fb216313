package e2e

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/proxy"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// figures is how much TestFigures measures with. Every field can be set in the
// environment.
type figures struct {
	services  int // FIGURES_SERVICES
	endpoints int // FIGURES_ENDPOINTS: of each Service
	changes   int // FIGURES_CHANGES: that are timed
	all       int // FIGURES_ALL_CHANGES: until the memory is measured again
	rate      int // FIGURES_RATE: timed changes a second
	bulkRate  int // FIGURES_BULK_RATE: of the others
}

// newFigures reads the environment. What is not set is small.
func newFigures(t *testing.T) figures {
	t.Helper()
	number := func(name string, otherwise int) int {
		text := os.Getenv(name)
		if text == "" {
			return otherwise
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s is %q: want a positive number", name, text)
		}
		return n
	}
	f := figures{
		services: number("FIGURES_SERVICES", 50), endpoints: number("FIGURES_ENDPOINTS", 10),
		changes: number("FIGURES_CHANGES", 50), all: number("FIGURES_ALL_CHANGES", 100),
		rate: number("FIGURES_RATE", 20), bulkRate: number("FIGURES_BULK_RATE", 200),
	}
	if f.all < f.changes {
		t.Fatalf("FIGURES_ALL_CHANGES is %d: want no less than the %d timed ones", f.all, f.changes)
	}
	return f
}

// TestFigures measures nftproxy and then kube-proxy against a real API server, from
// outside and in the same way, and prints a table. It fails if one of them does not get
// everything into the kernel, not if it is slow.
func TestFigures(t *testing.T) {
	f := newFigures(t)
	programs := [2]string{program(t, "NFTPROXY_BIN"), program(t, "KUBE_PROXY_BIN")}
	c := newCluster(t)
	objects := c.newBulk(t, f)
	step(t, fmt.Sprintf("%d Services with %d endpoints are there", f.services, f.services*f.endpoints), func() {
		objects.create(t)
	})
	var results [2]result
	for i, name := range [2]string{nftProxy, kubeProxy} {
		// Each has a node, so that neither finds anything of the other.
		host := c.network.Host([2]string{testnet.Node1, testnet.Node2}[i])
		m := &measurement{
			c: c, figures: f, objects: objects, name: name, host: host,
			options: proxy.Options{
				Program: programs[i], Namespace: host.Namespace, Node: host.Name(), Kubeconfig: c.control.Kubeconfig(),
				Dir: t.TempDir(), LogDir: c.logs,
			},
		}
		step(t, name+" has been measured", func() { results[i] = m.run(t) })
	}
	printFigures(os.Stdout, f, results)
}

// result is what was measured of a proxy.
type result struct {
	binary    int64         // bytes
	healthy   time.Duration // from the start of the process until /healthz says so
	synced    time.Duration // until the last transaction of the first sync
	syncedCPU time.Duration // processor time until then
	afterSync memory
	changes   []change // those that were timed
	cpu       time.Duration
	commits   int           // transactions while they were timed
	load      string        // of the machine meanwhile, over a minute
	bulkCPU   time.Duration // processor time for the changes that were not timed
	afterAll  memory
}
