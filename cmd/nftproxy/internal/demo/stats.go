package demo

import "math"

// unlikely is the probability below which measured shares do not fit the expected
// ones. So a proxy that is right is called wrong once in 100,000 demos or so, while
// one that forgets the weights, or an endpoint, is found out every time.
const unlikely = 1e-6

// fit returns the probability that connections which are spread at random with the
// given shares differ from these as much as the counted ones, or more (Pearson's
// chi-squared test).
func fit(counts []int, shares []float64) float64 {
	total, degrees := 0, -1
	for _, n := range counts {
		total += n
	}
	chi2 := 0.0
	for i, share := range shares {
		want := share * float64(total)
		if want == 0 { // a backup
			if counts[i] > 0 {
				return 0
			}
			continue
		}
		d := float64(counts[i]) - want
		chi2 += d * d / want
		degrees++
	}
	if degrees < 1 {
		return 1
	}
	return chiSquaredTail(chi2, degrees)
}

// chiSquaredTail returns the probability that a chi-squared variable with that many
// degrees of freedom is greater than x (Abramowitz and Stegun, 26.4.4 and 26.4.5).
func chiSquaredTail(x float64, degrees int) float64 {
	tail, term, d := math.Erfc(math.Sqrt(x/2)), math.Sqrt(2*x/math.Pi)*math.Exp(-x/2), 3
	if degrees%2 == 0 {
		tail, term, d = 0, math.Exp(-x/2), 2
	}
	for ; d <= degrees; d += 2 {
		tail += term
		term *= x / float64(d)
	}
	return tail
}
