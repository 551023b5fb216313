package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gonum.org/v1/plot/plotter"
)

// checkReport makes sure that a folder has a page that needs nothing else, and these
// plots, and returns the text of the page.
func checkReport(t *testing.T, folder string, plots ...string) string {
	t.Helper()
	html, err := os.ReadFile(filepath.Join(folder, "index.html"))
	if err != nil {
		t.Fatal(err)
	}
	if other := regexp.MustCompile(`(?:src|href)="[^"]*"|@import|url\(`).FindAll(html, -1); len(other) > 0 {
		t.Errorf("the page needs other files: %s", bytes.Join(other, []byte(", ")))
	}
	if n := bytes.Count(html, []byte("<svg")); n != len(plots) {
		t.Errorf("%d plots in the page, want %d", n, len(plots))
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.svg"))
	if err != nil || len(files) != len(plots) {
		t.Errorf("plots %v, %v, want %v", files, err, plots)
	}
	for _, name := range plots {
		svg, err := os.ReadFile(filepath.Join(folder, name+".svg"))
		if err != nil {
			t.Error(err)
			continue
		}
		checkXML(t, name, svg)
	}
	return string(html)
}

func checkXML(t *testing.T, name string, text []byte) {
	t.Helper()
	decoder := xml.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Errorf("%s is no XML: %v", name, err)
			return
		}
	}
}

func TestUpdateReport(t *testing.T) {
	r, err := Update(t.Context(), updateOptions(Uniform))
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(t.TempDir(), "new", "report")
	if err := r.WriteReport(folder); err != nil {
		t.Fatal(err)
	}
	html := checkReport(t, folder, "update-latency-cdf")
	for _, want := range []string{"40 Services, 240 endpoints", ">latency</text>", ">100 %</text>", ">service-remove</text>", "&#34;first_sync_seconds&#34;", "µs</text>"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page has no %q", want)
		}
	}
}

func TestReportCannotBeWritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&UpdateResult{}).WriteReport(file); err == nil || !strings.Contains(err.Error(), "folder of the report") {
		t.Errorf("error %v", err)
	}
}

// TestCharts draws what is hard to scale.
func TestCharts(t *testing.T) {
	tests := map[string]struct {
		points plotter.XYs
		log    bool
	}{
		"nothing":              {nil, true},
		"nothing, linear":      {nil, false},
		"one point":            {plotter.XYs{{X: 5, Y: 5}}, true},
		"one power of ten":     {plotter.XYs{{X: 100, Y: 100}}, true},
		"nothing positive":     {plotter.XYs{{X: 0, Y: -1}}, true},
		"zero between others":  {plotter.XYs{{X: 1, Y: 2}, {X: 2, Y: 0}, {X: 3, Y: 4}}, true},
		"nine powers of ten":   {plotter.XYs{{X: 1e-3, Y: 1e6}, {X: 1e6, Y: 1e-3}}, true},
		"all the same, linear": {plotter.XYs{{X: 1, Y: 1}, {X: 2, Y: 1}}, false},
	}
	for name, test := range tests {
		a := axis{"value", test.log, countTick}
		f, err := chart{name: "x", title: "<title> & more", x: a, y: a, lines: []line{{"line", test.points, true}}}.draw()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkXML(t, name, f.svg)
		if bytes.Contains(f.svg, []byte("NaN")) || bytes.Contains(f.svg, []byte("Inf")) {
			t.Errorf("%s: the plot has numbers that are none", name)
		}
	}
}

// TestBarCharts draws what is hard to scale.
func TestBarCharts(t *testing.T) {
	costs := func(values ...float64) cost { return cost{"cost", values, func(float64) string { return "bar" }} }
	tests := map[string]struct {
		costs []cost
		bars  int
	}{
		"nothing":                    {nil, 0},
		"all the same":               {[]cost{costs(5, 5)}, 2},
		"one is nothing":             {[]cost{costs(5, 0), costs(0, 5)}, 0},
		"one is missing":             {[]cost{costs(5)}, 0},
		"much more, and much less":   {[]cost{costs(1, 1e6), costs(1, 1e-6)}, 4},
		"nothing between two others": {[]cost{costs(1, 2), costs(1, 0), costs(2, 1)}, 4},
	}
	for name, test := range tests {
		f, err := barChart{name: "x", title: "<title>", things: []string{"one", "other"}, costs: test.costs}.draw()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkXML(t, name, f.svg)
		if bytes.Contains(f.svg, []byte("NaN")) || bytes.Contains(f.svg, []byte("Inf")) {
			t.Errorf("%s: the plot has numbers that are none", name)
		}
		if n := bytes.Count(f.svg, []byte(">bar</text>")); n != test.bars {
			t.Errorf("%s: %d bars, want %d", name, n, test.bars)
		}
	}
}

func TestTicks(t *testing.T) {
	tests := []struct {
		unit  func(float64) string
		value float64
		want  string
	}{
		{durationTick, 0.1, "0.1 µs"},
		{durationTick, 100, "100 µs"},
		{durationTick, 1000, "1 ms"},
		{durationTick, 1e7, "10 s"},
		{secondsTick, 0.01, "10 ms"},
		{secondsTick, 10, "10 s"},
		{countTick, 1e5, "100,000"},
		{percentTick, 50, "50 %"},
		{mebibyteTick, 1000, "1,000 MiB"},
		{short, 0, "0 µs"},
		{short, 2.345, "2.35 µs"},
		{short, 306_220, "306 ms"},
		{short, 999_600, "1 s"},
		{short, 12_345_678, "12.3 s"},
	}
	for _, test := range tests {
		if got := test.unit(test.value); got != test.want {
			t.Errorf("%g: %q, want %q", test.value, got, test.want)
		}
	}
}
