package proxier

import (
	"maps"
	"net/netip"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/proxier/healthcheck"
)

// serviceHealth follows the Services that have a health-check port.
type serviceHealth struct {
	services map[types.NamespacedName]healthcheck.Service
	dirty    map[types.NamespacedName]bool
}

func newServiceHealth() serviceHealth {
	return serviceHealth{services: map[types.NamespacedName]healthcheck.Service{}, dirty: map[types.NamespacedName]bool{}}
}

// touchHealth notes that what a Service says of its health may differ.
func (t *Tracker) touchHealth(name types.NamespacedName) {
	_, known := t.health.services[name]
	if entry := t.services[name]; known || entry != nil && entry.service != nil && entry.service.HealthCheckNodePort != 0 {
		t.health.dirty[name] = true
	}
}

// takeHealth returns the Services that have a health-check port, nil if none differs
// from the last time.
func (t *Tracker) takeHealth() map[types.NamespacedName]healthcheck.Service {
	if len(t.health.dirty) == 0 {
		return nil
	}
	for name := range t.health.dirty {
		entry := t.services[name]
		if entry == nil || entry.service == nil || entry.service.HealthCheckNodePort == 0 {
			delete(t.health.services, name)
			continue
		}
		t.health.services[name] = healthcheck.Service{Port: entry.service.HealthCheckNodePort, LocalEndpoints: entry.localReady()}
	}
	t.health.dirty = map[types.NamespacedName]bool{}
	return maps.Clone(t.health.services)
}

// localReady returns how many different addresses on this node are ready, over all ports.
func (e *tracked) localReady() int {
	addrs := map[netip.Addr]bool{}
	for _, s := range e.slices {
		for i := range s.Endpoints {
			if endpoint := &s.Endpoints[i]; endpoint.Local && endpoint.Ready {
				addrs[endpoint.Addr] = true
			}
		}
	}
	return len(addrs)
}
