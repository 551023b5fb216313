package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/nftproxy/nftproxy/e2e/internal/object"
	"github.com/nftproxy/nftproxy/e2e/internal/probe"
)

// ReadFolder reads all cases of a folder, in the order of their names. Every
// file that cannot be read is in the error; hosts are the names of the hosts
// that a case may use.
func ReadFolder(dir string, hosts []string) ([]*Case, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("list the cases: %w", err)
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("no *.yaml file in %s", dir)
	}
	slices.Sort(paths)
	var cases []*Case
	var errs []error
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			errs = append(errs, fmt.Errorf("read a case: %w", err))
			continue
		}
		c, err := Parse(strings.TrimSuffix(filepath.Base(path), ".yaml"), data, hosts)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", path, err))
			continue
		}
		cases = append(cases, c)
	}
	return cases, errors.Join(errs...)
}

// Parse reads a case. What the format does not know is an error that says on
// which line.
func Parse(name string, data []byte, hosts []string) (*Case, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, more yaml.Node
	if err := decoder.Decode(&document); err != nil {
		return nil, fmt.Errorf("not YAML: %w", err)
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one document")
	}
	p := &parser{hosts: hosts}
	c := &Case{Name: name}
	if err := p.readCase(document.Content[0], c); err != nil {
		return nil, err
	}
	return c, nil
}

// parser knows which hosts there are.
type parser struct{ hosts []string }

func (p *parser) readCase(n *yaml.Node, c *Case) error {
	err := fields(n, map[string]func(*yaml.Node) error{
		"title":  plain(&c.Title),
		"source": plain(&c.Source),
		"peer":   parsed(&c.Peer, parsePeer),
		"config": func(n *yaml.Node) error {
			data, err := toJSON(n)
			if err != nil {
				return err
			}
			return json.Unmarshal(data, &c.Config)
		},
		"steps": list(func(n *yaml.Node) error {
			step, err := p.readStep(n)
			c.Steps = append(c.Steps, step)
			return err
		}),
	})
	if err != nil {
		return err
	}
	if len(c.Steps) == 0 {
		return errors.New("no steps")
	}
	return required(n, "title", "source")
}

func (p *parser) readStep(n *yaml.Node) (Step, error) {
	s := Step{Settle: DefaultSettle}
	err := fields(n, map[string]func(*yaml.Node) error{
		"apply": list(func(n *yaml.Node) error { return readObject(n, &s) }),
		"delete": list(func(n *yaml.Node) error {
			var key object.Key
			err := parsed(&key, object.ParseKey)(n)
			s.Delete = append(s.Delete, key)
			return err
		}),
		"settle":  parsed(&s.Settle, time.ParseDuration),
		"stop":    parsed(&s.Stop, parseProxy),
		"restart": parsed(&s.Restart, parseProxy),
		"exec": func(n *yaml.Node) error {
			s.Exec = &Exec{}
			return p.readExec(n, s.Exec)
		},
		"load": func(n *yaml.Node) error {
			load, err := p.readProbe(n, false)
			s.Load = &load
			return err
		},
		"probes": list(func(n *yaml.Node) error {
			probe, err := p.readProbe(n, true)
			s.Probes = append(s.Probes, probe)
			return err
		}),
	})
	if err != nil {
		return s, err
	}
	return s, at(n, s.check())
}

// check finds what contradicts itself.
func (s *Step) check() error {
	if s.Stop && s.Restart {
		return errors.New("stop and restart in one step")
	}
	if s.Load == nil || s.Load.SourcePort == 0 {
		return nil
	}
	for _, p := range s.Probes {
		if p.SourcePort == s.Load.SourcePort {
			return fmt.Errorf("load and a probe have the same source_port %d", p.SourcePort)
		}
	}
	return nil
}

// readObject reads an object and adds it to the step.
func readObject(n *yaml.Node, s *Step) error {
	data, err := toJSON(n)
	if err != nil {
		return err
	}
	o, err := object.Decode(data)
	if err != nil {
		return at(n, err)
	}
	for _, other := range s.Apply {
		if object.KeyOf(o) == object.KeyOf(other) {
			return at(n, fmt.Errorf("%s is there twice", object.KeyOf(o)))
		}
	}
	s.Apply = append(s.Apply, o)
	return nil
}

func (p *parser) readExec(n *yaml.Node, e *Exec) error {
	err := fields(n, map[string]func(*yaml.Node) error{
		"on": parsed(&e.On, p.parseHost), "run": plain(&e.Run),
	})
	if err != nil {
		return err
	}
	return required(n, "on", "run")
}

