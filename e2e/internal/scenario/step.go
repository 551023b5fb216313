package scenario

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/probe"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// Datagrams go out from ports of this range, each time another one: where the
// kernel sends the datagrams of a flow that it remembers is not the rules' choice.
const (
	firstPort = 10_000
	ports     = 20_000 // up to NodePorts and the ephemeral ones
)

// While a step has yet to take effect, a probe waits less than a full second
// for silence to end: what is judged is sent again, and then waits its time.
const (
	pollLimit    = 100 * time.Millisecond
	silenceLimit = 300 * time.Millisecond // when silence is what is hoped for
)

// run is a case that is being run.
type run struct {
	*Runner
	c       *Case
	shuffle shuffler
	taken   map[uint16]bool // ports that are in use for something else
}

// step makes a step's change, under its load, and probes.
func (r *run) step(ctx context.Context, s Step) (err error) {
	if s.Load != nil {
		from := r.Network.Host(s.Load.From).Namespace
		load := probe.StartLoad(ctx, from, probe.Request{To: s.Load.To, SourcePort: s.Load.SourcePort}, loadPause)
		defer func() {
			results, loadErr := load.Stop()
			err = errors.Join(err, r.judgeLoad(*s.Load, results, loadErr))
		}()
	}
	if err := r.changeProxy(ctx, s); err != nil {
		return err
	}
	if err := r.changeObjects(ctx, s); err != nil {
		return err
	}
	return r.probe(ctx, s)
}

func (r *run) judgeLoad(load Probe, results []probe.Result, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("load from %w", err)
	case len(results) == 0:
		return fmt.Errorf("load from %s: no connection was made", load)
	}
	if err := load.Expect.Judge(results, r.nodeAddresses()); err != nil {
		return fmt.Errorf("load from %w", mismatch(load, results, err))
	}
	return nil
}

// changeProxy stops or restarts the proxy, and runs the step's command.
func (r *run) changeProxy(ctx context.Context, s Step) error {
	if s.Stop {
		if err := r.stopProxy(ctx); err != nil {
			return fmt.Errorf("stop the proxy: %w", err)
		}
	}
	if s.Restart {
		if err := r.restartProxy(ctx, r.c.Config); err != nil {
			return fmt.Errorf("restart the proxy: %w", err)
		}
	}
	if s.Exec == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, execLimit)
	defer cancel()
	_, err := r.Network.Host(s.Exec.On).Command(ctx, "", "sh", "-c", s.Exec.Run)
	return err
}

// changeObjects deletes and applies the step's objects.
func (r *run) changeObjects(ctx context.Context, s Step) error {
	for _, key := range r.shuffle.keys(s.Delete) {
		if err := r.world.delete(ctx, key); err != nil {
			return err
		}
	}
	for _, o := range r.shuffle.objects(s.Apply) {
		if err := r.world.apply(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// probe repeats the step's first probe until it shows what it should or the
// time to settle is over; then it makes every probe once. In between it lets the
// proxy catch up: a first probe may also be right because nothing has happened.
func (r *run) probe(ctx context.Context, s Step) error {
	if len(s.Probes) == 0 {
		return nil
	}
	deadline := time.Now().Add(s.Settle)
	limit := pollLimit
	if s.Probes[0].Expect.Result == probe.Dropped {
		limit = silenceLimit
	}
	for r.attempt(ctx, s.Probes[0], limit) != nil && time.Now().Before(deadline) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollPause):
		}
	}
	if err := r.catchUp(ctx, s.Settle); err != nil {
		return err
	}
	var errs []error
	for i, p := range s.Probes {
		if err := r.attempt(ctx, p, probe.Limit); err != nil {
			errs = append(errs, fmt.Errorf("probe %d from %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

// catchUp waits until a running proxy has seen all changes. It may fail to do so
// in time; whether that matters, the probes tell.
func (r *run) catchUp(ctx context.Context, limit time.Duration) error {
	if r.config == "" {
		return nil
	}
	if err := r.canary.change(ctx); err != nil {
		return err
	}
	if err := r.canary.wait(ctx, r.Proxy.Ended(), limit); err != nil && !errors.Is(err, errLate) {
		return err
	}
	return nil
}

// attempt makes a probe, all its connections, and judges it; each connection
// waits for so long at most. The first one that is wrong on its own is the last.
func (r *run) attempt(ctx context.Context, p Probe, limit time.Duration) error {
	from := r.Network.Host(p.From)
	var results []probe.Result
	for range p.Count {
		request := probe.Request{To: p.To, SourcePort: p.SourcePort, Limit: limit}
		if request.SourcePort == 0 && p.To.Protocol == probe.UDP {
			request.SourcePort = r.newFlow()
		}
		result, err := probe.Send(ctx, from.Namespace, request)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		results = append(results, result)
		if p.Expect.judgeOne(result, r.nodeAddresses()) != nil {
			break
		}
	}
	if err := p.Expect.Judge(results, r.nodeAddresses()); err != nil {
		return mismatch(p, results, err)
	}
	return nil
}

// newFlow returns a source port for a new flow of datagrams.
func (r *run) newFlow() uint16 {
	for {
		r.flows++
		port := uint16(firstPort + r.flows%ports)
		if !r.taken[port] {
			return port
		}
	}
}

// nodeAddresses returns the addresses that count as node1's.
func (r *run) nodeAddresses() []netip.Addr { return r.Network.Host(testnet.Node1).Addresses() }
