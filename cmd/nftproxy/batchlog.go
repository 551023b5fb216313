package main

import (
	"context"

	"go.uber.org/zap"

	"github.com/nftproxy/nftproxy/syncer"
)

// loggedText is how much of a batch's text is logged: a whole ruleset may be as large as
// the cluster.
const loggedText = 64 << 10

// batchLog is a kernel whose batches are in the log, where that is at level debug.
type batchLog struct {
	syncer.Kernel

	log *zap.Logger
}

// Apply implements [syncer.Kernel].
func (k batchLog) Apply(ctx context.Context, b *syncer.Batch) error {
	err := k.Kernel.Apply(ctx, b)
	if entry := k.log.Check(zap.DebugLevel, "batch"); entry != nil {
		text := b.String()
		left := max(0, len(text)-loggedText)
		entry.Write(zap.String("nft", text[:len(text)-left]), zap.Int("bytesLeftOut", left), zap.Error(err))
	}
	return err //nolint:wrapcheck // of the kernel itself
}
