package proxier

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	testingclock "k8s.io/utils/clock/testing"
)

// serviceYAML is a Service with one port.
func serviceYAML(name, clusterIP string) string {
	return strings.NewReplacer("web", name, "10.96.0.10", clusterIP).Replace(webYAML)
}

// write writes a file in one step, as good tools do.
func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, os.Rename(path+".new", path))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// startManifests runs a source on the path until it is synced.
func startManifests(t *testing.T, path string) *sourceRecorder {
	t.Helper()
	r := newSourceRecorder(t)
	r.start(NewManifests(path, "node-1", zaptest.NewLogger(t, zaptest.Level(zap.InfoLevel))))
	r.waitSynced()
	return r
}

// waitNames waits until exactly these objects are there.
func (r *sourceRecorder) waitNames(names string) {
	r.t.Helper()
	r.wait(names, func() bool { return r.names() == names })
}

func (r *sourceRecorder) waitProblem(texts ...string) {
	r.t.Helper()
	r.wait("problem "+strings.Join(texts, ", "), func() bool { return r.hasProblem(texts...) })
}

// ip returns the cluster IP of a Service in the namespace default.
func (r *sourceRecorder) ip(name string) string {
	if s := r.services["default/"+name]; s != nil {
		return s.Addrs[0].Addr.String()
	}
	return ""
}

func (r *sourceRecorder) waitIP(name, ip string) {
	r.t.Helper()
	r.wait(name+" "+ip, func() bool { return r.ip(name) == ip })
}

func TestManifestsReadAFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), serviceYAML("a", "10.96.0.1"))
	write(t, filepath.Join(dir, "b.yml"), serviceYAML("b", "10.96.0.2"))
	write(t, filepath.Join(dir, "c.json"), `{"apiVersion":"v1","kind":"Service","metadata":{"name":"c"},"spec":{"clusterIP":"10.96.0.3","ports":[{"port":80}]}}`)
	write(t, filepath.Join(dir, ".hidden.yaml"), serviceYAML("d", "10.96.0.4"))
	write(t, filepath.Join(dir, "readme.txt"), "not a manifest")
	must(t, os.MkdirAll(filepath.Join(dir, "folder.yaml"), 0o700))
	write(t, filepath.Join(dir, "folder.yaml", "e.yaml"), serviceYAML("e", "10.96.0.5"))
	r := startManifests(t, dir)
	r.get(func() {
		if r.names() != "default/a default/b default/c" || len(r.problems) > 0 || r.applies != 1 {
			t.Errorf("%s, problems %q, %d applies", r.names(), r.problems, r.applies)
		}
	})
}

func TestManifestsFollowChanges(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, a, serviceYAML("a", "10.96.0.1")+"---\n"+webSliceYAML)
	r := startManifests(t, dir)
	steps := []struct {
		name string
		do   func()
		wait func()
	}{
		{"a file comes", func() { write(t, b, serviceYAML("b", "10.96.0.2")) }, func() { r.waitNames("default/a default/b default/web-1") }},
		{
			"a file is replaced",
			func() { write(t, b, serviceYAML("b", "10.96.0.22")) },
			func() { r.waitIP("b", "10.96.0.22") },
		},
		{
			"a file is written in place",
			func() { must(t, os.WriteFile(b, []byte(serviceYAML("b", "10.96.0.23")), 0o600)) },
			func() { r.waitIP("b", "10.96.0.23") },
		},
		{
			"an object leaves its file",
			func() { write(t, a, serviceYAML("a", "10.96.0.1")) },
			func() { r.waitNames("default/a default/b") },
		},
		{"a file goes", func() { must(t, os.Remove(b)) }, func() { r.waitNames("default/a") }},
		{
			"a file is renamed and changed",
			func() { must(t, os.Rename(a, b)); write(t, b, serviceYAML("a", "10.96.0.9")) },
			func() { r.waitIP("a", "10.96.0.9") },
		},
		{"everything goes", func() { must(t, os.Remove(b)) }, func() { r.waitNames("") }},
	}
	for _, step := range steps {
		t.Log(step.name)
		step.do()
		step.wait()
	}
	r.get(func() {
		if len(r.problems) > 0 || r.objects != 9 {
			t.Errorf("problems %q, %d objects were delivered", r.problems, r.objects)
		}
	})
}

