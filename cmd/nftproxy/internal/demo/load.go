package demo

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/traffic"
)

// giveUp is after how many failures there is no point in going on.
const giveUp = 16

// spread makes that many connections, to each target the same number, and returns a
// tally for each. It counts them in done and failed as it goes on, and gives up when too many fail.
func spread(ctx context.Context, clients []client, targets []target, connections int, done, failed *atomic.Int64) ([]tally, error) {
	var next atomic.Int64
	counted := make([][]tally, len(clients))
	group, ctx := errgroup.WithContext(ctx)
	for i, c := range clients {
		counted[i] = make([]tally, len(targets))
		group.Go(func() error {
			for n := int(next.Add(1)); n <= connections && failed.Load() < giveUp; n = int(next.Add(1)) {
				which := n % len(targets)
				began := time.Now()
				answer, err := c.connect(ctx, targets[which])
				if ctx.Err() != nil {
					return ctx.Err() //nolint:wrapcheck // says it all
				}
				counted[i][which].note(answer, time.Since(began), err)
				if err != nil {
					failed.Add(1)
				}
				done.Add(1)
			}
			return nil
		})
	}
	err := group.Wait()
	sums := make([]tally, len(targets))
	for _, tallies := range counted {
		for i, t := range tallies {
			sums[i].add(t)
		}
	}
	return sums, err //nolint:wrapcheck // says it all
}

// load connects again and again in the background.
type load struct {
	made, failed atomic.Int64
	clients      []*loadClient
	end          context.CancelFunc
	running      sync.WaitGroup
}

// loadClient is a client of a load. turns is odd while a connection is under way.
type loadClient struct {
	client
	turns atomic.Uint64
	tally tally // its goroutine's own, until that has ended
}

// startLoad lets each client connect to the targets, one after the other, with a
// pause in between. The caller stops it.
func startLoad(ctx context.Context, clients []client, targets []target, pause time.Duration) *load {
	untilStop, end := context.WithCancel(ctx)
	l := &load{end: end}
	for i, c := range clients {
		lc := &loadClient{client: c}
		l.clients = append(l.clients, lc)
		l.running.Go(func() {
			for n := i; traffic.Pause(untilStop, pause) == nil; n++ {
				l.connect(ctx, lc, targets[n%len(targets)])
			}
		})
	}
	return l
}

// connect makes a connection, which the end of the load does not interrupt.
func (l *load) connect(ctx context.Context, c *loadClient, t target) {
	c.turns.Add(1)
	defer c.turns.Add(1)
	began := time.Now()
	answer, err := c.connect(ctx, t)
	if ctx.Err() != nil {
		return
	}
	c.tally.note(answer, time.Since(began), err)
	l.made.Add(1)
	if err != nil {
		l.failed.Add(1)
	}
}

// settle waits until all connections that have begun before are done.
func (l *load) settle(ctx context.Context) error {
	for _, c := range l.clients {
		turn := c.turns.Load()
		for turn%2 == 1 && c.turns.Load() == turn {
			if err := traffic.Pause(ctx, time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// stop ends the load and returns what was counted.
func (l *load) stop() tally {
	l.end()
	l.running.Wait()
	var sum tally
	for _, c := range l.clients {
		sum.add(c.tally)
		c.tally = tally{}
	}
	return sum
}
