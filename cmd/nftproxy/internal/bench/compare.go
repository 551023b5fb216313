package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/bench/apiserver"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/stats"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/terminal"
)

const (
	// How long a proxy may take for its first sync, and for a change.
	firstSyncTimeout = 20 * time.Minute
	changeTimeout    = 2 * time.Minute
	// How long nothing happens until a proxy is done with its first sync, and with a
	// change.
	quietAfterSync   = 2 * time.Second
	quietAfterChange = 50 * time.Millisecond
	// notificationTime is how much later than its effect a notification may come.
	notificationTime = 100 * time.Millisecond
	// comparePhases is how many phases there are to tell of.
	comparePhases = 2
	// logLines is how much of the output of a proxy that failed is shown.
	logLines = 10
)

// ProxyOptions are what is measured by MeasureProxy.
type ProxyOptions struct {
	Spec Spec
	// Changes is how many times the endpoint of a Service is replaced by another one.
	Changes int
	// Name is what the proxy is called, Command how it is started, with {config} for the
	// path of a KubeProxyConfiguration or {kubeconfig}, and Mode the one in the former.
	Name, Command, Mode string
	// Link is the loopback interface of this process's private network namespace.
	Link     netlink.Link
	Version  string // of nftproxy
	Progress io.Writer
}

// MeasureProxy measures a proxy from outside, as a process in the private network
// namespace of this one.
func MeasureProxy(ctx context.Context, opts ProxyOptions) (*ProxyResult, error) {
	c := newComparison(opts)
	if err := c.measure(ctx, c.changes); err != nil {
		return nil, err
	}
	return c.result, nil
}

func newComparison(opts ProxyOptions) *comparison {
	return &comparison{
		opts: opts, server: apiserver.New(), progress: terminal.NewProgress(opts.Progress, comparePhases),
		result: &ProxyResult{Name: opts.Name, Command: opts.Command, Machine: ThisMachine(opts.Version)},
	}
}

// measure calls what measures once the proxy has done its first sync, and is idle.
func (c *comparison) measure(ctx context.Context, what func(context.Context) error) (err error) {
	if c.folder, err = os.MkdirTemp("", "nftproxy-bench-*"); err != nil {
		return fmt.Errorf("make a folder for the proxy: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(c.folder)) }()
	if c.probe, err = newProbe(ctx, c.opts.Link); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.probe.close()) }()
	if c.generations, err = watchGenerations(); err != nil {
		return err
	}
	if err := c.run(ctx, what); err != nil {
		c.progress.Stop()
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return fmt.Errorf("measure %s: %w", c.opts.Name, err)
	}
	return nil
}

// comparison is a measurement of a proxy that runs.
type comparison struct {
	opts        ProxyOptions
	folder      string
	server      *apiserver.Server
	probe       *probe
	generations *generations
	progress    *terminal.Progress
	process     *process
	result      *ProxyResult
}

// run measures while the API server runs and notifications are received.
func (c *comparison) run(ctx context.Context, what func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	untilMeasured, end := context.WithCancel(ctx)
	group.Go(func() error { return c.generations.run(untilMeasured) })
	group.Go(func() error {
		defer end()
		var listen net.ListenConfig
		l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("start the API server: %w", err)
		}
		group.Go(func() error { return c.server.Serve(untilMeasured, l) })
		return c.withProxy(ctx, "http://"+l.Addr().String(), what)
	})
	return group.Wait() //nolint:wrapcheck // says it all
}

// withProxy measures while the proxy runs. Its error ends with the proxy's last words.
func (c *comparison) withProxy(ctx context.Context, server string, what func(context.Context) error) (err error) {
	if err := c.load(); err != nil {
		return err
	}
	files, err := writeProxyFiles(c.folder, server, c.opts.Mode)
	if err != nil {
		return err
	}
	path := filepath.Join(c.folder, "log")
	log, err := os.Create(path) //nolint:gosec // in a folder of ours
	if err != nil {
		return fmt.Errorf("make a file for the output of the proxy: %w", err)
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	c.progress.Begin(c.opts.Name + ": first sync")
	began := time.Now()
	if c.process, err = startProcess(files.command(c.opts.Command), log); err != nil {
		return err
	}
	defer c.process.stop()
	err = c.firstSync(ctx, began)
	if err == nil {
		err = what(ctx)
	}
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w; %s", err, lastLines(path))
	}
	return err
}

// lastLines says what the output of a proxy ends with.
func lastLines(path string) string {
	text, err := os.ReadFile(path) //nolint:gosec // in a folder of ours
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if lines[0] == "" {
		return "it has printed nothing"
	}
	return "its output ends with:\n" + strings.Join(lines[max(0, len(lines)-logLines):], "\n")
}

