package demo

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"
)

func TestChiSquaredTail(t *testing.T) {
	for degrees := 1; degrees <= 40; degrees++ {
		for _, x := range []float64{0, 0.01, 0.5, 1, 3.84, 10, 25, 60, 120} {
			got, want := chiSquaredTail(x, degrees), distuv.ChiSquared{K: float64(degrees)}.Survival(x)
			if math.Abs(got-want) > 1e-12 && math.Abs(got-want) > 1e-6*want {
				t.Errorf("chiSquaredTail(%g, %d) = %g, want %g", x, degrees, got, want)
			}
		}
	}
}

func TestFit(t *testing.T) {
	tests := map[string]struct {
		counts []int
		shares []float64
		fits   bool
	}{
		"exact":             {[]int{500, 500}, []float64{0.5, 0.5}, true},
		"chance":            {[]int{470, 530}, []float64{0.5, 0.5}, true},
		"weights":           {[]int{429, 428, 430, 141}, []float64{0.3, 0.3, 0.3, 0.1}, true},
		"weights forgotten": {[]int{357, 357, 357, 357}, []float64{0.3, 0.3, 0.3, 0.1}, false},
		"one forgotten":     {[]int{500, 0, 500}, []float64{1. / 3, 1. / 3, 1. / 3}, false},
		"first too often":   {[]int{600, 400}, []float64{0.5, 0.5}, false},
		"one endpoint":      {[]int{1000}, []float64{1}, true},
		"backup unused":     {[]int{500, 500, 0}, []float64{0.5, 0.5, 0}, true},
		"backup used":       {[]int{500, 500, 1}, []float64{0.5, 0.5, 0}, false},
		"nothing counted":   {[]int{0, 0}, []float64{0.5, 0.5}, true},
		"no endpoints":      {nil, nil, true},
	}
	for name, test := range tests {
		if p := fit(test.counts, test.shares); p >= unlikely != test.fits {
			t.Errorf("%s: p = %g, want fits = %t", name, p, test.fits)
		}
	}
}
