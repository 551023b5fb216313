// Package namespace runs code in private network namespaces.
//
// A Namespace is anonymous: nothing but open file descriptors (and the
// processes started in it) holds it, so a test that crashes leaves nothing
// behind. A thread enters a namespace for the length of one function call and
// leaves it again; a socket opened there belongs to the namespace for good and
// may be used from any goroutine.
package namespace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace of this process's own. Its methods may be
// called from several goroutines at once, but for Close.
type Namespace struct {
	name   string
	handle netns.NsHandle
}

// New makes a namespace in which only the loopback interface is up. The name
// appears in error messages; it need not be unique.
func New(name string) (*Namespace, error) {
	handle, err := newHandle()
	if err != nil {
		return nil, fmt.Errorf("make network namespace %s: %w", name, err)
	}
	n := &Namespace{name: name, handle: handle}
	if err := n.loopbackUp(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// newHandle makes a namespace and leaves the calling thread where it was.
func newHandle() (handle netns.NsHandle, err error) {
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return netns.None(), fmt.Errorf("read this thread's namespace: %w", err)
	}
	defer func() { err = errors.Join(err, leave(before)) }()
	return netns.New()
}

// loopbackUp brings up the loopback interface.
func (n *Namespace) loopbackUp() error {
	links, err := n.Netlink()
	if err != nil {
		return err
	}
	defer links.Close()
	lo, err := links.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo in %s: %w", n.name, err)
	}
	if err := links.LinkSetUp(lo); err != nil {
		return fmt.Errorf("bring up lo in %s: %w", n.name, err)
	}
	return nil
}

// Name is the name given to New.
func (n *Namespace) Name() string { return n.name }

// Close lets go of the namespace. It ends, with all its interfaces, once no
// process and no socket of it is left.
func (n *Namespace) Close() error {
	if err := n.handle.Close(); err != nil {
		return fmt.Errorf("close namespace %s: %w", n.name, err)
	}
	return nil
}

// Do runs fn in the namespace, on a thread of its own for that long. What fn
// does on the calling goroutine happens in the namespace; goroutines that it
// starts run elsewhere. Calls may be nested.
func (n *Namespace) Do(fn func() error) (err error) {
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("read this thread's namespace: %w", err)
	}
	defer func() { err = errors.Join(err, leave(before)) }()
	if err := netns.Set(n.handle); err != nil {
		return fmt.Errorf("enter namespace %s: %w", n.name, err)
	}
	return fn()
}

// leave puts the locked calling thread back into the namespace before, and
// unlocks it. A thread that cannot go back stays locked, so that it ends with
// its goroutine and no other code ever runs on it.
func leave(before netns.NsHandle) error {
	if err := netns.Set(before); err != nil {
		return errors.Join(fmt.Errorf("leave a namespace: %w", err), before.Close())
	}
	runtime.UnlockOSThread()
	if err := before.Close(); err != nil {
		return fmt.Errorf("close this thread's namespace: %w", err)
	}
	return nil
}

// Netlink opens an rtnetlink handle in the namespace. The caller closes it.
func (n *Namespace) Netlink() (*netlink.Handle, error) {
	handle, err := netlink.NewHandleAt(n.handle, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink in %s: %w", n.name, err)
	}
	return handle, nil
}

// LinkNamespace names the namespace to the netlink package, for the end of a
// link that is to be made in it.
func (n *Namespace) LinkNamespace() netlink.NsFd { return netlink.NsFd(n.handle) }

// SetSysctl sets a setting of the namespace. The key has slashes, since names
// of interfaces may have dots: "net/ipv4/ip_forward".
func (n *Namespace) SetSysctl(key, value string) error {
	path := "/proc/sys/" + key
	err := n.Do(func() error { return os.WriteFile(path, []byte(value+"\n"), 0) })
	if err != nil {
		return fmt.Errorf("set %s in %s: %w", key, n.name, err)
	}
	return nil
}

// DialContext connects from the namespace to an address and port given in
// numbers, over tcp or udp. It has the form that a rest.Config's Dial wants.
func (n *Namespace) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	remote, err := netip.ParseAddrPort(address)
	if err != nil {
		// Looking up a name would open sockets on other threads.
		return nil, fmt.Errorf("dial from %s: %w", n.name, err)
	}
	var conn net.Conn
	err = n.Do(func() error {
		var err error
		conn, err = dial(ctx, network, remote)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dial from %s: %w", n.name, err)
	}
	return conn, nil
}

func dial(ctx context.Context, network string, remote netip.AddrPort) (net.Conn, error) {
	var dialer net.Dialer
	switch network {
	case "tcp", "tcp4", "tcp6":
		return dialer.DialTCP(ctx, network, netip.AddrPort{}, remote)
	case "udp", "udp4", "udp6":
		return dialer.DialUDP(ctx, network, netip.AddrPort{}, remote)
	default:
		return nil, net.UnknownNetworkError(network)
	}
}

// ListenTCP listens on an address and port of the namespace.
func (n *Namespace) ListenTCP(at netip.AddrPort) (*net.TCPListener, error) {
	var listener *net.TCPListener
	err := n.Do(func() error {
		var err error
		listener, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen in %s: %w", n.name, err)
	}
	return listener, nil
}

// ListenUDP opens a UDP socket bound to an address and port of the namespace.
func (n *Namespace) ListenUDP(at netip.AddrPort) (*net.UDPConn, error) {
	var conn *net.UDPConn
	err := n.Do(func() error {
		var err error
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listen in %s: %w", n.name, err)
	}
	return conn, nil
}

// Command runs a short command in the namespace and returns what it prints;
// stdin is given to it.
func (n *Namespace) Command(ctx context.Context, stdin, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := n.Do(cmd.Run); err != nil {
		return "", fmt.Errorf("%s %s in %s: %w: %s",
			name, strings.Join(args, " "), n.name, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
