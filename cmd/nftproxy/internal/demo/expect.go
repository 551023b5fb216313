package demo

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/rules"
)

// This file says what is to be expected of the manifests. It reads them itself, so
// that the daemon is not measured by its own understanding of them.

// target is a ClusterIP and port to connect to.
type target struct {
	rules.ServicePortKey
	addr      netip.AddrPort
	endpoints []rules.Endpoint // the ready ones, sorted by address
	notReady  []netip.AddrPort // those that must get nothing
}

// loadTargets returns the ClusterIPs and ports of all Services in the folder, of the
// given families, sorted.
func loadTargets(folder string, families []rules.Family) ([]target, error) {
	var services []corev1.Service
	var all []discoveryv1.EndpointSlice
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list the manifests: %w", err)
	}
	for _, path := range paths {
		docs, err := readDocuments(path)
		if err != nil {
			return nil, err
		}
		for _, doc := range docs {
			var service corev1.Service
			switch {
			case doc.slice != nil:
				all = append(all, *doc.slice)
			case yaml.Unmarshal(doc.text, &service) == nil && service.Kind == "Service":
				services = append(services, service)
			}
		}
	}
	var targets []target
	for i := range services {
		of, err := targetsOf(&services[i], all, families)
		if err != nil {
			return nil, fmt.Errorf("in Service %s: %w", services[i].Name, err)
		}
		targets = append(targets, of...)
	}
	slices.SortFunc(targets, func(a, b target) int { return a.Compare(b.ServicePortKey) })
	return targets, nil
}

// targetsOf returns the targets of one Service.
func targetsOf(s *corev1.Service, all []discoveryv1.EndpointSlice, families []rules.Family) ([]target, error) {
	var targets []target
	for _, text := range s.Spec.ClusterIPs {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err //nolint:wrapcheck // says what is no address
		}
		if !slices.Contains(families, rules.FamilyOf(addr)) {
			continue
		}
		for _, p := range s.Spec.Ports {
			t := target{addr: netip.AddrPortFrom(addr, uint16(p.Port))} //nolint:gosec // ports fit
			t.Namespace, t.Name, t.Port = s.Namespace, s.Name, p.Name
			t.Family, t.Protocol = rules.FamilyOf(addr), rules.TCP
			if p.Protocol == corev1.ProtocolUDP {
				t.Protocol = rules.UDP
			}
			for i := range all {
				if err := t.addSlice(&all[i]); err != nil {
					return nil, fmt.Errorf("in EndpointSlice %s: %w", all[i].Name, err)
				}
			}
			slices.SortFunc(t.endpoints, func(a, b rules.Endpoint) int { return a.Addr.Compare(b.Addr) })
			targets = append(targets, t)
		}
	}
	return targets, nil
}

// addSlice adds the endpoints of a slice if they are the target's.
func (t *target) addSlice(s *discoveryv1.EndpointSlice) error {
	if s.Namespace != t.Namespace || s.Labels[discoveryv1.LabelServiceName] != t.Name ||
		string(s.AddressType) != t.Family.String() {
		return nil
	}
	weight := uint64(1)
	if text, ok := s.Annotations[proxier.WeightAnnotation]; ok {
		var err error
		if weight, err = strconv.ParseUint(text, 10, 16); err != nil {
			return err //nolint:wrapcheck // says what is no weight
		}
	}
	for _, p := range s.Ports {
		if *p.Name != t.Port || !strings.EqualFold(string(*p.Protocol), t.Protocol.String()) {
			continue
		}
		for _, e := range s.Endpoints {
			addr, err := netip.ParseAddr(e.Addresses[0])
			if err != nil {
				return err //nolint:wrapcheck // says what is no address
			}
			at := netip.AddrPortFrom(addr, uint16(*p.Port)) //nolint:gosec // ports fit
			if e.Conditions.Ready != nil && !*e.Conditions.Ready {
				t.notReady = append(t.notReady, at)
				continue
			}
			t.endpoints = append(t.endpoints, rules.Endpoint{Addr: at, Weight: uint16(weight)})
		}
	}
	return nil
}

// shares returns the part of the connections that each endpoint should get: its
// weight by that of all, or the same for all if no weight is above 0.
func (t target) shares() []float64 {
	sum := 0
	for _, e := range t.endpoints {
		sum += int(e.Weight)
	}
	shares := make([]float64, len(t.endpoints))
	for i, e := range t.endpoints {
		if sum == 0 {
			shares[i] = 1 / float64(len(shares))
			continue
		}
		shares[i] = float64(e.Weight) / float64(sum)
	}
	return shares
}
