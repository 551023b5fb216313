package syncer

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/rules"
)

// TestCount: which messages are about our tables, and what they say.
func TestCount(t *testing.T) {
	const ip, ip6 = unix.NFPROTO_IPV4, unix.NFPROTO_IPV6
	four := []rules.Family{rules.IPv4}
	const destroySetElem = 30 // NFT_MSG_DESTROYSETELEM
	for name, test := range map[string]struct {
		message []byte
		want    ForeignChange
	}{
		"table added":       {notification(unix.NFT_MSG_NEWTABLE, 1, ip, "nftproxy"), ForeignChange{Families: four, Added: 1}},
		"table deleted":     {notification(unix.NFT_MSG_DELTABLE, 1, ip, "nftproxy"), ForeignChange{Families: four, Deleted: 1}},
		"chain added":       {notification(unix.NFT_MSG_NEWCHAIN, 1, ip6, "nftproxy"), ForeignChange{Families: []rules.Family{rules.IPv6}, Added: 1}},
		"rule added":        {notification(unix.NFT_MSG_NEWRULE, 1, ip, "nftproxy"), ForeignChange{Families: four, Added: 1}},
		"set added":         {notification(unix.NFT_MSG_NEWSET, 1, ip, "nftproxy"), ForeignChange{Families: four, Added: 1}},
		"element added":     {notification(unix.NFT_MSG_NEWSETELEM, 1, ip, "nftproxy"), ForeignChange{Families: four, Added: 1}},
		"counter added":     {notification(unix.NFT_MSG_NEWOBJ, 1, ip, "nftproxy"), ForeignChange{Families: four, Added: 1}},
		"flowtable added":   {notification(unix.NFT_MSG_NEWFLOWTABLE, 1, ip, "nftproxy"), ForeignChange{Families: four, Added: 1}},
		"element deleted":   {notification(unix.NFT_MSG_DELSETELEM, 1, ip, "nftproxy"), ForeignChange{Families: four, Deleted: 1}},
		"element destroyed": {notification(destroySetElem, 1, ip, "nftproxy"), ForeignChange{Families: four, Deleted: 1}},
		"another family":    {notification(unix.NFT_MSG_NEWRULE, 1, unix.NFPROTO_INET, "nftproxy"), ForeignChange{}},
		"a longer name":     {notification(unix.NFT_MSG_NEWRULE, 1, ip, "nftproxy-probe"), ForeignChange{}},
		"a shorter name":    {notification(unix.NFT_MSG_NEWRULE, 1, ip, "nft"), ForeignChange{}},
		"no name":           {finish(appendRequest(nil, unix.NFNL_SUBSYS_NFTABLES<<8, 0, 0, ip)), ForeignChange{}},
		"another subsystem": {finish(appendAttr(appendRequest(nil, ctMessageNew, 0, 0, ip), 1, []byte("nftproxy\x00")...)), ForeignChange{}},
	} {
		t.Run(name, func(t *testing.T) {
			m, rest, err := cutMessage(test.message)
			if err != nil || len(rest) > 0 {
				t.Fatalf("%q, %v", rest, err)
			}
			var got ForeignChange
			if isOurs(m) {
				count(&got, m)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestParseGeneration: a kernel may say less.
func TestParseGeneration(t *testing.T) {
	whole := generation(1, 1234, "fifteen-letters")[headerBytes:]
	if pid, process := parseGeneration(whole); pid != 1234 || process != "fifteen-letters" {
		t.Errorf("%d %q", pid, process)
	}
	for n := range whole[:len(whole)-16] {
		if pid, process := parseGeneration(whole[:n]); pid != 0 && pid != 1234 || process != "" {
			t.Errorf("of %d bytes: %d %q", n, pid, process)
		}
	}
}

// TestFilter: what comes from our sockets is dropped, new generations and everything
// else is not.
func TestFilter(t *testing.T) {
	ports := []uint32{ourPort, otherPort, 1, 1<<32 - 1}
	for n := range len(ports) + 1 {
		vm, err := bpf.NewVM(ignoring(ports[:n]))
		if err != nil {
			t.Fatal(err)
		}
		for i, port := range append(ports, strangersPort, 0) {
			messages := append(element(port), element(port)...)
			if got, err := vm.Run(messages); err != nil || (got == 0) != (i < n) {
				t.Errorf("with %v: %d bytes of port ID %d, %v", ports[:n], got, port, err)
			}
			if got, err := vm.Run(generation(port, 1, "nft")); err != nil || got == 0 {
				t.Errorf("with %v: %d bytes of a generation of port ID %d, %v", ports[:n], got, port, err)
			}
		}
	}
	many := make([]uint32, 1000)
	for i := range many {
		many[i] = rand.Uint32()
	}
	if _, err := bpf.Assemble(ignoring(many)); err != nil {
		t.Error(err)
	}
}

// FuzzNotifications: whatever is received, reading it ends well, and only whole
// messages about our tables are told.
func FuzzNotifications(f *testing.F) {
	f.Add(append(element(strangersPort), generation(strangersPort, 99, "nft")...))
	f.Add(append(element(ourPort), generation(ourPort, 99, "nftproxy")...))
	f.Add(notification(unix.NFT_MSG_DELTABLE, strangersPort, unix.NFPROTO_IPV6, "nftproxy"))
	f.Add([]byte("no message"))
	f.Fuzz(func(t *testing.T, part []byte) {
		told := 0
		feed := &fakeFeed{sockets: map[uint32]int{ourPort: 7}}
		w := watch{feed: feed, Monitor: &Monitor{
			ports: ownPorts{list: feed.listPorts, at: feed.portAt},
			foreign: func(c ForeignChange) {
				told += c.Added + c.Deleted
				if len(c.Families) == 0 || len(c.Families) > 2 || c.Added+c.Deleted == 0 || c.Process == "" && c.PID < 0 {
					t.Errorf("%+v", c)
				}
			},
			lost: func() { t.Error("lost") },
		}}
		if err := w.learn(); err != nil {
			t.Fatal(err)
		}
		_ = w.read(part) // what it said is not whole then
		if told*(headerBytes+nfgenmsgBytes+2+len(tableAttr)) > len(part) {
			t.Errorf("%d objects in %d bytes", told, len(part))
		}
	})
}
