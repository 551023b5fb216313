package bench

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

// cpu is processor time, of all threads of a process.
type cpu struct {
	user, kernel time.Duration
}

func (c cpu) total() time.Duration { return c.user + c.kernel }

func (c cpu) add(d cpu) cpu { return cpu{c.user + d.user, c.kernel + d.kernel} }

func (c cpu) sub(d cpu) cpu { return cpu{c.user - d.user, c.kernel - d.kernel} }

// ownCPU returns the processor time of this process so far.
func ownCPU() (cpu, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return cpu{}, fmt.Errorf("read the processor time: %w", err)
	}
	return cpu{time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())}, nil
}

// ownHeap returns the heap of this process that is in use, in bytes, without garbage.
func ownHeap() int {
	runtime.GC()
	runtime.GC() // what finalizers and clean-ups keep is free only after another one
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc) //nolint:gosec // less than the machine's memory
}

// ownMemory returns the resident memory of this process in bytes, without garbage: what
// is free goes back to the kernel first.
func ownMemory() (int, error) {
	runtime.GC() // what finalizers and clean-ups keep is free only after another one
	debug.FreeOSMemory()
	return residentMemory("self")
}

// residentMemory returns the resident memory of a process in bytes (proc(5),
// /proc/PID/statm).
func residentMemory(pid string) (int, error) {
	text, err := os.ReadFile("/proc/" + pid + "/statm")
	if err != nil {
		return 0, fmt.Errorf("read the memory of a process: %w", err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0, fmt.Errorf("read the memory of a process from %q: %w", text, err)
	}
	return resident * os.Getpagesize(), nil
}
