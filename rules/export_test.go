package rules

import "slices"

// WithoutStatement returns a walker of the same rules, but for one statement of one.
func (w *Walker) WithoutStatement(chain string, rule, statement int) *Walker {
	c := w.chains[chain]
	c.Rules = slices.Clone(c.Rules)
	c.Rules[rule] = slices.Delete(slices.Clone(c.Rules[rule]), statement, statement+1)
	broken := *w
	broken.chains = map[string]Chain{}
	for name, other := range w.chains {
		broken.chains[name] = other
	}
	broken.chains[chain] = c
	return &broken
}
