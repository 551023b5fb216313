package proxier

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// countedSyscalls are those that do input or output. What the runtime of Go calls for
// itself, such as futex, is none of them: how often it does so is chance.
func countedSyscalls() map[int32]string {
	return map[int32]string{
		unix.SYS_READ: "read", unix.SYS_READV: "readv", unix.SYS_WRITE: "write", unix.SYS_WRITEV: "writev",
		unix.SYS_SENDTO: "sendto", unix.SYS_SENDMSG: "sendmsg", unix.SYS_SENDMMSG: "sendmmsg",
		unix.SYS_RECVFROM: "recvfrom", unix.SYS_RECVMSG: "recvmsg", unix.SYS_RECVMMSG: "recvmmsg",
		unix.SYS_SETSOCKOPT: "setsockopt", unix.SYS_BIND: "bind", unix.SYS_CONNECT: "connect", unix.SYS_IOCTL: "ioctl",
		unix.SYS_OPENAT: "openat", unix.SYS_CLOSE: "close", unix.SYS_PPOLL: "ppoll",
	}
}

// The structs of seccomp_unotify(2).
type (
	seccompData struct {
		nr                 int32
		arch               uint32
		instructionPointer uint64
		args               [6]uint64
	}
	seccompNotification struct {
		id         uint64
		pid, flags uint32
		data       seccompData
	}
	seccompResponse struct {
		id    uint64
		val   int64
		error int32
		flags uint32
	}
)

// countSyscalls calls f in a thread of its own and returns how often that made which
// system call. A seccomp filter stops the thread at each of them until a supervisor has
// noted it and lets it go on: exact, and of this thread alone. Where a container does not
// allow that it returns nil, and f is not called.
func countSyscalls(tb testing.TB, f func() error) map[string]int {
	tb.Helper()
	// The runtime of Go makes some of them without telling the scheduler; it must not wait
	// for that thread in order to stop the world, and has to find another one for the
	// supervisor.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(2, runtime.GOMAXPROCS(0))))
	stopped, stop, err := os.Pipe()
	if err != nil {
		tb.Fatal(err)
	}
	defer stopped.Close()
	listeners, done := make(chan int), make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the filter ends with the thread
		listener, err := filterThread()
		if listeners <- listener; err == nil {
			err = f()
		}
		done <- err
	}()
	listener := <-listeners
	if listener < 0 {
		if err := errors.Join(<-done, stop.Close()); !notAllowed(err) {
			tb.Fatal(err)
		} else {
			tb.Logf("system calls are not counted: %v", err)
		}
		return nil
	}
	counts, supervised := map[string]int{}, make(chan error)
	go func() { supervised <- supervise(listener, int(stopped.Fd()), counts) }()
	err = <-done
	if err := errors.Join(err, stop.Close(), <-supervised, unix.Close(listener)); err != nil {
		tb.Fatal(err)
	}
	return counts
}

// filterThread installs the filter for the calling thread and those that it makes, which
// the runtime of Go does not do in a locked one. It returns the descriptor that tells of
// its system calls, -1 with an error.
func filterThread() (listener int, err error) {
	program := []bpf.Instruction{bpf.LoadAbsolute{Off: 0, Size: 4}} // seccompData.nr
	for nr := range countedSyscalls() {
		program = append(program,
			bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(nr), SkipTrue: 1}, bpf.RetConstant{Val: unix.SECCOMP_RET_USER_NOTIF})
	}
	raw, err := bpf.Assemble(append(program, bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW}))
	if err != nil {
		return -1, fmt.Errorf("make a seccomp filter: %w", err)
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, fmt.Errorf("give up new privileges: %w", err)
	}
	fprog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER,
		uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return -1, fmt.Errorf("install a seccomp filter: %w", errno)
	}
	return int(fd), nil
}

// notAllowed reports whether a container is why there can be no filter: one that forbids
// them, or that tells somebody else of its system calls.
func notAllowed(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EBUSY) || errors.Is(err, unix.ENOSYS)
}

// supervise counts what the listener tells of until the other descriptor is at its end.
func supervise(listener, stopped int, counts map[string]int) error {
	names := countedSyscalls()
	for {
		fds := []unix.PollFd{{Fd: int32(listener), Events: unix.POLLIN}, {Fd: int32(stopped), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for a system call: %w", err)
		}
		switch {
		case fds[0].Revents&unix.POLLIN != 0:
			var n seccompNotification
			if err := seccompIoctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
				return fmt.Errorf("receive a system call: %w", err)
			}
			counts[names[n.data.nr]]++
			r := seccompResponse{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
			if err := seccompIoctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)); err != nil {
				return fmt.Errorf("let a system call go on: %w", err)
			}
		case fds[1].Revents != 0:
			return nil
		}
	}
}

// seccompIoctl calls ioctl until no signal interrupts it.
func seccompIoctl(fd int, request uintptr, arg unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(arg))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// TestCountSyscalls makes sure that none is missed, and that those of other threads do
// not count.
func TestCountSyscalls(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	write := func(times int) error {
		for range times {
			if _, err := unix.Write(int(null.Fd()), []byte("x")); err != nil {
				return err
			}
		}
		return nil
	}
	got := countSyscalls(t, func() error {
		other := make(chan error)
		go func() { other <- write(5) }()
		if err := <-other; err != nil {
			return err
		}
		if _, err := unix.Read(int(null.Fd()), make([]byte, 1)); err != nil {
			return err
		}
		return write(3)
	})
	if diff := cmp.Diff(map[string]int{"write": 3, "read": 1}, got); diff != "" && got != nil {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
