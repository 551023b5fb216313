package syncer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
)

// fakeClients are maps of clients that go wrong on request. They belong to one goroutine
// at a time: the one of Run, and the test's while that waits.
type fakeClients struct {
	maps     map[string]map[netip.Addr]netip.AddrPort // by the name of the map
	openErr  error
	faults   []error // of the next dumps; nil: none
	refusals []error // of the next deletions; nil: none
	dumping  func()  // called before each dump
	visited  func()  // called after the last client of each dump that does not fail
	dumped   []time.Time
	deleted  []int // how many by each deletion
	slowness time.Duration
	open     bool
}

func (t *fakeClients) newAffinity(report func(error)) *Affinity {
	return newAffinity(func() (clientTable, error) {
		if t.open {
			return nil, errors.New("it is open")
		}
		if t.openErr != nil {
			return nil, t.openErr
		}
		t.open = true
		return t, nil
	}, report)
}

// nextFault takes the next of some faults.
func nextFault(faults *[]error) (fault error) {
	if len(*faults) > 0 {
		fault, *faults = (*faults)[0], (*faults)[1:]
	}
	return fault
}

func (t *fakeClients) dump(ctx context.Context, name familyName, visit func(r remembered) error) error {
	t.dumped = append(t.dumped, time.Now())
	time.Sleep(t.slowness)
	if t.dumping != nil {
		t.dumping()
	}
	clients, ok := t.maps[name.name]
	if !ok {
		return fmt.Errorf("no such map: %w", unix.ENOENT)
	}
	fault := nextFault(&t.faults)
	for _, c := range slices.SortedFunc(maps.Keys(clients), netip.Addr.Compare) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if fault != nil {
			return fault
		}
		if err := visit(remembered{c, clients[c]}); err != nil {
			return err
		}
	}
	if t.visited != nil {
		t.visited()
	}
	return fault
}

func (t *fakeClients) forget(_ context.Context, name familyName, clients []netip.Addr) error {
	if err := nextFault(&t.refusals); err != nil {
		return err
	}
	for _, c := range clients {
		if _, ok := t.maps[name.name][c]; !ok {
			return unix.ENOENT
		}
	}
	for _, c := range clients {
		delete(t.maps[name.name], c)
	}
	t.deleted = append(t.deleted, len(clients))
	return nil
}

func (t *fakeClients) close() error {
	t.open = false
	return nil
}

// client and endpoint make up addresses.
func client(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}) }

func endpoint(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 0, byte(n)}), 8080)
}

// remember makes a map in which the n-th client is remembered with the n-th endpoint of
// a list.
func (t *fakeClients) remember(name string, endpoints ...int) {
	clients := map[netip.Addr]netip.AddrPort{}
	for i, e := range endpoints {
		clients[client(i)] = endpoint(e)
	}
	t.maps[name] = clients
}

// remembered returns the endpoints with which a map remembers clients, one after the
// other.
func (t *fakeClients) remembered(name string) (endpoints []int) {
	clients := t.maps[name]
	for _, c := range slices.SortedFunc(maps.Keys(clients), netip.Addr.Compare) {
		endpoints = append(endpoints, int(clients[c].Addr().As4()[3]))
	}
	return endpoints
}

// inUse is a table with these endpoints in use, of which some went.
func inUse(name string, endpoints ...int) rules.AffinityTable {
	t := rules.AffinityTable{Family: rules.IPv4, Map: name, Stale: true}
	for _, e := range endpoints {
		t.Endpoints = append(t.Endpoints, endpoint(e))
	}
	return t
}

// grown is the table "web" with these endpoints in use, of which some came.
func grown(endpoints ...int) rules.AffinityTable {
	t := inUse("web", endpoints...)
	t.Stale = false
	return t
}

// sweeping runs a test with an Affinity over fakeClients in simulated time. It ends well
// if no report is left over and no map is kept in mind.
func sweeping(t *testing.T, test func(t *testing.T, table *fakeClients, a *Affinity, reports chan error)) {
	synctest.Test(t, func(t *testing.T) {
		table, reports := &fakeClients{maps: map[string]map[netip.Addr]netip.AddrPort{}}, make(chan error, 100)
		a := table.newAffinity(func(err error) { reports <- err })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		test(t, table, a, reports)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if table.open || len(a.maps) > 0 {
			t.Errorf("open: %t, maps %v", table.open, a.maps)
		}
		if len(reports) > 0 {
			t.Errorf("report: %v", <-reports)
		}
	})
}

// settle lets time pass until everything waits for more.
func settle(a *Affinity, d time.Duration) {
	a.Stats() // its lock puts what the test did before what Run does, for the race detector
	time.Sleep(d)
	synctest.Wait()
}

