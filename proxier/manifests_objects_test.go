package proxier

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The Node of this node and the ServiceCIDRs are followed as everything else is, by
// themselves too. Other Nodes may be anywhere.
func TestManifestsFollowTheNode(t *testing.T) {
	dir := t.TempDir()
	node, cidr := filepath.Join(dir, "node.yaml"), filepath.Join(dir, "cidr.yaml")
	other := strings.ReplaceAll(nodeYAML, "node-1", "node-2")
	write(t, node, nodeYAML)
	write(t, filepath.Join(dir, "nodes.yaml"), other+"---\n"+strings.ReplaceAll(other, "node-2", "node-3"))
	write(t, filepath.Join(dir, "same.yaml"), other)
	r := startManifests(t, dir)
	r.waitNames("node-1")
	write(t, node, strings.ReplaceAll(nodeYAML, "zone-a", "zone-b"))
	r.wait("the zone", func() bool { return r.node.Zone == "zone-b" })
	write(t, cidr, cidrYAML)
	r.waitNames("node-1 extra")
	write(t, cidr, strings.ReplaceAll(cidrYAML, "10.112", "10.113"))
	r.wait("the range", func() bool { return r.cidrs["extra"][0].String() == "10.113.0.0/16" })
	must(t, os.Remove(node))
	r.waitNames("extra")
	must(t, os.Remove(cidr))
	r.waitNames("")
	r.get(func() {
		if len(r.problems) > 0 || r.objects != 6 {
			t.Errorf("problems %q, %d objects were delivered", r.problems, r.objects)
		}
	})
}

// A problem says which object it is of, if it is of one.
func TestManifestsProblems(t *testing.T) {
	dir := t.TempDir()
	named := strings.Replace(webYAML, "name: web", "name: web, uid: uid-web", 1)
	write(t, filepath.Join(dir, "a.yaml"), strings.Replace(named, "uid: uid-web", `uid: uid-web, annotations: {nftproxy.dev/weights: "*"}`, 1))
	write(t, filepath.Join(dir, "b.yaml"), named+"---\n"+named)
	write(t, filepath.Join(dir, "c.yaml"), strings.ReplaceAll(cidrYAML, "/16", "/33"))
	write(t, filepath.Join(dir, "d.yaml"), "kind: [")
	write(t, filepath.Join(dir, "e.yaml"), "kind: Service")
	r := startManifests(t, dir)
	service := ObjectRef{Kind: "Service", Name: objectName("default/web"), UID: "uid-web"}
	want := []Problem{
		{Object: service, Reason: ReasonBadAnnotation},
		{Object: service, Reason: ReasonDuplicateObject}, // twice in one file
		{Object: ObjectRef{Kind: "ServiceCIDR", Name: objectName("/extra")}, Reason: ReasonUnusableField},
		{Reason: ReasonBadManifest},                      // not YAML
		{Reason: ReasonBadManifest},                      // not an object
		{Object: service, Reason: ReasonDuplicateObject}, // in two files
	}
	r.get(func() {
		got := slices.Clone(r.told)
		for i := range got {
			if got[i].Err == nil {
				t.Errorf("%+v without an error", got[i])
			}
			got[i].Err = nil
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
	})
}
