package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPackageIsPure keeps the package's promise, values in, values out: nothing
// is imported that could be a socket, a clock, a logger or a source of
// randomness, nothing runs in the background, no variable outlives a call. Only
// encode.go and wire.go know netlink messages.
func TestPackageIsPure(t *testing.T) {
	allowed := []string{
		"bufio", "cmp", "encoding/json", "errors", "fmt", "io", "maps", "math", "math/bits", "net/netip",
		"crypto/sha256", "encoding/hex", "slices", "strconv", "strings", "time", "unicode", "unicode/utf8",
	}
	allowedInEncode := []string{
		"encoding/binary", "fmt", "net/netip", "slices", "golang.org/x/sys/unix",
		"github.com/google/nftables", "github.com/google/nftables/binaryutil", "github.com/google/nftables/expr",
	}
	allowedInWire := []string{"encoding/binary", "net/netip", "golang.org/x/sys/unix"}
	for name, file := range sourceFiles(t) {
		list := allowed
		switch name {
		case "encode.go":
			list = allowedInEncode
		case "wire.go":
			list = allowedInWire
		}
		for _, spec := range file.Imports {
			if path, err := strconv.Unquote(spec.Path.Value); err != nil || !slices.Contains(list, path) {
				t.Errorf("%s must not import %s", name, spec.Path.Value)
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", name)
			case *ast.SelectorExpr: // durations are values, the time is not
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && !slices.Contains([]string{"Duration", "Hour", "Second"}, n.Sel.Name) {
					t.Errorf("%s uses time.%s", name, n.Sel.Name)
				}
			}
			return true
		})
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.GenDecl:
				if d.Tok == token.VAR {
					t.Errorf("%s has a package-level variable", name)
				}
			case *ast.FuncDecl:
				if d.Recv == nil && d.Name.Name == "init" {
					t.Errorf("%s has an init function", name)
				}
			}
		}
	}
}

// sourceFiles parses the package's files but for the tests.
func sourceFiles(t *testing.T) map[string]*ast.File {
	t.Helper()
	names, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]*ast.File{}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = file
	}
	if len(files) < 10 {
		t.Fatalf("only %d files found", len(files))
	}
	return files
}
