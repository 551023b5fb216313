package syncer

import (
	"context"
	"errors"

	"github.com/nftproxy/nftproxy/rules"
)

// Kernel is what holds the ruleset. There are two: Netlink is the real one,
// Memory a strict model of it. Both pass the same contract tests. A Kernel is
// used by one goroutine at a time.
type Kernel interface {
	// State returns which of our objects exist.
	State(ctx context.Context, families []rules.Family) (State, error)
	// Apply commits the batch. With a nil error all of it is in force. Otherwise
	// the error is an *Error, and unless its cause is Unknown nothing was changed.
	Apply(ctx context.Context, b *Batch) error
	// Check returns nil if the kernel would take the batch, and an *Error as from
	// Apply if not. It changes nothing.
	Check(ctx context.Context, b *Batch) error
	// Limits returns the largest batch that can be sent.
	Limits() Size
	// Close frees what the Kernel occupies in this process. The ruleset stays.
	Close() error
}

// State is which of our objects exist in the kernel. A family without a table has
// no entry.
type State map[rules.Family]TableState

// TableState is what there is in one of our tables.
type TableState struct {
	// Chains holds the hook of every chain by name, nil for a regular chain.
	Chains map[string]*rules.Hook
	// Sets holds every set and map by name, true for a map.
	Sets map[string]bool
}

// Cause is why an operation failed; whether to try again depends on it.
type Cause string

// The causes.
const (
	// Refused: the kernel looked at the batch and said no. Nothing was changed. The
	// same batch will be refused again.
	Refused Cause = "refused"
	// Forbidden: the process may not do this. Nothing was changed.
	Forbidden Cause = "forbidden"
	// TooLarge: the batch exceeds the limits of the socket. Nothing was sent.
	TooLarge Cause = "too large"
	// Unknown: an answer is missing (no buffer space, a timeout, a broken socket).
	// The batch may or may not be in force.
	Unknown Cause = "outcome unknown"
)

// Error is every error of a Kernel.
type Error struct {
	Op    string // what was tried
	Cause Cause
	Err   error
}

// Error returns operation, cause and the underlying error.
func (e *Error) Error() string { return e.Op + ": " + string(e.Cause) + ": " + e.Err.Error() }

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.Err }

// causeOf returns the cause of a Kernel's error. An error that is not an *Error
// says nothing about the outcome.
func causeOf(err error) Cause {
	var e *Error
	if errors.As(err, &e) {
		return e.Cause
	}
	return Unknown
}
