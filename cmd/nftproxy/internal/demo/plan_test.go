package demo

import (
	"testing"
)

// TestPlan follows a plan, with all its rounds and with as few as possible: pods come
// once and go once, there is always one, and in the end there are as many as at first,
// none of which was there then.
func TestPlan(t *testing.T) {
	for _, replicas := range []int{1, 3, 20} {
		for _, all := range []bool{true, false} {
			checkPlan(t, replicas, all)
		}
	}
}

func checkPlan(t *testing.T, replicas int, all bool) {
	t.Helper()
	live, used := map[int]bool{}, map[int]bool{}
	for n := range replicas {
		live[n], used[n] = true, true
	}
	least, most, changes := replicas, replicas, 0
	planner := newPlanner(replicas)
	for _, s := range plan(replicas) {
		rounds := 1
		if all {
			rounds = s.rounds
		}
		for range rounds {
			for _, step := range s.steps(planner) {
				changes++
				for _, n := range step.add {
					if used[n] {
						t.Errorf("%d replicas: %s adds pod %d again", replicas, s.title(rounds), n)
					}
					live[n], used[n] = true, true
				}
				for _, n := range step.remove {
					if !live[n] {
						t.Errorf("%d replicas: %s removes pod %d, which is not there", replicas, s.title(rounds), n)
					}
					delete(live, n)
				}
				if len(step.add)+len(step.remove) == 0 {
					t.Errorf("%d replicas: %s has a change that changes nothing", replicas, s.title(rounds))
				}
				least, most = min(least, len(live)), max(most, len(live))
			}
		}
	}
	if least < 1 || most < scaleUp || len(live) != replicas {
		t.Errorf("%d replicas: from %d to %d pods, %d in the end", replicas, least, most, len(live))
	}
	for n := range replicas {
		if live[n] {
			t.Errorf("%d replicas: pod %d is never replaced", replicas, n)
		}
	}
	if all && changes < 100 {
		t.Errorf("%d replicas: %d changes are too few for a 99th percentile", replicas, changes)
	}
}

// TestNewReplica makes sure that no two pods, clients included, have one address.
func TestNewReplica(t *testing.T) {
	seen := map[string]string{}
	claim := func(who, addr string) {
		if other, taken := seen[addr]; taken {
			t.Errorf("%s and %s have the address %s", who, other, addr)
		}
		seen[addr] = who
	}
	targets, err := loadTargets(exampleFolder(t), bothFamilies())
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, target := range targets {
		for _, e := range target.endpoints {
			listed[e.Addr.Addr().String()] = true
		}
	}
	for addr := range listed {
		claim("an example", addr)
	}
	for _, f := range bothFamilies() {
		for i := range numClients {
			claim("a client", clientAddr(f, i).String())
		}
	}
	planner := newPlanner(3)
	for _, s := range plan(3) {
		for range s.rounds {
			s.steps(planner)
		}
	}
	for n := 3; n < planner.next; n++ {
		r := newReplica("frontend", n)
		for f, addr := range r.addrs {
			claim(r.name, addr.String())
			if !podRanges()[0].Contains(addr) && !podRanges()[1].Contains(addr) {
				t.Errorf("%s of %s, %s, is in no range of pods", addr, r.name, f)
			}
		}
	}
}
