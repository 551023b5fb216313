package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// testCommandEnv makes the test binary be nftproxy itself, with what else is in the
// value.
const testCommandEnv = "NFTPROXY_TEST_COMMAND"

const (
	testCommand          = "run"
	testCommandForbidden = "run where user namespaces are forbidden"
)

func TestMain(m *testing.M) {
	switch os.Getenv(testCommandEnv) {
	case "":
		// The daemon of one test must not slow the others down.
		if err := os.Setenv("GOMAXPROCS", strconv.Itoa(runtime.GOMAXPROCS(0))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitUsage)
		}
		goleak.VerifyTestMain(m)
	case testCommandForbidden:
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(exitUsage)
		}
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// demoCommand runs nftproxy, as another user or in namespaces if attr says so. It returns
// what it prints and its exit status.
func demoCommand(t *testing.T, kind string, attr *syscall.SysProcAttr, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	temp, err := os.MkdirTemp("", "nftproxy-test-*") //nolint:usetesting // others may not enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	if err := os.Chmod(temp, 0o777); err != nil {
		t.Fatal(err)
	}
	// A path that does not lead through folders of ours, which others may not enter.
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.Env = []string{testCommandEnv + "=" + kind, "TMPDIR=" + temp, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.SysProcAttr = attr
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// nobodyExists reports whether this process may become nobody: it must be root, and
// not of a user namespace that has root alone.
func nobodyExists(t *testing.T) bool {
	t.Helper()
	var inside, outside, length uint64
	ids, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(ids), &inside, &outside, &length); err != nil {
		t.Fatal(err)
	}
	return os.Geteuid() == 0 && inside == 0 && length > 65534
}

// TestDemo runs the whole demo as the user who runs the test, and if that is root, as
// nobody too.
func TestDemo(t *testing.T) {
	users := map[string]*syscall.SysProcAttr{"this user": nil}
	if nobodyExists(t) {
		users["nobody"] = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	for name, attr := range users {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, status := demoCommand(t, testCommand, attr, "demo", "--connections", "1500")
			if status != exitOK {
				t.Errorf("exit status %d, want %d", status, exitOK)
			}
			for _, want := range []string{
				"1,500 connections through the ClusterIPs, 0 failed,",
				"shop/reports:http has no ready endpoint: 20 of 20 connections refused",
				"while its endpoints changed, 0 failed",
				"from the changed object to the kernel's answer",
				": goto random-10",
				"OK: no connection failed, and every share fits.",
			} {
				if !strings.Contains(stdout, want) {
					t.Errorf("standard output has no %q", want)
				}
			}
			for _, want := range []string{"[1/4]", "[2/4]", "[3/4]", "[4/4]"} {
				if !strings.Contains(stderr, want) {
					t.Errorf("standard error has no %q", want)
				}
			}
			for line := range strings.Lines(stdout) {
				if len(line) > 101 {
					t.Errorf("%d columns: %s", len(line)-1, line)
				}
			}
			if t.Failed() {
				t.Logf("standard output:\n%s\nstandard error:\n%s", stdout, stderr)
			}
		})
	}
}

// TestDemoForbidden runs the demo as a user who may not make user namespaces: in one
// where none more are allowed.
func TestDemoForbidden(t *testing.T) {
	attr := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getegid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_RESOURCE}, // to forbid them
	}
	stdout, stderr, status := demoCommand(t, testCommandForbidden, attr, "demo")
	if status != exitError || stdout != "" {
		t.Errorf("exit status %d, want %d; standard output:\n%s", status, exitError, stdout)
	}
	for _, want := range []string{"user namespaces are forbidden", "sudo nftproxy demo"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("standard error has no %q", want)
		}
	}
	if strings.Count(stderr, "\n") != 1 {
		t.Errorf("not one sentence:\n%s", stderr)
	}
}

func TestDemoUsage(t *testing.T) {
	for _, args := range [][]string{
		{"demo", "--connections", "999"},
		{"demo", "--connections", "100001"},
		{"demo", "--connections", "many"},
		{"demo", "now"},
	} {
		var stdout, stderr bytes.Buffer
		if status := run(args, &stdout, &stderr); status != exitUsage || stdout.Len() > 0 || stderr.Len() == 0 {
			t.Errorf("%v: exit status %d, %q, %q", args, status, &stdout, &stderr)
		}
	}
}
