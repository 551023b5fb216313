package proxier

import (
	"errors"
	"maps"
	"net/netip"
	"reflect"

	"k8s.io/apimachinery/pkg/types"

	"github.com/nftproxy/nftproxy/proxier/healthcheck"
	"github.com/nftproxy/nftproxy/rules"
	"github.com/nftproxy/nftproxy/syncer"
)

// Cluster is the newest state of everything that the rules depend on, and knows what
// differs from what was taken of it. It is used by one goroutine at a time.
type Cluster struct {
	tracker     *Tracker
	node        *nodeState
	nodeChanged bool
	config      rules.Config // that was taken last
}

// NewCluster returns a Cluster that knows nothing yet.
func NewCluster(opts Options) *Cluster {
	opts.Rules = opts.Rules.WithDefaults()
	c := &Cluster{tracker: NewTracker(opts.Rules.Families), node: newNodeState(opts), nodeChanged: true}
	c.tracker.noExternalIPs = opts.NoExternalIPs
	c.tracker.Apply(Changes{Node: &NodeChange{c.node.node}})
	c.config = c.node.config()
	return c
}

// Config returns the configuration of the ruleset that was taken last, or the first one.
func (c *Cluster) Config() rules.Config { return c.config }

// Apply takes changes and reports whether there is something to take.
func (c *Cluster) Apply(changes Changes) bool {
	if c.node.apply(changes) {
		c.nodeChanged = true
		if changes.Node != nil {
			changes.Node = &NodeChange{c.node.node}
		}
	}
	return c.tracker.Apply(changes) || c.nodeChanged
}

// SetAddresses takes the addresses of this node's interfaces.
func (c *Cluster) SetAddresses(addrs []netip.Addr) { c.node.local, c.nodeChanged = addrs, true }

// NodeAddrs returns the addresses that the Node has.
func (c *Cluster) NodeAddrs() []netip.Addr {
	if c.node.node == nil {
		return nil
	}
	return c.node.node.Addrs
}

// TakeProblems returns what is wrong with objects that are fine each by itself.
func (c *Cluster) TakeProblems() []Problem { return c.tracker.TakeProblems() }

// Anew has service ports be looked at as a whole at the next Take, since a Delta of them
// was of no use.
func (c *Cluster) Anew(keys []rules.ServicePortKey) { c.tracker.Anew(keys) }

// Work is what a sync has to do.
type Work struct {
	Changes []syncer.Change
	// Nodes is not nil if anything in them may differ, Config if it does.
	Nodes  []rules.Node
	Config *rules.Config

	// node is the Node, nil if it is not known; it may differ if Nodes is not nil.
	node *Node
	// health is not nil if anything in it may differ: the Services with a health-check
	// port, and the addresses on which these are open.
	health      map[types.NamespacedName]healthcheck.Service
	healthAddrs []netip.Addr
}

// Take returns what may differ since the last call.
func (c *Cluster) Take() Work {
	w := Work{Changes: c.tracker.TakeChanges(), health: c.tracker.takeHealth()}
	if w.health != nil || c.nodeChanged {
		w.healthAddrs = c.node.healthAddrs()
	}
	if !c.nodeChanged {
		return w
	}
	c.nodeChanged = false
	if w.health == nil {
		w.health = maps.Clone(c.tracker.health.services)
	}
	w.Nodes, w.node = c.node.families(), c.node.node
	if config := c.node.config(); !reflect.DeepEqual(config, c.config) {
		c.config, w.Config = config, &config
	}
	return w
}

// Empty reports whether nothing is to be done.
func (w Work) Empty() bool { return len(w.Changes) == 0 && w.Nodes == nil && w.health == nil }

// Prepare hands over what a sync brings into the kernel beside Changes. An error joins
// what cannot be used of it; that stays what it was.
func (w Work) Prepare(s *syncer.Syncer) error {
	var errs []error
	if w.Config != nil {
		errs = append(errs, s.Configure(*w.Config))
	}
	for _, node := range w.Nodes {
		errs = append(errs, s.SetNode(node))
	}
	return errors.Join(errs...)
}
