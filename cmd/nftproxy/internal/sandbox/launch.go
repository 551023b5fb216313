// Package sandbox runs this program again in a network namespace of its own: as root, or
// as root of a user namespace. Nothing that it does there touches the machine.
//
//	Launch: outside, clones this program into the namespaces
//	   |
//	Enter: inside, makes sure of that and brings up the loopback interface
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"
)

const (
	// insideEnv tells the process in the namespaces what it is there for. Its value
	// is the name of the network namespace outside, so that it can make sure.
	insideEnv = "NFTPROXY_SANDBOX_OUTSIDE"
	// thisNetns is a link to the name of this process's network namespace.
	thisNetns = "/proc/self/ns/net"
	// endTimeout is how long the process inside may take to end when it is told to.
	endTimeout = 5 * time.Second
)

// ErrReported is returned when everything that is to be said was said.
var ErrReported = errors.New("the program in the private namespace has failed")

// Inside reports whether this process was started by Launch.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// Launch runs this program, with the given arguments (a subcommand first), in a network namespace of its
// own, and in a user namespace as well unless root needs none. It waits for its end.
// When the context is done, or this process dies, the other one is ended too.
func Launch(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	outside, err := os.Readlink(thisNetns)
	if err != nil {
		return fmt.Errorf("which network namespace this is: %w", err)
	}
	// The process is told of the death of the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var errs []error
	for _, attr := range waysIn(os.Geteuid(), os.Getegid()) {
		cmd := exec.CommandContext(ctx, "/proc/self/exe", args...) //nolint:gosec // this program
		cmd.Env = append(os.Environ(), insideEnv+"="+outside)
		cmd.Stdout, cmd.Stderr = stdout, stderr
		cmd.SysProcAttr = attr
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = endTimeout
		if err = cmd.Start(); err == nil {
			return outcome(cmd.Wait())
		}
		errs = append(errs, err)
	}
	return explain(errors.Join(errs...), os.Geteuid(), args[0])
}

// waysIn returns the ways to get into a private network namespace, in the order to
// try: root needs no user namespace, unless it is a container's without that right.
func waysIn(uid, gid int) []*syscall.SysProcAttr {
	user := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: gid, Size: 1}},
		Pdeathsig:   syscall.SIGTERM, // not SIGKILL: it removes its files
	}
	if uid != 0 {
		return []*syscall.SysProcAttr{user}
	}
	return []*syscall.SysProcAttr{{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}, user}
}

// outcome returns what the end of the process inside means. One that ended by itself
// has said what was wrong.
func outcome(err error) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &exit) && exit.Exited():
		return ErrReported
	default:
		return fmt.Errorf("the program in the private namespace: %w", err)
	}
}

// explain says what to do about an error of the namespaces that a subcommand needs.
func explain(err error, uid int, command string) error {
	// What a kernel, its settings, a security module or a container's filter say.
	forbidden := []error{
		syscall.EPERM, syscall.EACCES, syscall.ENOSPC, syscall.EUSERS, syscall.EINVAL, syscall.ENOSYS,
	}
	switch {
	case !slices.ContainsFunc(forbidden, func(e error) bool { return errors.Is(err, e) }):
		return fmt.Errorf("open a private namespace: %w", err)
	case uid == 0:
		return fmt.Errorf("this process may not open a network namespace although it is root; "+
			"it needs CAP_SYS_ADMIN, in a container `docker run --privileged` or the like: %w", err)
	default:
		return fmt.Errorf("user namespaces are forbidden on this machine; run it as root, "+
			"which changes nothing on the machine either: `sudo nftproxy %s`: %w", command, err)
	}
}
