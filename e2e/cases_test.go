package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/controlplane"
	"github.com/nftproxy/nftproxy/e2e/internal/driver"
	"github.com/nftproxy/nftproxy/e2e/internal/proxy"
	"github.com/nftproxy/nftproxy/e2e/internal/scenario"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// The values of E2E_PROXY and E2E_DRIVER.
const (
	nftProxy  = "nftproxy"
	kubeProxy = "kube-proxy"
	bothPeers = "both"

	manifestsDriver = "manifests"
	apiDriver       = "api"
)

// casesConfig says which cases to run, and on what.
type casesConfig struct {
	cases   string // the folder
	driver  string
	proxy   string
	run     *regexp.Regexp // of the names
	shuffle uint64         // seed; 0 leaves the objects in order
}

// newCasesConfig reads the environment.
func newCasesConfig(t *testing.T) casesConfig {
	t.Helper()
	c := casesConfig{
		cases:  cmp.Or(os.Getenv("E2E_CASES"), "testdata/cases"),
		proxy:  cmp.Or(os.Getenv("E2E_PROXY"), nftProxy),
		driver: os.Getenv("E2E_DRIVER"),
	}
	if c.driver == "" {
		c.driver = manifestsDriver
		if c.proxy != nftProxy {
			c.driver = apiDriver
		}
	}
	switch {
	case c.driver != manifestsDriver && c.driver != apiDriver:
		t.Fatalf("E2E_DRIVER is %q: want %s or %s", c.driver, manifestsDriver, apiDriver)
	case c.proxy != nftProxy && c.proxy != kubeProxy && c.proxy != bothPeers:
		t.Fatalf("E2E_PROXY is %q: want %s, %s or %s", c.proxy, nftProxy, kubeProxy, bothPeers)
	case c.proxy != nftProxy && c.driver != apiDriver:
		t.Fatal("kube-proxy reads objects from an API server only: set E2E_DRIVER to api")
	}
	var err error
	if c.run, err = regexp.Compile(os.Getenv("E2E_RUN")); err != nil {
		t.Fatalf("E2E_RUN: %v", err)
	}
	if seed := os.Getenv("E2E_SHUFFLE"); seed != "" {
		if c.shuffle, err = strconv.ParseUint(seed, 10, 64); err != nil {
			t.Fatalf("E2E_SHUFFLE: %v", err)
		}
	}
	return c
}

// read reads the cases that are to be run.
func (c casesConfig) read(t *testing.T, hosts []string) []*scenario.Case {
	t.Helper()
	all, err := scenario.ReadFolder(c.cases, hosts)
	if err != nil {
		t.Fatal(err)
	}
	var chosen []*scenario.Case
	for _, one := range all {
		if c.run.MatchString(one.Name) {
			chosen = append(chosen, one)
		}
	}
	if len(chosen) == 0 {
		t.Fatalf("no case of %s matches %s", c.cases, c.run)
	}
	return chosen
}

// TestCases runs the scenario cases of a folder. It prints one line a case, and
// what they come to at the end; with both proxies, a table as well.
func TestCases(t *testing.T) {
	config := newCasesConfig(t)
	if config.proxy != bothPeers {
		config.runAll(t, config.proxy)
		return
	}
	var columns [2][]scenario.Outcome
	names := [2]string{nftProxy, kubeProxy}
	for i, name := range names {
		t.Run(name, func(t *testing.T) { columns[i] = config.runAll(t, name) })
	}
	if err := scenario.PrintTable(os.Stdout, names, columns); err != nil {
		t.Error(err)
	}
}

