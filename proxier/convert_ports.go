package proxier

import (
	"fmt"
	"math"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/nftproxy/nftproxy/rules"
)

// servicePorts leaves out ports that are not possible, and those that an earlier
// port of the same Service makes ambiguous.
func servicePorts(all []corev1.ServicePort) (ports []Port, errs []error) {
	for i, p := range all {
		port, err := newPort(p.Name, p.Protocol, p.Port)
		if err == nil {
			err = ambiguous(port, ports)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("spec.ports[%d].%w", i, err))
			continue
		}
		if port.NodePort, err = nodePort(p.NodePort, port.Protocol, ports); err != nil {
			errs = append(errs, fmt.Errorf("spec.ports[%d].nodePort: %w", i, err))
		}
		ports = append(ports, port)
	}
	return ports, errs
}

// nodePort returns the NodePort of a port, whatever the type of the Service, or 0 with
// an error if it is not possible, or that of an earlier port.
func nodePort(number int32, protocol rules.Protocol, earlier []Port) (uint16, error) {
	if number < 0 || number > math.MaxUint16 {
		return 0, fmt.Errorf("%d is not in 0..65535", number)
	}
	for _, p := range earlier {
		if number != 0 && p.Protocol == protocol && int32(p.NodePort) == number {
			return 0, fmt.Errorf("%d is that of an earlier port too", number)
		}
	}
	return uint16(number), nil
}

// ambiguous returns an error if one of the ports has the name or the number of
// the given one, for the same protocol.
func ambiguous(port Port, ports []Port) error {
	for _, p := range ports {
		switch {
		case p.Protocol != port.Protocol:
		case p.Name == port.Name:
			return fmt.Errorf("name: %q is the name of an earlier port too", port.Name)
		case p.Number == port.Number:
			return fmt.Errorf("port: %d is an earlier port too", port.Number)
		}
	}
	return nil
}

// slicePorts leaves out ports without a name or a number, as kube-proxy does.
func slicePorts(all []discoveryv1.EndpointPort) (ports []Port, errs []error) {
	for i, p := range all {
		if p.Name == nil || p.Port == nil || *p.Port == 0 {
			continue
		}
		var protocol corev1.Protocol
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		port, err := newPort(*p.Name, protocol, *p.Port)
		if err != nil {
			errs = append(errs, fmt.Errorf("ports[%d].%w", i, err))
			continue
		}
		ports = append(ports, port)
	}
	return ports, errs
}

// newPort returns an error that begins with the name of the field.
func newPort(name string, protocol corev1.Protocol, number int32) (Port, error) {
	port := Port{Name: name}
	switch protocol {
	case corev1.ProtocolTCP, "":
		port.Protocol = rules.TCP
	case corev1.ProtocolUDP:
		port.Protocol = rules.UDP
	case corev1.ProtocolSCTP:
		port.Protocol = rules.SCTP
	default:
		return Port{}, fmt.Errorf("protocol: %q is not TCP, UDP or SCTP", protocol)
	}
	if number < 1 || number > math.MaxUint16 {
		return Port{}, fmt.Errorf("port: %d is not in 1..65535", number)
	}
	port.Number = uint16(number)
	return port, nil
}
