package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// lineError is an error about a line of a file.
type lineError struct {
	line int
	err  error
}

// Error is the line and what is wrong there.
func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }

// Unwrap returns what is wrong.
func (e *lineError) Unwrap() error { return e.err }

// at says on which line an error is, unless it says so itself.
func at(n *yaml.Node, err error) error {
	if known := (*lineError)(nil); err == nil || errors.As(err, &known) {
		return err
	}
	return &lineError{n.Line, err}
}

// within says in which field an error is, after its line.
func within(field *yaml.Node, err error) error {
	line := field.Line
	if known := (*lineError)(nil); errors.As(err, &known) {
		line, err = known.line, known.err
	}
	return &lineError{line, fmt.Errorf("%s: %w", field.Value, err)}
}

// fields reads a mapping with a function for each field that it may have. A
// field that is not known, or there twice, is an error.
func fields(n *yaml.Node, known map[string]func(*yaml.Node) error) error {
	n = resolved(n)
	if n.Kind != yaml.MappingNode {
		return at(n, errors.New("want fields and their values"))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		read, ok := known[name.Value]
		if !ok {
			return at(name, fmt.Errorf("unknown field %q", name.Value))
		}
		if seen[name.Value] {
			return at(name, fmt.Errorf("field %q is there twice", name.Value))
		}
		seen[name.Value] = true
		if err := read(value); err != nil {
			return within(name, err)
		}
	}
	return nil
}

// required is an error if a mapping lacks one of the fields.
func required(n *yaml.Node, names ...string) error {
	n = resolved(n)
	var have []string
	for i := 0; i+1 < len(n.Content); i += 2 {
		have = append(have, n.Content[i].Value)
	}
	for _, name := range names {
		if !slices.Contains(have, name) {
			return at(n, fmt.Errorf("field %q is missing", name))
		}
	}
	return nil
}

// list returns a function that reads a list, item by item.
func list(read func(*yaml.Node) error) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		n = resolved(n)
		if n.Kind != yaml.SequenceNode {
			return at(n, errors.New("want a list"))
		}
		for _, item := range n.Content {
			if err := read(item); err != nil {
				return at(item, err)
			}
		}
		return nil
	}
}

// plain returns a function that reads a plain value.
func plain[T any](into *T) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if err := n.Decode(into); err != nil {
			return at(n, fmt.Errorf("value %q: want a %T", n.Value, *into))
		}
		return nil
	}
}

// parsed returns a function that reads a text in a form of its own.
func parsed[T any](into *T, parse func(string) (T, error)) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		var text string
		if err := plain(&text)(n); err != nil {
			return err
		}
		value, err := parse(text)
		if err != nil {
			return at(n, err)
		}
		*into = value
		return nil
	}
}

// toJSON returns any value as JSON.
func toJSON(n *yaml.Node) ([]byte, error) {
	var value any
	if err := n.Decode(&value); err != nil {
		return nil, at(n, err)
	}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, at(n, err)
	}
	return data, nil
}

// resolved follows an alias to its anchor.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}
