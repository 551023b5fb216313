package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestImports keeps the packages in their order, cmd -> proxier -> syncer -> rules,
// and the kernel and Kubernetes where they belong.
func TestImports(t *testing.T) {
	const ours = "github.com/nftproxy/nftproxy/"
	forbidden := map[string][]string{
		"rules":   {ours, "k8s.io/", "github.com/vishvananda/netlink", "go.uber.org/zap"},
		"syncer":  {ours + "proxier", ours + "cmd", "k8s.io/"},
		"proxier": {ours + "cmd", "github.com/google/nftables", "github.com/vishvananda/netlink", "github.com/mdlayher/netlink"},
	}
	root := filepath.Join("..", "..")
	for pkg, prefixes := range forbidden {
		files := 0
		err := filepath.WalkDir(filepath.Join(root, pkg), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			for _, imported := range imports(t, path) {
				for _, prefix := range prefixes {
					if strings.HasPrefix(imported, prefix) {
						t.Errorf("%s imports %s", path, imported)
					}
				}
				if pkg == "rules" && strings.HasPrefix(imported, "github.com/google/nftables") && filepath.Base(path) != "encode.go" {
					t.Errorf("%s imports %s: only encode.go may", path, imported)
				}
			}
			return nil
		})
		if err != nil || files == 0 {
			t.Errorf("%s: %d files, error %v", pkg, files, err)
		}
	}
}

func imports(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}
