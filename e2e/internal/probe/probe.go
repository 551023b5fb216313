// Package probe sends packets to addresses of the test network and tells what
// became of them: a server answers every connection and datagram with its own
// address and the source that it saw, and a probe reads that answer, or finds
// that the packet was refused or dropped.
package probe

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
)

// Limit is how long a probe waits by default.
const Limit = time.Second

// Protocol is what a probe is sent over.
type Protocol string

// The protocols.
const (
	TCP Protocol = "tcp"
	UDP Protocol = "udp"
)

// Target is where a probe is sent.
type Target struct {
	Protocol Protocol
	Address  netip.AddrPort
}

// ParseTarget reads a target such as tcp://203.0.113.10:80 or
// udp://[fd00:10:96::10]:53.
func ParseTarget(s string) (Target, error) {
	protocol, rest, _ := strings.Cut(s, "://")
	address, err := netip.ParseAddrPort(rest)
	if err != nil {
		return Target{}, fmt.Errorf("target %q: %w", s, err)
	}
	switch p := Protocol(protocol); p {
	case TCP, UDP:
		return Target{Protocol: p, Address: address}, nil
	default:
		return Target{}, fmt.Errorf("target %q: protocol is neither tcp nor udp", s)
	}
}

// String is the form that ParseTarget reads.
func (t Target) String() string { return string(t.Protocol) + "://" + t.Address.String() }

// Request says what to send.
type Request struct {
	To Target
	// SourcePort is the client's port; 0 leaves it to the kernel.
	SourcePort uint16
	// Limit is how long to wait for an answer; 0 means Limit.
	Limit time.Duration
}

// Outcome is what became of a probe.
type Outcome int

// The outcomes.
const (
	OK      Outcome = iota + 1 // an endpoint answered
	Refused                    // a TCP reset or an ICMP error came back
	Dropped                    // nothing came back
)

// String is the outcome as the case files write it.
func (o Outcome) String() string {
	switch o {
	case OK:
		return "ok"
	case Refused:
		return "refused"
	case Dropped:
		return "dropped"
	default:
		return fmt.Sprintf("Outcome(%d)", int(o))
	}
}

// Result is what became of a probe, and what it showed.
type Result struct {
	Outcome Outcome
	// Endpoint and Source are the answer, if there was one: who answered, and
	// where the question came from in its eyes.
	Endpoint, Source netip.AddrPort
	// Local is the client's own address and port.
	Local netip.AddrPort
	// Reason says how a probe was refused or dropped.
	Reason string
}

// SourceKept tells whether the endpoint saw the client's own address.
func (r Result) SourceKept() bool {
	return r.Outcome == OK && r.Source.Addr() == r.Local.Addr()
}

// String is the result in one line.
func (r Result) String() string {
	if r.Outcome == OK {
		return fmt.Sprintf("ok from %s, which saw %s as %s", r.Endpoint, r.Local.Addr(), r.Source.Addr())
	}
	return fmt.Sprintf("%s (%s)", r.Outcome, r.Reason)
}

// Send sends a probe from a namespace and waits for what becomes of it. An
// error means that the probe could not be made, not that it was refused.
func Send(ctx context.Context, from *namespace.Namespace, request Request) (Result, error) {
	limit := request.Limit
	if limit == 0 {
		limit = Limit
	}
	var result Result
	err := from.Do(func() error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		// It begins here, for a busy machine may take its time to come here.
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		var err error
		result, err = send(limited, request)
		return err
	})
	if err != nil {
		return Result{}, fmt.Errorf("probe %s from %s: %w", request.To, from.Name(), err)
	}
	return result, nil
}

// Repeat sends a probe several times, one after the other.
func Repeat(ctx context.Context, from *namespace.Namespace, request Request, count int) ([]Result, error) {
	results := make([]Result, 0, count)
	for range count {
		result, err := Send(ctx, from, request)
		if err != nil {
			return results, err
		}
		results = append(results, result)
	}
	return results, nil
}

// Load sends a probe again and again in the background.
type Load struct {
	cancel  context.CancelFunc
	work    sync.WaitGroup
	results []Result // the goroutine's until work is done, like err
	err     error
}

// StartLoad begins to send a probe, and again some time after each answer. The
// caller stops it.
func StartLoad(ctx context.Context, from *namespace.Namespace, request Request, pause time.Duration) *Load {
	ctx, cancel := context.WithCancel(ctx)
	load := &Load{cancel: cancel}
	load.work.Go(func() { load.run(ctx, from, request, pause) })
	return load
}

func (l *Load) run(ctx context.Context, from *namespace.Namespace, request Request, pause time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		// A probe that has begun is finished: Stop must not make it fail.
		result, err := Send(context.WithoutCancel(ctx), from, request)
		if err != nil {
			l.err = err
			return
		}
		l.results = append(l.results, result)
		timer.Reset(pause)
	}
}

// Stop ends the load and returns the results of all its probes.
func (l *Load) Stop() ([]Result, error) {
	l.cancel()
	l.work.Wait()
	return l.results, l.err
}
