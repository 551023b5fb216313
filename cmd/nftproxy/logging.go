package main

import (
	"fmt"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/config"
)

// openLog returns the logger, through which client-go logs too. Its owner calls Sync at
// the end.
func openLog(l config.Logging) (*zap.Logger, error) {
	cfg := zap.NewProductionConfig()
	switch l.Format {
	case config.LogText:
		cfg.EncoderConfig = zap.NewDevelopmentEncoderConfig()
		cfg.Encoding = "console"
	case config.LogJSON:
		cfg.EncoderConfig.EncodeTime = zapcore.ISO8601TimeEncoder
	}
	cfg.Level = zap.NewAtomicLevelAt(zapcore.Level(-l.Verbosity))
	cfg.DisableCaller, cfg.DisableStacktrace = true, true
	cfg.Sampling = nil
	log, err := cfg.Build()
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	klog.SetLogger(zapr.NewLogger(log.Named("client-go")))
	return log, nil
}
