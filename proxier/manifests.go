package proxier

import (
	"context"
	"fmt"
	"path/filepath"

	"go.uber.org/zap"
	"k8s.io/utils/clock"
)

// Manifests is the Source that reads Services, EndpointSlices, this node's Node and
// ServiceCIDRs from files, as kubectl writes them: YAML or JSON, one object, several
// documents or lists. It follows every change of the files, and of links to them, but
// not what happens behind a link in another folder. Objects of other kinds, and the
// Nodes of other nodes, are ignored.
//
// Nothing is taken away because of a mistake. A file that cannot be read or parsed
// keeps its last good state, and so does an object of which nothing can be used; a
// path that vanishes keeps everything until it is back. Objects go when their file
// goes, or when a file that can be parsed no longer has them. Of an object that
// several files have, the one in the file whose name sorts first is used.
type Manifests struct {
	path     string
	nodeName string
	log      *zap.Logger
	clock    clock.WithTicker
}

// NewManifests returns a source that reads the file of that path, or the files
// *.yaml, *.yml and *.json of the folder of that path, but not hidden ones or those
// of its subfolders. It takes the endpoints on that node as local, and delivers its Node.
func NewManifests(path, nodeName string, log *zap.Logger) *Manifests {
	return &Manifests{path: path, nodeName: nodeName, log: log, clock: clock.RealClock{}}
}

// Run implements [Source]. It returns an error if the path cannot be read or
// watched at the start.
func (m *Manifests) Run(ctx context.Context, h Handler) error {
	r, err := newManifestReader(m.path, m.nodeName, m.log, h)
	if err != nil {
		return err
	}
	w := &manifestWatch{path: r.folder.path, clock: m.clock, log: m.log, named: map[string]bool{}}
	defer w.close()
	if err := r.follow(w); err != nil {
		return startError(m.path, err)
	}
	h.Synced()
	poll := m.clock.NewTicker(manifestPoll)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.events():
			w.note(e)
			continue
		case err := <-w.errors():
			w.missed(err, r.folder.files)
			continue
		case <-w.quiet():
		case <-poll.C():
			if !w.outdated() {
				continue
			}
		}
		r.report(r.follow(w))
	}
}

// LoadManifests reads the path once, as Manifests does at its start: the objects,
// and the problems of what cannot be used.
func LoadManifests(path, nodeName string) (Changes, []error, error) {
	var loaded loadedManifests
	r, err := newManifestReader(path, nodeName, zap.NewNop(), &loaded)
	if err != nil {
		return Changes{}, nil, err
	}
	if err := r.read(nil); err != nil {
		return Changes{}, nil, startError(path, err)
	}
	return loaded.changes, loaded.problems, nil
}

// loadedManifests is a handler that only remembers the first full lists.
type loadedManifests struct {
	changes  Changes
	problems []error
}

func (l *loadedManifests) Apply(changes Changes) { l.changes = changes }
func (l *loadedManifests) Synced()               {}
func (l *loadedManifests) Problem(p Problem)     { l.problems = append(l.problems, p.Err) }

func startError(path string, err error) error {
	return fmt.Errorf("manifests in %s: %w: give the path of a file or folder that exists and can be read", path, err)
}

// manifestReader hands the difference to the handler each time it reads.
type manifestReader struct {
	nodeName string
	log      *zap.Logger
	handler  Handler
	folder   manifestFolder
	index    *manifestIndex
	broken   map[string]bool // the files whose last good state stays
	trouble  string          // with the path itself, as reported
}

func newManifestReader(path, nodeName string, log *zap.Logger, h Handler) (*manifestReader, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, startError(path, err)
	}
	return &manifestReader{
		nodeName: nodeName, log: log, handler: h,
		folder: manifestFolder{path: path, files: map[string]fileVersion{}},
		index:  newManifestIndex(),
		broken: map[string]bool{},
	}, nil
}

// follow reads what may have changed and makes sure that the next change will be
// noticed. What can be read is read although it cannot be watched.
func (r *manifestReader) follow(w *manifestWatch) error {
	watchErr := w.renew() // first, so that a change after the reading is an event
	if err := r.read(w.take()); err != nil {
		return err
	}
	return watchErr
}

// read reads what may have changed, the named files in any case. It returns an
// error if the path itself cannot be read.
func (r *manifestReader) read(named map[string]bool) error {
	updates, err := r.folder.scan(named)
	if err != nil {
		return err
	}
	var problems []Problem
	for _, u := range updates {
		problems = append(problems, r.update(u)...)
	}
	changes, doubled := r.index.settle()
	if !changes.empty() {
		r.handler.Apply(changes)
	}
	for _, p := range append(problems, doubled...) {
		r.handler.Problem(p)
	}
	return nil
}

// update takes over one file.
func (r *manifestReader) update(u fileUpdate) (problems []Problem) {
	if u.gone {
		delete(r.broken, u.path)
		r.index.set(u.path, nil)
		return nil
	}
	m, err := r.parse(u)
	if err != nil {
		r.broken[u.path] = true
		if len(r.index.files[u.path]) > 0 {
			err = fmt.Errorf("%w; its last good state stays", err)
		}
		return []Problem{{Reason: ReasonBadManifest, Err: err}}
	}
	if r.broken[u.path] {
		delete(r.broken, u.path)
		r.log.Info("manifest can be used again", zap.String("file", u.path))
	}
	r.index.set(u.path, m)
	for _, p := range m.problems {
		p.Err = fmt.Errorf("%s: %w", u.path, p.Err)
		problems = append(problems, p)
	}
	return problems
}

func (r *manifestReader) parse(u fileUpdate) (*manifest, error) {
	if u.err != nil {
		return nil, u.err
	}
	if isBlank(u.data) && len(r.index.files[u.path]) > 0 {
		return nil, fmt.Errorf("%s: is empty: remove the file to remove its objects", u.path)
	}
	m, err := parseManifest(u.data, r.nodeName)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", u.path, err)
	}
	return m, nil
}

// report reports trouble with the path itself once, and when it is over.
func (r *manifestReader) report(err error) {
	switch {
	case err == nil && r.trouble != "":
		r.trouble = ""
		r.log.Info("manifests can be read again", zap.String("path", r.folder.path))
	case err != nil && r.trouble != err.Error():
		r.trouble = err.Error()
		r.handler.Problem(Problem{
			Reason: ReasonBadManifest,
			Err:    fmt.Errorf("manifests in %s: %w; the last good state stays", r.folder.path, err),
		})
	}
}
