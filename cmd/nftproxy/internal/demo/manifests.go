package demo

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/nftproxy/nftproxy/rules"
)

// copyManifests copies the files into the folder.
func copyManifests(folder string, from fs.FS) error {
	names, err := fs.Glob(from, "*.yaml")
	if err != nil {
		return fmt.Errorf("list the manifests: %w", err)
	}
	for _, name := range names {
		data, err := fs.ReadFile(from, name)
		if err != nil {
			return fmt.Errorf("read a manifest: %w", err)
		}
		if err := replaceFile(filepath.Join(folder, name), data); err != nil {
			return err
		}
	}
	return nil
}

// replaceFile writes a file in one step: nobody sees a part of it.
func replaceFile(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write a manifest: %w", err)
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write a manifest: %w", errors.Join(err, os.Remove(f.Name())))
	}
	return nil
}

// replica is one pod of the Service that is scaled, in each family.
type replica struct {
	name, node string
	addrs      map[rules.Family]netip.Addr
}

// scaledManifest is the file of the Service that is scaled.
type scaledManifest struct {
	path string
	docs []document
}

// document is one object of a file; slice is nil if it is no EndpointSlice.
type document struct {
	text  []byte
	slice *discoveryv1.EndpointSlice
}

func readScaledManifest(path string) (*scaledManifest, error) {
	docs, err := readDocuments(path)
	if err != nil {
		return nil, err
	}
	return &scaledManifest{path: path, docs: docs}, nil
}

// readDocuments returns the objects in a file.
func readDocuments(path string) ([]document, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the demo's own file
	if err != nil {
		return nil, fmt.Errorf("read a manifest: %w", err)
	}
	var docs []document
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for {
		text, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		slice := &discoveryv1.EndpointSlice{}
		if err := yaml.Unmarshal(text, slice); err != nil || slice.Kind != "EndpointSlice" {
			slice = nil
		}
		docs = append(docs, document{text, slice})
	}
}

// replicas returns the pods that the file lists. What pod an endpoint is, its
// targetRef says.
func (m *scaledManifest) replicas() ([]replica, error) {
	var all []replica
	for _, doc := range m.docs {
		if doc.slice == nil {
			continue
		}
		for _, e := range doc.slice.Endpoints {
			if e.TargetRef == nil || e.NodeName == nil || len(e.Addresses) == 0 {
				return nil, fmt.Errorf("%s: an endpoint of %s has no targetRef, nodeName or address", m.path, doc.slice.Name)
			}
			addr, err := netip.ParseAddr(e.Addresses[0])
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.path, err)
			}
			i := slices.IndexFunc(all, func(r replica) bool { return r.name == e.TargetRef.Name })
			if i < 0 {
				i = len(all)
				all = append(all, replica{e.TargetRef.Name, *e.NodeName, map[rules.Family]netip.Addr{}})
			}
			all[i].addrs[rules.FamilyOf(addr)] = addr
		}
	}
	return all, nil
}

// newReplica returns the pod of that number, counted from 0, which is none of those in
// the file. Pods go to the three nodes by turns.
func newReplica(service string, n int) replica {
	node, host := n%3+1, 60+n
	return replica{
		name: fmt.Sprintf("%s-%d", service, n+1),
		node: fmt.Sprintf("node-%d", node),
		addrs: map[rules.Family]netip.Addr{
			rules.IPv4: netip.AddrFrom4([4]byte{10, 244, byte(node), byte(host)}),
			rules.IPv6: netip.MustParseAddr(fmt.Sprintf("fd00:10:244:%d::%d", node, host)),
		},
	}
}

// render returns the file with these pods in place of all others.
func (m *scaledManifest) render(replicas []replica) ([]byte, error) {
	var out bytes.Buffer
	for i, doc := range m.docs {
		if i > 0 {
			out.WriteString("---\n")
		}
		if doc.slice == nil {
			out.Write(doc.text)
			continue
		}
		slice := doc.slice.DeepCopy()
		slice.Endpoints = endpointsOf(slice, replicas)
		text, err := yaml.Marshal(slice)
		if err != nil {
			return nil, fmt.Errorf("write EndpointSlice %s: %w", slice.Name, err)
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// endpointsOf returns the pods as endpoints of the slice.
func endpointsOf(slice *discoveryv1.EndpointSlice, replicas []replica) []discoveryv1.Endpoint {
	family := rules.IPv4
	if slice.AddressType == discoveryv1.AddressTypeIPv6 {
		family = rules.IPv6
	}
	yes, no := true, false
	endpoints := make([]discoveryv1.Endpoint, len(replicas))
	for i, r := range replicas {
		endpoints[i] = discoveryv1.Endpoint{
			Addresses:  []string{r.addrs[family].String()},
			Conditions: discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no},
			NodeName:   &r.node,
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: slice.Namespace, Name: r.name},
		}
	}
	return endpoints
}

// publish makes these the pods of the Service, as an operator would: by a new file.
func (m *scaledManifest) publish(replicas []replica) error {
	text, err := m.render(replicas)
	if err != nil {
		return err
	}
	return replaceFile(m.path, text)
}
