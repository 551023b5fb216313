package syncer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// fakeAddresses is a table of addresses that goes wrong on request. Each fault is that
// of one call, nil for none.
type fakeAddresses struct {
	addrs                         []netip.Addr
	openFaults, dumpFaults, waits []error
	news                          chan struct{}
	opened                        []time.Time
	open                          bool
}

func next(faults *[]error) error {
	if len(*faults) == 0 {
		return nil
	}
	err := (*faults)[0]
	*faults = (*faults)[1:]
	return err
}

func (t *fakeAddresses) openTable() (addressTable, error) {
	t.opened = append(t.opened, time.Now())
	if t.open {
		return nil, errors.New("it is open")
	}
	if err := next(&t.openFaults); err != nil {
		return nil, err
	}
	t.open = true
	return t, nil
}

// dump returns half of the addresses with an error.
func (t *fakeAddresses) dump() ([]netip.Addr, error) {
	if err := next(&t.dumpFaults); err != nil {
		return t.addrs[:len(t.addrs)/2], err
	}
	return slices.Clone(t.addrs), nil
}

func (t *fakeAddresses) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.news:
		return next(&t.waits)
	}
}

func (t *fakeAddresses) close() error {
	t.open = false
	return nil
}

func (t *fakeAddresses) set(addrs string) {
	t.addrs = nil
	for field := range strings.FieldsSeq(addrs) {
		t.addrs = append(t.addrs, netip.MustParseAddr(field))
	}
}

// heard is what Addresses told, in order.
type heard []string

func (h *heard) changed(addrs []netip.Addr) {
	*h = append(*h, strings.Trim(fmt.Sprint(addrs), "[]"))
	clear(addrs) // ours
}

func (h *heard) problem(err error) { *h = append(*h, "problem: "+errors.Unwrap(err).Error()) }

// want compares what was told since the last time, with everything that still happens
// within a while.
func (h *heard) want(t *testing.T, what string, want ...string) {
	t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	if diff := cmp.Diff(want, []string(*h)); diff != "" {
		t.Errorf("%s: wanted (-), told (+):\n%s", what, diff)
	}
	*h = nil
}

// followed runs a test with an Addresses over a fakeAddresses in simulated time.
func followed(t *testing.T, table *fakeAddresses, test func(t *testing.T, h *heard)) {
	synctest.Test(t, func(t *testing.T) {
		table.news = make(chan struct{})
		h := &heard{}
		a := &Addresses{open: table.openTable, changed: h.changed, problem: h.problem}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
		test(t, h)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if table.open {
			t.Error("the table is still open")
		}
		if len(*h) > 0 {
			t.Errorf("told at the end: %q", *h)
		}
	})
}

// TestAddressesAreToldWhenTheyDiffer: sorted, each once, without loopback.
func TestAddressesAreToldWhenTheyDiffer(t *testing.T) {
	table := &fakeAddresses{}
	table.set("fe80::1 192.0.2.7 127.0.0.1 ::1 10.0.0.1 fe80::1 127.8.8.8 2001:db8::1 169.254.1.1")
	followed(t, table, func(t *testing.T, h *heard) {
		h.want(t, "the first set", "10.0.0.1 169.254.1.1 192.0.2.7 2001:db8::1 fe80::1")
		table.news <- struct{}{}
		h.want(t, "the same set")
		table.set("10.0.0.1 fe80::1 2001:db8::1 192.0.2.7 169.254.1.1 127.0.0.2")
		table.news <- struct{}{}
		h.want(t, "the same set in another order and another loopback address")
		table.set("10.0.0.1 2001:db8::1")
		table.news <- struct{}{}
		h.want(t, "some less", "10.0.0.1 2001:db8::1")
		table.set("")
		table.news <- struct{}{}
		h.want(t, "none", "")
		table.news <- struct{}{}
		h.want(t, "none again")
	})
}

// TestNoAddressesAreToldToo: the first set may be empty.
func TestNoAddressesAreToldToo(t *testing.T) {
	table := &fakeAddresses{}
	table.set("127.0.0.1 ::1")
	followed(t, table, func(t *testing.T, h *heard) { h.want(t, "the first set", "") })
}

