package syncer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"github.com/nftproxy/nftproxy/rules"
)

const (
	// sweepRounds bounds how often one pass reads a map. A second time shows whether
	// anything was left out, more are needed only while a map changes much.
	sweepRounds = 5
	// clientsPerBatch keeps a batch, which holds the kernel's commit lock, short.
	clientsPerBatch = 500
)

// Affinity forgets the clients that the maps of session affinity remember with an
// endpoint that is not in use any more. A client that keeps coming renews what is
// remembered, so it would be led nowhere for ever.
//
// Its owner calls Sweep after every sync with what Result.Affinity says; that does not
// block. The work is done by Run, beside the syncs.
type Affinity struct {
	cleaner // has work while a map is dirty

	open func() (clientTable, error)

	mu    sync.Mutex
	maps  map[familyName]*sweptMap // those that are dirty or being swept
	stats AffinityStats
}

// AffinityStats counts what an Affinity has done.
type AffinityStats struct {
	Passes    uint64 // over all dirty maps that were completed
	Failed    uint64 // that were not, and were begun again
	Forgotten uint64 // clients
}

// sweptMap is a map of clients in which some may have to be forgotten.
type sweptMap struct {
	endpoints []netip.AddrPort // in use, sorted
	dirty     bool             // waits for a pass
}

// NewAffinity returns an Affinity for the network namespace with this file descriptor,
// 0 for that of the process. That passes keep failing goes to report, from the
// goroutine of Run.
func NewAffinity(netns int, report func(error)) *Affinity {
	return newAffinity(func() (clientTable, error) { return openNetlinkClients(netns) }, report)
}

func newAffinity(open func() (clientTable, error), report func(error)) *Affinity {
	return &Affinity{
		cleaner: newCleaner("clients that are remembered with endpoints that are gone", report),
		open:    open, maps: map[familyName]*sweptMap{},
	}
}

// Sweep takes tables whose endpoints in use have changed. Clients are forgotten soon in
// those that are Stale. The newest of each map counts, also for what is being forgotten
// just now: an endpoint that is back keeps its clients.
func (a *Affinity) Sweep(tables []rules.AffinityTable) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, t := range tables {
		name := familyName{t.Family, t.Map}
		m, ok := a.maps[name]
		switch {
		case !ok && !t.Stale:
			continue
		case !ok:
			m = &sweptMap{}
			a.maps[name] = m
		}
		m.endpoints = t.Endpoints
		if t.Stale {
			m.dirty = true
			a.wakeUp()
		}
	}
}

// Stats returns what was done so far.
func (a *Affinity) Stats() AffinityStats {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stats
}

// Run forgets clients until the context is done, then returns nil. No failure ends it.
func (a *Affinity) Run(ctx context.Context) error { return a.run(ctx, a.pass) }

// pass sweeps all dirty maps. Those for which that fails stay dirty, and do not keep it
// from the others.
func (a *Affinity) pass(ctx context.Context) error {
	names := a.take()
	table, err := a.open()
	if err != nil {
		return a.passed(names, err)
	}
	var failed []familyName
	var errs []error
	for _, name := range names {
		if err := a.sweep(ctx, table, name); err != nil {
			failed = append(failed, name)
			errs = append(errs, fmt.Errorf("map %s of table %s %s: %w", name.name, name.family.Keyword(), rules.TableName, err))
		}
	}
	return a.passed(failed, errors.Join(append(errs, table.close())...))
}

// take returns the dirty maps, sorted, and takes them for clean.
func (a *Affinity) take() []familyName {
	a.mu.Lock()
	defer a.mu.Unlock()
	var names []familyName
	for _, name := range slices.SortedFunc(maps.Keys(a.maps), familyName.compare) {
		if a.maps[name].dirty {
			a.maps[name].dirty = false
			names = append(names, name)
		}
	}
	return names
}

// passed ends a pass that has failed for some maps, and returns its error.
func (a *Affinity) passed(failed []familyName, err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, name := range failed {
		a.maps[name].dirty = true
		a.wakeUp()
	}
	maps.DeleteFunc(a.maps, func(_ familyName, m *sweptMap) bool { return !m.dirty })
	if err != nil {
		a.stats.Failed++
	} else {
		a.stats.Passes++
	}
	return err
}

// errUnsettled says that a map still holds what has to be forgotten.
var errUnsettled = errors.New("it changed too much while clients were forgotten")

// sweep forgets clients of one map until it comes out without any that has to be: a
// dump of a hash table that grows meanwhile may leave some out.
func (a *Affinity) sweep(ctx context.Context, table clientTable, name familyName) error {
	for range sweepRounds {
		var stale []remembered
		err := table.dump(ctx, name, func(r remembered) error {
			if a.judge(name, r) {
				stale = append(stale, r)
			}
			return nil
		})
		if errors.Is(err, syscall.ENOENT) { // the service port has gone, or its affinity
			return nil
		}
		if err != nil || len(stale) == 0 {
			return err
		}
		err = a.forget(ctx, table, name, stale)
		if err != nil && !errors.Is(err, syscall.ENOENT) { // that: a client's time was over meanwhile
			return err
		}
	}
	return errUnsettled
}

// forget deletes those clients that are stale still.
func (a *Affinity) forget(ctx context.Context, table clientTable, name familyName, stale []remembered) error {
	for part := range slices.Chunk(stale, clientsPerBatch) {
		clients := make([]netip.Addr, 0, len(part))
		for _, r := range part {
			if a.judge(name, r) {
				clients = append(clients, r.client)
			}
		}
		if len(clients) == 0 {
			continue
		}
		if err := table.forget(ctx, name, clients); err != nil {
			return err
		}
		a.mu.Lock()
		a.stats.Forgotten += uint64(len(clients))
		a.mu.Unlock()
	}
	return nil
}

// judge reports whether a client has to be forgotten, by what is in use now, not by what
// was when the pass began.
func (a *Affinity) judge(name familyName, r remembered) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !containsEndpoint(a.maps[name].endpoints, r.endpoint)
}
