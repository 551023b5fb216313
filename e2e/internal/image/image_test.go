package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// programs writes a program for each of two architectures into a new folder.
func programs(t *testing.T) map[string]string {
	t.Helper()
	dir := t.TempDir()
	paths := map[string]string{}
	for _, arch := range []string{"arm64", "amd64"} {
		paths[arch] = filepath.Join(dir, arch)
		if err := os.WriteFile(paths[arch], []byte("program for "+arch), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

func mustBuild(t *testing.T, options Options) v1.ImageIndex {
	t.Helper()
	index, err := Build(options)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// reread writes an index, and returns it as others will read it: all sizes, digests and
// media types are checked.
func reread(t *testing.T, index v1.ImageIndex) v1.ImageIndex {
	t.Helper()
	path, err := layout.Write(t.TempDir(), index)
	if err != nil {
		t.Fatal(err)
	}
	written, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(written); err != nil {
		t.Fatal(err)
	}
	return written
}

// readTar returns the regular files of an archive.
func readTar(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	files := map[string]string{}
	reader := tar.NewReader(archive)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			files[header.Name] = string(content)
		}
	}
}

func TestBuild(t *testing.T) {
	index := reread(t, mustBuild(t, Options{Version: "v1.2.3", Programs: programs(t)}))
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var platforms []string
	for _, m := range manifest.Manifests {
		platforms = append(platforms, m.Platform.String())
		img, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, img, m.Platform.Architecture)
	}
	if diff := cmp.Diff([]string{"linux/amd64", "linux/arm64"}, platforms); diff != "" {
		t.Errorf("platforms (-want +got)\n%s", diff)
	}
}

func checkImage(t *testing.T, img v1.Image, arch string) {
	t.Helper()
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != arch {
		t.Errorf("the configuration is for %s/%s, not linux/%s", config.OS, config.Architecture, arch)
	}
	if diff := cmp.Diff([]string{Program}, config.Config.Entrypoint); diff != "" {
		t.Errorf("entry point (-want +got)\n%s", diff)
	}
	if got := config.Config.Labels["org.opencontainers.image.version"]; got != "v1.2.3" {
		t.Errorf("version %q", got)
	}
	archive := mutate.Extract(img)
	files := readTar(t, archive)
	if err := archive.Close(); err != nil {
		t.Error(err)
	}
	want := map[string]string{"etc/passwd": passwd, "etc/group": group, Program[1:]: "program for " + arch}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got)\n%s", diff)
	}
}

// Equal programs make equal bytes, wherever they are and whenever they were built.
func TestReproducible(t *testing.T) {
	var archives [2][]byte
	for i := range archives {
		index := mustBuild(t, Options{Version: "v1.2.3", Programs: programs(t)})
		file := filepath.Join(t.TempDir(), "image.tar")
		if err := WriteArchive(index, "example.com/nftproxy", "v1.2.3", file); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of equal programs differ")
	}
	other := mustBuild(t, Options{Version: "v1.2.4", Programs: programs(t)})
	first, second := digest(t, mustBuild(t, Options{Version: "v1.2.3", Programs: programs(t)})), digest(t, other)
	if first == second {
		t.Error("two versions have one digest")
	}
}

func digest(t *testing.T, index v1.ImageIndex) v1.Hash {
	t.Helper()
	hash, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func TestWriteArchive(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "image.tar")
	if err := os.WriteFile(file, []byte("older"), 0o600); err != nil {
		t.Fatal(err)
	}
	index := mustBuild(t, Options{Version: "v1", Programs: programs(t)})
	if err := WriteArchive(index, "example.com/nftproxy", "v1", file); err != nil {
		t.Fatal(err)
	}
	archive, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	files := readTar(t, archive)
	if err := archive.Close(); err != nil {
		t.Error(err)
	}
	hash := digest(t, index)
	if _, ok := files["blobs/"+hash.Algorithm+"/"+hash.Hex]; !ok {
		t.Error("the archive lacks the index of the image")
	}
	top, err := v1.ParseIndexManifest(bytes.NewReader([]byte(files["index.json"])))
	if err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 || top.Manifests[0].Digest != hash {
		t.Fatalf("index.json names %v, not the image alone", top.Manifests)
	}
	if diff := cmp.Diff(refAnnotations("example.com/nftproxy:v1", "v1"), top.Manifests[0].Annotations); diff != "" {
		t.Errorf("names (-want +got)\n%s", diff)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("beside the archive: %v, %v", entries, err)
	}
}

func TestBuildFails(t *testing.T) {
	for name, programs := range map[string]map[string]string{
		"no program":        nil,
		"no such program":   {"amd64": "/no/such/program"},
		"a folder, no file": {"amd64": "/"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Build(Options{Version: "v1", Programs: programs}); err == nil {
				t.Error("no error")
			}
		})
	}
}
