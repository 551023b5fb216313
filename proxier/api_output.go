package proxier

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// optionalWait is for how long, after the first lists of the required kinds, those of
// the optional ones are waited for. An API server may not know ServiceCIDRs, which
// came with Kubernetes 1.33, or may not let them be read; that must not keep Services
// from working. Until then, rules would be written that the Node and the ServiceCIDRs
// change at once.
const optionalWait = 3 * time.Second

// apiOutput is where the reflectors of all kinds meet: it calls the handler from
// one of them at a time.
type apiOutput struct {
	ready chan struct{} // closed once the first lists of all required kinds have arrived
	done  chan struct{} // closed once the handler knows that everything is synced

	mu      sync.Mutex
	handler Handler
	// The kinds whose first full list is still to come. The optional ones are forgotten
	// once nobody waits for them any more.
	required, optional []string
}

func newAPIOutput(h Handler, required, optional []string) *apiOutput {
	return &apiOutput{
		ready: make(chan struct{}), done: make(chan struct{}), handler: h,
		required: slices.Clone(required), optional: slices.Clone(optional),
	}
}

// apply hands changes and problems to the handler. The flag says that a full list
// of the kind is complete with them; the last first one makes Synced.
func (o *apiOutput) apply(kind string, changes Changes, problems []Problem, listed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !changes.empty() {
		o.handler.Apply(changes)
	}
	for _, p := range problems {
		o.handler.Problem(p)
	}
	waiting := len(o.required) + len(o.optional)
	if !listed || waiting == 0 {
		return
	}
	isKind := func(k string) bool { return k == kind }
	if slices.ContainsFunc(o.required, isKind) {
		if o.required = slices.DeleteFunc(o.required, isKind); len(o.required) == 0 {
			close(o.ready)
		}
	}
	o.optional = slices.DeleteFunc(o.optional, isKind)
	if len(o.required)+len(o.optional) == 0 {
		o.synced()
	}
}

// synced is called once, when nothing is waited for any more.
func (o *apiOutput) synced() {
	close(o.done)
	o.handler.Synced()
}

// await waits until everything is synced or the context is done. When it has been
// waiting for optional kinds for long enough, it makes Synced without them, after
// giveUp has got them.
func (o *apiOutput) await(ctx context.Context, c clock.Clock, giveUp func(kinds []string)) {
	select {
	case <-ctx.Done():
		return
	case <-o.ready:
	}
	timer := c.NewTimer(optionalWait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return
	case <-o.done:
		return
	case <-timer.C():
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.optional) == 0 {
		return // the last list has just come
	}
	giveUp(o.optional)
	o.optional = nil
	o.synced()
}
