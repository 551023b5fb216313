package syncer

import (
	"context"
	"slices"

	"github.com/nftproxy/nftproxy/rules"
)

// isolate finds out which changes the kernel refuses, by halving, and returns the
// others. The kernel only checks and changes nothing meanwhile. prefix makes what
// comes before the changes in the batch, nil stands for nothing.
//
// k bad changes among n take about k * log2(n) checks. If the prefix alone is
// refused, no change is to blame: that is the error returned.
func (s *Syncer) isolate(
	ctx context.Context, prefix func() *Batch, changes []change, res *Result,
) (good []change, err error) {
	search := isolation{ctx: ctx, syncer: s, prefix: prefix, errs: map[rules.ServicePortKey]error{}}
	if err := search.check(nil); err != nil {
		return nil, err
	}
	rest := changes
	for {
		// An element may move from one service port to another: what was refused may
		// be fine together with what turned out good later, so the refused ones get
		// another chance as long as that helps.
		before := len(search.good)
		search.bad = nil
		if err := search.halve(rest); err != nil {
			return nil, err
		}
		if len(search.bad) == 0 || len(search.good) == before {
			break
		}
		rest = search.bad
	}
	for _, c := range search.bad {
		res.Refused = append(res.Refused, Refusal{c.key, search.errs[c.key]})
	}
	return search.good, nil
}

// isolation is a search for the changes that the kernel refuses.
type isolation struct {
	ctx    context.Context //nolint:containedctx // of the one call that the search is
	syncer *Syncer
	prefix func() *Batch

	good, bad []change
	errs      map[rules.ServicePortKey]error // of the bad ones
}

// halve sorts the changes into good and bad.
func (i *isolation) halve(changes []change) error {
	if len(changes) == 0 {
		return nil
	}
	all := slices.Concat(i.good, changes)
	err := i.check(all)
	switch {
	case err == nil:
		i.good = all
		return nil
	case !isolable(err):
		return err
	case len(changes) == 1:
		i.bad = append(i.bad, changes[0])
		i.errs[changes[0].key] = err
		return nil
	}
	if err := i.halve(changes[:len(changes)/2]); err != nil {
		return err
	}
	return i.halve(changes[len(changes)/2:])
}

func (i *isolation) check(changes []change) error {
	var prefix *Batch
	if i.prefix != nil {
		prefix = i.prefix()
	}
	plan := i.syncer.planner.plan(i.syncer.installed, prefix, changes)
	return i.syncer.kernel.Check(i.ctx, plan.batch)
}
