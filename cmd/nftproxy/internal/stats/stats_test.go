package stats

import "testing"

func TestPercentile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = i + 1
	}
	tests := map[string]struct {
		sorted []int
		p      float64
		want   int
	}{
		"nothing":               {nil, 50, 0},
		"one":                   {[]int{7}, 99, 7},
		"median of two":         {[]int{1, 2}, 50, 1},
		"median of three":       {[]int{1, 2, 3}, 50, 2},
		"lowest":                {hundred, 0, 1},
		"p50":                   {hundred, 50, 50},
		"p99":                   {hundred, 99, 99},
		"p99 of few is the max": {[]int{1, 2, 3, 40}, 99, 40},
		"max":                   {hundred, 100, 100},
	}
	for name, test := range tests {
		if got := Percentile(test.sorted, test.p); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}
