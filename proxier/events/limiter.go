package events

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

const (
	// RepeatInterval is the least time between two Events of the same reason and text
	// about the same object.
	RepeatInterval = 10 * time.Minute
	// Burst is how many Events there can be at once.
	Burst = 25
	// Interval is the least time between two Events once there were as many as Burst.
	Interval = 10 * time.Second
	// remembered is how many Events are known as told; the ones not seen for longest are
	// forgotten.
	remembered = 1024
)

// limiter says which Events are worth telling.
type limiter struct {
	clock clock.PassiveClock

	mu     sync.Mutex            // what is told is noted at once
	told   *cache.LRUExpireCache // of Event
	bucket *rate.Limiter
}

func newLimiter(c clock.PassiveClock) *limiter {
	return &limiter{
		clock: c, told: cache.NewLRUExpireCacheWithClock(remembered, c),
		bucket: rate.NewLimiter(rate.Every(Interval), Burst),
	}
}

// allow reports whether to tell, and takes note of it. What does not fit now may be
// told when it comes again.
func (l *limiter) allow(e Event) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, found := l.told.Get(e); found || !l.bucket.AllowN(l.clock.Now(), 1) {
		return false
	}
	l.told.Add(e, nil, RepeatInterval)
	return true
}
