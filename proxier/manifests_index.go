package proxier

import (
	"fmt"
	"slices"
	"strings"
)

// manifestIndex knows which file has which object, and what the handler got.
// Whatever it does for a file costs in proportion to that file.
type manifestIndex struct {
	files map[string]map[objectKey]object
	// owners lists the files that have the object. The first name wins.
	owners    map[objectKey][]string
	delivered map[objectKey]object

	// Since the last settling: the objects that may be new, and those that one more
	// file has.
	touched []objectKey
	claimed map[objectKey]bool
}

func newManifestIndex() *manifestIndex {
	return &manifestIndex{
		files:     map[string]map[objectKey]object{},
		owners:    map[objectKey][]string{},
		delivered: map[objectKey]object{},
		claimed:   map[objectKey]bool{},
	}
}

// set replaces what a file has by what a manifest says, or by nothing if that is
// nil.
func (x *manifestIndex) set(file string, m *manifest) {
	before := x.files[file]
	after := withLastGood(before, m)
	for key := range before {
		x.touched = append(x.touched, key)
		if _, stays := after[key]; !stays {
			x.disown(key, file)
		}
	}
	for key := range after {
		if _, had := before[key]; !had {
			x.touched = append(x.touched, key)
			x.claimed[key] = true
			x.owners[key] = append(x.owners[key], file)
			slices.Sort(x.owners[key])
		}
	}
	if len(after) == 0 {
		delete(x.files, file)
	} else {
		x.files[file] = after
	}
}

// withLastGood returns the objects of a manifest, and the last good state of those
// that it does not say.
func withLastGood(before map[objectKey]object, m *manifest) map[objectKey]object {
	if m == nil {
		return nil
	}
	for key, o := range before {
		if _, ok := m.objects[key]; !ok && (m.unusable[key] || m.unnamed) {
			m.objects[key] = o
		}
	}
	return m.objects
}

func (x *manifestIndex) disown(key objectKey, file string) {
	owners := slices.DeleteFunc(x.owners[key], func(f string) bool { return f == file })
	if len(owners) == 0 {
		delete(x.owners, key)
		return
	}
	x.owners[key] = owners
}

// settle returns what is new about objects since the last time, and a problem for
// each object that one more file has than before, but not alone. Several files are
// settled together, so that an object may move from one to another.
func (x *manifestIndex) settle() (changes Changes, problems []Problem) {
	slices.SortFunc(x.touched, objectKey.compare)
	for _, key := range slices.Compact(x.touched) {
		owners := x.owners[key]
		var o object
		if len(owners) > 0 {
			o = x.files[owners[0]][key]
		}
		if len(owners) > 1 && x.claimed[key] {
			problems = append(problems, Problem{
				Object: key.ref(o.uid()), Reason: ReasonDuplicateObject,
				Err: fmt.Errorf("%s is in %s: the one in %s is used, as its name sorts first: remove the others",
					key, strings.Join(owners, " and in "), owners[0]),
			})
		}
		if x.delivered[key].equal(o) {
			continue
		}
		if o.exists() {
			x.delivered[key] = o
		} else {
			delete(x.delivered, key)
		}
		changes.add(key, o)
	}
	x.touched = nil
	clear(x.claimed)
	return changes, problems
}
