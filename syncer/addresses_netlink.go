package syncer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// addressBuffer holds some thousand notifications. To lose some costs no more than
// another dump.
const addressBuffer = 1 << 20

// netlinkAddresses is the real addressTable. It does not look into notifications: after
// any of them it dumps again. So it need not know in which order they and a dump were
// made, and a burst costs few dumps.
type netlinkAddresses struct {
	changes *subscription
	handle  *netlink.Handle // for dumps
}

func openNetlinkAddresses(netnsFD int) (addressTable, error) {
	changes, err := subscribe(netnsFD, unix.NETLINK_ROUTE, unix.RTMGRP_IPV4_IFADDR|unix.RTMGRP_IPV6_IFADDR, addressBuffer)
	if err != nil {
		return nil, err
	}
	namespace := netns.None()
	if netnsFD != 0 {
		namespace = netns.NsHandle(netnsFD)
	}
	handle, err := netlink.NewHandleAt(namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open a netlink socket: %w", err), changes.close())
	}
	t := &netlinkAddresses{changes: changes, handle: handle}
	if err := handle.SetSocketTimeout(answerTimeout); err != nil {
		return nil, errors.Join(fmt.Errorf("set the timeout of a netlink socket: %w", err), t.close())
	}
	return t, nil
}

// dump cannot be stopped by a context: the kernel makes each part of a dump while it is
// asked for it, and nothing stops it then.
func (t *netlinkAddresses) dump() ([]netip.Addr, error) {
	list, err := t.handle.AddrList(nil, netlink.FAMILY_ALL)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		err = errChanging
	}
	if err != nil {
		return nil, fmt.Errorf("list the addresses of all interfaces: %w", err)
	}
	addrs := make([]netip.Addr, 0, len(list))
	for _, a := range list {
		if a.IPNet == nil {
			continue
		}
		if addr, ok := netip.AddrFromSlice(a.IP); ok { // else of a protocol other than IP
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

func (t *netlinkAddresses) wait(ctx context.Context) error {
	stop := t.changes.bind(ctx)
	defer stop()
	if _, err := t.changes.receive(); err != nil {
		return err
	}
	return t.changes.drain()
}

func (t *netlinkAddresses) close() error {
	t.handle.Close()
	return t.changes.close()
}
