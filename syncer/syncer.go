package syncer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"

	"github.com/nftproxy/nftproxy/rules"
)

// Syncer keeps the kernel's ruleset as wanted: it compiles service ports, compares
// them with the mirror of what is installed, and sends the difference. It is used
// by one goroutine at a time.
type Syncer struct {
	kernel Kernel
	cfg    rules.Config

	wanted    map[rules.ServicePortKey]*rules.Compiled
	installed *mirror // nil while the kernel's state is not known
	// conflicting holds the service ports that are not installed since another one has
	// one of their frontends.
	conflicting map[rules.ServicePortKey]bool
	// indexes are of what is wanted, for service ports of which there was a Delta.
	indexes map[rules.ServicePortKey]*rules.SlotIndex
	planner planner
}

// New returns a Syncer that has nothing to install yet. An error says what is
// wrong with the configuration.
func New(kernel Kernel, cfg rules.Config) (*Syncer, error) {
	cfg = cfg.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("ruleset configuration: %w", err)
	}
	return &Syncer{
		kernel: kernel, cfg: cfg, wanted: map[rules.ServicePortKey]*rules.Compiled{},
		conflicting: map[rules.ServicePortKey]bool{}, indexes: map[rules.ServicePortKey]*rules.SlotIndex{},
	}, nil
}

// SetNode says what the ruleset of a family depends on beside the Services. The next
// Sync installs it. An error says what is wrong with it; then nothing changes.
func (s *Syncer) SetNode(n rules.Node) error {
	c, err := rules.CompileNode(n)
	if err != nil {
		return fmt.Errorf("the node in the ruleset: %w", err)
	}
	s.wanted[n.Key()] = c
	return nil
}

// Configure replaces the configuration. The next Sync writes the whole ruleset. The
// families stay what they were. An error says what is wrong with the configuration; then
// nothing changes.
func (s *Syncer) Configure(cfg rules.Config) error {
	cfg = cfg.WithDefaults()
	cfg.Families = s.cfg.Families
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("ruleset configuration: %w", err)
	}
	s.cfg, s.installed = cfg, nil
	return nil
}

// Change is the newest state of a service port, or what makes it of the one before.
type Change struct {
	Key         rules.ServicePortKey
	ServicePort *rules.ServicePort // nil if it is gone, or with Delta
	// Delta is all in which the newest state differs from the one that the Change before
	// led to, where that is valid; nil if ServicePort says it all. Only service ports of TCP
	// with very many endpoints have some.
	Delta *rules.Delta
}

// Result says what a sync did.
type Result struct {
	Batches int
	Counts  Counts
	// Full is true if the whole ruleset was written.
	Full bool
	// Refused holds the service ports that could not be installed, by key. What was
	// installed for them before is still in force, if it was not written anew. They
	// are tried again when they change and at the next Resync.
	Refused []Refusal
	// Affinity holds the tables of clients whose endpoints in use have changed, for
	// Affinity.Sweep.
	Affinity []rules.AffinityTable
	// Installed is how much the kernel holds now, by family.
	Installed map[rules.Family]Installed
}

// Installed counts what is in the kernel.
type Installed struct {
	ServicePorts, Elements int
}

// Refusal is a service port that could not be compiled or that the kernel refused.
type Refusal struct {
	Key rules.ServicePortKey
	Err error
}

// Sync installs the changes. The first Sync, and one after an error, writes the
// whole ruleset. With an error nothing is lost: the changes are known to the Syncer
// and the next Sync, with or without more of them, installs them.
func (s *Syncer) Sync(ctx context.Context, changes []Change) (Result, error) {
	var res Result
	dirty := s.compile(changes, &res)
	if s.installed == nil {
		return s.resync(ctx, res)
	}
	err := s.install(ctx, dirty, s.kernel.Limits(), &res)
	return s.counted(res), err
}

// counted adds how much is installed.
func (s *Syncer) counted(res Result) Result {
	if s.installed != nil {
		res.Installed = maps.Clone(s.installed.counts)
	}
	return res
}

// Resync takes changes as Sync does, and writes the whole ruleset, whatever the
// kernel holds.
func (s *Syncer) Resync(ctx context.Context, changes []Change) (Result, error) {
	var res Result
	s.compile(changes, &res)
	return s.resync(ctx, res)
}

