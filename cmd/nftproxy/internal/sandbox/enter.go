package sandbox

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
)

// Enter makes sure that this process is in a network namespace that is its own, brings
// up the loopback interface and returns it. The error of a machine that forbids that
// says how to run the subcommand.
func Enter(command string) (netlink.Link, error) {
	if err := checkFresh(); err != nil {
		return nil, err
	}
	enableIPv6()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, fmt.Errorf("find the loopback interface: %w", err)
	}
	err = netlink.LinkSetUp(lo)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		// A security module that allows the namespace, but nothing in it.
		return nil, explain(err, -1, command)
	}
	if err != nil {
		return nil, fmt.Errorf("bring up the loopback interface: %w", err)
	}
	return lo, nil
}

// checkFresh returns an error unless this is another network namespace than the one
// outside, and nothing is in use there.
func checkFresh() error {
	here, err := os.Readlink(thisNetns)
	if err != nil {
		return fmt.Errorf("which network namespace this is: %w", err)
	}
	if here == os.Getenv(insideEnv) {
		return fmt.Errorf("this is not a private network namespace: unset %s", insideEnv)
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list the network interfaces: %w", err)
	}
	// Tunnel modules put an interface into every namespace, which is down.
	for _, l := range links {
		if l.Attrs().Flags&net.FlagUp != 0 {
			return fmt.Errorf("this is not a private network namespace, interface %s is up: unset %s", l.Attrs().Name, insideEnv)
		}
	}
	return nil
}

// enableIPv6 turns IPv6 on in case new namespaces have it off. Where that is not
// possible, there is IPv4 alone.
func enableIPv6() {
	for _, name := range []string{"all", "default", "lo"} {
		_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("0\n"), 0)
	}
}
