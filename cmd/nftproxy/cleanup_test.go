package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/nftproxy/nftproxy/syncer/nstest"
)

// command runs nftproxy in a namespace, or on its own without one.
func command(t *testing.T, ns *nstest.NS, attr *syscall.SysProcAttr, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", args...)
	cmd.Env = []string{testCommandEnv + "=" + testCommand, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.SysProcAttr = attr
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := ns.Do(cmd.Run)
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// TestCleanup removes what it says, whatever became of the daemon.
func TestCleanup(t *testing.T) {
	ns := nstest.New(t)
	ns.MustNFT(t, "table ip kube-proxy { }\ntable ip others { }\n", "-f", "-")
	d := startDaemon(t, ns, "--manifests", write(t, manifestOf("10.244.0.1")))
	eventually(t, "the rules", func() bool {
		_, err := ns.NFT(t.Context(), "", "list", "map", "ip", "nftproxy", "endpoints")
		return err == nil
	})
	d.stop(t, syscall.SIGKILL)
	for _, step := range []struct{ args, stdout, tables string }{
		{"cleanup", "removed: table ip nftproxy, table ip6 nftproxy\n", "table ip kube-proxy\ntable ip others\n"},
		{"cleanup", "nothing to remove\n", "table ip kube-proxy\ntable ip others\n"},
		{"run --cleanup", "nothing to remove\n", "table ip kube-proxy\ntable ip others\n"},
		{"cleanup --kube-proxy", "removed: table ip kube-proxy\n", "table ip others\n"},
		{"cleanup --kube-proxy", "nothing to remove\n", "table ip others\n"},
	} {
		status, stdout, stderr := command(t, ns, nil, strings.Fields(step.args)...)
		if status != exitOK || stdout != step.stdout || stderr != "" {
			t.Errorf("%s: status %d, standard output %q, standard error %q", step.args, status, stdout, stderr)
		}
		if tables := ns.MustNFT(t, "", "list", "tables"); tables != step.tables {
			t.Errorf("after %s there are %q, want %q", step.args, tables, step.tables)
		}
	}
}

// TestCleanupWithoutPrivileges says in one line what is missing.
func TestCleanupWithoutPrivileges(t *testing.T) {
	ns := nstest.New(t)
	ns.MustNFT(t, "table ip nftproxy { }\n", "-f", "-")
	attr := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER, // not root, and nobody of this namespace
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}},
	}
	status, stdout, stderr := command(t, ns, attr, "cleanup")
	if status != exitError || stdout != "" || !strings.Contains(stderr, "run as root or with CAP_NET_ADMIN") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("status %d, standard output %q, standard error %q", status, stdout, stderr)
	}
	if tables := ns.MustNFT(t, "", "list", "tables"); tables != "table ip nftproxy\n" {
		t.Errorf("there are tables:\n%s", tables)
	}
}