// compile brings wanted up to date and returns what differs from what is installed,
// each key once.
func (s *Syncer) compile(changes []Change, res *Result) []change {
	if len(s.wanted) <= len(s.cfg.Families) { // but the node, nothing came yet
		wanted := make(map[rules.ServicePortKey]*rules.Compiled, len(changes)+len(s.wanted))
		maps.Copy(wanted, s.wanted)
		s.wanted = wanted
	}
	for _, c := range changes {
		next, err := s.next(c)
		switch {
		case err != nil:
			res.Refused = append(res.Refused, Refusal{c.Key, err})
		case next == nil:
			delete(s.wanted, c.Key)
		default:
			s.wanted[c.Key] = next
		}
	}
	if s.installed == nil {
		return nil
	}
	dirty := make([]change, 0, len(changes))
	add := func(key rules.ServicePortKey) {
		if next := s.wanted[key]; next != s.installed.services[key] {
			dirty = append(dirty, change{key, next})
		}
	}
	for _, c := range changes {
		add(c.Key)
	}
	for _, f := range s.cfg.Families {
		add(rules.Node{Family: f}.Key())
	}
	if len(dirty) > 0 { // what is in the way of others may have gone
		for key := range s.conflicting {
			add(key)
		}
	}
	sortChanges(dirty)
	return slices.CompactFunc(dirty, func(a, b change) bool { return a.key == b.key })
}

// next returns what a change makes of what is wanted, nil if it goes.
func (s *Syncer) next(c Change) (*rules.Compiled, error) {
	prev := s.wanted[c.Key]
	if c.Delta == nil {
		delete(s.indexes, c.Key) // those that stay large have mostly Deltas
		if c.ServicePort == nil {
			return nil, nil
		}
		return rules.Compile(s.cfg, *c.ServicePort, prev)
	}
	index := s.indexes[c.Key]
	if index == nil {
		var err error
		if index, err = rules.NewSlotIndex(prev); err != nil {
			return nil, err
		}
		s.indexes[c.Key] = index
	}
	return index.Apply(*c.Delta)
}

// install sends the sorted changes in as few batches as the limits allow. With an error
// the kernel's state is not known any more.
func (s *Syncer) install(ctx context.Context, changes []change, limits Size, res *Result) error {
	// What gives up frontends goes first: another batch may need them.
	if slices.ContainsFunc(changes, s.installed.moves) {
		slices.SortStableFunc(changes, func(a, b change) int {
			return cmp.Compare(s.freed(b), s.freed(a))
		})
	}
	for len(changes) > 0 {
		n := s.fitting(changes, limits)
		if err := s.installGroup(ctx, changes[:n], limits, res); err != nil {
			s.installed = nil
			return err
		}
		changes = changes[n:]
	}
	return nil
}

// freed returns how many frontends a change gives up.
func (s *Syncer) freed(c change) int {
	n := 0
	for f := range frontendsOf(s.installed.services[c.key]) {
		if !slices.Contains(slices.Collect(frontendsOf(c.next)), f) {
			n++
		}
	}
	return n
}

// installGroup sends one batch, or two halves if that exceeds the limits. If the
// kernel refuses a batch, the changes that cause this are left out.
func (s *Syncer) installGroup(ctx context.Context, group []change, limits Size, res *Result) error {
	plan := s.planner.plan(s.installed, nil, group)
	if half := len(group) / 2; half > 0 && !plan.batch.Size().Fits(limits) {
		if err := s.installGroup(ctx, group[:half], limits, res); err != nil {
			return err
		}
		return s.installGroup(ctx, group[half:], limits, res)
	}
	err := s.apply(ctx, plan, res)
	if !isolable(err) || Drifted(err) {
		return err
	}
	good, err := s.isolate(ctx, nil, group, res)
	if err != nil {
		return err
	}
	return s.apply(ctx, s.planner.plan(s.installed, nil, good), res)
}

