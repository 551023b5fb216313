// Package synctest gives tests a Kernel that records what is sent to it and fails
// on request.
package synctest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"

	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// Fault is a way for the next Apply to go wrong.
type Fault uint8

// The faults.
const (
	// None: the batch goes through.
	None Fault = iota
	// Refuse: the batch is refused, whatever is in it.
	Refuse
	// LoseBatch: the batch is not applied and the outcome is not known.
	LoseBatch
	// LoseAnswer: the batch is applied and the outcome is not known.
	LoseAnswer
)

// Kernel wraps another Kernel. It may be used by several goroutines.
type Kernel struct {
	syncer.Kernel

	mu      sync.Mutex
	faults  []Fault
	states  []error // of the next calls of State
	refuse  func(rules.Element) bool
	gate    chan struct{} // closed, or nil: nothing is held
	held    chan struct{} // has a token for every Apply that waits at the gate
	max     syncer.Size
	applied []*syncer.Batch
	checks  int
}

// NewKernel returns a Kernel over k without faults.
func NewKernel(k syncer.Kernel) *Kernel {
	return &Kernel{Kernel: k, max: k.Limits(), held: make(chan struct{}, 1)}
}

// Inject makes the next calls of Apply go wrong, one fault a call.
func (k *Kernel) Inject(faults ...Fault) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.faults = append(k.faults, faults...)
}

// FailStates makes the next calls of State fail, one error a call.
func (k *Kernel) FailStates(errs ...error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.states = append(k.states, errs...)
}

// RefuseElements refuses every batch that adds an element for which bad is true,
// until it is called with nil.
func (k *Kernel) RefuseElements(bad func(rules.Element) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refuse = bad
}

// Hold makes every Apply wait until release is called.
func (k *Kernel) Hold() (release func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gate = make(chan struct{})
	return sync.OnceFunc(func() { close(k.gate) })
}

// WaitHeld waits until an Apply waits.
func (k *Kernel) WaitHeld() { <-k.held }

// Limit sets what Limits returns; a larger batch is refused as too large.
func (k *Kernel) Limit(s syncer.Size) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.max = s
}

// Applied returns the batches that the kernel took since the last call.
func (k *Kernel) Applied() []*syncer.Batch {
	k.mu.Lock()
	defer k.mu.Unlock()
	applied := k.applied
	k.applied = nil
	return applied
}

// Checks returns the number of calls of Check since the last call.
func (k *Kernel) Checks() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.checks
	k.checks = 0
	return n
}

// Limits returns what Limit set.
func (k *Kernel) Limits() syncer.Size {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.max
}

// State returns what there is, unless something was injected.
func (k *Kernel) State(ctx context.Context, families []rules.Family) (syncer.State, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.states) > 0 {
		err := k.states[0]
		k.states = k.states[1:]
		return nil, &syncer.Error{Op: "list our tables", Cause: syncer.Unknown, Err: err}
	}
	return k.Kernel.State(ctx, families)
}

// Apply applies the batch, unless something was injected.
func (k *Kernel) Apply(ctx context.Context, b *syncer.Batch) error {
	k.wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	fault := None
	if len(k.faults) > 0 {
		fault, k.faults = k.faults[0], k.faults[1:]
	}
	if err := k.refusal(b); err != nil {
		return err
	}
	switch fault {
	case Refuse:
		return &syncer.Error{Op: "apply a batch", Cause: syncer.Refused, Err: syscall.EINVAL}
	case LoseBatch:
		return &syncer.Error{Op: "apply a batch", Cause: syncer.Unknown, Err: syscall.ENOBUFS}
	case None, LoseAnswer:
	}
	if err := k.Kernel.Apply(ctx, b); err != nil {
		return err
	}
	k.applied = append(k.applied, b)
	if fault == LoseAnswer {
		return &syncer.Error{Op: "apply a batch", Cause: syncer.Unknown, Err: syscall.EINTR}
	}
	return nil
}

// wait waits at the gate.
func (k *Kernel) wait() {
	k.mu.Lock()
	gate := k.gate
	k.mu.Unlock()
	if gate == nil {
		return
	}
	select {
	case <-gate:
	case k.held <- struct{}{}:
		<-gate
	}
}

// Check checks the batch.
func (k *Kernel) Check(ctx context.Context, b *syncer.Batch) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.checks++
	if err := k.refusal(b); err != nil {
		return err
	}
	return k.Kernel.Check(ctx, b)
}

func (k *Kernel) refusal(b *syncer.Batch) error {
	if !b.Size().Fits(k.max) {
		return &syncer.Error{Op: "size a batch", Cause: syncer.TooLarge, Err: syscall.EMSGSIZE}
	}
	for _, op := range b.Ops() {
		if op.Verb == syncer.AddElements && k.refuse != nil && slices.ContainsFunc(op.Elements, k.refuse) {
			return &syncer.Error{Op: "apply a batch", Cause: syncer.Refused, Err: errors.New("a bad element")}
		}
	}
	return nil
}
