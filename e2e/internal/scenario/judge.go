package scenario

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/nftproxy/nftproxy/e2e/internal/probe"
)

// errOutcome says that the result is not as it should be; what it is, the results
// tell.
var errOutcome = errors.New("another result")

// String is what is expected, in one line.
func (e Expect) String() string {
	parts := []string{e.Result.String()}
	if len(e.Endpoints) > 0 {
		how := "from"
		if e.All {
			how = "from each of"
		}
		parts = append(parts, fmt.Sprintf("%s %v", how, e.Endpoints))
	}
	if e.Same {
		parts = append(parts, "always the same")
	}
	if e.Source != AnySource && e.Source != "" {
		parts = append(parts, "source "+string(e.Source))
	}
	return strings.Join(parts, ", ")
}

// Judge says what is wrong with the results of a probe, nil if they are as
// expected. The addresses are those of node1.
func (e Expect) Judge(results []probe.Result, node []netip.Addr) error {
	for _, result := range results {
		if err := e.judgeOne(result, node); err != nil {
			return err
		}
	}
	if e.Result != probe.OK {
		return nil
	}
	return e.judgeAnswers(results)
}

// judgeOne says what is wrong with one result on its own.
func (e Expect) judgeOne(result probe.Result, node []netip.Addr) error {
	switch {
	case result.Outcome != e.Result:
		return errOutcome
	case result.Outcome != probe.OK:
		return nil
	case len(e.Endpoints) > 0 && !slices.Contains(e.Endpoints, result.Endpoint):
		return fmt.Errorf("%s answered", result.Endpoint)
	case e.Source == SourceKept && !result.SourceKept():
		return fmt.Errorf("%s saw %s as %s", result.Endpoint, result.Local.Addr(), result.Source.Addr())
	case e.Source == SourceNode && !slices.Contains(node, result.Source.Addr()):
		return fmt.Errorf("%s saw %s, which is no address of node1", result.Endpoint, result.Source.Addr())
	default:
		return nil
	}
}

// judgeAnswers says what is wrong with the answers as a whole.
func (e Expect) judgeAnswers(results []probe.Result) error {
	answers := map[netip.AddrPort]int{}
	for _, result := range results {
		answers[result.Endpoint]++
	}
	if e.All {
		for _, endpoint := range e.Endpoints {
			if answers[endpoint] == 0 {
				return fmt.Errorf("%s never answered", endpoint)
			}
		}
	}
	if e.Same && len(answers) > 1 {
		return fmt.Errorf("%d endpoints answered", len(answers))
	}
	for endpoint, share := range e.Share {
		part := float64(answers[endpoint]) / float64(max(1, len(results)))
		if part < share.Min || part > share.Max {
			return fmt.Errorf("%s gave %.3f of the answers, not %g to %g", endpoint, part, share.Min, share.Max)
		}
	}
	return nil
}

// mismatch is what a probe should have shown and what it did.
func mismatch(p Probe, results []probe.Result, err error) error {
	if errors.Is(err, errOutcome) {
		return fmt.Errorf("%s: expected %s, got %s", p, p.Expect, probe.Summary(results))
	}
	return fmt.Errorf("%s: expected %s, got %s: %w", p, p.Expect, probe.Summary(results), err)
}
