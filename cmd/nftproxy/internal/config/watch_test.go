package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testFolder is a folder with paths relative to it.
type testFolder struct {
	t    *testing.T
	root string
}

func (f testFolder) path(name string) string { return filepath.Join(f.root, name) }

func (f testFolder) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f testFolder) mkdir(name string) { f.must(os.MkdirAll(f.path(name), 0o700)) }

// write writes in place, and makes the folder.
func (f testFolder) write(name, data string) {
	f.mkdir(filepath.Dir(name))
	f.must(os.WriteFile(f.path(name), []byte(data), 0o600))
}

func (f testFolder) rename(from, to string) { f.must(os.Rename(f.path(from), f.path(to))) }

func (f testFolder) remove(name string) { f.must(os.RemoveAll(f.path(name))) }

// link makes a link, or puts it in the place of another one by a rename.
func (f testFolder) link(target, name string) {
	f.must(os.Symlink(target, f.path(name+".new")))
	f.rename(name+".new", name)
}

// watched is a Watch at work.
type watched struct {
	testFolder
	refused chan error
	done    chan error
	cfg     *Config // after done
	stop    context.CancelFunc
}

// startWatch loads the file and watches it.
func startWatch(f testFolder, name string) *watched {
	flags := flagsOf(f.t, "--config", f.path(name), "-v", "2")
	old, err := flags.Load()
	f.must(err)
	ctx, stop := context.WithCancel(f.t.Context())
	w := &watched{testFolder: f, refused: make(chan error), done: make(chan error, 1), stop: stop}
	go func() {
		var err error
		w.cfg, err = flags.Watch(ctx, old, func(err error) {
			select {
			case w.refused <- err:
			case <-ctx.Done():
			}
		})
		w.done <- err
	}()
	f.t.Cleanup(func() {
		stop()
		if w.done != nil {
			<-w.done
		}
	})
	return w
}

// long is how long nothing may happen where something must; no test waits for it.
const long = 30 * time.Second

// wantRefused waits until a content is refused. Then Watch waits for the next event.
func (w *watched) wantRefused(text string) {
	w.t.Helper()
	select {
	case err := <-w.refused:
		if !strings.Contains(err.Error(), text) {
			w.t.Fatalf("refused: %v, want %q", err, text)
		}
	case err := <-w.done:
		w.done = nil
		w.t.Fatalf("Watch returned %v, error %v", w.cfg, err)
	case <-time.After(long):
		w.t.Fatalf("nothing was refused, want %q", text)
	}
}

// wantCIDR waits until Watch returns the configuration with the ClusterCIDR.
func (w *watched) wantCIDR(text string) {
	w.t.Helper()
	select {
	case err := <-w.refused:
		w.t.Fatalf("refused: %v", err)
	case err := <-w.done:
		w.done = nil
		if err != nil {
			w.t.Fatal(err)
		}
		if w.cfg.Object.ClusterCIDR != text || w.cfg.Logging.Verbosity != 2 {
			w.t.Errorf("got clusterCIDR %s, verbosity %d", w.cfg.Object.ClusterCIDR, w.cfg.Logging.Verbosity)
		}
	case <-time.After(long):
		w.t.Fatal("Watch did not return")
	}
}

func cidr(text string) string { return withMode("clusterCIDR: " + text) }

// TestWatch: whatever way the content changes, Watch returns the new one. In each
// case a content is refused first, so that Watch is known to wait for an event.
func TestWatch(t *testing.T) {
	for _, c := range []struct {
		name   string
		setup  func(testFolder) // beside the file a/config.conf
		bad    func(testFolder)
		change func(testFolder)
	}{
		{"written in place", nil, nil, func(f testFolder) { f.write("a/config.conf", cidr("10.2.0.0/16")) }},
		{"renamed over", nil, nil, func(f testFolder) {
			f.write("a/new", cidr("10.2.0.0/16"))
			f.rename("a/new", "a/config.conf")
		}},
		{"deleted and created", nil, nil, func(f testFolder) {
			f.remove("a/config.conf")
			f.write("a/config.conf", cidr("10.2.0.0/16"))
		}},
		{"folder removed and made", nil, nil, func(f testFolder) {
			f.remove("a")
			f.write("a/config.conf", cidr("10.2.0.0/16"))
		}},
		{"folder moved away and made", nil, nil, func(f testFolder) {
			f.rename("a", "b")
			f.write("a/config.conf", cidr("10.2.0.0/16"))
		}},
		{"a file of a ConfigMap volume", func(f testFolder) {
			f.remove("a/config.conf")
			f.write("a/..1/config.conf", cidr("10.1.0.0/16"))
			f.link("..1", "a/..data")
			f.link("..data/config.conf", "a/config.conf")
		}, func(f testFolder) {
			f.write("a/..2/config.conf", "bad")
			f.link("..2", "a/..data")
			f.remove("a/..1")
		}, func(f testFolder) {
			// The kubelet removes the old folder after it; that is not what is waited for.
			f.write("a/..3/config.conf", cidr("10.2.0.0/16"))
			f.link("..3", "a/..data")
		}},
		{"a link to a file elsewhere", func(f testFolder) {
			f.remove("a/config.conf")
			f.write("b/c/file", cidr("10.1.0.0/16"))
			f.link("../b/c/file", "a/config.conf")
		}, func(f testFolder) { f.write("b/c/file", "bad") }, func(f testFolder) { f.write("b/c/file", cidr("10.2.0.0/16")) }},
		{"a folder on the way is a link", func(f testFolder) {
			f.remove("a")
			f.write("b/config.conf", cidr("10.1.0.0/16"))
			f.link("b", "a")
		}, nil, func(f testFolder) {
			f.write("c/config.conf", cidr("10.2.0.0/16"))
			f.link(f.path("c"), "a")
		}},
		{"a link that led nowhere", nil, func(f testFolder) {
			f.write("a/config.conf", "bad")
		}, func(f testFolder) {
			f.link("../b/file", "a/config.conf")
			f.mkdir("b")
			f.write("b/file", cidr("10.2.0.0/16"))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := testFolder{t, t.TempDir()}
			f.write("a/config.conf", cidr("10.1.0.0/16"))
			if c.setup != nil {
				c.setup(f)
			}
			w := startWatch(f, "a/config.conf")
			if c.bad == nil {
				f.write("a/config.conf", "bad")
			} else {
				c.bad(f)
			}
			w.wantRefused("cannot be read as YAML")
			c.change(f)
			w.wantCIDR("10.2.0.0/16")
		})
	}
}

