package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// refAnnotations are the names by which tools find an image in an archive: that of
// the OCI image layout specification, and containerd's.
func refAnnotations(ref, tag string) map[string]string {
	return map[string]string{
		"org.opencontainers.image.ref.name": tag,
		"io.containerd.image.name":          ref,
	}
}

// WriteArchive writes an index as an OCI image layout in a tar archive, under the
// name repository:tag. It replaces a file that is there once the new one is complete.
func WriteArchive(index v1.ImageIndex, repository, tag, file string) (err error) {
	work, err := os.MkdirTemp(filepath.Dir(file), ".image-")
	if err != nil {
		return fmt.Errorf("make a folder for the image: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	dir := filepath.Join(work, "layout")
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	if err := p.AppendIndex(index, layout.WithAnnotations(refAnnotations(repository+":"+tag, tag))); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	archive := filepath.Join(work, "archive")
	if err := archiveFolder(dir, archive); err != nil {
		return err
	}
	if err := os.Rename(archive, file); err != nil {
		return fmt.Errorf("put the image in place: %w", err)
	}
	return nil
}

// archiveFolder writes the files of a folder as a tar archive, sorted by name.
func archiveFolder(dir, file string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("make the archive: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	archive := tar.NewWriter(out)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fmt.Errorf("read the image: %w", err)
		case name == ".":
			return nil
		case entry.IsDir():
			return write(archive, &tar.Header{Name: name + "/", Typeflag: tar.TypeDir, Mode: 0o755, ModTime: epoch()}, nil)
		}
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("read the image: %w", err)
		}
		return write(archive, &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: int64(len(content)), ModTime: epoch()}, content)
	})
	if err != nil {
		return err
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	return nil
}
