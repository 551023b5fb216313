package process

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nftproxy/nftproxy/e2e/internal/namespace/namespacetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStop(t *testing.T) {
	tests := []struct {
		name   string
		script string
		code   int
		state  string
		failed bool // the program had to be killed
	}{
		{name: "obeys", script: `trap "exit 3" TERM; echo ready; while :; do sleep 0.01; done`, code: 3, state: "exit status 3"},
		{name: "does not catch the signal", script: `echo ready; exec sleep 60`, code: -1, state: "signal: terminated"},
		{name: "ignores the signal", script: `trap "" TERM; echo ready; exec sleep 60`, code: -1, state: "signal: killed", failed: true},
		{name: "has ended already", script: `echo ready`, code: 0, state: "exit status 0"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			p, err := Start(namespacetest.New(t, t.Name()), Config{Path: "/bin/sh", Args: []string{"-c", test.script}, LogFile: log})
			if err != nil {
				t.Fatal(err)
			}
			waitForLine(t, p, "ready")
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			code, err := p.Stop(ctx)
			if code != test.code || (err != nil) != test.failed {
				t.Errorf("Stop = %d, %v; want %d, error: %t", code, err, test.code, test.failed)
			}
			select {
			case <-p.Exited():
			default:
				t.Error("the process is still there after Stop")
			}
			if got := p.State(); got != test.state {
				t.Errorf("state %q, want %q", got, test.state)
			}
		})
	}
}

func TestStartInNamespace(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	p, err := Start(namespacetest.New(t, t.Name()), Config{Path: "/bin/sh", Args: []string{"-c", "cat /proc/self/net/dev; echo ready"}, LogFile: log})
	if err != nil {
		t.Fatal(err)
	}
	if code, err := p.Wait(t.Context()); code != 0 || err != nil {
		t.Fatalf("Wait = %d, %v", code, err)
	}
	// Two lines of heading, the loopback interface, and ours.
	if lines := strings.Split(p.Tail(100), "\n"); len(lines) != 4 || !strings.Contains(lines[2], "lo:") {
		t.Errorf("the program saw more than a loopback interface:\n%s", p.Tail(100))
	}
	if got := p.Tail(1); got != "ready" {
		t.Errorf("Tail(1) = %q", got)
	}
}

func TestStartMissingProgram(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if _, err := Start(namespacetest.New(t, t.Name()), Config{Path: "/no/such/program", LogFile: log}); err == nil {
		t.Error("Start of a missing program is no error")
	}
}

func waitForLine(t *testing.T, p *Process, line string) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Second); p.Tail(1) != line; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no line %q in the output:\n%s", line, p.Tail(10))
		}
	}
}
