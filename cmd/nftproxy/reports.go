package main

import (
	"context"
	"net/netip"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/proxier/events"
	"github.com/nftproxy/nftproxy/proxier/healthcheck"
	"github.com/nftproxy/nftproxy/proxier/httpserver"
	"github.com/nftproxy/nftproxy/proxier/metrics"
	"github.com/nftproxy/nftproxy/proxier/zpages"
	"github.com/nftproxy/nftproxy/rules"
)

// reports is how the daemon tells others how it does: metrics, health and Events.
type reports struct {
	cfg     *config.Config
	log     *zap.Logger
	started time.Time
	metrics *metrics.Metrics
	health  *healthcheck.ProxyHealth
	events  *events.Recorder // nil without an API server
	node    string           // set if events is
}

// newMetrics returns the metrics of the process, which stay the same when the
// configuration changes: client-go takes one receiver of its reports, before the first
// client is made.
func newMetrics() *metrics.Metrics {
	m := metrics.New(enabledFamilies(), metrics.ReadBuildInfo(versionString()))
	m.RegisterRESTClient()
	return m
}

func newReports(cfg *config.Config, m *metrics.Metrics, families []rules.Family, log *zap.Logger) *reports {
	return &reports{
		cfg: cfg, log: log, started: time.Now(), metrics: m,
		health: healthcheck.NewProxyHealth(healthcheck.ProxyOptions{
			Families: families, Timeout: 2 * cfg.SyncPeriod,
			OnHealthz: m.HealthzAnswered, OnLivez: m.LivezAnswered,
		}),
	}
}

// observers returns what the proxier tells. client is nil without an API server.
func (r *reports) observers(client kubernetes.Interface, node string) proxier.Observers {
	o := proxier.Observers{Metrics: r.metrics, Health: r.health}
	if client == nil {
		r.health.SetNode(&healthcheck.Node{}) // until manifests say otherwise
	} else {
		r.events = events.NewRecorder(client.EventsV1(), node, r.log, nil)
		r.node = node
		r.tellOfNode(events.Normal, "Starting", "nftproxy "+versionString()+" starts")
		o.Events = r.events
	}
	o.ServiceHealth = healthcheck.NewServiceHealth(healthcheck.ServiceOptions{
		Healthy: r.health.Healthy, OnListenError: r.listenFailed, Log: r.log,
	})
	return o
}

// tellOfNode writes an Event about this node, with the reasons and the action of
// kube-proxy.
func (r *reports) tellOfNode(kind events.Type, reason, note string) {
	if r.events == nil {
		return
	}
	r.events.Record(events.Event{
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: r.node, UID: types.UID(r.node)},
		Type:      kind, Reason: reason, Action: "StartKubeProxy", Note: note,
	})
}

// listenFailed tells that the health-check port of a Service cannot be opened. The log
// says it already.
func (r *reports) listenFailed(service types.NamespacedName, _ netip.AddrPort, err error) {
	if r.events == nil {
		return
	}
	r.events.Record(events.Event{
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: service.Namespace, Name: service.Name},
		Type:      events.Warning, Reason: "FailedToStartServiceHealthcheck", Action: "Listen", Note: err.Error(),
	})
}

// run serves health and metrics, and writes Events, until the context is done.
func (r *reports) run(ctx context.Context, flags *pflag.FlagSet) error {
	group, ctx := errgroup.WithContext(ctx)
	if r.events != nil {
		group.Go(func() error { return r.events.Run(ctx) })
	}
	for reason, server := range r.servers(flags) {
		group.Go(func() error {
			err := server.Run(ctx)
			if err != nil {
				r.tellOfNode(events.Warning, reason, err.Error())
			}
			return err //nolint:wrapcheck // says it all
		})
	}
	return group.Wait() //nolint:wrapcheck // each part says it all
}

// servers returns the servers by the reason of the Event that tells of their failure.
func (r *reports) servers(flags *pflag.FlagSet) map[string]*httpserver.Server {
	servers := map[string]*httpserver.Server{"FailedToStartMetricServer": {
		Name: "metrics", Addr: r.cfg.MetricsAddress.String(),
		Handler: zpages.Handler(zpages.Options{
			Component: "nftproxy", Version: versionString(), Started: r.started, Metrics: r.metrics.Handler(),
			Config: func() any { return r.cfg.Object }, Flags: flags, Profiling: r.cfg.Profiling,
		}),
	}}
	if r.cfg.HealthzAddress.IsValid() {
		servers["FailedToStartProxierHealthcheck"] = &httpserver.Server{
			Name: "healthz", Addr: r.cfg.HealthzAddress.String(), Handler: r.health.Handler(),
		}
	}
	for _, server := range servers {
		server.HardFail, server.Log = r.cfg.BindHardFail, r.log
	}
	return servers
}
