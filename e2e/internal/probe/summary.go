package probe

import (
	"fmt"
	"slices"
	"strings"
)

// Summary counts equal results and returns them in one line.
func Summary(results []Result) string {
	counts := map[string]int{}
	for _, result := range results {
		counts[result.String()]++
	}
	var parts []string
	for result, count := range counts {
		parts = append(parts, fmt.Sprintf("%d %s", count, result))
	}
	if len(parts) == 0 {
		return "no results"
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}
