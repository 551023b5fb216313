package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/e2e/internal/probe"
	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

const (
	// pollPause is between two looks at something that has yet to come true.
	pollPause = 10 * time.Millisecond
	// loadPause is between two connections of a load.
	loadPause = 5 * time.Millisecond
	// execLimit is how long a command of a case may take.
	execLimit = 30 * time.Second
	// restoreLimit is how long it may take to put everything back.
	restoreLimit = time.Minute
)

var errEnded = errors.New("the proxy has ended by itself")

// Proxy is the program under test, on node1.
type Proxy interface {
	// Start starts it with fields of a KubeProxyConfiguration changed.
	Start(ctx context.Context, config map[string]any) error
	// Stop asks it to end and waits for that. One that does not run is no error.
	Stop(ctx context.Context) error
	// Ended is closed when a started program has ended.
	Ended() <-chan struct{}
}

// Options say what to run cases on.
type Options struct {
	Network *testnet.Network
	Driver  Driver
	Proxy   Proxy
	// Shuffle is the seed of the order in which the objects of a step arrive; 0
	// leaves them in the order of the file.
	Shuffle uint64
}

// Runner runs cases, one after the other, on one network with one proxy. Its
// methods are for one goroutine.
type Runner struct {
	Options
	world  *world
	canary *canary
	// config is that of the running proxy, as JSON; empty while none runs.
	config string
	flows  int // of datagrams, so far
}

// NewRunner creates the objects that every case finds. The caller closes the
// runner, and then stops the proxy and what else it gave.
func NewRunner(ctx context.Context, options Options) (*Runner, error) {
	base, err := baseObjects(options.Network)
	if err != nil {
		return nil, err
	}
	w, err := newWorld(ctx, options.Driver, base)
	if err != nil {
		return nil, err
	}
	c, err := newCanary(ctx, options.Driver, options.Network)
	if err != nil {
		return nil, errors.Join(err, c.close())
	}
	return &Runner{Options: options, world: w, canary: c}, nil
}

// Close ends what the runner itself runs.
func (r *Runner) Close() error { return r.canary.close() }

// Run runs a case and puts everything back. The error says what was not as the
// case has it.
func (r *Runner) Run(ctx context.Context, c *Case) (err error) {
	servers, err := r.serve(c)
	defer func() {
		for _, server := range servers {
			err = errors.Join(err, server.Close())
		}
	}()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.restore(ctx, c)) }()
	if err := r.ensureProxy(ctx, c.Config); err != nil {
		return err
	}
	current := &run{Runner: r, c: c, shuffle: newShuffler(r.Shuffle, c.Name), taken: c.fixedPorts()}
	for _, server := range servers {
		current.taken[server.Address().Port()] = true
	}
	for i, step := range c.Steps {
		if err := current.step(ctx, step); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
	}
	return nil
}

// serve starts a server behind every endpoint of a case that a host has.
func (r *Runner) serve(c *Case) ([]*probe.Server, error) {
	endpoints, err := c.endpoints()
	if err != nil {
		return nil, err
	}
	var servers []*probe.Server
	for _, endpoint := range endpoints {
		host := r.Network.Owner(endpoint.Addr())
		if host == nil {
			continue
		}
		server, err := probe.Serve(host.Namespace, endpoint)
		if err != nil {
			return servers, err
		}
		servers = append(servers, server)
	}
	return servers, nil
}

// ensureProxy makes the proxy run with a configuration and serve what there is.
func (r *Runner) ensureProxy(ctx context.Context, config map[string]any) error {
	encoded, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	if r.config == string(encoded) {
		return r.proxyRuns()
	}
	return r.restartProxy(ctx, config)
}

// restartProxy stops the proxy if it runs, starts it, and waits until it serves.
func (r *Runner) restartProxy(ctx context.Context, config map[string]any) error {
	if err := r.stopProxy(ctx); err != nil {
		return err
	}
	encoded, err := json.Marshal(config)
	if err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	if err := r.canary.change(ctx); err != nil {
		return err
	}
	if err := r.Proxy.Start(ctx, config); err != nil {
		return err
	}
	r.config = string(encoded)
	return r.canary.wait(ctx, r.Proxy.Ended(), serveLimit)
}

func (r *Runner) stopProxy(ctx context.Context) error {
	r.config = ""
	return r.Proxy.Stop(ctx)
}

// proxyRuns is an error when a proxy that should run does not.
func (r *Runner) proxyRuns() error {
	if r.config == "" {
		return nil
	}
	select {
	case <-r.Proxy.Ended():
		return errEnded
	default:
		return nil
	}
}

// restore puts everything back after a case: objects and Nodes, the proxy if it
// does not run or the case may have broken what it relies on, and node1's
// conntrack entries. It goes on after an error, and after the case's own time.
func (r *Runner) restore(ctx context.Context, c *Case) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreLimit)
	defer cancel()
	errs := []error{r.proxyRuns()}
	if errs[0] != nil || c.breaksNode() {
		errs = append(errs, r.stopProxy(ctx))
	}
	errs = append(errs, r.world.putBack(ctx))
	switch {
	case r.config == "" && errs[0] != nil && len(c.Config) > 0:
		// It does not bear this configuration; the next case starts another.
	case r.config == "":
		errs = append(errs, r.restartProxy(ctx, nil))
	default:
		errs = append(errs, r.canary.change(ctx), r.canary.wait(ctx, r.Proxy.Ended(), serveLimit))
	}
	errs = append(errs, r.flushConntrack())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("put everything back: %w", err)
	}
	return nil
}

// breaksNode tells whether a command of the case ran on node1.
func (c *Case) breaksNode() bool {
	for _, step := range c.Steps {
		if step.Exec != nil && step.Exec.On == testnet.Node1 {
			return true
		}
	}
	return false
}

// flushConntrack makes node1 forget all flows.
func (r *Runner) flushConntrack() error {
	err := r.Network.Host(testnet.Node1).Do(func() error {
		return netlink.ConntrackTableFlush(netlink.ConntrackTable)
	})
	if err != nil {
		return fmt.Errorf("flush conntrack: %w", err)
	}
	return nil
}
