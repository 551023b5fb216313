package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"slices"
	"testing"
	"time"
)

// weighted returns endpoints with the given weights.
func weighted(weights ...int) []Endpoint {
	endpoints := make([]Endpoint, len(weights))
	for i, w := range weights {
		endpoints[i].Weight = uint16(w)
	}
	return endpoints
}

func TestSlotCounts(t *testing.T) {
	for _, c := range []struct {
		name     string
		weights  []int
		maxSlots int
		want     []int
	}{
		{"no endpoints", nil, DefaultMaxSlots, nil},
		{"one endpoint", []int{700}, DefaultMaxSlots, []int{1}},
		{"equal weights take one slot each", []int{1000, 1000, 1000}, DefaultMaxSlots, []int{1, 1, 1}},
		{"equal weights do so whatever the bound", []int{3, 3, 3}, 1, []int{1, 1, 1}},
		{"without any weight all are used", []int{0, 0, 0}, DefaultMaxSlots, []int{1, 1, 1}},
		{"a backup is not used beside others", []int{5, 0, 5}, DefaultMaxSlots, []int{1, 0, 1}},
		{"a single endpoint with backups", []int{0, 9, 0}, DefaultMaxSlots, []int{0, 1, 0}},
		{"1:3:6 is exact", []int{1, 3, 6}, DefaultMaxSlots, []int{1, 3, 6}},
		{"the order does not matter", []int{6, 1, 3}, DefaultMaxSlots, []int{6, 1, 3}},
		{"5:95 is 1:19", []int{5, 95}, DefaultMaxSlots, []int{1, 19}},
		{"7:9:13 is exact", []int{7, 9, 13}, DefaultMaxSlots, []int{7, 9, 13}},
		{"100:300:600 is 1:3:6", []int{100, 300, 600}, DefaultMaxSlots, []int{1, 3, 6}},
		{"up to 256 slots are exact", []int{1, 255}, DefaultMaxSlots, []int{1, 255}},
		{"1:1000 needs all its slots", []int{1, 1000}, DefaultMaxSlots, []int{1, 1000}},
		{"more slots than needed for 5 % are saved", []int{333, 667}, DefaultMaxSlots, []int{1, 2}},
		{"7:300:301 is nearly 1:43:43", []int{7, 300, 301}, DefaultMaxSlots, []int{1, 43, 43}},
		{"a low bound rounds small weights up", []int{1, 1000}, 10, []int{1, 9}},
		{"a bound under the number of endpoints leaves one each", []int{1, 2, 3}, 2, []int{1, 1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			endpoints := weighted(c.weights...)
			got := slotCounts(endpoints, c.maxSlots)
			if !slices.Equal(got, c.want) {
				t.Errorf("weights %v take %v slots, want %v", c.weights, got, c.want)
			}
			if err := checkSlotCounts(endpoints, c.maxSlots, got); err != nil {
				t.Error(err)
			}
		})
	}
}

// checkSlotCounts checks everything that slotCounts promises.
func checkSlotCounts(endpoints []Endpoint, maxSlots int, counts []int) error {
	var positive []int // the weights above 0
	total := 0
	for i, e := range endpoints {
		total += counts[i]
		if e.Weight > 0 {
			positive = append(positive, int(e.Weight))
		}
	}
	if limit := max(maxSlots, len(endpoints)); total > limit {
		return fmt.Errorf("%d slots, want at most %d", total, limit)
	}
	if len(positive) == 0 {
		if slices.ContainsFunc(counts, func(n int) bool { return n != 1 }) {
			return fmt.Errorf("backups alone have %v slots, want 1 each", counts)
		}
		return nil
	}
	return errors.Join(checkOrder(endpoints, counts), checkShares(endpoints, positive, maxSlots, counts))
}

// checkOrder: backups have no slot, all others one or more; equal weights have
// equally many, larger weights no fewer.
func checkOrder(endpoints []Endpoint, counts []int) error {
	slotsOf := map[uint16]int{}
	for i, e := range endpoints {
		if (e.Weight > 0) != (counts[i] > 0) {
			return fmt.Errorf("weight %d has %d slots", e.Weight, counts[i])
		}
		if n, ok := slotsOf[e.Weight]; ok && n != counts[i] {
			return fmt.Errorf("weight %d has %d slots and %d", e.Weight, n, counts[i])
		}
		slotsOf[e.Weight] = counts[i]
	}
	most := 0
	for w := range uint16(MaxWeight + 1) {
		if n, ok := slotsOf[w]; ok {
			if n < most {
				return fmt.Errorf("weight %d has %d slots, a smaller one %d", w, n, most)
			}
			most = n
		}
	}
	return nil
}

