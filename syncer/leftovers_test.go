package syncer

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files")

// TestRestoreText says for whole listings of iptables-save what is removed.
func TestRestoreText(t *testing.T) {
	inputs, err := filepath.Glob("testdata/leftovers/*.save")
	if err != nil || len(inputs) == 0 {
		t.Fatalf("no listings: %v", err)
	}
	for _, input := range inputs {
		t.Run(filepath.Base(input), func(t *testing.T) {
			saved, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			var plans []xtPlan
			var kept strings.Builder
			for _, table := range parseSave("ip", string(saved)) {
				plan := table.plan()
				plans = append(plans, plan)
				for _, chain := range plan.kept {
					kept.WriteString("# kept: " + chain + "\n")
				}
			}
			got := restoreText(plans) + kept.String()
			golden := strings.TrimSuffix(input, ".save") + ".restore"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// FuzzRestoreText: of no listing anything is removed that is not kube-proxy's, or that
// rules that stay lead to. Rules are drawn beside the text, so that there are many that
// make sense.
func FuzzRestoreText(f *testing.F) {
	f.Add("-A PREROUTING -m comment --comment \"-j KUBE-SERVICES\"", []byte{1, 2, 3, 4, 5, 6})
	f.Add(":KUBE-SVC-AAAAAAAAAAAAAAAA - [0:0]\n-A OUTPUT -g KUBE-SVC-AAAAAAAAAAAAAAAA", []byte{0, 3, 0, 4, 4, 5, 2, 5})
	f.Add("COMMIT\n*filter\n:INPUT DROP [0:0]\n-A INPUT -j KUBE-FIREWALL", []byte{})
	f.Fuzz(func(t *testing.T, text string, draws []byte) {
		saved := "*nat\n" + drawnRules(draws) + text
		for _, block := range strings.SplitAfter(saved, "\nCOMMIT\n") {
			var plans []xtPlan
			for _, table := range parseSave("ip", block) {
				plans = append(plans, table.plan())
			}
			if len(plans) == 1 {
				checkRestore(t, strings.Split(block, "\n"), strings.Split(restoreText(plans), "\n"))
			}
		}
	})
}

// drawnRules makes chains, and a rule between two of them of each two numbers.
func drawnRules(draws []byte) string {
	chains := []string{
		"PREROUTING", "FORWARD", "DOCKER", "KUBE-SERVICES", "KUBE-MARK-MASQ", "KUBE-SVC-72TNSN4A7FMEIQW3",
		"KUBE-SEP-5HFOKFY52EFMO37V", "KUBE-FIREWALL", "KUBE-FORWARD", "KUBE-KUBELET-CANARY",
	}
	policies := []string{"ACCEPT", []string{"ACCEPT", "DROP"}[len(draws)%2]}
	var b strings.Builder
	for i, c := range chains {
		policy := "-"
		if i < len(policies) {
			policy = policies[i]
		}
		b.WriteString(":" + c + " " + policy + " [0:0]\n")
	}
	for pair := range slices.Chunk(draws, 2) {
		from, to := int(pair[0]), int(pair[len(pair)-1])
		match := []string{"", `-m comment --comment "-j KUBE-SERVICES" `, "-p tcp "}[from/len(chains)%3]
		verdict := []string{"-j ", "-g ", "-j MARK --set-xmark ", "--comment "}[to/len(chains)%4]
		b.WriteString("-A " + chains[from%len(chains)] + " " + match + verdict + chains[to%len(chains)] + "\n")
	}
	return b.String()
}

// checkRestore checks each line of an input for iptables-restore against the listing of
// the table.
func checkRestore(t *testing.T, saved, restore []string) {
	t.Helper()
	chain := regexp.MustCompile(`^:(KUBE-[A-Z0-9-]+) - \[0:0\]$`)
	jump := regexp.MustCompile(`^-D +([^ ]+) (?:.* )?-[jg] +KUBE-(?:SERVICES|EXTERNAL-SERVICES|NODEPORTS|POSTROUTING|FORWARD|PROXY-FIREWALL|NODE-PORT|IPVS-FILTER|IPVS-OUT-FILTER) *$`)
	var doomed, jumps []string
	for _, line := range restore {
		name := chain.FindStringSubmatch(line)
		from := jump.FindStringSubmatch(line)
		switch {
		case line == "" || line == "COMMIT" || slices.Contains(saved, line) && strings.HasPrefix(line, "*"):
		case name != nil:
			if declared(saved, name[1]) != "-" || strings.Contains(line, ":KUBE-FIREWALL ") || strings.Contains(line, "KUBELET") {
				t.Errorf("not a chain of kube-proxy: %q", line)
			}
			doomed = append(doomed, name[1])
		case from != nil:
			rule := "-A" + strings.TrimPrefix(line, "-D")
			policy := declared(saved, from[1])
			if policy == "" || policy == "-" || policy == "DROP" && strings.HasSuffix(line, "KUBE-FORWARD") || !slices.Contains(saved, rule) {
				t.Errorf("not to be removed: %q", line)
			}
			jumps = append(jumps, rule)
		case !strings.HasPrefix(line, "-X ") || !slices.Contains(doomed, strings.TrimPrefix(line, "-X ")):
			t.Errorf("unexpected: %q", line)
		}
	}
	checkStays(t, saved, doomed, jumps)
}

// checkStays checks that no rule that stays leads to a chain that goes.
func checkStays(t *testing.T, saved, doomed, jumps []string) {
	t.Helper()
	for _, line := range saved {
		fields := words(line)
		if len(fields) < 4 || fields[0] != "-A" || slices.Contains(doomed, fields[1]) || slices.Contains(jumps, line) || declared(saved, fields[1]) == "" {
			continue
		}
		if n := len(fields); (fields[n-2] == "-j" || fields[n-2] == "-g") && slices.Contains(doomed, fields[n-1]) {
			t.Errorf("%q leads to a chain that goes", line)
		}
	}
}

// declared returns the policy of a chain in a listing, empty if there is none of this
// name.
func declared(saved []string, name string) string {
	for _, line := range saved {
		if fields := words(line); len(fields) > 1 && fields[0] == ":"+name {
			return fields[1]
		}
	}
	return ""
}
