package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// process is a running `nftproxy run`.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr *safeBuffer
}

// safeBuffer may be read while a process writes to it.
type safeBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// startDaemon runs `nftproxy run` in a namespace, until the test ends at the latest.
func startDaemon(t *testing.T, ns *nstest.NS, args ...string) *process {
	t.Helper()
	d := &process{stdout: &safeBuffer{}, stderr: &safeBuffer{}}
	d.cmd = exec.CommandContext(t.Context(), "/proc/self/exe", append([]string{"run"}, args...)...)
	d.cmd.Env = append(os.Environ(), testCommandEnv+"="+testCommand)
	d.cmd.Stdout, d.cmd.Stderr = d.stdout, d.stderr
	if err := ns.Do(d.cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		if t.Failed() {
			t.Logf("standard error of the daemon:\n%s", d.stderr)
		}
	})
	return d
}

// stop sends a signal and returns the exit status.
func (d *process) stop(t *testing.T, signal syscall.Signal) int {
	t.Helper()
	if err := d.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	return d.wait(t)
}

// wait waits for the end and returns the exit status.
func (d *process) wait(t *testing.T) int {
	t.Helper()
	err := d.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return d.cmd.ProcessState.ExitCode()
}

// eventually waits until a condition is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// replace writes a file the way careful programs do.
func replace(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// manifestOf is a Service with these endpoints.
func manifestOf(endpoints ...string) string {
	var text strings.Builder
	text.WriteString(goodService + `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: good-1, namespace: default, labels: {kubernetes.io/service-name: good}}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints:
`)
	for _, e := range endpoints {
		fmt.Fprintf(&text, "- {addresses: [%s]}\n", e)
	}
	return text.String()
}

// TestDaemon follows manifests with the real kernel, through a broken file, kill -9,
// a restart and SIGTERM.
func TestDaemon(t *testing.T) {
	ns := nstest.New(t)
	path := write(t, manifestOf("10.244.0.1"))
	endpoints := func(want ...string) func() bool {
		return func() bool {
			listing, err := ns.NFT(t.Context(), "", "list", "map", "ip", "nftproxy", "endpoints")
			got := strings.Count(listing, " : 10.244.")
			for _, e := range want {
				if !strings.Contains(listing, " : "+e+" . 8080") {
					return false
				}
			}
			return err == nil && got == len(want)
		}
	}
	d := startDaemon(t, ns, "--manifests", filepath.Dir(path))
	eventually(t, "the first endpoint", endpoints("10.244.0.1"))
	replace(t, path, manifestOf("10.244.0.1", "10.244.0.2"))
	eventually(t, "a second endpoint", endpoints("10.244.0.1", "10.244.0.2"))

	replace(t, path, "kind: [")
	eventually(t, "a report of the broken file", func() bool { return strings.Contains(d.stderr.String(), path) })
	if !endpoints("10.244.0.1", "10.244.0.2")() {
		t.Error("the last good state is gone")
	}

	if status := d.stop(t, syscall.SIGKILL); status != -1 {
		t.Errorf("exit status after SIGKILL: %d", status)
	}
	replace(t, path, manifestOf("10.244.0.2", "10.244.0.3"))
	if !endpoints("10.244.0.1", "10.244.0.2")() {
		t.Error("the rules are gone with the daemon")
	}
	d = startDaemon(t, ns, "--manifests", path, "--logging-format", "json", "-v", "1")
	eventually(t, "what changed while it was dead", endpoints("10.244.0.2", "10.244.0.3"))

	if status := d.stop(t, syscall.SIGTERM); status != exitOK {
		t.Errorf("exit status after SIGTERM: %d", status)
	}
	if !endpoints("10.244.0.2", "10.244.0.3")() {
		t.Error("the rules are gone after SIGTERM")
	}
	for _, line := range strings.Split(strings.TrimSpace(d.stderr.String()), "\n") {
		if !strings.HasPrefix(line, `{"level":`) {
			t.Errorf("not a line of JSON: %q", line)
		}
	}
}

// TestDryRun prints batches as changes come, and the kernel stays empty.
func TestDryRun(t *testing.T) {
	ns := nstest.New(t)
	path := write(t, manifestOf("10.244.0.1"))
	d := startDaemon(t, ns, "--manifests", path, "--dry-run")
	prints := func(text string) func() bool {
		return func() bool { return strings.Contains(d.stdout.String(), text) }
	}
	eventually(t, "the first batch", prints("add element ip nftproxy endpoints { 10.96.0.1 . tcp . 80 . 0 : 10.244.0.1 . 8080 }\n"))
	replace(t, path, manifestOf("10.244.0.2"))
	eventually(t, "the second batch", prints("# 2 element operations (0 with a verdict), 0 object operations\n"+
		"delete element ip nftproxy endpoints { 10.96.0.1 . tcp . 80 . 0 }\n"+
		"add element ip nftproxy endpoints { 10.96.0.1 . tcp . 80 . 0 : 10.244.0.2 . 8080 }\n"))
	if status := d.stop(t, syscall.SIGINT); status != exitOK {
		t.Errorf("exit status: %d", status)
	}
	if listing := ns.MustNFT(t, "", "list", "ruleset"); listing != "" {
		t.Errorf("a dry run changed the kernel:\n%s", listing)
	}
}

// TestWithoutPrivileges says in one line what is missing.
func TestWithoutPrivileges(t *testing.T) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "run", "--manifests", "/dev/null")
	cmd.Env = []string{testCommandEnv + "=" + testCommand}
	cmd.Dir = "/"
	cmd.Stderr = &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER, // not root, and nobody of this namespace
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
	}
	_ = cmd.Run()
	line := stderr.String()
	if status := cmd.ProcessState.ExitCode(); status != exitError || !strings.Contains(line, "run as root or with CAP_NET_ADMIN") || strings.Count(line, "\n") != 1 {
		t.Errorf("status %d, standard error %q", status, line)
	}
}
