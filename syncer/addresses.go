package syncer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Addresses knows the addresses of the interfaces of a network namespace, on which
// NodePorts may be served. They are those that Go's net.InterfaceAddrs lists, and so
// those that kube-proxy uses, without loopback addresses: also link-local, tentative
// and deprecated ones, and those of interfaces that are down. Of a point-to-point link
// it is the own address.
type Addresses struct {
	open    func() (addressTable, error)
	changed func([]netip.Addr)
	problem func(error)
}

// addressTable is the kernel's table of addresses and a subscription to its changes. It
// is of no use any more after an error.
type addressTable interface {
	// dump returns all addresses, in any order and perhaps repeatedly, and not before
	// everything that wait has told of. With an error some may have been left out.
	dump() ([]netip.Addr, error)
	// wait returns nil when something may have changed since the last wait, and an
	// error when the context is done.
	wait(ctx context.Context) error
	close() error
}

// NewAddresses returns an Addresses for the network namespace with this file
// descriptor, 0 for that of the process. The functions are called by Run, and it does
// nothing else until they return.
//
// The set of addresses goes to changed: once it is known, and each time that it
// differs from what was told before. It is sorted, without zones and duplicates,
// and the receiver's. A set that could not be read in full is never told.
//
// Problems go to problem. What fails repeatedly is told once, until it has worked
// again. Interrupted dumps and lost notifications, which are usual where much changes,
// are told if they do not stop.
func NewAddresses(netns int, changed func([]netip.Addr), problem func(error)) *Addresses {
	open := func() (addressTable, error) { return openNetlinkAddresses(netns) }
	return &Addresses{open: open, changed: changed, problem: problem}
}

// Run follows the addresses until the context is done, then returns nil. No failure
// ends it: it tries again, at first after 20 ms, at most every 10 s.
func (a *Addresses) Run(ctx context.Context) error {
	f := following{Addresses: a}
	for ctx.Err() == nil {
		if err := f.follow(ctx); err != nil && ctx.Err() == nil {
			err = fmt.Errorf("the addresses of this node are not up to date, it is tried again: %w", err)
			sleep(ctx, f.doing.failed(err, a.problem))
		}
	}
	return nil
}

// following is what Run knows.
type following struct {
	*Addresses
	told  bool         // is known below told at all?
	known []netip.Addr // the last good set

	opening, dumping, waiting trouble
	doing                     *trouble // the one of the three that is tried
}

// follow tells of the set and of its changes until something goes wrong or the context
// is done.
func (f *following) follow(ctx context.Context) (err error) {
	f.doing = &f.opening
	table, err := f.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, table.close()) }()
	f.opening.over()
	for {
		f.doing = &f.dumping
		addrs, err := table.dump()
		if err != nil {
			return err
		}
		f.dumping.over()
		if ctx.Err() != nil {
			return nil
		}
		f.tell(addrs)

		f.doing = &f.waiting
		if err := table.wait(ctx); err != nil {
			return err
		}
		f.waiting.over()
	}
}

// tell calls changed if the addresses differ from those told before.
func (f *following) tell(addrs []netip.Addr) {
	addrs = slices.DeleteFunc(addrs, netip.Addr.IsLoopback)
	slices.SortFunc(addrs, netip.Addr.Compare)
	addrs = slices.Compact(addrs)
	if f.told && slices.Equal(addrs, f.known) {
		return
	}
	f.told, f.known = true, addrs
	f.changed(slices.Clone(addrs))
}
