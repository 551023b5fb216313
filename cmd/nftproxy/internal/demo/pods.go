package demo

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
)

// countEndpoints returns the number of different addresses and ports of endpoints.
func countEndpoints(targets []target) int {
	all := map[netip.AddrPort]bool{}
	for _, t := range targets {
		for _, e := range t.endpoints {
			all[e.Addr] = true
		}
	}
	return len(all)
}

// pods are running pods by address.
type pods map[netip.Addr]*pod

// startPods starts all endpoints of the targets, also those that are not ready: it is
// for the rules to spare them. The ClusterIPs become addresses of this machine, so
// that packets to them go to lo unless a rule says otherwise. Nobody listens there,
// which is a refusal, but for Services without endpoints: these it must be a rule that
// refuses. The caller stops the pods, after an error too.
func startPods(ctx context.Context, lo netlink.Link, targets []target) (pods, error) {
	ports := map[netip.Addr]map[port]bool{}
	for _, t := range targets {
		if ports[t.addr.Addr()] == nil {
			ports[t.addr.Addr()] = map[port]bool{}
		}
		serving := slices.Clone(t.notReady)
		for _, e := range t.endpoints {
			serving = append(serving, e.Addr)
		}
		if len(t.endpoints) == 0 {
			serving = append(serving, t.addr)
		}
		for _, at := range serving {
			if ports[at.Addr()] == nil {
				ports[at.Addr()] = map[port]bool{}
			}
			ports[at.Addr()][port{t.Protocol, at.Port()}] = true
		}
	}
	running := pods{}
	for addr, ports := range ports {
		p, err := startPod(ctx, lo, addr, slices.Collect(maps.Keys(ports)))
		if err != nil {
			return running, err
		}
		running[addr] = p
	}
	return running, nil
}

// stop stops the pod of that address.
func (p pods) stop(addr netip.Addr) error {
	running, ok := p[addr]
	if !ok {
		return fmt.Errorf("no pod has the address %s", addr)
	}
	delete(p, addr)
	return running.stop()
}

// stopAll stops all that run.
func (p pods) stopAll() error {
	var errs []error
	for addr := range p {
		errs = append(errs, p.stop(addr))
	}
	return errors.Join(errs...)
}