// load fills the API server.
func (c *comparison) load() error {
	cluster := NewCluster(c.opts.Spec)
	c.result.Services, c.result.Endpoints = cluster.Services(), cluster.Endpoints()
	cidr := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes", CreationTimestamp: created()}}
	for _, f := range c.opts.Spec.Families {
		cidr.Spec.CIDRs = append(cidr.Spec.CIDRs, clusterIPs(f).String())
	}
	var errs []error
	put := func(o runtime.Object) { errs = append(errs, c.server.Put(o)) }
	put(cidr)
	put(cluster.Node())
	cluster.All(func(o Object) {
		if o.Service != nil {
			put(o.Service)
		} else {
			put(o.Slice)
		}
	})
	put(c.probe.service)
	put(c.probe.slice(0))
	return errors.Join(errs...)
}

func (c *comparison) firstSync(ctx context.Context, began time.Time) error {
	answered, err := c.probe.await(ctx, 0, firstSyncTimeout, func() error { return c.process.check(ctx) })
	if err != nil {
		return err
	}
	c.result.FirstSync = seconds(answered.Sub(began))
	if err := c.idle(ctx); err != nil {
		return err
	}
	used, err := c.process.cpu()
	if err != nil {
		return err
	}
	c.result.FirstSyncCPU = seconds(used.total())
	c.progress.End(fmt.Sprintf("the first connection after %.3f s, %.2f s of CPU", c.result.FirstSync, c.result.FirstSyncCPU))
	return nil
}

// idle waits until the proxy has nothing to do any more.
func (c *comparison) idle(ctx context.Context) error {
	const fewTicks = 5 // of 10 ms: what a process that waits takes
	for {
		before, err := c.process.cpu()
		if err != nil {
			return err
		}
		if err := c.generations.quiet(ctx, quietAfterSync); err != nil {
			return err
		}
		after, err := c.process.cpu()
		if err != nil || after.sub(before).total() <= fewTicks*time.Second/clockTicks {
			return err
		}
	}
}

// changes replaces the endpoint of the probe's Service, again and again.
func (c *comparison) changes(ctx context.Context) error {
	c.progress.Begin(c.opts.Name + ": " + terminal.Thousands(c.opts.Changes) + " changes")
	before, err := c.process.cpu()
	if err != nil {
		return err
	}
	var ofNFTables, ofPacket []time.Duration
	for i := range c.opts.Changes {
		began := time.Now()
		if err := c.server.Put(c.probe.slice((i + 1) % 2)); err != nil {
			return err //nolint:wrapcheck // says it all
		}
		answered, err := c.probe.await(ctx, (i+1)%2, changeTimeout, func() error { return c.process.check(ctx) })
		if err != nil {
			return err
		}
		ofPacket = append(ofPacket, answered.Sub(began))
		if at, ok := c.generation(began); ok {
			ofNFTables = append(ofNFTables, at.Sub(began))
		}
		if err := c.generations.quiet(ctx, quietAfterChange); err != nil {
			return err
		}
		c.progress.Update(terminal.Thousands(i+1) + " done")
	}
	after, err := c.process.cpu()
	if err != nil {
		return err
	}
	if c.result.RSS, err = c.process.memory(); err != nil {
		return err
	}
	used := after.sub(before)
	c.result.CPU, c.result.CPUUser, c.result.CPUKernel = seconds(used.total()), seconds(used.user), seconds(used.kernel)
	c.result.NFTables, c.result.Packet = newLatencies(ofNFTables), newLatencies(ofPacket)
	c.progress.End(fmt.Sprintf("%s at the median, %.2f s of CPU", micro(c.result.Packet.P50), c.result.CPU))
	return nil
}

// generation returns when the first generation of nftables since a time was made, whose
// effect has been seen; ok is false if the proxy uses no nftables. In another mode than
// that, iptables may be a program that uses them: its first generation of several does not
// mean that anything is in force.
func (c *comparison) generation(since time.Time) (at time.Time, ok bool) {
	if c.opts.Mode != ModeNFTables {
		return time.Time{}, false
	}
	at, came := c.generations.after(since)
	if at.IsZero() {
		select {
		case <-came:
			at, _ = c.generations.after(since)
		case <-time.After(notificationTime):
		}
	}
	return at, !at.IsZero()
}

func newLatencies(all []time.Duration) Latencies {
	slices.Sort(all)
	l := Latencies{
		Count: len(all), P50: microseconds(stats.Percentile(all, 50)), P90: microseconds(stats.Percentile(all, 90)),
		P99: microseconds(stats.Percentile(all, 99)), Max: microseconds(stats.Percentile(all, 100)), All: make([]float64, 0, len(all)),
	}
	for _, d := range all {
		l.All = append(l.All, microseconds(d))
	}
	return l
}

// NewCompareResult puts together what was measured of several proxies for the same Spec.
func NewCompareResult(spec Spec, proxies []*ProxyResult) *CompareResult {
	r := &CompareResult{Shape: spec.Shape, Seed: spec.Seed, Proxies: proxies}
	if len(proxies) > 0 {
		r.Services, r.Endpoints, r.Machine = proxies[0].Services, proxies[0].Endpoints, proxies[0].Machine
	}
	return r
}
