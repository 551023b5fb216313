package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/e2e/internal/testnet"
)

// kubectl runs kubectl where it reaches the API server, and returns what it prints.
func (c *cluster) kubectl(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, err := c.network.Host(testnet.Control).Command(t.Context(), stdin,
		program(t, "KUBECTL_BIN"), append(c.kubectlFlags(), args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (c *cluster) kubectlFlags() []string {
	return []string{"--kubeconfig", c.control.Kubeconfig(), "--cache-dir", filepath.Join(c.logs, "kubectl-cache")}
}

// readCommands returns the commands of deploy/README.md: its fenced blocks, each with
// the section that it is in. What needs a kubelet is in indented blocks.
func readCommands(t *testing.T) map[string][]string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(deployDir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string][]string{}
	section, block, inside := "", "", false
	for line := range strings.Lines(string(data)) {
		switch {
		case inside && strings.HasPrefix(line, "```"):
			sections[section] = append(sections[section], block)
			block, inside = "", false
		case inside:
			block += line
		case strings.HasPrefix(line, "```sh"):
			inside = true
		case strings.HasPrefix(line, "## "):
			section = strings.TrimSpace(strings.TrimPrefix(line, "## "))
		}
	}
	return sections
}

// runCommands runs a block of commands of deploy/README.md, for node1, as somebody at
// the top of the repository would, and returns what they print.
func (c *cluster) runCommands(t *testing.T, block string) string {
	t.Helper()
	// What differs from a user's shell: kubectl is the one built for this test.
	script := fmt.Sprintf("cd ..\nkubectl() { '%s' --cache-dir '%s' \"$@\"; }\n%s",
		program(t, "KUBECTL_BIN"), filepath.Join(c.logs, "kubectl-cache"), block)
	out, err := c.network.Host(testnet.Control).Command(t.Context(), "",
		"env", "KUBECONFIG="+c.control.Kubeconfig(), "NODE="+testnet.Node1, "sh", "-euc", script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
