package proxier

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The kinds of objects, as users know them.
const (
	kindService     = "Service"
	kindSlice       = "EndpointSlice"
	kindNode        = "Node"
	kindServiceCIDR = "ServiceCIDR"
)

// objectKey names an object.
type objectKey struct {
	kind string
	name types.NamespacedName // without a namespace for a kind that has none
}

// String returns the kind and the name.
func (k objectKey) String() string {
	if k.name.Namespace == "" {
		return k.kind + " " + k.name.Name
	}
	return k.kind + " " + k.name.String()
}

// compare orders keys by kind, namespace and name.
func (k objectKey) compare(l objectKey) int {
	return cmp.Or(strings.Compare(k.kind, l.kind),
		strings.Compare(k.name.Namespace, l.name.Namespace), strings.Compare(k.name.Name, l.name.Name))
}

// ref refers to the object of that UID.
func (k objectKey) ref(uid types.UID) ObjectRef {
	return ObjectRef{Kind: k.kind, Name: k.name, UID: uid}
}

// object is a converted object, of one kind. The zero value is none.
type object struct {
	service     *Service
	slice       *EndpointSlice
	node        *Node
	serviceCIDR *serviceCIDR
}

// serviceCIDR is what the proxy uses of a ServiceCIDR.
type serviceCIDR struct{ cidrs []netip.Prefix }

// convert converts an object of Kubernetes; one of another kind than the above has
// no kind. The Nodes of other nodes are none for this proxy.
func convert(obj any, nodeName string) (key objectKey, o object, err error) {
	switch k := obj.(type) {
	case *corev1.Service:
		key = objectKey{kindService, namespacedName(k)}
		o.service, err = NewService(k)
	case *discoveryv1.EndpointSlice:
		key = objectKey{kindSlice, namespacedName(k)}
		o.slice, err = NewEndpointSlice(k, nodeName)
	case *corev1.Node:
		key = objectKey{kindNode, namespacedName(k)}
		if k.Name == nodeName {
			o.node, err = NewNode(k)
		}
	case *networkingv1.ServiceCIDR:
		key = objectKey{kindServiceCIDR, namespacedName(k)}
		var cidrs []netip.Prefix
		if cidrs, err = NewServiceCIDR(k); len(cidrs) > 0 {
			o.serviceCIDR = &serviceCIDR{cidrs}
		}
	}
	return key, o, err
}

// exists reports whether there is an object.
func (o object) exists() bool { return o != object{} }

// uid returns the UID, empty if it is not kept, as only that of a Service is.
func (o object) uid() types.UID {
	if o.service == nil {
		return ""
	}
	return o.service.UID
}

// equal reports whether both, of the same kind, are the same for the proxy.
func (o object) equal(p object) bool {
	switch {
	case o.service != nil && p.service != nil:
		return o.service.Equal(p.service)
	case o.slice != nil && p.slice != nil:
		return o.slice.Equal(p.slice)
	case o.node != nil && p.node != nil:
		return o.node.Equal(p.node)
	case o.serviceCIDR != nil && p.serviceCIDR != nil:
		return slices.Equal(o.serviceCIDR.cidrs, p.serviceCIDR.cidrs)
	default:
		return o == p
	}
}

// add adds the newest state of an object.
func (c *Changes) add(key objectKey, o object) {
	switch key.kind {
	case kindService:
		c.Services = append(c.Services, ServiceChange{Name: key.name, Service: o.service})
	case kindSlice:
		c.Slices = append(c.Slices, SliceChange{Name: key.name, Slice: o.slice})
	case kindNode:
		c.Node = &NodeChange{Node: o.node}
	case kindServiceCIDR:
		change := ServiceCIDRChange{Name: key.name.Name}
		if o.serviceCIDR != nil {
			change.CIDRs = o.serviceCIDR.cidrs
		}
		c.ServiceCIDRs = append(c.ServiceCIDRs, change)
	}
}

// empty reports whether nothing has changed.
func (c *Changes) empty() bool {
	return len(c.Services) == 0 && len(c.Slices) == 0 && c.Node == nil && len(c.ServiceCIDRs) == 0
}

// each returns the errors that errors.Join joined.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

func namespacedName(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

// errNoName is the error of an object without a name.
var errNoName = errors.New("metadata.name: is missing")
