package proxier

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// manifestFolder finds out which files of a path are new since the last time. The
// path is a folder, or is a file itself.
type manifestFolder struct {
	path  string
	files map[string]fileVersion // by path
}

// fileVersion is what was read of a file.
type fileVersion struct {
	info fs.FileInfo
	sum  [sha256.Size]byte
	ok   bool // it could be read
}

// fileUpdate is a file that is new, gone, or has another content. A file that is
// gone has neither data nor an error.
type fileUpdate struct {
	path string
	data []byte
	err  error
	gone bool
}

// scan returns what is new, in the order of the paths. It reads the named files,
// and those that are other files than the last time. It returns an error, and
// nothing else, if the path itself cannot be read.
func (f *manifestFolder) scan(named map[string]bool) ([]fileUpdate, error) {
	paths, err := manifestFiles(f.path)
	if err != nil {
		return nil, err
	}
	var updates []fileUpdate
	present := make(map[string]bool, len(paths))
	for _, path := range paths {
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue // a link that leads nowhere, or a folder
		}
		present[path] = true
		last, known := f.files[path]
		if known && !named[path] && err == nil && sameFile(last.info, info) {
			continue
		}
		if update, isNew := f.read(path, info, err); isNew {
			updates = append(updates, update)
		}
	}
	for path := range f.files {
		if !present[path] {
			delete(f.files, path)
			updates = append(updates, fileUpdate{path: path, gone: true})
		}
	}
	slices.SortFunc(updates, func(a, b fileUpdate) int { return strings.Compare(a.path, b.path) })
	return updates, nil
}

// read reads a file whose state is the given one, and reports whether it is new.
func (f *manifestFolder) read(path string, info fs.FileInfo, err error) (update fileUpdate, isNew bool) {
	var data []byte
	if err == nil {
		data, err = os.ReadFile(path)
	}
	last := f.files[path]
	this := fileVersion{info: info, sum: sha256.Sum256(data), ok: err == nil}
	f.files[path] = this
	if err != nil {
		return fileUpdate{path: path, err: fmt.Errorf("%w: make it readable, or remove it", err)}, true
	}
	return fileUpdate{path: path, data: data}, !last.ok || last.sum != this.sum
}

// sameFile reports whether a file is unchanged as far as can be told without
// reading it.
func sameFile(a, b fs.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.ModTime().Equal(b.ModTime()) && a.Size() == b.Size()
}

// manifestFiles returns the paths of the files that may be manifests: the path
// itself if it is a file, or else those in the folder, but not in its subfolders,
// whose names say so.
func manifestFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is neither a file nor a folder", path)
		}
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if isManifestName(e.Name()) {
			paths = append(paths, filepath.Join(path, e.Name()))
		}
	}
	return paths, nil
}

// isManifestName leaves out hidden files: editors and ConfigMap volumes keep things
// there that are not meant to be read.
func isManifestName(name string) bool {
	return !strings.HasPrefix(name, ".") && slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name))
}

// isBlank reports whether a file has no content at all. A file that is being
// written anew is blank for a moment.
func isBlank(data []byte) bool { return len(bytes.TrimSpace(data)) == 0 }
