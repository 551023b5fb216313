package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// endTimeout is how long a proxy may take to end when it is told to.
	endTimeout = 10 * time.Second
	// clockTicks is how many ticks a second the times in /proc/PID/stat have: USER_HZ,
	// which is 100 on every architecture that Go knows.
	clockTicks = 100
)

// process is a proxy that runs.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
	err   error         // why, once it has ended
}

// startProcess starts a proxy, whose output goes to log.
func startProcess(command []string, log io.Writer) (*process, error) {
	// Not bound to a context: stop ends it.
	cmd := exec.Command(command[0], command[1:]...) //nolint:gosec,noctx // what the user wants to be run
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", command[0], err)
	}
	p := &process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	return p, nil
}

// stop ends the process, if need be by force, and waits for that.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(endTimeout):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.ended
	}
}

// check returns an error if the process has ended.
func (p *process) check(ctx context.Context) error {
	select {
	case <-p.ended:
		if p.err == nil {
			return errors.New("the proxy has ended by itself")
		}
		return fmt.Errorf("the proxy has ended by itself: %w", p.err)
	default:
		return ctx.Err() //nolint:wrapcheck // says it all
	}
}

// memory returns the resident memory in bytes.
func (p *process) memory() (int, error) { return residentMemory(strconv.Itoa(p.cmd.Process.Pid)) }

// cpu returns the processor time so far, with that of children that have ended.
func (p *process) cpu() (cpu, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/stat")
	if err != nil {
		return cpu{}, fmt.Errorf("read the processor time of the proxy: %w", err)
	}
	return parseStat(string(text))
}

// parseStat returns the processor time in /proc/PID/stat (proc(5)): utime, stime, cutime
// and cstime.
func parseStat(text string) (cpu, error) {
	// The second field, the name in parentheses, may contain anything.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	const utime = 14 - 3 // the fields begin with the third, state
	var ticks [4]int64
	if len(fields) < utime+len(ticks) {
		return cpu{}, fmt.Errorf("read the processor time of the proxy from %q: too few fields", text)
	}
	for i := range ticks {
		var err error
		if ticks[i], err = strconv.ParseInt(fields[utime+i], 10, 64); err != nil {
			return cpu{}, fmt.Errorf("read the processor time of the proxy: %w", err)
		}
	}
	const tick = time.Second / clockTicks
	return cpu{user: time.Duration(ticks[0]+ticks[2]) * tick, kernel: time.Duration(ticks[1]+ticks[3]) * tick}, nil
}
