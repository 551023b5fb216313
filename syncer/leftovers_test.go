package syncer

import (
	"flag"
	"os"
	"path/filepath"
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
			var kept []string
			for _, table := range parseSave("ip", string(saved)) {
				plan := table.plan()
				plans = append(plans, plan)
				kept = append(kept, plan.kept...)
			}
			got := restoreText(plans)
			for _, chain := range kept {
				got += "# kept: " + chain + "\n"
			}
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
