package proxier

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/nftproxy/nftproxy/rules"
)

// parseWeights parses the text of a WeightsAnnotation, at least one `selector=weight`.
// Spaces are allowed around each, and around the equals sign. An error names the first
// part that is wrong, and what is expected there.
func parseWeights(text string) ([]Weight, error) {
	var weights []Weight
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		// No name or pattern that can match contains an equals sign.
		selector, number, found := strings.Cut(part, "=")
		if !found {
			return nil, fmt.Errorf("%q is not selector=weight, separated by commas", part)
		}
		w, err := parseSelector(strings.TrimSpace(selector))
		if err != nil {
			return nil, err
		}
		if w.Weight, err = parseWeight(strings.TrimSpace(number)); err != nil {
			return nil, fmt.Errorf("%q: the weight %w", part, err)
		}
		weights = append(weights, w)
	}
	return weights, nil
}

// parseSelector returns a Weight whose weight is still to come.
func parseSelector(text string) (w Weight, err error) {
	kind, value, found := strings.Cut(text, ":")
	switch {
	case text == "*":
		return Weight{By: SelectAll}, nil
	case kind == "zone" && found:
		w, err = Weight{By: SelectByZone, Pattern: value}, checkZone(value)
	case kind == "node" && found:
		w, err = Weight{By: SelectByNode, Pattern: value}, checkNode(value)
	case kind == "pod" && found:
		w, err = Weight{By: SelectByPod, Pattern: value}, checkGlob(value)
	case kind == "addr" && found:
		w.By = SelectByAddr
		w.CIDR, err = parseAddrOrRange(value)
	default:
		return Weight{}, fmt.Errorf("%q is not zone:NAME, node:NAME, pod:PATTERN, addr:CIDR or *", text)
	}
	if err != nil {
		return Weight{}, fmt.Errorf("%q: %w", text, err)
	}
	return w, nil
}

func checkZone(name string) error {
	if name == "" || len(validation.IsValidLabelValue(name)) > 0 {
		return errors.New("a zone is a value of the label topology.kubernetes.io/zone")
	}
	return nil
}

func checkNode(name string) error {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return errors.New("a node is the name of a Node")
	}
	return nil
}

// checkGlob reports whether names can match a pattern.
func checkGlob(pattern string) error {
	if pattern == "" || strings.ContainsFunc(pattern, unicode.IsSpace) {
		return errors.New("a pod is a name, or a pattern of names, without spaces")
	}
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("%w: a pattern has *, ? and [a-z], and \\ before these if they stand for themselves", err)
	}
	return nil
}

// parseAddrOrRange parses a range of addresses, or one address.
func parseAddrOrRange(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		return parseRange(text)
	}
	addr, err := parseAddr(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	return netip.PrefixFrom(addr, addr.BitLen()), nil
}

// parseWeight parses a single weight.
func parseWeight(text string) (uint16, error) {
	weight, err := strconv.ParseUint(text, 10, 16)
	if err != nil || weight > rules.MaxWeight {
		return 0, fmt.Errorf("%q is not an integer from 0 to %d", text, rules.MaxWeight)
	}
	return uint16(weight), nil
}
