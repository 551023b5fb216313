package metrics

import (
	"regexp"
	"runtime"
	"runtime/debug"
)

// BuildInfo says which build this is.
type BuildInfo struct {
	Version string // such as "v1.2.3"
	Commit  string // empty if not known
	// TreeState is "clean" or "dirty": whether files differed from the commit; empty if
	// not known.
	TreeState string
	Date      string // of the commit, as in RFC 3339; empty if not known
}

// ReadBuildInfo returns the version together with what the Go command has written
// about the repository into the program.
func ReadBuildInfo(version string) BuildInfo {
	b := BuildInfo{Version: version}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	return b.with(info.Settings)
}

func (b BuildInfo) with(settings []debug.BuildSetting) BuildInfo {
	for _, s := range settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.TreeState = "clean"
			if s.Value == "true" {
				b.TreeState = "dirty"
			}
		}
	}
	return b
}

// majorMinor returns the first two numbers of a version such as "v1.2.3", empty if it
// is not one.
func majorMinor(version string) (major, minor string) {
	parts := regexp.MustCompile(`^v?(\d+)\.(\d+)`).FindStringSubmatch(version)
	if parts == nil {
		return "", ""
	}
	return parts[1], parts[2]
}

// registerBuildInfo registers the gauge by which tools tell the version of every
// component of a cluster.
func registerBuildInfo(r registrar, b BuildInfo) {
	major, minor := majorMinor(b.Version)
	r.gauges("", "kubernetes_build_info",
		"A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, "+
			"Go version, and compiler from which nftproxy was built, and platform on which it is running.",
		"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform",
	).WithLabelValues(major, minor, b.Version, b.Commit, b.TreeState, b.Date,
		runtime.Version(), runtime.Compiler, runtime.GOOS+"/"+runtime.GOARCH).Set(1)
}
