package proxier

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

const (
	// manifestQuiet is how long nothing may happen to the files before they are
	// read: whoever writes several, or one in pieces, gets the time to finish.
	manifestQuiet = 30 * time.Millisecond
	// manifestLatest is when they are read although it never gets quiet.
	manifestLatest = 500 * time.Millisecond
	// manifestPoll is how often the path itself is looked at. A watch follows the
	// folder that it was made for, so that another one, or one that comes back, is
	// noticed in no other way.
	manifestPoll = time.Second
)

// manifestWatch tells when the files of a path are to be read again. It belongs to
// one goroutine.
type manifestWatch struct {
	path  string
	clock clock.WithTicker
	log   *zap.Logger

	watcher *fsnotify.Watcher // nil while there is no folder that could be watched
	folder  string            // what it watches: the path, or the parent of a file
	watched fs.FileInfo       // of the folder when the watch began
	seen    fs.FileInfo       // of the path when its files were read the last time

	named  map[string]bool // the files that events were about since then
	timer  clock.Timer     // runs from the first such event on, nil before
	latest time.Time       // when the timer ends at the latest
}

// renew makes the watch one of the present folder. Whatever happens to the files
// after it is an event.
func (w *manifestWatch) renew() error {
	info, err := os.Stat(w.path)
	if err != nil {
		w.seen = nil
		if w.folder == w.path { // or else the parent folder tells when a file is back
			w.close()
		}
		return err
	}
	w.seen = info
	folder := w.path
	if !info.IsDir() {
		folder = filepath.Dir(w.path)
	}
	if info, err = os.Stat(folder); err != nil {
		w.close()
		return err
	}
	if folder == w.folder && w.alive(info) {
		return nil
	}
	w.close()
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		if err = watcher.Add(folder); err != nil {
			err = errors.Join(err, watcher.Close())
		}
	}
	if err != nil {
		return fmt.Errorf("watch %s: %w: the sysctls fs.inotify.max_user_instances and max_user_watches may be too low", folder, err)
	}
	w.watcher, w.folder, w.watched = watcher, folder, info
	return nil
}

// alive reports whether the watch is one of the folder that is there now.
func (w *manifestWatch) alive(folder fs.FileInfo) bool {
	return w.watcher != nil && len(w.watcher.WatchList()) > 0 && os.SameFile(w.watched, folder)
}

// outdated reports whether the path is another one than the one that was read, or
// is not being watched.
func (w *manifestWatch) outdated() bool {
	info, err := os.Stat(w.path)
	if err != nil {
		return w.seen != nil
	}
	folder := info
	if !info.IsDir() {
		if folder, err = os.Stat(filepath.Dir(w.path)); err != nil {
			return true
		}
	}
	return !sameFile(w.seen, info) || !w.alive(folder)
}

// events and errors return the channels of the watch.
func (w *manifestWatch) events() <-chan fsnotify.Event {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Events
}

func (w *manifestWatch) errors() <-chan error {
	if w.watcher == nil {
		return nil
	}
	return w.watcher.Errors
}

// note takes an event. In the parent folder of a file only what concerns the file
// counts: its name, or that a link on the way now leads to another one.
func (w *manifestWatch) note(e fsnotify.Event) {
	name := filepath.Clean(e.Name)
	if w.folder != w.path && name != w.path && !w.outdated() {
		return
	}
	w.named[name] = true
	w.schedule()
}

// missed takes an error: events may be lost, so that any file may have changed.
func (w *manifestWatch) missed(err error, files map[string]fileVersion) {
	w.log.Debug("events about manifests were lost, reading all", zap.Error(err))
	for name := range files {
		w.named[name] = true
	}
	w.schedule()
}

func (w *manifestWatch) schedule() {
	now := w.clock.Now()
	if w.timer == nil {
		w.latest = now.Add(manifestLatest)
		w.timer = w.clock.NewTimer(manifestQuiet)
		return
	}
	w.timer.Stop()
	w.timer = w.clock.NewTimer(max(0, min(manifestQuiet, w.latest.Sub(now))))
}

// quiet returns a channel that gets a value when the files are to be read.
func (w *manifestWatch) quiet() <-chan time.Time {
	if w.timer == nil {
		return nil
	}
	return w.timer.C()
}

// take returns the files that events were about, and waits for new events.
func (w *manifestWatch) take() map[string]bool {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	named := w.named
	w.named = map[string]bool{}
	return named
}

func (w *manifestWatch) close() {
	if w.watcher == nil {
		return
	}
	if err := w.watcher.Close(); err != nil {
		w.log.Debug("closing a watch of manifests", zap.Error(err))
	}
	w.watcher, w.folder, w.watched = nil, "", nil
}
