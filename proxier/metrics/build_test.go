package metrics_test

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/nftproxy/nftproxy/proxier/metrics"
)

func TestBuildInfo(t *testing.T) {
	want := []string{`kubernetes_build_info{build_date="2026-01-02T03:04:05Z",compiler="` + runtime.Compiler +
		`",git_commit="abc",git_tree_state="clean",git_version="v1.2.3-rc.1",go_version="` + runtime.Version() +
		`",major="1",minor="2",platform="` + runtime.GOOS + "/" + runtime.GOARCH + `"} 1`}
	if diff := cmp.Diff(want, scrape(t, newMetrics(), "kubernetes_build_info")); diff != "" {
		t.Errorf("want -, got +\n%s", diff)
	}
}

func TestReadBuildInfo(t *testing.T) {
	if got := metrics.ReadBuildInfo("v2.0.0").Version; got != "v2.0.0" {
		t.Errorf("version %q", got)
	}
	tests := []struct {
		name     string
		settings []debug.BuildSetting
		want     metrics.BuildInfo
	}{
		{"not built in a repository", []debug.BuildSetting{{Key: "-trimpath", Value: "true"}}, metrics.BuildInfo{Version: "v1"}},
		{"of a commit", []debug.BuildSetting{
			{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"}, {Key: "vcs.modified", Value: "false"},
		}, metrics.BuildInfo{Version: "v1", Commit: "abc", TreeState: "clean", Date: "2026-01-02T03:04:05Z"}},
		{"with changed files", []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, metrics.BuildInfo{Version: "v1", TreeState: "dirty"}},
	}
	for _, test := range tests {
		if diff := cmp.Diff(test.want, metrics.BuildInfo{Version: "v1"}.With(test.settings)); diff != "" {
			t.Errorf("%s: want -, got +\n%s", test.name, diff)
		}
	}
}

func TestMajorMinor(t *testing.T) {
	tests := []struct{ version, major, minor string }{
		{"v1.37.2", "1", "37"},
		{"0.4.0-12-gabcdef-dirty", "0", "4"},
		{"(devel)", "", ""},
		{"abcdef", "", ""},
		{"", "", ""},
	}
	for _, test := range tests {
		if major, minor := metrics.MajorMinor(test.version); major != test.major || minor != test.minor {
			t.Errorf("%q: %q and %q", test.version, major, minor)
		}
	}
}
