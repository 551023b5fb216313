package syncer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"

	"github.com/nftproxy/nftproxy/rules"
)

// xtProgram is a pair of programs, of iptables or ip6tables, that read and write the
// tables of a family.
type xtProgram struct {
	family        string // "ip" or "ip6"
	save, restore string // paths
}

// xtPrograms returns the programs of a family that are in PATH. There are two kinds of
// iptables: -legacy has tables of its own in the kernel, -nft has those of nftables. The
// one without a suffix is one of the two.
func xtPrograms(f rules.Family) []xtProgram {
	name := "iptables"
	if f == rules.IPv6 {
		name = "ip6tables"
	}
	var programs []xtProgram
	for _, kind := range []string{"-nft", "-legacy", ""} {
		if kind == "" && len(programs) > 0 {
			break
		}
		save, err := exec.LookPath(name + kind + "-save")
		if err != nil {
			continue
		}
		restore, err := exec.LookPath(name + kind + "-restore")
		if err != nil {
			continue
		}
		programs = append(programs, xtProgram{family: f.Keyword(), save: save, restore: restore})
	}
	return programs
}

// iptables looks for chains of kube-proxy by way of iptables, where that is installed.
func (s *sweep) iptables(ctx context.Context, f rules.Family) error {
	var errs []error
	for _, p := range xtPrograms(f) {
		errs = append(errs, s.iptablesOf(ctx, p))
	}
	return errors.Join(errs...)
}

// iptablesOf looks for chains with one kind of iptables. Everything goes in one call:
// each table is changed in one commit.
func (s *sweep) iptablesOf(ctx context.Context, p xtProgram) error {
	saved, err := runProgram(ctx, "", p.save)
	if err != nil {
		return err
	}
	var plans []xtPlan
	for _, table := range parseSave(p.family, saved) {
		plans = append(plans, table.plan())
	}
	if text := restoreText(plans); s.remove && text != "" {
		// The lock of iptables-legacy may be taken.
		if _, err := runProgram(ctx, text, p.restore, "--noflush", "--wait=10"); err != nil {
			return err
		}
	}
	for _, plan := range plans {
		s.plan(plan)
	}
	return nil
}

// runProgram runs a program and returns what it prints.
func runProgram(ctx context.Context, stdin, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(append([]string{path}, args...), " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
