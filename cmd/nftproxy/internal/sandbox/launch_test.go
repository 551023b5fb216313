package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

func TestExplain(t *testing.T) {
	for _, test := range []struct {
		err  error
		uid  int
		want string
	}{
		{syscall.EPERM, 1000, "sudo nftproxy demo"},
		{syscall.ENOSPC, 1000, "sudo nftproxy demo"},
		{fmt.Errorf("clone: %w", syscall.EINVAL), 1000, "user namespaces are forbidden"},
		{errors.Join(syscall.EPERM, syscall.ENOSPC), 0, "--privileged"},
		{syscall.ENOMEM, 1000, "open a private namespace"},
		{syscall.ENOMEM, 0, "open a private namespace"},
	} {
		got := explain(test.err, test.uid, "demo")
		if !strings.Contains(got.Error(), test.want) || !errors.Is(got, test.err) {
			t.Errorf("explain(%v, %d) = %q, want %q", test.err, test.uid, got, test.want)
		}
	}
}

func TestWaysIn(t *testing.T) {
	const both = syscall.CLONE_NEWNET | syscall.CLONE_NEWUSER
	for uid, want := range map[int][]uintptr{0: {syscall.CLONE_NEWNET, both}, 1000: {both}} {
		ways := waysIn(uid, 100)
		if len(ways) != len(want) {
			t.Fatalf("uid %d: %d ways, want %d", uid, len(ways), len(want))
		}
		for i, way := range ways {
			if way.Cloneflags != want[i] || way.Pdeathsig == 0 || way.GidMappingsEnableSetgroups {
				t.Errorf("uid %d, way %d: %+v", uid, i, way)
			}
			if way.Cloneflags == both && (way.UidMappings[0].HostID != uid || way.GidMappings[0].HostID != 100) {
				t.Errorf("uid %d, way %d: %+v", uid, i, way)
			}
		}
	}
}

func TestOutcome(t *testing.T) {
	if err := outcome(nil); err != nil {
		t.Errorf("of a success: %v", err)
	}
	if err := outcome(exec.CommandContext(t.Context(), "false").Run()); !errors.Is(err, ErrReported) {
		t.Errorf("of an exit status: %v", err)
	}
	if err := outcome(exec.CommandContext(t.Context(), "sh", "-c", "kill -9 $$").Run()); err == nil || errors.Is(err, ErrReported) {
		t.Errorf("of a kill: %v", err)
	}
	if err := outcome(io.ErrUnexpectedEOF); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of another error: %v", err)
	}
}

// TestEnterOutside makes sure that nothing is touched outside of a private namespace.
func TestEnterOutside(t *testing.T) {
	t.Setenv(insideEnv, "net:[1]")
	if _, err := Enter("demo"); err == nil || !strings.Contains(err.Error(), "not a private network namespace") {
		t.Errorf("Enter in this namespace: %v", err)
	}
}
