package proxier

import (
	"time"

	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

// A rival that undoes our work must not make it an endless effort: after some repairs in
// a row, each within rivalTime of the one before, the next one waits, longer each time.
const (
	rivalTime   = 10 * time.Second
	freeRepairs = 5
	firstHold   = 500 * time.Millisecond
	longestHold = 30 * time.Second
)

// rival says when what another program does to our tables may be undone.
type rival struct {
	clock clock.Clock
	hold  clock.Timer // runs after a repair that came too soon after others
	held  bool        // hold is running: nothing is repaired

	last  time.Time     // when the last repair began
	count int           // of repairs in a row
	pause time.Duration // the last one that there was
}

func newRival(c clock.Clock) *rival {
	r := &rival{clock: c, hold: c.NewTimer(time.Hour)}
	r.hold.Stop()
	return r
}

// repaired notes that a foreign change is undone now, and returns how long the next one
// has to wait.
func (r *rival) repaired() time.Duration {
	now := r.clock.Now()
	if now.Sub(r.last) > rivalTime+r.pause {
		r.count, r.pause = 0, 0
	}
	r.last = now
	if r.count++; r.count <= freeRepairs {
		return 0
	}
	r.pause = min(max(2*r.pause, firstHold), longestHold)
	r.held = true
	r.hold.Reset(r.pause)
	return r.pause
}

// logRepair says what happened, and loudly if it happens again and again.
func (p *Proxier) logRepair(what string, pause time.Duration) {
	if pause == 0 {
		p.log.Warn("another program has changed our tables; they are written again", zap.String("change", what))
		return
	}
	p.log.Error("another program keeps changing our tables: find out which one, and stop it; they are written again less often",
		zap.String("change", what), zap.Duration("pause", pause))
}
