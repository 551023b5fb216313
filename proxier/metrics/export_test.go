package metrics

import (
	"runtime/debug"
	"time"

	clientmetrics "k8s.io/client-go/tools/metrics"

	"github.com/nftproxy/nftproxy/syncer"
)

// RESTClientHooks returns what RegisterRESTClient registers.
func (m *Metrics) RESTClientHooks() clientmetrics.RegisterOpts { return m.restClient.hooks() }

// Committed counts a batch.
func (m *Metrics) Committed(took time.Duration, c syncer.Counts) { m.committed(took, c) }

// MajorMinor returns the first two numbers of a version.
func MajorMinor(version string) (major, minor string) { return majorMinor(version) }

// With adds what the settings of a build say.
func (b BuildInfo) With(settings []debug.BuildSetting) BuildInfo { return b.with(settings) }
