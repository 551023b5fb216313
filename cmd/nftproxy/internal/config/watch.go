package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

const (
	// watchQuiet is how long nothing may happen to the file before its content
	// counts: whoever writes it in pieces gets the time to finish.
	watchQuiet = 50 * time.Millisecond
	// maxLinks is how many symbolic links Linux follows on the way to a file.
	maxLinks = 40
)

// Watch waits until the file of --config has another content than the one that old
// was loaded from, and returns the configuration that it has now. It follows the
// file through the symbolic links of a ConfigMap volume. While there is no file
// nothing has changed. A new content that is no valid configuration is told to
// refused, once, and old stays in force. Without --config it waits for the context.
//
// It returns the error of the context when that ends, and an error if the file
// cannot be watched.
func (f *Flags) Watch(ctx context.Context, old *Config, refused func(error)) (*Config, error) {
	if f.ConfigFile == "" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	content := contents{old: old.content, judged: old.content, seen: old.content}
	for {
		w, err := watchFile(f.ConfigFile)
		if err != nil {
			return nil, fmt.Errorf("watch the configuration file %s: %w", f.ConfigFile, err)
		}
		// Whatever happens to the file after it is read here is an event.
		cfg, again := f.reread(&content, refused)
		if cfg == nil {
			err = w.wait(ctx, again)
		}
		if err := errors.Join(err, w.close()); err != nil {
			return nil, err
		}
		if cfg != nil {
			return cfg, nil
		}
	}
}

// contents are what a file held: when the configuration in force was loaded, when a
// content was last found good or bad, and when it was last read.
type contents struct{ old, judged, seen []byte }

// reread returns the configuration that the file has now, or nil if the old one
// stays in force. A content that is seen for the first time may be half of one: then
// again is true, and it is judged if it is the same the next time.
func (f *Flags) reread(c *contents, refused func(error)) (cfg *Config, again bool) {
	data, err := os.ReadFile(f.ConfigFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false
	case err != nil:
		refused(fmt.Errorf("read the changed configuration: %w", err))
		return nil, false
	}
	again = !bytes.Equal(data, c.seen) && !bytes.Equal(data, c.judged)
	c.seen = data
	if again || bytes.Equal(data, c.judged) {
		return nil, again
	}
	c.judged = data
	if bytes.Equal(data, c.old) {
		return nil, false
	}
	if cfg, err = f.fromFile(data); err != nil {
		refused(err)
		return nil, false
	}
	return cfg, false
}

// fileWatch tells when something happened to a file, or to a symbolic link on the
// way to it.
type fileWatch struct {
	watcher *fsnotify.Watcher
	names   []string // the file and the links
}

// watchFile watches the folders of the file and of the links that lead to it.
func watchFile(path string) (*fileWatch, error) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, withHint(err, unix.EMFILE, "max_user_instances")
	}
	w := &fileWatch{watcher: watcher}
	for { // until the links are the same before and after the folders are watched
		names, err := onTheWay(path)
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		if slices.Equal(names, w.names) {
			return w, nil
		}
		w.names = names
		for _, name := range names {
			err := watcher.Add(filepath.Dir(name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // what is gone is not on the way any more
				return nil, errors.Join(withHint(err, unix.ENOSPC, "max_user_watches"), w.close())
			}
		}
	}
}

// withHint says which sysctl to raise if the error is the one of its limit.
func withHint(err, limit error, sysctl string) error {
	if errors.Is(err, limit) {
		return fmt.Errorf("%w: the sysctl fs.inotify.%s is too low", err, sysctl)
	}
	return err
}

// wait returns when something happened, or atOnce is true, and nothing more happens
// for a while.
func (w *fileWatch) wait(ctx context.Context, atOnce bool) error {
	var quiet <-chan time.Time
	if atOnce {
		quiet = time.After(watchQuiet)
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e := <-w.watcher.Events:
			if w.concerns(e.Name) {
				quiet = time.After(watchQuiet)
			}
		case err := <-w.watcher.Errors:
			if !errors.Is(err, fsnotify.ErrEventOverflow) {
				return fmt.Errorf("watch the configuration file: %w", err)
			}
			quiet = time.After(watchQuiet) // the events that were lost may have been about the file
		case <-quiet:
			return nil
		}
	}
}

// concerns reports whether an event is about the file, a link that leads to it, or
// a folder in which one of them is.
func (w *fileWatch) concerns(name string) bool {
	return slices.ContainsFunc(w.names, func(n string) bool { return name == n || name == filepath.Dir(n) })
}

func (w *fileWatch) close() error {
	if err := w.watcher.Close(); err != nil {
		return fmt.Errorf("end the watch of the configuration file: %w", err)
	}
	return nil
}

// onTheWay returns the paths of the symbolic links that lead to a file, and of the
// file itself. They end with the first one that does not exist. No folder in a path
// is a link.
func onTheWay(path string) ([]string, error) {
	rest, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("the current folder is not known: %w", err)
	}
	var names []string
	folder, links := "/", 0
	for {
		var part string
		part, rest, _ = strings.Cut(strings.TrimLeft(rest, "/"), "/")
		if part == "" {
			return append(names, folder), nil
		}
		name := filepath.Join(folder, part) // a part may be ".."
		target, err := os.Readlink(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return append(names, name), nil
		case err != nil: // no link
			folder = name
			continue
		}
		if links++; links > maxLinks {
			return nil, fmt.Errorf("more than %d symbolic links lead from %s to the next", maxLinks, path)
		}
		names = append(names, name)
		rest = target + "/" + rest
		if filepath.IsAbs(target) {
			folder = "/"
		}
	}
}
