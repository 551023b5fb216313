package demo

import (
	"context"
	"errors"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/nftproxy/nftproxy/rules"
)

// rollout changes the endpoints of one Service in the order in which a cluster does
// it: a new pod serves before it is published; an old one stops only when the rules
// do not name it any more and the connections that it got before are done.
type rollout struct {
	lo       netlink.Link
	manifest *scaledManifest
	service  string
	families []rules.Family
	ports    []port
	pods     pods
	commits  *commits
	load     *load // run ends it

	replicas map[int]replica // those published, by number
}

// stageResult is what became of the connections during a stage.
type stageResult struct {
	title        string
	changes      int
	made, failed int64
}

// run makes the changes, unless too many connections fail. Rounds that repeat one are
// left out once there is no time. It calls tick after each change, and ends the load.
func (r *rollout) run(ctx context.Context, stages []stage, timeLeft func() bool, tick func()) ([]stageResult, tally, error) {
	var results []stageResult
	var err error
	planner := newPlanner(len(r.replicas))
	for _, s := range stages {
		result := stageResult{made: -r.load.made.Load(), failed: -r.load.failed.Load()}
		round := 0
		for ; err == nil && round < s.rounds && (round == 0 || timeLeft()); round++ {
			var n int
			n, err = r.steps(ctx, s.steps(planner), tick)
			result.changes += n
		}
		if round == 0 {
			break
		}
		result.title = s.title(round)
		result.made += r.load.made.Load()
		result.failed += r.load.failed.Load()
		results = append(results, result)
	}
	made, failed := r.load.made.Load(), r.load.failed.Load()
	counted := r.load.stop()
	last := &results[len(results)-1]
	last.made += r.load.made.Load() - made
	last.failed += r.load.failed.Load() - failed
	if errors.Is(err, errHopeless) {
		err = nil // the failures are in the results
	}
	return results, counted, err
}

// errHopeless ends a rollout during which too many connections fail.
var errHopeless = errors.New("too many connections failed")

// steps makes changes and returns how many it has made.
func (r *rollout) steps(ctx context.Context, steps []step, tick func()) (int, error) {
	for i, s := range steps {
		if r.load.failed.Load() >= giveUp {
			return i, errHopeless
		}
		if err := r.step(ctx, s); err != nil {
			return i, err
		}
		tick()
	}
	return len(steps), nil
}

func (r *rollout) step(ctx context.Context, s step) error {
	for _, n := range s.add {
		r.replicas[n] = newReplica(r.service, n)
		if err := r.start(ctx, r.replicas[n]); err != nil {
			return err
		}
	}
	var old []replica
	for _, n := range s.remove {
		old = append(old, r.replicas[n])
		delete(r.replicas, n)
	}
	before := r.commits.count()
	if err := r.manifest.publish(r.published()); err != nil {
		return err
	}
	if err := r.commits.wait(ctx, before); err != nil {
		return err
	}
	if err := r.load.settle(ctx); err != nil {
		return err
	}
	for _, o := range old {
		if err := r.stop(o); err != nil {
			return err
		}
	}
	return nil
}

// published returns the pods by number.
func (r *rollout) published() []replica {
	numbers := make([]int, 0, len(r.replicas))
	for n := range r.replicas {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	published := make([]replica, len(numbers))
	for i, n := range numbers {
		published[i] = r.replicas[n]
	}
	return published
}

func (r *rollout) start(ctx context.Context, replica replica) error {
	for _, f := range r.families {
		addr := replica.addrs[f]
		p, err := startPod(ctx, r.lo, addr, r.ports)
		if err != nil {
			return err
		}
		r.pods[addr] = p
	}
	return nil
}

func (r *rollout) stop(replica replica) error {
	var errs []error
	for _, f := range r.families {
		errs = append(errs, r.pods.stop(replica.addrs[f]))
	}
	return errors.Join(errs...)
}
