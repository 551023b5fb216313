package demo

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// maxReasons is how many failures are remembered with their reason.
const maxReasons = 3

// tally counts the connections to a target.
type tally struct {
	answers map[netip.AddrPort]int
	failed  int
	slowest time.Duration // of those answered
	reasons []string      // of the first failures
}

// note counts a connection.
func (t *tally) note(answer netip.AddrPort, took time.Duration, err error) {
	if err != nil {
		t.failed++
		if len(t.reasons) < maxReasons {
			t.reasons = append(t.reasons, err.Error())
		}
		return
	}
	if t.answers == nil {
		t.answers = map[netip.AddrPort]int{}
	}
	t.answers[answer]++
	t.slowest = max(t.slowest, took)
}

// add adds what another one has counted.
func (t *tally) add(other tally) {
	if t.answers == nil {
		t.answers = map[netip.AddrPort]int{}
	}
	for addr, n := range other.answers {
		t.answers[addr] += n
	}
	t.failed += other.failed
	t.slowest = max(t.slowest, other.slowest)
	t.reasons = append(t.reasons, other.reasons...)
	t.reasons = t.reasons[:min(len(t.reasons), maxReasons)]
}

// answered returns the number of connections that were answered.
func (t *tally) answered() int {
	sum := 0
	for n := range maps.Values(t.answers) {
		sum += n
	}
	return sum
}

// sortedAddrs returns who answered.
func (t *tally) sortedAddrs() []netip.AddrPort {
	return slices.SortedFunc(maps.Keys(t.answers), netip.AddrPort.Compare)
}
