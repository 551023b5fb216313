package syncer

import (
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
)

// The port IDs of tests.
const ourPort, otherPort, strangersPort = 4711, 4712, 4800

// fakeFeed is a subscription that goes wrong on request, and the sockets of this
// process. Each fault is that of one call, nil for none.
type fakeFeed struct {
	openFaults, scanFaults []error
	sockets                map[uint32]int // the file descriptor of every port ID
	parts                  chan received

	ctx     context.Context
	open    bool
	ignored []uint32
	events  []string // what was told
}

type received struct {
	part []byte
	err  error
}

func (f *fakeFeed) openFeed() (changeFeed, error) {
	if f.open {
		return nil, errors.New("it is open")
	}
	if err := next(&f.openFaults); err != nil {
		return nil, err
	}
	f.open = true
	return f, nil
}

func (f *fakeFeed) bind(ctx context.Context) (stop func()) {
	f.ctx = ctx
	return func() { f.ctx = nil }
}

func (f *fakeFeed) leave() error { return nil }

func (f *fakeFeed) receive() ([]byte, error) {
	select {
	case <-f.ctx.Done():
		return nil, f.ctx.Err()
	case r := <-f.parts:
		return r.part, r.err
	}
}

func (f *fakeFeed) ignore(ports []uint32) error {
	f.ignored = ports
	return nil
}

func (f *fakeFeed) join() error {
	if f.ignored == nil {
		f.tell("joined too early")
	}
	return nil
}

func (f *fakeFeed) close() error {
	f.open, f.ignored = false, nil
	return nil
}

func (f *fakeFeed) listPorts() (map[uint32]int, error) {
	if err := next(&f.scanFaults); err != nil {
		return nil, err
	}
	return maps.Clone(f.sockets), nil
}

func (f *fakeFeed) portAt(fd int) (uint32, bool) {
	for port, at := range f.sockets {
		if at == fd {
			return port, true
		}
	}
	return 0, false
}

func (f *fakeFeed) tell(event string) { f.events = append(f.events, event) }

// want compares what was told since the last time, with everything that still happens
// within a while.
func (f *fakeFeed) want(t *testing.T, what string, want ...string) {
	t.Helper()
	time.Sleep(time.Minute)
	synctest.Wait()
	if diff := cmp.Diff(want, f.events); diff != "" {
		t.Errorf("%s: wanted (-), told (+):\n%s", what, diff)
	}
	f.events = nil
}

// send has the kernel send messages in one datagram.
func (f *fakeFeed) send(messages ...[]byte) { f.parts <- received{part: slices.Concat(messages...)} }

func (f *fakeFeed) fail(err error) { f.parts <- received{err: err} }