// A file that cannot be parsed keeps its last good state, and heals.
func TestManifestsBrokenThenHealed(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	write(t, file, serviceYAML("a", "10.96.0.1")+"---\n"+serviceYAML("b", "10.96.0.2"))
	r := startManifests(t, dir)
	write(t, file, serviceYAML("a", "10.96.0.11")+"---\nkind: [\n")
	r.waitProblem("web.yaml: document 2 (line 8): yaml: line 1: did not find", "; its last good state stays")
	r.get(func() {
		if r.ip("a") != "10.96.0.1" || r.ip("b") != "10.96.0.2" {
			t.Errorf("a %s, b %s", r.ip("a"), r.ip("b"))
		}
	})
	write(t, file, serviceYAML("a", "10.96.0.11")+"---\n"+serviceYAML("b", "10.96.0.2"))
	r.waitIP("a", "10.96.0.11")
	r.waitNames("default/a default/b")

	write(t, file, "")
	r.waitProblem("web.yaml: is empty: remove the file to remove its objects; its last good state stays")
	r.waitNames("default/a default/b")
	write(t, file, "# no objects any more\n")
	r.waitNames("")
}

// What is wrong with one object costs that object, or a part of it.
func TestManifestsBadObjects(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	write(t, file, serviceYAML("a", "10.96.0.1")+"---\n"+serviceYAML("b", "10.96.0.2"))
	r := startManifests(t, dir)

	write(t, file, serviceYAML("a", "10.96.0.300")+"---\n"+serviceYAML("c", "10.96.0.3"))
	r.waitProblem(file + `: document 1 (line 1): Service default/a: spec.clusterIPs[0]: "10.96.0.300" is not an IP address`)
	r.waitNames("default/a default/c")
	r.waitIP("a", "10.96.0.1") // its last good state

	bad := strings.Replace(serviceYAML("a", "10.96.0.11"), "[{port: 80}]", "[{port: 80}, {name: b, port: 70000}]", 1)
	write(t, file, bad+"---\n"+serviceYAML("c", "10.96.0.3"))
	r.waitProblem("spec.ports[1].port: 70000 is not in 1..65535")
	r.waitIP("a", "10.96.0.11")

	// As long as nobody knows which object it is, it can be any.
	write(t, file, serviceYAML("a", "10.96.0.12")+"---\n"+strings.Replace(serviceYAML("c", "10.96.0.33"), "name: c", "nam: c", 1))
	r.waitProblem("document 2 (line 8): Service: metadata.name: is missing")
	r.waitIP("a", "10.96.0.12")
	r.waitIP("c", "10.96.0.3")
}

func TestManifestsSyncedDespiteBrokenFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.yaml"), "kind: [")
	write(t, filepath.Join(dir, "b.yaml"), webYAML)
	r := startManifests(t, dir)
	r.get(func() {
		if r.names() != "default/web" || len(r.problems) != 1 || strings.Contains(r.problems[0], "last good") || !r.hasProblem("a.yaml: document 1") {
			t.Errorf("%s, problems %q", r.names(), r.problems)
		}
	})
}

// Of an object in several files, the file whose name sorts first wins, whatever the
// order in which they come.
func TestManifestsTheSameObjectInTwoFiles(t *testing.T) {
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml"), filepath.Join(dir, "c.yaml")
	write(t, b, serviceYAML("web", "10.96.0.2"))
	write(t, c, serviceYAML("web", "10.96.0.3"))
	r := startManifests(t, dir)
	r.waitProblem(fmt.Sprintf("Service default/web is in %s and in %s: the one in %s is used", b, c, b))
	r.waitIP("web", "10.96.0.2")
	write(t, a, serviceYAML("web", "10.96.0.1"))
	r.waitProblem(fmt.Sprintf("Service default/web is in %s and in %s and in %s: the one in %s is used", a, b, c, a))
	r.waitIP("web", "10.96.0.1")
	must(t, os.Remove(a))
	r.waitIP("web", "10.96.0.2")
	must(t, os.Remove(b))
	r.waitIP("web", "10.96.0.3")
	r.get(func() {
		if len(r.problems) != 2 {
			t.Errorf("problems %q", r.problems)
		}
	})
}

// configMap lays files out as the kubelet does for a ConfigMap volume, or replaces
// them all at once.
func configMap(t *testing.T, dir, version string, files map[string]string) {
	t.Helper()
	data := filepath.Join(dir, "..data")
	old, _ := os.Readlink(data)
	must(t, os.Mkdir(filepath.Join(dir, version), 0o700))
	for name, content := range files {
		must(t, os.WriteFile(filepath.Join(dir, version, name), []byte(content), 0o600))
	}
	must(t, os.Symlink(version, data+"_tmp"))
	must(t, os.Rename(data+"_tmp", data))
	for name := range files {
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			t.Fatal(err)
		}
	}
	if old != "" {
		must(t, os.RemoveAll(filepath.Join(dir, old)))
	}
}

