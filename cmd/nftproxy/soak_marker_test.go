package main

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

const (
	// marker is the number of one more Service, which says what is in force.
	marker = soakServices
	// markerLimit is how long a marker may take: longer than any outage here.
	markerLimit = time.Minute
)

// lags are how long it took from a change of the marker to its rules, with the time
// between two attempts to connect.
type lags struct {
	quiet   []time.Duration // without an outage
	outages []time.Duration
}

func (l *lags) log(t *testing.T) {
	t.Helper()
	for what, all := range map[string][]time.Duration{"without an outage": l.quiet, "with one": l.outages} {
		if slices.Sort(all); len(all) > 0 {
			t.Logf("%d markers %s: in force after %s (median), %s (p99), %s (at most)",
				len(all), what, all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
		}
	}
}

// mark changes the marker and waits until its rules are in force, until the end. The API
// server tells of changes of slices in their order, so that all that was told before is
// in force too.
func (s *soak) mark(t *testing.T, end <-chan struct{}) {
	err := s.bench.ns.Do(func() error {
		troubles := 0
		for n := 0; ; n++ {
			select {
			case <-end:
				return nil
			case <-time.After(20 * time.Millisecond):
			}
			s.endpoints[marker] = []int{n % 30}
			told := time.Now()
			s.putSlice(t, marker)
			if reached, err := s.reach(t, podIP(marker, n%30), end); err != nil || !reached {
				return err
			}
			troubles = s.known(told, troubles)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// reach connects to the marker until that endpoint answers. It returns false at the end.
func (s *soak) reach(t *testing.T, endpoint netip.Addr, end <-chan struct{}) (bool, error) {
	for begin := time.Now(); time.Since(begin) < markerLimit; {
		answers, err := connectOnce(t, marker)
		switch {
		case err != nil:
			s.wrong.add()
			return false, fmt.Errorf("connection to the marker: %w", err)
		case answers == endpoint:
			return true, nil
		}
		select {
		case <-end:
			return false, nil
		case <-time.After(5 * time.Millisecond):
		}
	}
	return false, fmt.Errorf("a change is not in force after %s", markerLimit)
}

// known notes that what was told before a time is in force. It takes and returns how many
// outages have begun or ended.
func (s *soak) known(told time.Time, troubles int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inForce = told
	lag := time.Since(told)
	if troubles == s.troubles {
		s.lags.quiet = append(s.lags.quiet, lag)
	} else {
		s.lags.outages = append(s.lags.outages, lag)
	}
	return s.troubles
}

// trouble makes an outage. Until the next marker is in force nothing is known.
func (s *soak) trouble(outage func()) {
	note := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.troubles++
	}
	note()
	outage()
	note()
}
