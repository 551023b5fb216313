package bench

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"strings"
)

// pageHTML is the page of a report.
//
//go:embed page.html
var pageHTML string

// page is a report: one HTML file that needs nothing else, and its plots as files.
type page struct {
	title   string
	machine string
	tables  string // text
	figures []figure
	result  any // what the JSON at its end shows
}

// write writes the report into a folder, which it makes if it is not there.
func (p page) write(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // for others to read
		return fmt.Errorf("make the folder of the report: %w", err)
	}
	text, err := p.html()
	if err != nil {
		return err
	}
	files := map[string][]byte{"index.html": text}
	for _, f := range p.figures {
		files[f.name+".svg"] = f.svg
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil { //nolint:gosec // for others to read
			return fmt.Errorf("write the report: %w", err)
		}
	}
	return nil
}

// html returns the page. It is put together without html/template: a program that can
// call methods by their names keeps all methods of all types, and is twice as large.
func (p page) html() ([]byte, error) {
	result, err := json.MarshalIndent(p.result, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	var figures strings.Builder
	for _, f := range p.figures {
		_, svg, ok := bytes.Cut(f.svg, []byte("<svg"))
		if !ok {
			return nil, fmt.Errorf("write the report: the plot %s is no SVG", f.name)
		}
		fmt.Fprintf(&figures, "<figure>\n<figcaption>%s</figcaption>\n<svg%s</figure>\n", html.EscapeString(f.caption), svg)
	}
	text := strings.NewReplacer(
		"{{title}}", html.EscapeString(p.title), "{{machine}}", html.EscapeString(p.machine),
		"{{tables}}", html.EscapeString(p.tables), "{{figures}}", figures.String(),
		"{{json}}", html.EscapeString(string(result)),
	).Replace(pageHTML)
	return []byte(text), nil
}