// runAll runs the cases against one proxy.
func (c casesConfig) runAll(t *testing.T, proxyName string) []scenario.Outcome {
	t.Helper()
	b := newBed(t, c, proxyName)
	cases := c.read(t, b.network.Names())
	order := "in the order of the files"
	if c.shuffle != 0 {
		order = fmt.Sprintf("shuffled (E2E_SHUFFLE=%d)", c.shuffle)
	}
	fmt.Printf("%d cases of %s, %s, driver %s, objects %s\n", len(cases), c.cases, proxyName, c.driver, order)
	begin := time.Now()
	var outcomes []scenario.Outcome
	for _, one := range cases {
		t.Run(one.Name, func(t *testing.T) {
			start := time.Now()
			err := b.runner.Run(t.Context(), one)
			o := scenario.Outcome{Case: one, Err: err, Took: time.Since(start)}
			outcomes = append(outcomes, o)
			if right, _ := o.Verdict(proxyName == kubeProxy); !right {
				t.Fail()
			}
			fmt.Println(o.Line(proxyName == kubeProxy))
		})
	}
	fmt.Printf("all in %.0fs\n", time.Since(begin).Seconds())
	fmt.Println(scenario.Totals(outcomes, proxyName == kubeProxy))
	return outcomes
}

// bed is what cases run on.
type bed struct {
	network *testnet.Network
	control *controlplane.ControlPlane // nil with manifests
	api     *driver.API                // nil with manifests
	proxy   *proxy.Proxy
	runner  *scenario.Runner
}

// newBed builds the network and starts what the driver needs. It is taken down
// at the end of the test; a proxy is started by the first case.
func newBed(t *testing.T, c casesConfig, proxyName string) *bed {
	t.Helper()
	b := &bed{}
	// Made before the clean-up is registered, these go after it.
	options := proxy.Options{Dir: t.TempDir(), LogDir: t.ArtifactDir()}
	var err error
	if b.network, err = testnet.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.takeDown(t) })
	node := b.network.Host(testnet.Node1)
	options.Namespace, options.Node = node.Namespace, node.Name()
	objects := b.startDriver(t, c.driver, &options)
	switch proxyName {
	case kubeProxy:
		options.Program = program(t, "KUBE_PROXY_BIN")
		b.proxy, err = proxy.NewKubeProxy(options)
	default:
		options.Program = program(t, "NFTPROXY_BIN")
		b.proxy = proxy.NewNFTProxy(options)
	}
	if err != nil {
		t.Fatal(err)
	}
	b.runner, err = scenario.NewRunner(t.Context(), scenario.Options{
		Network: b.network, Driver: objects, Proxy: b.proxy, Shuffle: c.shuffle,
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// startDriver starts what brings the objects to the proxy, and says so in the
// proxy's options.
func (b *bed) startDriver(t *testing.T, name string, options *proxy.Options) scenario.Driver {
	t.Helper()
	if name == manifestsDriver {
		options.Manifests = t.TempDir()
		return driver.NewManifests(options.Manifests)
	}
	host := b.network.Host(testnet.Control)
	var err error
	b.control, err = controlplane.Start(t.Context(), host.Namespace, controlplane.Options{
		Etcd: "etcd", APIServer: program(t, "KUBE_APISERVER_BIN"), Address: host.IPv4,
		Dir: t.TempDir(), LogDir: options.LogDir,
	})
	if err != nil {
		t.Fatal(err)
	}
	options.Kubeconfig = b.control.Kubeconfig()
	if b.api, err = driver.NewAPI(b.control.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	return b.api
}

// takeDown ends everything; after a failure it prints what the proxy said last.
func (b *bed) takeDown(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), stopLimit)
	defer cancel()
	var errs []error
	if b.runner != nil {
		errs = append(errs, b.runner.Close())
	}
	if b.proxy != nil {
		if t.Failed() {
			fmt.Fprintln(t.Output(), b.proxy.Tail(20))
		}
		errs = append(errs, b.proxy.Kill())
	}
	if b.api != nil {
		b.api.Close()
	}
	if b.control != nil {
		errs = append(errs, b.control.Stop(ctx))
	}
	errs = append(errs, b.network.Close())
	if err := errors.Join(errs...); err != nil {
		t.Errorf("take down what the cases ran on: %v", err)
	}
}