func TestManifestsInAConfigMapVolume(t *testing.T) {
	for _, path := range []string{"", "web.yaml"} {
		t.Run("path "+path, func(t *testing.T) {
			dir := t.TempDir()
			configMap(t, dir, "..1", map[string]string{"web.yaml": serviceYAML("web", "10.96.0.1")})
			r := startManifests(t, filepath.Join(dir, path))
			r.waitIP("web", "10.96.0.1")
			configMap(t, dir, "..2", map[string]string{"web.yaml": serviceYAML("web", "10.96.0.2")})
			r.waitIP("web", "10.96.0.2")
			configMap(t, dir, "..3", map[string]string{"web.yaml": serviceYAML("web", "10.96.0.3")})
			r.waitIP("web", "10.96.0.3")
		})
	}
}

func TestManifestsReadASingleFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "objects")
	write(t, file, webYAML)
	write(t, filepath.Join(dir, "other.yaml"), serviceYAML("other", "10.96.0.11"))
	r := startManifests(t, file)
	r.waitNames("default/web")
	write(t, file, serviceYAML("web", "10.96.0.2"))
	r.waitIP("web", "10.96.0.2")
	must(t, os.Remove(file))
	r.waitProblem("no such file or directory; the last good state stays")
	r.waitNames("default/web")
	write(t, file, serviceYAML("web", "10.96.0.3"))
	r.waitIP("web", "10.96.0.3")
}

// A folder that vanishes keeps its last good state until it is back.
func TestManifestsFolderVanishes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "manifests")
	must(t, os.Mkdir(dir, 0o700))
	write(t, filepath.Join(dir, "a.yaml"), serviceYAML("a", "10.96.0.1"))
	r := startManifests(t, dir)
	must(t, os.Rename(dir, dir+".away"))
	r.waitProblem("manifests in "+dir, "no such file or directory; the last good state stays")
	r.waitNames("default/a")

	must(t, os.Mkdir(dir+".next", 0o700))
	write(t, filepath.Join(dir+".next", "b.yaml"), serviceYAML("b", "10.96.0.2"))
	must(t, os.Rename(dir+".next", dir))
	r.waitNames("default/b")
	write(t, filepath.Join(dir, "c.yaml"), serviceYAML("c", "10.96.0.3"))
	r.waitNames("default/b default/c")
	r.get(func() {
		if len(r.problems) != 1 {
			t.Errorf("problems %q", r.problems)
		}
	})
}

// A link to a folder that is turned to another folder is followed.
func TestManifestsFolderIsALink(t *testing.T) {
	dir := t.TempDir()
	for i, release := range []string{"1", "2"} {
		must(t, os.Mkdir(filepath.Join(dir, release), 0o700))
		write(t, filepath.Join(dir, release, "a.yaml"), serviceYAML("a", fmt.Sprintf("10.96.0.%d", i+1)))
	}
	link := filepath.Join(dir, "current")
	must(t, os.Symlink("1", link))
	r := startManifests(t, link)
	r.waitIP("a", "10.96.0.1")
	must(t, os.Symlink("2", link+".new"))
	must(t, os.Rename(link+".new", link))
	r.waitIP("a", "10.96.0.2")
	write(t, filepath.Join(dir, "2", "b.yaml"), serviceYAML("b", "10.96.0.3"))
	r.waitNames("default/a default/b")
}

func TestManifestsPathMustExistAtStart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "missing")
	err := NewManifests(path, "", zap.NewNop()).Run(context.Background(), newSourceRecorder(t))
	if err == nil || !strings.Contains(err.Error(), "manifests in "+path) || !strings.HasSuffix(err.Error(), "give the path of a file or folder that exists and can be read") {
		t.Errorf("Run: %v", err)
	}
	if _, _, err := LoadManifests(path, ""); err == nil {
		t.Error("LoadManifests returned no error")
	}
}

func TestLoadManifests(t *testing.T) {
	changes, problems, err := LoadManifests(filepath.Join("testdata", "manifests"), "worker")
	if err != nil || len(problems) > 0 || len(changes.Services) != 3 || len(changes.Slices) != 4 ||
		len(changes.ServiceCIDRs) != 1 || changes.Node == nil || changes.Node.Node.Name != "worker" {
		t.Errorf("%d Services, %d slices, %d ServiceCIDRs, node %v, problems %v, error %v",
			len(changes.Services), len(changes.Slices), len(changes.ServiceCIDRs), changes.Node, problems, err)
	}
	file := filepath.Join(t.TempDir(), "web.yaml")
	write(t, file, "kind: [")
	if _, problems, err = LoadManifests(file, ""); err != nil || len(problems) != 1 {
		t.Errorf("problems %v, error %v", problems, err)
	}
}

