// Package image packs built programs into an OCI image, without a registry and
// without a Docker engine. Equal programs give equal bytes.
package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Program is where the program is in the image, as in deploy/Dockerfile.
const Program = "/usr/local/bin/nftproxy"

// What the image has beside the program, as distroless/static has it.
const (
	passwd = "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"
	group  = "root:x:0:\nnobody:x:65534:\nnonroot:x:65532:\n"
)

// Options say what to pack.
type Options struct {
	// Version of the program, which goes into the image's labels.
	Version string
	// Programs are the paths of the statically linked programs, by architecture as
	// GOARCH names it.
	Programs map[string]string
}

// Build makes an image index with one image for each architecture, sorted. It
// reads the programs, which must stay as they are for as long as it is in use.
func Build(options Options) (v1.ImageIndex, error) {
	if len(options.Programs) == 0 {
		return nil, errors.New("build the image: name at least one program")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range slices.Sorted(maps.Keys(options.Programs)) {
		img, err := build(options.Version, arch, options.Programs[arch])
		if err != nil {
			return nil, fmt.Errorf("build the image for %s: %w", arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img,
			Descriptor: v1.Descriptor{
				MediaType: types.OCIManifestSchema1,
				Platform:  &v1.Platform{OS: "linux", Architecture: arch},
			},
		})
	}
	return index, nil
}

// build makes the image for one architecture.
func build(version, arch, program string) (v1.Image, error) {
	var files bytes.Buffer
	if err := writeFiles(&files, program); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, fmt.Errorf("make the layer: %w", err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.ConfigFile(img, &v1.ConfigFile{
		OS: "linux", Architecture: arch,
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       "0",
			Env:        []string{"PATH=" + path.Dir(Program)},
			Entrypoint: []string{Program},
			Labels: map[string]string{
				"org.opencontainers.image.title":    "nftproxy",
				"org.opencontainers.image.source":   "https://github.com/nftproxy/nftproxy",
				"org.opencontainers.image.licenses": "Apache-2.0",
				"org.opencontainers.image.version":  version,
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("set the configuration: %w", err)
	}
	img, err = mutate.Append(img, mutate.Addendum{
		Layer: layer, History: v1.History{CreatedBy: "make image", Created: v1.Time{Time: epoch()}},
	})
	if err != nil {
		return nil, fmt.Errorf("append the layer: %w", err)
	}
	return img, nil
}

// epoch is when everything in the image was made.
func epoch() time.Time { return time.Unix(0, 0).UTC() }

// writeFiles writes the files of the image as a tar archive.
func writeFiles(out io.Writer, program string) error {
	content, err := os.ReadFile(program)
	if err != nil {
		return fmt.Errorf("read the program: %w", err)
	}
	archive := tar.NewWriter(out)
	for _, file := range []struct {
		name    string // a folder's ends with a slash
		content []byte
		mode    int64
	}{
		{"etc/", nil, 0o755},
		{"etc/group", []byte(group), 0o644},
		{"etc/passwd", []byte(passwd), 0o644},
		{"usr/", nil, 0o755},
		{"usr/local/", nil, 0o755},
		{"usr/local/bin/", nil, 0o755},
		{Program[1:], content, 0o755},
	} {
		header := tar.Header{
			Name: file.name, Mode: file.mode, Size: int64(len(file.content)),
			Typeflag: tar.TypeReg, ModTime: epoch(), Format: tar.FormatPAX,
		}
		if file.name[len(file.name)-1] == '/' {
			header.Typeflag = tar.TypeDir
		}
		if err := write(archive, &header, file.content); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	return nil
}

// write adds a file to an archive.
func write(archive *tar.Writer, header *tar.Header, content []byte) error {
	if err := archive.WriteHeader(header); err != nil {
		return fmt.Errorf("write %s: %w", header.Name, err)
	}
	if _, err := archive.Write(content); err != nil {
		return fmt.Errorf("write %s: %w", header.Name, err)
	}
	return nil
}
