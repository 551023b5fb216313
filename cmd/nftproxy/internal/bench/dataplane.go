package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/stats"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/terminal"
	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/traffic"
	"github.com/nftproxy/nftproxy/rules"
)

// DataplaneRounds is how many times the two ways are measured, in turn.
const DataplaneRounds = 40

// DataplaneResult is what `bench dataplane` has measured. The names of its fields in JSON
// are stable.
type DataplaneResult struct {
	Runs []*DataplaneRun `json:"runs"`
}

// DataplaneRun is what was measured of one proxy and one number of Services: new
// connections, one after the other in as many goroutines as there are CPUs, to the same
// listener by two ways.
type DataplaneRun struct {
	Name      string `json:"name"` // of the proxy
	Services  int    `json:"services"`
	Endpoints int    `json:"endpoints"`
	// Direct is to the endpoint, ClusterIP through its Service.
	Direct    Connections `json:"direct"`
	ClusterIP Connections `json:"cluster_ip"`
	// Relative is how many connections a second there are through the ClusterIP for one
	// that goes direct: the median of all rounds.
	Relative float64 `json:"relative"`
	Machine  Machine `json:"machine"`
}

// Connections are new ones, from the first packet to the answer.
type Connections struct {
	Count     int     `json:"count"`  // that were answered
	Failed    int     `json:"failed"` // not answered within a second
	PerSecond float64 `json:"per_second"`
	P50       float64 `json:"p50_us"`
	P99       float64 `json:"p99_us"`
}

// MeasureDataplane measures new connections through a proxy, with that many by each way.
// Changes do not matter.
func MeasureDataplane(ctx context.Context, opts ProxyOptions, connections int) (*DataplaneRun, error) {
	c := newComparison(opts)
	d := &dataplane{comparison: c}
	if err := c.measure(ctx, func(ctx context.Context) error { return d.run(ctx, connections) }); err != nil {
		return nil, err
	}
	return &DataplaneRun{
		Name: opts.Name, Services: c.result.Services, Endpoints: c.result.Endpoints, Machine: c.result.Machine,
		Direct: d.direct.summarize(), ClusterIP: d.clusterIP.summarize(), Relative: d.relative(),
	}, nil
}

// dataplane is a measurement that runs.
type dataplane struct {
	*comparison
	direct, clusterIP way
}

// way is one of the two ways to the listener.
type way struct {
	from, to  netip.AddrPort
	latencies []time.Duration
	failed    int
	elapsed   time.Duration
	rates     []float64 // connections a second, by round
}

// newWay returns a way to an address from an address of its own, the n-th: the connections
// of the two ways must not be in each other's way in conntrack. It is one of a pod's, since
// others are masqueraded.
func (d *dataplane) newWay(n int, to netip.AddrPort) (way, error) {
	from := nth(podAddrs(rules.IPv4), 2*maxEndpoints+len(d.probe.endpoints)+n)
	return way{from: netip.AddrPortFrom(from, 0), to: to}, traffic.AddAddr(d.opts.Link, from)
}

func (d *dataplane) run(ctx context.Context, connections int) error {
	d.progress.Begin(d.opts.Name + ": new connections")
	var directErr, clusterErr error
	d.direct, directErr = d.newWay(0, d.probe.endpoints[0])
	d.clusterIP, clusterErr = d.newWay(1, d.probe.frontend)
	if err := errors.Join(directErr, clusterErr); err != nil {
		return err
	}
	for round := range DataplaneRounds {
		ways := []*way{&d.direct, &d.clusterIP}
		if round%2 == 1 {
			slices.Reverse(ways)
		}
		for _, w := range ways {
			if err := w.measure(ctx, connections/DataplaneRounds); err != nil {
				return err
			}
		}
		if err := d.process.check(ctx); err != nil {
			return err
		}
		d.progress.Update(fmt.Sprintf("round %d of %d", round+1, DataplaneRounds))
	}
	d.progress.End(fmt.Sprintf("%s a second direct, %s through the ClusterIP",
		terminal.Thousands(int(d.direct.summarize().PerSecond)), terminal.Thousands(int(d.clusterIP.summarize().PerSecond))))
	return nil
}

// relative returns the median of the rates of all rounds.
func (d *dataplane) relative() float64 {
	all := make([]float64, len(d.clusterIP.rates))
	for i, rate := range d.clusterIP.rates {
		all[i] = rate / d.direct.rates[i]
	}
	slices.Sort(all)
	return math.Round(stats.Percentile(all, 50)*1e4) / 1e4
}

// measure makes connections. It is an error if none succeeds.
func (w *way) measure(ctx context.Context, connections int) error {
	var next atomic.Int64
	var mu sync.Mutex
	var lastErr error
	var workers sync.WaitGroup
	began, before := time.Now(), len(w.latencies)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			var latencies []time.Duration
			var failed int
			var err error
			for next.Add(1) <= int64(connections) && ctx.Err() == nil {
				start := time.Now()
				if connectErr := w.connect(ctx); connectErr != nil {
					failed, err = failed+1, connectErr
					continue
				}
				latencies = append(latencies, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			w.latencies, w.failed = append(w.latencies, latencies...), w.failed+failed
			if err != nil {
				lastErr = err
			}
		})
	}
	workers.Wait()
	if ctx.Err() != nil {
		return ctx.Err() //nolint:wrapcheck // says it all
	}
	succeeded := len(w.latencies) - before
	if succeeded == 0 {
		return fmt.Errorf("no connection succeeds: %w", lastErr)
	}
	elapsed := time.Since(began)
	w.elapsed += elapsed
	w.rates = append(w.rates, float64(succeeded)/elapsed.Seconds())
	return nil
}

// connect makes a connection and reads the answer.
func (w *way) connect(ctx context.Context) error {
	dialer := net.Dialer{
		Timeout: probeTimeout, KeepAlive: -1, LocalAddr: net.TCPAddrFromAddrPort(w.from),
		Control: func(_, _ string, raw syscall.RawConn) error {
			var optErr error
			// The port is chosen when it connects, as without an address.
			err := raw.Control(func(fd uintptr) {
				optErr = unix.SetsockoptInt(int(fd), unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
			})
			return errors.Join(err, optErr)
		},
	}
	conn, err := dialer.DialContext(ctx, "tcp", w.to.String())
	if err != nil {
		return err //nolint:wrapcheck // says what was dialled
	}
	defer func() { _ = conn.Close() }() // all that matters was read
	_, err = traffic.ReadAnswer(conn, make([]byte, 1), time.Now().Add(probeTimeout))
	return err //nolint:wrapcheck // says it all
}

func (w *way) summarize() Connections {
	slices.Sort(w.latencies)
	return Connections{
		Count: len(w.latencies), Failed: w.failed, PerSecond: math.Round(float64(len(w.latencies)) / max(w.elapsed.Seconds(), 1e-9)),
		P50: microseconds(stats.Percentile(w.latencies, 50)), P99: microseconds(stats.Percentile(w.latencies, 99)),
	}
}
