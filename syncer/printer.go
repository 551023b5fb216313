package syncer

import (
	"context"
	"fmt"
	"io"

	"github.com/nftproxy/nftproxy/rules"
)

// Printer is a Kernel that prints every batch that another one took, as nft
// commands after a comment that counts them.
type Printer struct {
	kernel Kernel
	out    io.Writer
	counts Counts
}

var _ Kernel = (*Printer)(nil)

// NewPrinter returns a Printer of what the kernel takes.
func NewPrinter(kernel Kernel, out io.Writer) *Printer { return &Printer{kernel: kernel, out: out} }

// SetOutput prints to another writer from now on, and counts from 0.
func (p *Printer) SetOutput(out io.Writer) { p.out, p.counts = out, Counts{} }

// Counts returns how much was printed.
func (p *Printer) Counts() Counts { return p.counts }

// State is that of the kernel.
func (p *Printer) State(ctx context.Context, families []rules.Family) (State, error) {
	return p.kernel.State(ctx, families)
}

// Apply applies the batch and prints it.
func (p *Printer) Apply(ctx context.Context, b *Batch) error {
	if err := p.kernel.Apply(ctx, b); err != nil {
		return err
	}
	p.counts = p.counts.Add(b.Counts())
	if _, err := fmt.Fprintf(p.out, "# %s\n%s\n", b.Counts(), b); err != nil {
		return &Error{Op: "print a batch", Cause: Unknown, Err: err}
	}
	return nil
}

// Check is that of the kernel.
func (p *Printer) Check(ctx context.Context, b *Batch) error {
	return p.kernel.Check(ctx, b)
}

// Limits are those of the kernel.
func (p *Printer) Limits() Size { return p.kernel.Limits() }

// Close closes the kernel.
func (p *Printer) Close() error {
	return p.kernel.Close()
}