// What nobody changed is not delivered again, and what did not change is not even
// parsed.
func TestManifestsDeliverDifferences(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yaml")
	write(t, file, webYAML)
	r := newSourceRecorder(t)
	reader, err := newManifestReader(dir, "", zap.NewNop(), r)
	must(t, err)
	must(t, reader.read(nil))
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"nothing", func() {}, 0},
		{"the file is touched", func() { must(t, os.Chtimes(file, time.Now(), time.Unix(1, 0))) }, 0},
		{"a comment", func() { write(t, file, "# a comment\n"+webYAML) }, 0},
		{"an object", func() { write(t, file, webYAML+"---\n"+webSliceYAML) }, 1},
		{
			"an object moves to another file",
			func() {
				write(t, file, webYAML)
				write(t, filepath.Join(dir, "slices.yaml"), webSliceYAML)
			},
			0,
		},
	} {
		before := r.objects
		step.do()
		must(t, reader.read(nil))
		if got := r.objects - before; got != step.want {
			t.Errorf("%s: %d objects were delivered, want %d", step.name, got, step.want)
		}
	}
	if len(r.problems) > 0 {
		t.Errorf("problems %q", r.problems)
	}
}

// The files are read when nothing has happened to them for a moment, but at the
// latest half a second after the first event.
func TestManifestsWaitForQuiet(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	w := &manifestWatch{path: "/m", folder: "/m", clock: clock, log: zap.NewNop(), named: map[string]bool{}}
	fired := func() bool {
		select {
		case <-w.quiet():
			return true
		default:
			return false
		}
	}
	if fired() {
		t.Error("fired without an event")
	}
	w.note(fsnotify.Event{Name: "/m/a.yaml", Op: fsnotify.Write})
	clock.Step(manifestQuiet - 1)
	w.note(fsnotify.Event{Name: "/m/b.yaml", Op: fsnotify.Write})
	clock.Step(manifestQuiet - 1)
	if fired() {
		t.Error("fired although it was not quiet")
	}
	clock.Step(1)
	if !fired() {
		t.Error("not fired although it is quiet")
	}
	if named := w.take(); len(named) != 2 || !named["/m/a.yaml"] || !named["/m/b.yaml"] {
		t.Errorf("named: %v", named)
	}
	if named := w.take(); len(named) != 0 || fired() {
		t.Errorf("named again: %v", named)
	}

	start := clock.Now()
	for !fired() {
		w.note(fsnotify.Event{Name: "/m/a.yaml", Op: fsnotify.Write})
		clock.Step(manifestQuiet / 2)
		if clock.Since(start) > 2*manifestLatest {
			t.Fatal("never fired")
		}
	}
	if d := clock.Since(start); d < manifestLatest || d > manifestLatest+manifestQuiet {
		t.Errorf("fired after %s", d)
	}
}

// Lost events cost nothing but a reading of everything.
func TestManifestsLostEvents(t *testing.T) {
	clock := testingclock.NewFakeClock(time.Unix(0, 0))
	w := &manifestWatch{path: "/m", folder: "/m", clock: clock, log: zap.NewNop(), named: map[string]bool{}}
	w.missed(fsnotify.ErrEventOverflow, map[string]fileVersion{"/m/a.yaml": {}, "/m/b.yaml": {}})
	clock.Step(manifestQuiet)
	<-w.quiet()
	if named := w.take(); len(named) != 2 {
		t.Errorf("named: %v", named)
	}
}

// An unreadable file is a problem of its own.
func TestManifestsUnreadableFile(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink("loop.yaml", filepath.Join(dir, "loop.yaml")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "dangling.yaml")))
	write(t, filepath.Join(dir, "web.yaml"), webYAML)
	r := newSourceRecorder(t)
	reader, err := newManifestReader(dir, "", zap.NewNop(), r)
	must(t, err)
	must(t, reader.read(nil))
	if r.names() != "default/web" || len(r.problems) != 1 || !r.hasProblem("loop.yaml", "make it readable, or remove it") {
		t.Errorf("%s, problems %q", r.names(), r.problems)
	}
}

func TestManifestIndexIsEmptyAfterAll(t *testing.T) {
	x := newManifestIndex()
	for _, file := range []string{"b", "a", "c"} {
		m, err := parseManifest([]byte(webYAML+"---\n"+webSliceYAML), "")
		must(t, err)
		x.set(file, m)
		x.settle()
	}
	for _, file := range slices.Backward([]string{"b", "a", "c"}) {
		x.set(file, nil)
		if _, problems := x.settle(); len(problems) > 0 {
			t.Errorf("problems %v", problems)
		}
	}
	if len(x.files)+len(x.owners)+len(x.delivered)+len(x.touched)+len(x.claimed) > 0 {
		t.Errorf("%+v", x)
	}
}