// TestWatchMissed: what happened before the watch began is no less a change.
func TestWatchMissed(t *testing.T) {
	f := testFolder{t, t.TempDir()}
	f.write("config.conf", cidr("10.1.0.0/16"))
	flags := flagsOf(t, "--config", f.path("config.conf"))
	old, err := flags.Load()
	f.must(err)
	f.write("config.conf", cidr("10.2.0.0/16"))
	cfg, err := flags.Watch(t.Context(), old, func(err error) { t.Error(err) })
	if err != nil || cfg.Object.ClusterCIDR != "10.2.0.0/16" {
		t.Errorf("got %v, error %v", cfg, err)
	}
}

// TestNoChange: a file that is missing, that has its old content, or none that is
// valid, is no change; a bad content is told once.
func TestNoChange(t *testing.T) {
	f := testFolder{t, t.TempDir()}
	f.write("config.conf", cidr("10.1.0.0/16"))
	flags := flagsOf(t, "--config", f.path("config.conf"))
	old, err := flags.Load()
	f.must(err)
	var refused []string
	content := contents{old: old.content, judged: old.content, seen: old.content}
	for _, step := range []struct {
		name   string
		change func()
		want   string // of what is refused
	}{
		{"nothing", func() {}, ""},
		{"missing", func() { f.remove("config.conf") }, ""},
		{"the old content", func() { f.write("config.conf", cidr("10.1.0.0/16")) }, ""},
		{"half written", func() { f.write("config.conf", cidr("10.2.0.0/16")[:20]) }, "must have apiVersion"},
		{"the same again", func() { f.write("config.conf", cidr("10.2.0.0/16")[:20]) }, ""},
		{"invalid", func() { f.write("config.conf", cidr("10.2.0.0")) }, `clusterCIDR: "10.2.0.0" is not a range`},
		{"the old content again", func() { f.write("config.conf", cidr("10.1.0.0/16")) }, ""},
		{"invalid again", func() { f.write("config.conf", cidr("10.2.0.0")) }, `clusterCIDR: "10.2.0.0" is not a range`},
		{"a folder", func() { f.remove("config.conf"); f.mkdir("config.conf") }, "read the changed configuration"},
	} {
		refused = nil
		step.change()
		refuse := func(err error) { refused = append(refused, err.Error()) }
		cfg, again := flags.reread(&content, refuse)
		if again {
			if len(refused) > 0 {
				t.Errorf("%s: refused at first sight", step.name)
			}
			cfg, again = flags.reread(&content, refuse)
		}
		if cfg != nil || again {
			t.Errorf("%s: got a configuration, or none that is settled", step.name)
		}
		switch {
		case step.want == "" && len(refused) == 0:
		case step.want != "" && len(refused) == 1 && strings.Contains(refused[0], step.want):
		default:
			t.Errorf("%s: refused %q, want %q", step.name, refused, step.want)
		}
	}
}

// TestWatchEnds: with the context, and with an error if the file cannot be watched.
func TestWatchEnds(t *testing.T) {
	f := testFolder{t, t.TempDir()}
	f.write("config.conf", cidr("10.1.0.0/16"))
	w := startWatch(f, "config.conf")
	f.write("config.conf", "bad")
	w.wantRefused("cannot be read as YAML")
	w.stop()
	if err := <-w.done; !errors.Is(err, context.Canceled) {
		t.Errorf("got error %v", err)
	}
	w.done = nil

	f.link("circle", "circle")
	flags := flagsOf(t, "--config", f.path("circle"))
	if cfg, err := flags.Watch(t.Context(), &Config{}, func(err error) { t.Error(err) }); cfg != nil || err == nil || !strings.Contains(err.Error(), "more than 40 symbolic links") {
		t.Errorf("a circle of links: got %v, error %v", cfg, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := flagsOf(t).Watch(ctx, &Config{}, func(err error) { t.Error(err) }); !errors.Is(err, context.Canceled) {
		t.Errorf("no file: got error %v", err)
	}
}
