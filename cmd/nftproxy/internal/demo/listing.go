package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/nftproxy/nftproxy/rules"
)

// nftTimeout is how long nft may take.
const nftTimeout = 10 * time.Second

// section is a part of a listing.
type section struct {
	title string
	lines []string
}

// errNoNFT is returned if there is no nft on this machine.
var errNoNFT = errors.New("there is no nft on this machine")

// listService returns what the kernel holds for a target, as nft lists it.
func listService(ctx context.Context, t target) ([]section, error) {
	nft, err := findNFT()
	if err != nil {
		return nil, err
	}
	var sections []section
	list := func(kind, name string, filter func(string) []string) error {
		args := []string{"list", kind, t.Family.Keyword(), rules.TableName, name}
		out, err := runNFT(ctx, nft, args...)
		if err == nil {
			sections = append(sections, section{"nft " + strings.Join(args, " "), filter(out)})
		}
		return err
	}
	elements := func(out string) []string { return elementsOf(out, t) }
	if err := list("map", rules.ServiceIPs.Set().Name, elements); err != nil {
		return nil, err
	}
	if err := list("map", rules.Endpoints.Set().Name, elements); err != nil {
		return nil, err
	}
	for _, element := range sections[0].lines {
		for _, chain := range chainsOf(element) {
			if err := list("chain", chain, rulesOf); err != nil {
				return nil, err
			}
		}
	}
	return sections, nil
}

// findNFT looks where a shell would, and where users often do not look.
func findNFT() (string, error) {
	if path, err := exec.LookPath("nft"); err == nil {
		return path, nil
	}
	for _, folder := range []string{"/usr/sbin", "/sbin", "/usr/local/sbin"} {
		path := filepath.Join(folder, "nft")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", errNoNFT
}

func runNFT(ctx context.Context, nft string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, nftTimeout)
	defer cancel()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, nft, args...) //nolint:gosec // nft
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("nft %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// elementsOf returns the elements of the target in nft's listing of a map.
func elementsOf(listing string, t target) []string {
	_, text, _ := strings.Cut(listing, "elements = {")
	text, _, _ = strings.Cut(text, "}")
	var lines []string
	for element := range strings.SplitSeq(text, ",") {
		if element = strings.TrimSpace(element); isOf(element, t) {
			lines = append(lines, element)
		}
	}
	return lines
}

// isOf reports whether an element's key is that of the target.
func isOf(element string, t target) bool {
	key := fmt.Sprintf("%s . %s . %d", t.addr.Addr(), t.Protocol, t.addr.Port())
	rest, ok := strings.CutPrefix(element, key)
	return ok && strings.HasPrefix(rest, " ")
}

// chainsOf returns the names of the chain that an element leads to and of those that the
// chain jumps to.
func chainsOf(element string) []string {
	_, name, ok := strings.Cut(element, ": goto ")
	if !ok {
		return nil
	}
	names := []string{name}
	for _, chain := range rules.ChainsByName(name) {
		if chain.Name != name {
			names = append(names, chain.Name)
		}
	}
	return names
}

// rulesOf returns the rules in nft's listing of a chain, with those that repeat
// counted.
func rulesOf(listing string) []string {
	_, text, _ := strings.Cut(listing, "chain ")
	text, _, _ = strings.Cut(text, "\n\t}")
	var lines []string
	count := 0
	flush := func() {
		if count > 1 {
			lines = append(lines, fmt.Sprintf("... the same rule %d times more", count-1))
		}
		count = 0
	}
	last := ""
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if i == 0 || line == "" {
			continue // the name of the chain
		}
		if line != last {
			flush()
			lines, last = append(lines, line), line
		}
		count++
	}
	flush()
	return lines
}

// compileService returns the same as listService from the rules that the target
// compiles to, as `nftproxy dump` prints them.
func compileService(cfg rules.Config, t target) ([]section, error) {
	compiled, err := rules.Compile(cfg, rules.ServicePort{
		ServicePortKey: t.ServicePortKey,
		Frontends:      []rules.Frontend{{Kind: rules.ClusterIP, Addr: t.addr}},
		Endpoints:      t.endpoints,
	}, nil)
	if err != nil {
		return nil, err //nolint:wrapcheck // says it all
	}
	var text bytes.Buffer
	if err := rules.NewRuleset(cfg, []*rules.Compiled{compiled}).WriteText(&text); err != nil {
		return nil, err //nolint:wrapcheck // says it all
	}
	var sections []section
	for _, set := range []rules.Set{rules.ServiceIPs.Set(), rules.Endpoints.Set()} {
		_, part, _ := strings.Cut(text.String(), "map "+set.Name+" {")
		sections = append(sections, section{"map " + set.Name, elementsOf(part, t)})
	}
	for _, element := range sections[0].lines {
		for _, chain := range chainsOf(element) {
			_, part, _ := strings.Cut(text.String(), "\tchain "+chain+" {")
			sections = append(sections, section{"chain " + chain, rulesOf("chain " + chain + " {" + part)})
		}
	}
	return sections, nil
}