func wantRemembered(t *testing.T, table *fakeClients, name string, endpoints ...int) {
	t.Helper()
	if diff := cmp.Diff(endpoints, table.remembered(name), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: %s", name, diff)
	}
}

// TestSweep says which clients of a map are forgotten, and how often it is read for that.
func TestSweep(t *testing.T) {
	tests := map[string]struct {
		remembered []int
		sweeps     [][]rules.AffinityTable // one soon after the other
		want       []int
		dumps      int
	}{
		"an endpoint has gone":          {[]int{1, 2, 3, 2}, [][]rules.AffinityTable{{inUse("web", 1, 3)}}, []int{1, 3}, 2},
		"the only one has gone":         {[]int{1, 1}, [][]rules.AffinityTable{{inUse("web", 2)}}, nil, 2},
		"nobody used it":                {[]int{1, 3}, [][]rules.AffinityTable{{inUse("web", 1, 3)}}, []int{1, 3}, 1},
		"no clients":                    {nil, [][]rules.AffinityTable{{inUse("web", 1)}}, nil, 1},
		"an endpoint has come":          {[]int{1, 2}, [][]rules.AffinityTable{{grown(1, 3)}}, []int{1, 2}, 0},
		"two changes":                   {[]int{1, 2, 3}, [][]rules.AffinityTable{{inUse("web", 1, 3)}, {inUse("web", 1)}}, []int{1}, 2},
		"the newest counts":             {[]int{1, 2, 3}, [][]rules.AffinityTable{{inUse("web", 1)}, {inUse("web", 1, 2)}}, []int{1, 2}, 2},
		"one goes and is back":          {[]int{1, 2, 3}, [][]rules.AffinityTable{{inUse("web", 1, 3)}, {grown(1, 2, 3)}}, []int{1, 2, 3}, 1},
		"one goes, another comes":       {[]int{1, 2, 4}, [][]rules.AffinityTable{{inUse("web", 1, 3)}, {grown(1, 3, 4)}}, []int{1, 4}, 2},
		"twice in one sync":             {[]int{1, 2, 3}, [][]rules.AffinityTable{{inUse("web", 1), inUse("web", 2)}}, []int{2}, 2},
		"of a map that is not there":    {[]int{1}, [][]rules.AffinityTable{{inUse("nothing", 2)}}, []int{1}, 1},
		"of a map that is gone, and it": {[]int{1, 2}, [][]rules.AffinityTable{{inUse("nothing", 2), inUse("web", 1)}}, []int{1}, 3},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			sweeping(t, func(t *testing.T, table *fakeClients, a *Affinity, _ chan error) {
				table.remember("web", test.remembered...)
				for _, tables := range test.sweeps {
					a.Sweep(tables)
				}
				settle(a, time.Hour)
				wantRemembered(t, table, "web", test.want...)
				if len(table.dumped) != test.dumps {
					t.Errorf("%d dumps, not %d", len(table.dumped), test.dumps)
				}
				passes, forgotten := uint64(min(1, test.dumps)), uint64(len(test.remembered)-len(test.want))
				if s := a.Stats(); s != (AffinityStats{Passes: passes, Forgotten: forgotten}) {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestSweepSettles: a pass waits for packets that are on their way when the rules change.
func TestSweepSettles(t *testing.T) {
	sweeping(t, func(t *testing.T, table *fakeClients, a *Affinity, _ chan error) {
		table.remember("web", 1)
		start := time.Now()
		a.Sweep([]rules.AffinityTable{inUse("web", 1)})
		settle(a, settleTime-1)
		if len(table.dumped) != 0 {
			t.Error("the map was read at once")
		}
		settle(a, time.Hour)
		if table.dumped[0].Sub(start) != settleTime {
			t.Errorf("after %s", table.dumped[0].Sub(start))
		}
	})
}

// TestFailedSweep: a pass that fails is made again until it succeeds.
func TestFailedSweep(t *testing.T) {
	for name, fail := range map[string]func(*fakeClients){
		"NLM_F_DUMP_INTR":         func(c *fakeClients) { c.faults = []error{errInterrupted, errInterrupted} },
		"EINTR":                   func(c *fakeClients) { c.faults = []error{unix.EINTR, unix.EINTR} },
		"ENOBUFS":                 func(c *fakeClients) { c.faults = []error{unix.ENOBUFS, unix.ENOBUFS} },
		"ENOBUFS when forgetting": func(c *fakeClients) { c.refusals = []error{unix.ENOBUFS, unix.EINTR} },
	} {
		t.Run(name, func(t *testing.T) {
			sweeping(t, func(t *testing.T, table *fakeClients, a *Affinity, _ chan error) {
				table.remember("web", 1, 2, 3)
				fail(table)
				a.Sweep([]rules.AffinityTable{inUse("web", 1)})
				settle(a, settleTime)
				if s := a.Stats(); s != (AffinityStats{Failed: 1}) {
					t.Errorf("after the first pass: %+v", s)
				}
				settle(a, time.Hour)
				wantRemembered(t, table, "web", 1)
				if s := a.Stats(); s != (AffinityStats{Passes: 1, Failed: 2, Forgotten: 2}) {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// TestSweepsAreRepeatedLessAndLess: failures do not end it and are reported once.
func TestSweepsAreRepeatedLessAndLess(t *testing.T) {
	sweeping(t, func(t *testing.T, table *fakeClients, a *Affinity, reports chan error) {
		const failures = 14
		table.openErr = unix.EMFILE
		a.Sweep([]rules.AffinityTable{inUse("web", 1)})
		rest := settleTime
		for i := range failures {
			settle(a, rest)
			if s := a.Stats(); s.Failed != uint64(i+1) {
				t.Fatalf("%d passes failed after %d pauses", s.Failed, i)
			}
			if reported := i+1 >= reportedFailure; (len(reports) > 0) != reported {
				t.Errorf("%d reports after %d failures", len(reports), i+1)
			}
			pause := min(firstCleanRetry<<i, lastCleanRetry)
			settle(a, pause-1)
			if s := a.Stats(); s.Failed != uint64(i+1) {
				t.Fatalf("pause %d is shorter than %s", i, pause)
			}
			rest = 1
		}
		if err := <-reports; !errors.Is(err, unix.EMFILE) {
			t.Errorf("report: %v", err)
		}
		table.openErr = nil
		settle(a, time.Hour)
	})
}

// TestFailingMap does not keep the others from being swept, and the report names it.
func TestFailingMap(t *testing.T) {
	sweeping(t, func(t *testing.T, table *fakeClients, a *Affinity, reports chan error) {
		for _, name := range []string{"a", "b", "c"} {
			table.remember(name, 1, 2)
		}
		// The maps are read by name: a, b fails, c; then b alone.
		table.faults = []error{nil, nil, errInterrupted, nil, nil, errInterrupted, errInterrupted, errInterrupted, errInterrupted}
		a.Sweep([]rules.AffinityTable{inUse("c", 1), inUse("b", 1), inUse("a", 1)})
		settle(a, settleTime)
		wantRemembered(t, table, "a", 1)
		wantRemembered(t, table, "b", 1, 2)
		wantRemembered(t, table, "c", 1)
		settle(a, time.Hour)
		wantRemembered(t, table, "b", 1)
		if err := <-reports; !strings.Contains(err.Error(), "map b of table ip nftproxy") {
			t.Errorf("report: %v", err)
		}
		if s := a.Stats(); s != (AffinityStats{Passes: 1, Failed: 5, Forgotten: 3}) {
			t.Errorf("%+v", s)
		}
	})
}

// TestExpiredClient: the time of a client is over before it can be deleted. The others
// are, and nothing has failed.
func TestExpiredClient(t *testing.T) {
	sweeping(t, func(t *testing.T, table *fakeClients, a *Affinity, _ chan error) {
		table.remember("web", 2, 1, 2, 2)
		table.visited = func() { delete(table.maps["web"], client(3)) }
		a.Sweep([]rules.AffinityTable{inUse("web", 1)})
		settle(a, time.Hour)
		wantRemembered(t, table, "web", 1)
		if s := a.Stats(); s != (AffinityStats{Passes: 1, Forgotten: 2}) {
			t.Errorf("%+v", s)
		}
	})
}

// TestMapGoesMeanwhile: nothing is left to do.
func TestMapGoesMeanwhile(t *testing.T) {
	sweeping(t, func(t *testing.T, table *fakeClients, a *Affinity, _ chan error) {
		table.remember("web", 2)
		table.visited = func() { delete(table.maps, "web") }
		a.Sweep([]rules.AffinityTable{inUse("web", 1)})
		settle(a, time.Hour)
		if s := a.Stats(); s != (AffinityStats{Passes: 1}) {
			t.Errorf("%+v", s)
		}
	})
}

// TestClientsComeMeanwhile: some are left out of a dump. A pass reads the map again
// until it comes out without stale ones, but not for ever.
func TestClientsComeMeanwhile(t *testing.T) {
	for _, test := range []struct {
		rounds int // in which another stale client shows up
		want   AffinityStats
		dumps  int
	}{
		{1, AffinityStats{Passes: 1, Forgotten: 2}, 3},
		{sweepRounds - 2, AffinityStats{Passes: 1, Forgotten: sweepRounds - 1}, sweepRounds},
		{sweepRounds - 1, AffinityStats{Passes: 1, Failed: 1, Forgotten: sweepRounds}, sweepRounds + 1},
		{2 * sweepRounds, AffinityStats{Passes: 1, Failed: 2, Forgotten: 2*sweepRounds + 1}, 2*sweepRounds + 2},
	} {
		sweeping(t, func(t *testing.T, table *fakeClients, a *Affinity, _ chan error) {
			table.remember("web", 1, 2)
			n := 0
			table.visited = func() {
				if n++; n <= test.rounds {
					table.maps["web"][client(n+1)] = endpoint(2)
				}
			}
			a.Sweep([]rules.AffinityTable{inUse("web", 1)})
			settle(a, time.Hour)
			wantRemembered(t, table, "web", 1)
			if s := a.Stats(); s != test.want || len(table.dumped) != test.dumps {
				t.Errorf("%d rounds: %+v, %d dumps", test.rounds, s, len(table.dumped))
			}
		})
	}
}

// TestEndpointIsBackDuringASweep: it keeps the clients that it still has, and those that
// were judged but not forgotten yet.
func TestEndpointIsBackDuringASweep(t *testing.T) {
	for name, when := range map[string]func(*fakeClients, func()){
		"before the dump": func(c *fakeClients, do func()) { c.dumping = do },
		"after the dump":  func(c *fakeClients, do func()) { c.visited = do },
	} {
		t.Run(name, func(t *testing.T) {
			sweeping(t, func(t *testing.T, table *fakeClients, a *Affinity, _ chan error) {
				table.remember("web", 1, 2, 3)
				when(table, func() { a.Sweep([]rules.AffinityTable{grown(1, 2)}) })
				a.Sweep([]rules.AffinityTable{inUse("web", 1)})
				settle(a, time.Hour)
				wantRemembered(t, table, "web", 1, 2)
			})
		})
	}
}

// TestEndpointGoesDuringASweep is seen to by another pass, which waits for packets that
// are on their way.
func TestEndpointGoesDuringASweep(t *testing.T) {
	sweeping(t, func(t *testing.T, table *fakeClients, a *Affinity, _ chan error) {
		table.remember("web", 1, 2, 3)
		changed := false
		table.visited = func() {
			if !changed {
				changed = true
				a.Sweep([]rules.AffinityTable{inUse("web", 1)})
			}
		}
		a.Sweep([]rules.AffinityTable{inUse("web", 1, 2)})
		settle(a, time.Hour)
		wantRemembered(t, table, "web", 1)
		if s := a.Stats(); s != (AffinityStats{Passes: 2, Forgotten: 2}) {
			t.Errorf("%+v", s)
		}
	})
}

// TestManyClients are forgotten in bounded batches.
func TestManyClients(t *testing.T) {
	sweeping(t, func(t *testing.T, table *fakeClients, a *Affinity, _ chan error) {
		table.remember("web", slices.Repeat([]int{2}, 2*clientsPerBatch+1)...)
		a.Sweep([]rules.AffinityTable{inUse("web", 1)})
		settle(a, time.Hour)
		if diff := cmp.Diff([]int{clientsPerBatch, clientsPerBatch, 1}, table.deleted); diff != "" {
			t.Error(diff)
		}
	})
}

// TestStopDuringASweep ends in the middle of a dump.
func TestStopDuringASweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := &fakeClients{maps: map[string]map[netip.Addr]netip.AddrPort{}, slowness: time.Hour}
		table.remember("web", 2)
		a := table.newAffinity(func(err error) { t.Errorf("report: %v", err) })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		a.Sweep([]rules.AffinityTable{inUse("web", 1)})
		settle(a, time.Minute)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		wantRemembered(t, table, "web", 2)
	})
}

// TestUnknownErrors: what no fault above stands for is a failure too, not an end.
func TestUnknownErrors(t *testing.T) {
	sweeping(t, func(t *testing.T, table *fakeClients, a *Affinity, _ chan error) {
		table.remember("web", 2)
		table.faults = []error{errNoClient}
		table.refusals = []error{syscall.EPERM}
		a.Sweep([]rules.AffinityTable{inUse("web", 1)})
		settle(a, time.Hour)
		if s := a.Stats(); s != (AffinityStats{Passes: 1, Failed: 2, Forgotten: 1}) {
			t.Errorf("%+v", s)
		}
	})
}
