// Package object is the Kubernetes objects that scenario cases are made of, as
// they are written: read strictly, named, merged.
package object

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
)

// Object is a Kubernetes object.
type Object = unstructured.Unstructured

// The kinds of objects.
const (
	Service       = "Service"
	EndpointSlice = "EndpointSlice"
	Node          = "Node"
	ServiceCIDR   = "ServiceCIDR"
	Namespace     = "Namespace"
)

// Kind says how objects of a kind are addressed.
type Kind struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
}

// KindOf returns a kind by its name.
func KindOf(name string) (Kind, error) {
	switch name {
	case Service:
		return Kind{Resource: corev1.SchemeGroupVersion.WithResource("services"), Namespaced: true}, nil
	case EndpointSlice:
		return Kind{Resource: discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), Namespaced: true}, nil
	case Node:
		return Kind{Resource: corev1.SchemeGroupVersion.WithResource("nodes")}, nil
	case ServiceCIDR:
		return Kind{Resource: networkingv1.SchemeGroupVersion.WithResource("servicecidrs")}, nil
	case Namespace:
		return Kind{Resource: corev1.SchemeGroupVersion.WithResource("namespaces")}, nil
	default:
		return Kind{}, fmt.Errorf("kind %q is not one of %s, %s, %s, %s, %s",
			name, Service, EndpointSlice, Node, ServiceCIDR, Namespace)
	}
}

// Key names an object.
type Key struct{ Kind, Namespace, Name string }

// KeyOf returns the key of an object.
func KeyOf(o *Object) Key {
	return Key{Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName()}
}

// ParseKey reads a key such as Service/default/web or Node/node1.
func ParseKey(s string) (Key, error) {
	parts := strings.Split(s, "/")
	kind, err := KindOf(parts[0])
	if err != nil {
		return Key{}, fmt.Errorf("object %q: %w", s, err)
	}
	key := Key{Kind: parts[0], Name: parts[len(parts)-1]}
	want := 2
	if kind.Namespaced {
		want = 3
		key.Namespace = parts[min(1, len(parts)-1)]
	}
	if len(parts) != want || key.Name == "" || kind.Namespaced && key.Namespace == "" {
		return Key{}, fmt.Errorf("object %q: want KIND/NAMESPACE/NAME, or KIND/NAME for what has no namespace", s)
	}
	return key, nil
}

// String is the form that ParseKey reads.
func (k Key) String() string {
	if k.Namespace == "" {
		return k.Kind + "/" + k.Name
	}
	return k.Kind + "/" + k.Namespace + "/" + k.Name
}

// Decode reads an object from JSON. A field that its kind does not have is an
// error. An object without a namespace gets the default one, if its kind has
// namespaces.
func Decode(data []byte) (*Object, error) {
	strict := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, scheme.Scheme, scheme.Scheme,
		serializer.SerializerOptions{Strict: true})
	if _, _, err := strict.Decode(data, nil, nil); err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	o := &Object{}
	if err := o.UnmarshalJSON(data); err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	kind, err := KindOf(o.GetKind())
	if err != nil {
		return nil, err
	}
	if o.GetName() == "" {
		return nil, fmt.Errorf("a %s without a name", o.GetKind())
	}
	if kind.Namespaced && o.GetNamespace() == "" {
		o.SetNamespace(corev1.NamespaceDefault)
	}
	return o, nil
}

// Encode turns a typed object into an Object.
func Encode(typed runtime.Object) (*Object, error) {
	data, err := json.Marshal(typed)
	if err != nil {
		return nil, fmt.Errorf("encode an object: %w", err)
	}
	return Decode(data)
}

// Endpoints returns every address and port that an EndpointSlice has, ready or
// not; none for an object of another kind.
func Endpoints(o *Object) ([]netip.AddrPort, error) {
	if o.GetKind() != EndpointSlice {
		return nil, nil
	}
	slice := &discoveryv1.EndpointSlice{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, slice); err != nil {
		return nil, fmt.Errorf("read %s: %w", KeyOf(o), err)
	}
	var all []netip.AddrPort
	for _, endpoint := range slice.Endpoints {
		for _, text := range endpoint.Addresses {
			address, err := netip.ParseAddr(text)
			if err != nil {
				continue // of a host by name, or a case about bad addresses
			}
			for _, port := range slice.Ports {
				if port.Port != nil {
					all = append(all, netip.AddrPortFrom(address, uint16(*port.Port)))
				}
			}
		}
	}
	return all, nil
}