// readProbe reads a probe, or a load, which has no count.
func (p *parser) readProbe(n *yaml.Node, counted bool) (Probe, error) {
	result := Probe{Count: 1}
	known := map[string]func(*yaml.Node) error{
		"from":        parsed(&result.From, p.parseHost),
		"to":          parsed(&result.To, probe.ParseTarget),
		"source_port": plain(&result.SourcePort),
		"expect":      func(n *yaml.Node) error { return readExpect(n, &result.Expect) },
	}
	if counted {
		known["count"] = func(n *yaml.Node) error {
			if err := plain(&result.Count)(n); err != nil {
				return err
			}
			if result.Count < 1 {
				return at(n, fmt.Errorf("%d, want at least 1", result.Count))
			}
			return nil
		}
	}
	if err := fields(n, known); err != nil {
		return result, err
	}
	return result, required(n, "from", "to", "expect")
}

func readExpect(n *yaml.Node, e *Expect) error {
	e.Source = AnySource
	err := fields(n, map[string]func(*yaml.Node) error{
		"result": parsed(&e.Result, parseOutcome),
		"endpoints": list(func(n *yaml.Node) error {
			var endpoint netip.AddrPort
			err := parsed(&endpoint, netip.ParseAddrPort)(n)
			e.Endpoints = append(e.Endpoints, endpoint)
			return err
		}),
		"all":    plain(&e.All),
		"share":  func(n *yaml.Node) error { return readShare(n, e) },
		"source": parsed(&e.Source, parseSource),
		"same":   plain(&e.Same),
	})
	if err != nil {
		return err
	}
	if err := required(n, "result"); err != nil {
		return err
	}
	return at(n, e.check())
}

// check finds what contradicts itself.
func (e *Expect) check() error {
	answers := len(e.Endpoints) > 0 || e.All || len(e.Share) > 0 || e.Source != AnySource || e.Same
	if e.Result != probe.OK && answers {
		return fmt.Errorf("nobody answers when the result is %s", e.Result)
	}
	if e.All && len(e.Endpoints) == 0 {
		return errors.New("all of no endpoints")
	}
	for endpoint := range e.Share {
		if len(e.Endpoints) > 0 && !slices.Contains(e.Endpoints, endpoint) {
			return fmt.Errorf("share of %s, which is not among the endpoints", endpoint)
		}
	}
	return nil
}

func readShare(n *yaml.Node, e *Expect) error {
	e.Share = map[netip.AddrPort]Share{}
	n = resolved(n)
	known := map[string]func(*yaml.Node) error{}
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		endpoint, err := netip.ParseAddrPort(name.Value)
		if err != nil {
			return at(name, err)
		}
		known[name.Value] = func(n *yaml.Node) error {
			var bounds []float64
			if err := plain(&bounds)(n); err != nil {
				return err
			}
			if len(bounds) != 2 || bounds[0] > bounds[1] {
				return at(n, errors.New("want [MIN, MAX]"))
			}
			e.Share[endpoint] = Share{Min: bounds[0], Max: bounds[1]}
			return nil
		}
	}
	return fields(n, known)
}

func (p *parser) parseHost(name string) (string, error) {
	if !slices.Contains(p.hosts, name) {
		return "", fmt.Errorf("there is no host %q, only %s", name, strings.Join(p.hosts, ", "))
	}
	return name, nil
}

func parsePeer(s string) (string, error) {
	why, ok := strings.CutPrefix(s, "fails (")
	if !ok || !strings.HasSuffix(why, ")") {
		return "", fmt.Errorf("%q: want fails (WHY)", s)
	}
	return s, nil
}

func parseProxy(s string) (bool, error) {
	if s != "proxy" {
		return false, fmt.Errorf("%q: only the proxy can be stopped", s)
	}
	return true, nil
}

func parseOutcome(s string) (probe.Outcome, error) {
	for _, outcome := range []probe.Outcome{probe.OK, probe.Refused, probe.Dropped} {
		if s == outcome.String() {
			return outcome, nil
		}
	}
	return 0, fmt.Errorf("result %q is not ok, refused or dropped", s)
}

func parseSource(s string) (Source, error) {
	switch source := Source(s); source {
	case AnySource, SourceKept, SourceNode:
		return source, nil
	default:
		return "", fmt.Errorf("source %q is not any, kept or node", s)
	}
}
