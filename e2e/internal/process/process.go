// Package process runs long-lived programs in network namespaces: it keeps
// their output in a file, and waits for every one that it started.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace"
)

// Config says what to run.
type Config struct {
	// Path is the program; its base name appears in error messages.
	Path string
	// Args are its arguments, without the program's name.
	Args []string
	// LogFile gets the program's output, after what is there already.
	LogFile string
}

// Process is a running program. One goroutine waits for its end; Stop or Kill
// ends both.
type Process struct {
	name    string
	logFile string
	process *os.Process
	exited  chan struct{} // closed after state and waitErr are set
	state   *os.ProcessState
	waitErr error
}

// Start starts a program in a namespace. Should this process die, the kernel
// kills the program.
func Start(ns *namespace.Namespace, config Config) (*Process, error) {
	p := &Process{
		name:    filepath.Base(config.Path),
		logFile: config.LogFile,
		exited:  make(chan struct{}),
	}
	log, err := os.OpenFile(config.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", p.name, err)
	}
	defer func() { _ = log.Close() }() // the program has a copy
	// It ends when it is told to, not with a context.
	cmd := exec.CommandContext(context.Background(), config.Path, config.Args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

	started := make(chan struct{})
	go p.run(ns, cmd, started)
	select {
	case <-started:
		return p, nil
	case <-p.exited:
		if p.waitErr != nil {
			return nil, fmt.Errorf("start %s: %w", p.name, p.waitErr)
		}
		return p, nil
	}
}

// run starts the program and waits for its end, on one thread: the kernel sends
// the signal on death when the thread that started the program ends.
func (p *Process) run(ns *namespace.Namespace, cmd *exec.Cmd, started chan<- struct{}) {
	defer close(p.exited)
	p.waitErr = ns.Do(func() error {
		if err := cmd.Start(); err != nil {
			return err
		}
		p.process = cmd.Process
		close(started)
		err := cmd.Wait()
		p.state = cmd.ProcessState
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			return nil // its state tells
		}
		return err
	})
}

// Name is the program's base name.
func (p *Process) Name() string { return p.name }

// PID is the program's process number, also after its end.
func (p *Process) PID() int { return p.process.Pid }

// State says whether the program runs, and if not, how it ended.
func (p *Process) State() string {
	select {
	case <-p.exited:
		return p.state.String()
	default:
		return "running"
	}
}

// Exited is closed when the program has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Signal sends a signal. A program that has ended already is no error.
func (p *Process) Signal(signal os.Signal) error {
	if err := p.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", signal, p.name, err)
	}
	return nil
}

// Wait waits for the program's end and returns its exit code, -1 when a signal
// ended it.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.exited:
	case <-ctx.Done():
		return -1, fmt.Errorf("wait for %s: %w", p.name, context.Cause(ctx))
	}
	if p.waitErr != nil {
		return -1, fmt.Errorf("wait for %s: %w", p.name, p.waitErr)
	}
	return p.state.ExitCode(), nil
}

// Stop asks the program to end (SIGTERM) and waits for it; it returns the exit
// code. A program that is still there when ctx is over is killed, and that is
// an error.
func (p *Process) Stop(ctx context.Context) (int, error) {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return -1, errors.Join(err, p.Kill())
	}
	code, err := p.Wait(ctx)
	if err != nil {
		return -1, errors.Join(err, p.Kill())
	}
	return code, nil
}

// Kill ends the program at once and waits for it.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.exited
	return nil
}

// Tail returns the last lines of the program's output.
func (p *Process) Tail(lines int) string {
	data, err := os.ReadFile(p.logFile)
	if err != nil {
		return fmt.Sprintf("no output of %s: %v", p.name, err)
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