// apply sends a plan's batch and, if the kernel took it, brings the mirror up to
// date.
func (s *Syncer) apply(ctx context.Context, p *plan, res *Result) error {
	if !p.batch.Empty() {
		if err := s.kernel.Apply(ctx, p.batch); err != nil {
			return err
		}
		res.Batches++
		res.Counts = res.Counts.Add(p.batch.Counts())
	}
	for _, c := range p.changes {
		res.Affinity = append(res.Affinity, affinityTables(s.installed.services[c.key], c.next, res.Full)...)
	}
	s.installed.commit(p)
	for _, c := range p.changes {
		delete(s.conflicting, c.key)
	}
	for _, c := range p.conflicts {
		if !s.conflicting[c.key] {
			s.conflicting[c.key] = true
			res.Refused = append(res.Refused, Refusal{c.key, errConflict})
		}
	}
	return nil
}

// errConflict is why a service port is refused before it reaches the kernel.
var errConflict = errors.New("another service port has one of its addresses and ports")

// fitting estimates how many of the changes, at least one, fit into a batch.
func (s *Syncer) fitting(changes []change, limits Size) int {
	var size Size
	for i, c := range changes {
		n := rules.NumDiffering(s.installed.services[c.key], c.next)
		size.Bytes += n * (elementBytes + endpointBytes)
		if i > 0 && !size.Fits(limits) {
			return i
		}
	}
	return len(changes)
}

// resync writes the whole ruleset: in one batch, so that connections do not notice,
// or in several bounded ones if there is nothing yet that could be disturbed, or
// if one would not fit.
func (s *Syncer) resync(ctx context.Context, res Result) (Result, error) {
	res.Full = true
	s.installed = nil
	state, err := s.kernel.State(ctx, s.cfg.Families)
	if err != nil {
		return res, fmt.Errorf("before the whole ruleset is written: %w", err)
	}
	all := make([]change, 0, len(s.wanted))
	for key, c := range s.wanted {
		all = append(all, change{key, c})
	}
	sortChanges(all)

	limits := s.kernel.Limits()
	if len(state) == 0 {
		limits.Bytes = min(limits.Bytes, coldBatchBytes)
	}
	s.installed = newMirror(len(s.wanted))
	if err := s.rewrite(ctx, state, all, limits, &res); err != nil {
		s.installed = nil
		return res, err
	}
	return s.counted(res), nil
}

// coldBatchBytes bounds a batch while the kernel holds nothing of ours: a batch
// holds the kernel's commit lock, which other programs wait for.
const coldBatchBytes = 16 << 20

// rewrite sends the whole ruleset, starting from what resetBatch leaves.
func (s *Syncer) rewrite(ctx context.Context, state State, all []change, limits Size, res *Result) error {
	reset := func() *Batch { return resetBatch(s.cfg, state, s.wanted) }
	whole := s.planner.plan(s.installed, reset(), all)
	if !whole.batch.Size().Fits(limits) {
		if err := s.apply(ctx, s.planner.plan(s.installed, reset(), nil), res); err != nil {
			return err
		}
		return s.install(ctx, all, limits, res)
	}
	err := s.apply(ctx, whole, res)
	if !isolable(err) {
		return err
	}
	good, err := s.isolate(ctx, reset, all, res)
	if err != nil {
		return err
	}
	return s.apply(ctx, s.planner.plan(s.installed, reset(), good), res)
}

// Wanted returns what is wanted, sorted by key: the value that the kernel equals
// when nothing was refused.
func (s *Syncer) Wanted() *rules.Ruleset {
	services := slices.SortedFunc(maps.Values(s.wanted), func(a, b *rules.Compiled) int {
		return a.Compare(b.ServicePortKey)
	})
	return rules.NewRuleset(s.cfg, services)
}

func sortChanges(changes []change) {
	slices.SortFunc(changes, func(a, b change) int { return a.key.Compare(b.key) })
}

// Drifted reports whether a Sync that was not a full one has failed since the kernel lacks
// something that the mirror knows: another program has changed our tables. No change is
// to blame then, and everything has to be written again.
func Drifted(err error) bool { return errors.Is(err, syscall.ENOENT) }

// isolable reports whether leaving changes out can help.
func isolable(err error) bool {
	return err != nil && (causeOf(err) == Refused || causeOf(err) == TooLarge)
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
