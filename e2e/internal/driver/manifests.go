// Package driver brings Kubernetes objects to a proxy: as files of a folder that
// it watches, or through an API server.
package driver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nftproxy/nftproxy/e2e/internal/object"
)

// Manifests is a folder with one file for each object.
type Manifests struct{ dir string }

// NewManifests returns a driver that writes to a folder, which must be there.
func NewManifests(dir string) *Manifests { return &Manifests{dir: dir} }

// Apply writes the file of an object. Whoever reads it finds the old one or the
// new one, never a part.
func (m *Manifests) Apply(_ context.Context, o *object.Object) error {
	data, err := o.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encode %s: %w", object.KeyOf(o), err)
	}
	path := m.path(object.KeyOf(o))
	unfinished := path + ".unfinished" // no reader of manifests looks at such a name
	if err := os.WriteFile(unfinished, data, 0o644); err != nil {
		return fmt.Errorf("write a manifest: %w", err)
	}
	if err := os.Rename(unfinished, path); err != nil {
		return fmt.Errorf("write a manifest: %w", err)
	}
	return nil
}

// Delete removes the file of an object. An object that is not there is no error.
func (m *Manifests) Delete(_ context.Context, key object.Key) error {
	if err := os.Remove(m.path(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a manifest: %w", err)
	}
	return nil
}

// path returns the file of an object; names of objects have no underscore.
func (m *Manifests) path(key object.Key) string {
	name := strings.ToLower(key.Kind) + "_" + key.Namespace + "_" + key.Name + ".json"
	return filepath.Join(m.dir, name)
}
