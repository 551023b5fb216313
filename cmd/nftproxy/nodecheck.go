package main

import (
	"slices"

	"go.uber.org/zap"

	"github.com/nftproxy/nftproxy/cmd/nftproxy/internal/config"
	"github.com/nftproxy/nftproxy/proxier"
	"github.com/nftproxy/nftproxy/rules"
)

// nodeCheck compares the configuration with the node, and says what does not fit.
type nodeCheck struct {
	cfg      *config.Config
	families []rules.Family
	log      *zap.Logger
	told     []string // what does not fit as of the last time
}

// check returns an error if the node cannot be served with the configuration. What else
// does not fit is logged, once.
func (c *nodeCheck) check(node *proxier.Node) error {
	facts := config.NodeFacts{Families: c.families}
	if node != nil {
		facts.Addrs, facts.PodCIDRs = node.Addrs, node.PodCIDRs
	}
	problems, err := c.cfg.Check(facts)
	for _, problem := range problems {
		if !slices.Contains(c.told, problem) {
			c.log.Error("the configuration may be wrong or incomplete", zap.String("problem", problem))
		}
	}
	c.told = problems
	return err //nolint:wrapcheck // says it all
}
