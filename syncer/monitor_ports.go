package syncer

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// ownPorts knows the port IDs of the netfilter sockets of this process. A port ID belongs
// to one socket of a network namespace at a time; when that is closed, another process
// may get it.
type ownPorts struct {
	known map[uint32]int // the file descriptor of every port ID, when last scanned

	list func() (map[uint32]int, error)      // what known should be
	at   func(fd int) (port uint32, ok bool) // the port ID of a netfilter socket
}

// scan finds all sockets anew.
func (p *ownPorts) scan() (err error) {
	p.known, err = p.list()
	return err
}

// all returns the port IDs, sorted.
func (p *ownPorts) all() []uint32 { return slices.Sorted(maps.Keys(p.known)) }

// had reports whether the last scan found the port ID.
func (p *ownPorts) had(port uint32) bool {
	_, ok := p.known[port]
	return ok
}

// owns reports whether the last scan found the port ID, and it is still ours.
func (p *ownPorts) owns(port uint32) bool {
	fd, ok := p.known[port]
	if !ok {
		return false
	}
	now, ok := p.at(fd)
	return ok && now == port
}

// listPorts looks at every file descriptor of the process. So nobody who opens a socket
// has to say so.
func listPorts() (map[uint32]int, error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil, fmt.Errorf("find the sockets of this process: %w", err)
	}
	ports := map[uint32]int{}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if port, ok := portAt(fd); ok {
			ports[port] = fd
		}
	}
	return ports, nil
}

// portAt returns the port ID of a netfilter socket, if the file descriptor is one: it
// may have been closed, and used for something else.
func portAt(fd int) (port uint32, ok bool) {
	// Port IDs are counted for each protocol. A file that is no socket has none.
	if protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL); err != nil || protocol != unix.NETLINK_NETFILTER {
		return 0, false
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		return 0, false
	}
	netlink, ok := address.(*unix.SockaddrNetlink)
	if !ok {
		return 0, false
	}
	return netlink.Pid, true
}