// TestFailedDumpIsNoTruth: a dump with an error is not told, whatever it showed, before
// the first good one and after it. What passes by itself is a problem only if it stays.
func TestFailedDumpIsNoTruth(t *testing.T) {
	for name, test := range map[string]struct {
		faults   []error
		problems []string
	}{
		"interrupted":       {[]error{errChanging}, nil},
		"EINTR":             {[]error{unix.EINTR, unix.EINTR}, nil},
		"often interrupted": {slices.Repeat([]error{errChanging}, 10), []string{"problem: " + errChanging.Error()}},
		"refused":           {[]error{unix.EPERM, unix.EPERM, unix.EPERM}, []string{"problem: " + unix.EPERM.Error()}},
		"in between":        {[]error{errChanging, unix.ENOMEM, errChanging}, []string{"problem: " + unix.ENOMEM.Error()}},
	} {
		t.Run(name, func(t *testing.T) {
			table := &fakeAddresses{dumpFaults: test.faults}
			table.set("10.0.0.1 10.0.0.2")
			followed(t, table, func(t *testing.T, h *heard) {
				h.want(t, "the first set", append(slices.Clone(test.problems), "10.0.0.1 10.0.0.2")...)
				table.set("10.0.0.3 10.0.0.4")
				table.dumpFaults = test.faults
				table.news <- struct{}{}
				h.want(t, "another set", append(slices.Clone(test.problems), "10.0.0.3 10.0.0.4")...)
			})
		})
	}
}

// TestBrokenSubscriptionIsReplaced: a subscription that lost notifications or broke is
// opened again, and what changed meanwhile is seen.
func TestBrokenSubscriptionIsReplaced(t *testing.T) {
	table := &fakeAddresses{openFaults: []error{unix.EMFILE, unix.EMFILE}}
	table.set("10.0.0.1")
	followed(t, table, func(t *testing.T, h *heard) {
		h.want(t, "no descriptors at first", "problem: "+unix.EMFILE.Error(), "10.0.0.1")
		for i := range 20 {
			table.set(fmt.Sprintf("10.0.1.%d", i))
			table.waits = []error{errOverrun}
			table.news <- struct{}{}
			h.want(t, "notifications were lost", fmt.Sprintf("10.0.1.%d", i))
			table.news <- struct{}{}
			h.want(t, "they come again")
		}
		table.set("10.0.0.2")
		table.waits = []error{unix.EBADF}
		table.openFaults = []error{unix.EMFILE}
		table.news <- struct{}{}
		h.want(t, "it broke", "problem: "+unix.EBADF.Error(), "problem: "+unix.EMFILE.Error(), "10.0.0.2")
		table.set("10.0.0.3")
		table.waits = []error{unix.EBADF}
		table.news <- struct{}{}
		h.want(t, "it broke before it had worked", "10.0.0.3")
		table.news <- struct{}{}
		h.want(t, "it works")
		table.waits = []error{unix.EBADF}
		table.news <- struct{}{}
		h.want(t, "it broke after it had worked", "problem: "+unix.EBADF.Error())
	})
}

// TestAddressesAreTriedLessAndLess: failures in a row double the pause, from 20 ms to
// 10 s, and the next failure after a success begins anew.
func TestAddressesAreTriedLessAndLess(t *testing.T) {
	const failures = 13
	table := &fakeAddresses{openFaults: slices.Repeat([]error{unix.EMFILE}, failures)}
	followed(t, table, func(t *testing.T, h *heard) {
		h.want(t, "for a minute", "problem: "+unix.EMFILE.Error(), "")
		want := []int64{20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10_000, 10_000, 10_000, 10_000}
		for i := range failures {
			if gap := table.opened[i+1].Sub(table.opened[i]); gap.Milliseconds() != want[i] {
				t.Errorf("pause %d was %s", i+1, gap)
			}
		}
		table.opened = nil
		table.openFaults, table.waits = []error{unix.EMFILE}, []error{errOverrun}
		table.news <- struct{}{}
		h.want(t, "one failure more", "problem: "+unix.EMFILE.Error())
		if gap := table.opened[1].Sub(table.opened[0]); gap != 20*time.Millisecond {
			t.Errorf("the first pause was %s", gap)
		}
	})
}

// TestAddressesStopWhileTheyFail: the end does not wait for the next attempt.
func TestAddressesStopWhileTheyFail(t *testing.T) {
	table := &fakeAddresses{openFaults: slices.Repeat([]error{unix.EMFILE}, 1000)}
	followed(t, table, func(t *testing.T, h *heard) {
		h.want(t, "for a minute", "problem: "+unix.EMFILE.Error())
	})
}
