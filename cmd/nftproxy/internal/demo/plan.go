package demo

import (
	"fmt"
	"slices"
)

// How a Service is scaled, and how often all its endpoints are replaced.
const (
	scaleUp      = 12
	scaleDown    = 2
	rollSize     = 6
	surgeRolls   = 6 // one more, then one less, as a Deployment with maxSurge 1 does
	replaceRolls = 4 // one in and one out by the same change
)

// stage is a series of changes that an operator would call one, done once or several
// times.
type stage struct {
	rounds int
	steps  func(p *planner) []step // of one round
	title  func(rounds int) string // when that many were done
}

// step is one change of the manifest. Pods are numbered, and never come back.
type step struct {
	add, remove []int
}

// plan returns the changes for a Service of that many pods. In the end it has as many.
func plan(replicas int) []stage {
	return []stage{
		scale(replicas, scaleUp),
		scale(scaleUp, scaleDown),
		scale(scaleDown, rollSize),
		{
			rounds: surgeRolls,
			title: func(rounds int) string {
				return fmt.Sprintf("rolled %d endpoints over %d times, one added, one removed", rollSize, rounds)
			},
			steps: func(p *planner) (steps []step) {
				for range rollSize {
					steps = append(steps, p.add(), p.remove())
				}
				return steps
			},
		},
		{
			rounds: replaceRolls,
			title: func(rounds int) string {
				return fmt.Sprintf("rolled %d endpoints over %d times, each replaced at once", rollSize, rounds)
			},
			steps: func(p *planner) (steps []step) {
				for range rollSize {
					steps = append(steps, step{add: p.add().add, remove: p.remove().remove})
				}
				return steps
			},
		},
		scale(rollSize, replicas),
	}
}

// scale adds or removes one pod after the other.
func scale(from, to int) stage {
	return stage{
		rounds: 1,
		title:  func(int) string { return fmt.Sprintf("scaled from %d to %d endpoints", from, to) },
		steps: func(p *planner) (steps []step) {
			for len(p.live) < to {
				steps = append(steps, p.add())
			}
			for len(p.live) > to {
				steps = append(steps, p.remove())
			}
			return steps
		},
	}
}

// planner knows which pods there are.
type planner struct {
	live []int // the pods of the Service, oldest first
	next int   // the number of the next new one
}

// newPlanner returns a planner for a Service with that many pods, numbered from 0.
func newPlanner(replicas int) *planner {
	p := &planner{next: replicas}
	for n := range replicas {
		p.live = append(p.live, n)
	}
	return p
}

// add adds a pod that there has not been.
func (p *planner) add() step {
	n := p.next
	p.next++
	p.live = append(p.live, n)
	return step{add: []int{n}}
}

// remove removes the oldest pod.
func (p *planner) remove() step {
	n := p.live[0]
	p.live = slices.Delete(p.live, 0, 1)
	return step{remove: []int{n}}
}