// checkShares: the shares are exact where they have to be, and within
// MaxShareError if any divisor gets them there with maxSlots.
func checkShares(endpoints []Endpoint, positive []int, maxSlots int, counts []int) error {
	gcd, sum, total := 0, 0, 0
	for _, w := range positive {
		gcd = greatestCommonDivisor(gcd, w)
		sum += w
	}
	for _, n := range counts {
		total += n
	}
	worst := 0.0
	for i, e := range endpoints {
		if e.Weight == 0 {
			continue
		}
		worst = max(worst, relativeError(counts[i], total, int(e.Weight), sum))
		got, want := float64(counts[i])/float64(total), float64(e.Weight)/float64(sum)
		if bound := (1 + want*float64(len(positive))) / float64(total); math.Abs(got-want) > bound+1e-9 {
			return fmt.Errorf("a share of %g is %g, off by more than %g", want, got, bound)
		}
	}
	equal := slices.Min(positive) == slices.Max(positive)
	reduced := sum / gcd
	if (equal || reduced <= min(exactSlots, maxSlots)) && total != reduced {
		return fmt.Errorf("%d slots, want the exact %d", total, reduced)
	}
	if worst > MaxShareError+1e-9 && within5PercentIn(positive, sum, maxSlots) {
		return fmt.Errorf("a share is off by %.1f %% in %d slots, although less is possible in %d", 100*worst, total, maxSlots)
	}
	return nil
}

// relativeError returns how far slots/total is from weight/sum.
func relativeError(slots, total, weight, sum int) float64 {
	want := float64(weight) / float64(sum)
	return math.Abs(float64(slots)/float64(total)-want) / want
}

// within5PercentIn reports whether some divisor keeps every share within
// MaxShareError in at most maxSlots.
func within5PercentIn(positive []int, sum, maxSlots int) bool {
	for d := slices.Max(positive); d > 0; d-- {
		scaled, total := make([]int, len(positive)), 0
		for i, w := range positive {
			scaled[i] = max(1, int(math.Round(float64(w)/float64(d))))
			total += scaled[i]
		}
		if total > maxSlots {
			return false // and a smaller divisor takes no fewer
		}
		good := true
		for i, w := range positive {
			good = good && relativeError(scaled[i], total, w, sum) <= MaxShareError
		}
		if good {
			return true
		}
	}
	return false
}

func TestSlotCountsProperties(t *testing.T) {
	seed := time.Now().UnixNano()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewSource(seed))
	for range 1000 {
		// Few or many endpoints, of few or many different weights, with a
		// common divisor or none, and a bound that is tight or not.
		endpoints := make([]Endpoint, rng.Intn(1+rng.Intn(60)))
		largest, factor := 1+rng.Intn(MaxWeight), 1+rng.Intn(1+rng.Intn(100))
		for i := range endpoints {
			endpoints[i].Weight = uint16(min(rng.Intn(largest)*factor, MaxWeight))
		}
		maxSlots := 1 + rng.Intn(1+rng.Intn(DefaultMaxSlots))
		counts := slotCounts(endpoints, maxSlots)
		if err := checkSlotCounts(endpoints, maxSlots, counts); err != nil {
			t.Fatalf("seed %d, weights %v: %v", seed, endpoints, err)
		}
		of := map[uint16]int{}
		for i, e := range endpoints {
			of[e.Weight] = counts[i]
		}
		rng.Shuffle(len(endpoints), func(i, j int) { endpoints[i], endpoints[j] = endpoints[j], endpoints[i] })
		for i, n := range slotCounts(endpoints, maxSlots) {
			if e := endpoints[i]; n != of[e.Weight] {
				t.Fatalf("seed %d: weight %d has %d slots, in another order %d", seed, e.Weight, n, of[e.Weight])
			}
		}
	}
}

// FuzzSlotCounts reads the bound, then the weights, two bytes each.
func FuzzSlotCounts(f *testing.F) {
	seed := func(maxSlots uint16, weights ...uint16) {
		b := binary.BigEndian.AppendUint16(nil, maxSlots)
		for _, w := range weights {
			b = binary.BigEndian.AppendUint16(b, w)
		}
		f.Add(b)
	}
	seed(65535, 1, 3, 6)
	seed(65535, 5, 95)
	seed(65535, 7, 9, 13)
	seed(65535, 1, 1000)
	seed(65535, 1000, 1000, 1000)
	seed(65535, 0, 0, 0)
	seed(65535, 0, 1, 2)
	seed(1, 1, 1000, 999)
	seed(300, 997, 991, 983, 977, 1, 2)
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) < 2 || len(data) > 400 {
			return
		}
		maxSlots := 1 + int(binary.BigEndian.Uint16(data))
		var endpoints []Endpoint
		for data = data[2:]; len(data) >= 2; data = data[2:] {
			endpoints = append(endpoints, Endpoint{Weight: binary.BigEndian.Uint16(data) % (MaxWeight + 1)})
		}
		if err := checkSlotCounts(endpoints, maxSlots, slotCounts(endpoints, maxSlots)); err != nil {
			t.Fatalf("weights %v: %v", endpoints, err)
		}
	})
}

// Weights are counted once each, so many endpoints take no longer than their
// different weights do.
func TestSlotCountsOfManyWeightsIsFast(t *testing.T) {
	endpoints := make([]Endpoint, 5000)
	for i := range endpoints {
		endpoints[i].Weight = uint16(1 + i%MaxWeight)
	}
	for _, maxSlots := range []int{DefaultMaxSlots, math.MaxInt32} {
		fastest := time.Hour
		for range 5 {
			start := time.Now()
			slotCounts(endpoints, maxSlots)
			fastest = min(fastest, time.Since(start))
		}
		t.Logf("at most %d slots: %v", maxSlots, fastest)
		if fastest > time.Second {
			t.Errorf("the slots of 5,000 endpoints with 1,000 weights took %v", fastest)
		}
	}
}