// watched runs a test with a Monitor over a fakeFeed in simulated time.
func watched(t *testing.T, feed *fakeFeed, test func(t *testing.T, f *fakeFeed)) {
	synctest.Test(t, func(t *testing.T) {
		feed.parts = make(chan received)
		if feed.sockets == nil {
			feed.sockets = map[uint32]int{ourPort: 7}
		}
		m := &Monitor{
			open: feed.openFeed, ports: ownPorts{list: feed.listPorts, at: feed.portAt},
			foreign: func(c ForeignChange) { feed.tell(c.String()) },
			lost:    func() { feed.tell("lost") },
			problem: func(err error) { feed.tell("problem: " + errors.Unwrap(err).Error()) },

			subscribed: make(chan struct{}),
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		test(t, feed)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if feed.open || feed.ctx != nil {
			t.Error("the subscription is still open")
		}
		if len(feed.events) > 0 {
			t.Errorf("told at the end: %q", feed.events)
		}
	})
}

// notification makes the kernel's message about an object in a table.
func notification(messageType uint16, port uint32, family uint8, table string) []byte {
	b := appendRequest(nil, unix.NFNL_SUBSYS_NFTABLES<<8|messageType, 0, 0, family)
	binary.NativeEndian.PutUint32(b[12:], port)
	b = appendAttr(b, unix.NFTA_TABLE_NAME, append([]byte(table), 0)...)
	return finish(appendAttr(b, 2, []byte("an object's name")...))
}

// element is a message about an element that was added to our IPv4 table.
func element(port uint32) []byte {
	return notification(unix.NFT_MSG_NEWSETELEM, port, unix.NFPROTO_IPV4, rules.TableName)
}

// generation makes the message that ends a transaction.
func generation(port uint32, pid uint32, process string) []byte {
	b := appendRequest(nil, newGeneration, 0, 0, unix.AF_UNSPEC)
	binary.NativeEndian.PutUint32(b[12:], port)
	b = appendAttr(b, unix.NFTA_GEN_ID, 0, 0, 0, 1)
	b = appendAttr(b, unix.NFTA_GEN_PROC_PID, binary.BigEndian.AppendUint32(nil, pid)...)
	return finish(appendAttr(b, unix.NFTA_GEN_PROC_NAME, append([]byte(process), 0)...))
}

const strangersElement = "process 99 (nft) added 1 and deleted 0 objects"

// TestTransactions: whose they are, and where one ends.
func TestTransactions(t *testing.T) {
	watched(t, &fakeFeed{}, func(t *testing.T, f *fakeFeed) {
		f.send(element(strangersPort))
		f.want(t, "a transaction that has not ended")
		f.send(notification(unix.NFT_MSG_DELRULE, strangersPort, unix.NFPROTO_IPV6, rules.TableName),
			notification(unix.NFT_MSG_NEWRULE, strangersPort, unix.NFPROTO_INET, rules.TableName))
		f.send(generation(strangersPort, 99, "nft"))
		f.want(t, "its end", "process 99 (nft) added 1 and deleted 1 objects")
		f.send(generation(strangersPort, 99, "nft"))
		f.want(t, "one that is not about our tables")
		f.send(element(ourPort), generation(ourPort, 99, "nft"), element(strangersPort), generation(strangersPort, 99, "nft"))
		f.want(t, "ours and a stranger's in one datagram", strangersElement)
		f.send()
		f.want(t, "nothing")
	})
}

// TestOwnSockets: what this process opens is ours as soon as it commits, and what it
// closed is not.
func TestOwnSockets(t *testing.T) {
	watched(t, &fakeFeed{}, func(t *testing.T, f *fakeFeed) {
		ignored := func(ports ...uint32) {
			t.Helper()
			if diff := cmp.Diff(ports, f.ignored); diff != "" {
				t.Errorf("wanted (-), ignored (+):\n%s", diff)
			}
		}
		f.want(t, "nothing yet")
		ignored(ourPort)
		f.sockets[otherPort] = 8
		f.send(element(otherPort), generation(otherPort, 99, "nftproxy"))
		f.want(t, "a new socket")
		ignored(ourPort, otherPort)

		delete(f.sockets, otherPort)
		f.sockets[otherPort] = 9
		f.send(generation(otherPort, 99, "nftproxy"))
		f.want(t, "the same port ID at another descriptor")
		ignored(ourPort, otherPort)

		f.sockets = map[uint32]int{ourPort: 7, strangersPort + 1: 9}
		f.send(generation(otherPort, 99, "nft")) // its other notifications were ignored
		f.want(t, "a port ID that we had", "lost")
		ignored(ourPort, strangersPort+1)
		f.send(element(otherPort), generation(otherPort, 99, "nft"))
		f.want(t, "it is a stranger's now", strangersElement)

		f.scanFaults = []error{unix.EMFILE}
		f.send(element(strangersPort), generation(strangersPort, 99, "nft"))
		f.want(t, "nobody knows whose", "problem: "+unix.EMFILE.Error(), "lost")
	})
}

// TestLostNotifications: after them nobody knows what happened, and what is left of the
// transaction that they were about says nothing.
func TestLostNotifications(t *testing.T) {
	watched(t, &fakeFeed{}, func(t *testing.T, f *fakeFeed) {
		for range 10 {
			f.send(element(strangersPort))
			f.fail(errOverrun)
			f.want(t, "an overrun", "lost")
			f.send(generation(strangersPort, 99, "nft"))
			f.want(t, "the rest of the transaction")
		}
		f.fail(unix.EBADF)
		f.want(t, "it broke", "problem: "+unix.EBADF.Error(), "lost")
		f.fail(unix.EBADF)
		f.want(t, "it broke again", "lost")
		f.send([]byte("no message"))
		f.want(t, "it is of no use", "lost")
		f.send(element(strangersPort), generation(strangersPort, 99, "nft"))
		f.want(t, "it works", strangersElement)
		f.fail(unix.EBADF)
		f.want(t, "it broke after it had worked", "problem: "+unix.EBADF.Error(), "lost")
	})
}

// TestLateSubscription: what happened before it may matter.
func TestLateSubscription(t *testing.T) {
	feed := &fakeFeed{openFaults: []error{unix.EMFILE, unix.EMFILE}, scanFaults: []error{unix.ENOENT}}
	watched(t, feed, func(t *testing.T, f *fakeFeed) {
		f.want(t, "no descriptors, then no /proc", "problem: "+unix.EMFILE.Error(), "lost")
		f.send(element(strangersPort), generation(strangersPort, 99, "nft"))
		f.want(t, "it works", strangersElement)
	})
	watched(t, &fakeFeed{openFaults: slices.Repeat([]error{unix.EMFILE}, 1000)}, func(t *testing.T, f *fakeFeed) {
		f.want(t, "for a minute", "problem: "+unix.EMFILE.Error())
	})
}
