package bench

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/proxier"
)

// slimChange is a change as the proxier takes it.
type slimChange struct {
	kind    Kind
	service types.NamespacedName
	changes proxier.Changes
}

// newSlimChange converts a change.
func newSlimChange(c Change) (*slimChange, error) {
	s := &slimChange{kind: c.Kind, service: c.Service}
	for _, o := range c.Objects {
		if err := appendSlim(&s.changes, o); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// appendSlim converts an object as the proxier's source of an API server does.
func appendSlim(changes *proxier.Changes, o Object) error {
	switch {
	case o.Service != nil:
		c := proxier.ServiceChange{Name: types.NamespacedName{Namespace: o.Service.Namespace, Name: o.Service.Name}}
		if !o.Deleted {
			var err error
			if c.Service, err = proxier.NewService(o.Service); err != nil {
				return fmt.Errorf("convert the Service %s: %w", c.Name, err)
			}
		}
		changes.Services = append(changes.Services, c)
	case o.Slice != nil:
		c := proxier.SliceChange{Name: types.NamespacedName{Namespace: o.Slice.Namespace, Name: o.Slice.Name}}
		if !o.Deleted {
			var err error
			if c.Slice, err = proxier.NewEndpointSlice(o.Slice, NodeName); err != nil {
				return fmt.Errorf("convert the EndpointSlice %s: %w", c.Name, err)
			}
		}
		changes.Slices = append(changes.Slices, c)
	}
	return nil
}

// slimCluster converts a whole cluster.
func slimCluster(c *Cluster) (changes proxier.Changes, err error) {
	node, err := proxier.NewNode(c.Node())
	if err != nil {
		return changes, fmt.Errorf("convert the Node: %w", err)
	}
	changes.Node = &proxier.NodeChange{Node: node}
	c.All(func(o Object) {
		if err == nil {
			err = appendSlim(&changes, o)
		}
	})
	return changes, err
}
