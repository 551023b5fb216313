package bench

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fieldsOf returns the names of all fields of a type in JSON.
func fieldsOf(t reflect.Type, prefix string) (names []string) {
	switch t.Kind() {
	case reflect.Pointer:
		return fieldsOf(t.Elem(), prefix)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Pointer {
			return fieldsOf(t.Elem(), prefix+"[]")
		}
	case reflect.Map:
		return fieldsOf(t.Elem(), prefix+".KIND")
	case reflect.Struct:
		for f := range t.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
				names = append(names, fieldsOf(f.Type, strings.TrimPrefix(prefix+"."+name, "."))...)
			}
		}
		return names
	default:
	}
	return []string{prefix}
}

// documented returns the names in a text such as UpdateFields.
func documented(text string) (names []string) {
	for line := range strings.Lines(text) {
		list, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "  ")
		if !ok || strings.HasPrefix(list, " ") { // more about the line before
			continue
		}
		list, _, _ = strings.Cut(list, "  ")
		prefix := list[:strings.LastIndexByte(list[:strings.IndexByte(list+",", ',')], '.')+1]
		for name := range strings.SplitSeq(strings.TrimPrefix(list, prefix), ", ") {
			names = append(names, prefix+name)
		}
	}
	return names
}

// TestFields keeps the documentation and the results in JSON the same.
func TestFields(t *testing.T) {
	tests := map[string]struct {
		text   string
		result any
	}{
		"update":    {UpdateFields, UpdateResult{}},
		"compare":   {CompareFields, CompareResult{}},
		"dataplane": {DataplaneFields, DataplaneResult{}},
	}
	for name, test := range tests {
		want := fieldsOf(reflect.TypeOf(test.result), "")
		// What is said once is not said again for each proxy.
		want = slices.DeleteFunc(want, func(name string) bool { return strings.HasPrefix(name, "proxies[].machine.") })
		got := slices.DeleteFunc(documented(test.text), func(name string) bool { return name == "proxies[].machine" })
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: not the same (-JSON +documented)\n%s", name, diff)
		}
		for line := range strings.Lines(test.text) {
			if len(line) > 100 {
				t.Errorf("%s: a line too long for a terminal: %s", name, line)
			}
		}
	}
}

// TestRequiredFields names those that users were promised from the beginning.
func TestRequiredFields(t *testing.T) {
	promised := strings.Fields(`services endpoints first_sync_seconds rss_bytes cpu_seconds changes.KIND.count
		changes.KIND.p50_us changes.KIND.p90_us changes.KIND.p99_us changes.KIND.max_us changes.KIND.operations_p50`)
	fields := fieldsOf(reflect.TypeFor[UpdateResult](), "")
	for _, name := range promised {
		if !slices.Contains(fields, name) {
			t.Errorf("bench update prints no %q", name)
		}
	}
}
