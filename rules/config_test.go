package rules

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
)

func TestConfigWithDefaults(t *testing.T) {
	want := Config{Families: []Family{IPv4, IPv6}, MasqueradeMark: 0x4000, MaxSlots: 65536}
	if got := (Config{}).WithDefaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("the zero Config stands for %+v, want %+v", got, want)
	}
	set := Config{
		Families:       []Family{IPv6},
		ClusterCIDRs:   []netip.Prefix{netip.MustParsePrefix("fd00::/8")},
		MasqueradeAll:  true,
		MasqueradeMark: 1,
		MaxSlots:       10,
	}
	if got := set.WithDefaults(); !reflect.DeepEqual(got, set) {
		t.Errorf("%+v became %+v", set, got)
	}
}

func TestConfigValidate(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  Config
		want string
	}{
		{"the defaults", Config{}, ""},
		{"ranges of both families", Config{ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}}, ""},
		{"the highest mark", Config{MasqueradeMark: 1 << 31}, ""},
		{"another family", Config{Families: []Family{5}}, "family 5 is neither 4 nor 6"},
		{"a family twice", Config{Families: []Family{IPv4, IPv6, IPv4}}, "family 4 is listed twice"},
		{"a range that is none", Config{ClusterCIDRs: []netip.Prefix{{}}}, "a cluster CIDR is not valid"},
		{"a mark of two bits", Config{MasqueradeMark: 0x4001}, "masquerade mark 0x4001 is not a single bit"},
		{"no slots", Config{MaxSlots: -1}, "at most -1 slots a service port leave no room for an endpoint"},
		{"all at once", Config{Families: []Family{9}, MasqueradeMark: 3}, "family 9 is neither 4 nor 6\nmasquerade mark 0x3 is not a single bit"},
	} {
		got := ""
		if err := c.cfg.Validate(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got error %q, want %q", c.name, got, c.want)
		}
	}
}

func TestConfigEnabled(t *testing.T) {
	cfg := Config{Families: []Family{IPv6}}
	if cfg.Enabled(IPv4) || !cfg.Enabled(IPv6) {
		t.Errorf("of %v, IPv4 is enabled: %t, IPv6: %t", cfg.Families, cfg.Enabled(IPv4), cfg.Enabled(IPv6))
	}
}

// A cluster CIDR is a range of one family, whatever address in it names it.
func TestClusterCIDRsOfAFamily(t *testing.T) {
	cfg := Config{ClusterCIDRs: []netip.Prefix{
		netip.MustParsePrefix("10.1.2.3/8"), netip.MustParsePrefix("fd00::1/8"), netip.MustParsePrefix("172.16.0.0/12"),
	}}
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12")}
	if got := cfg.clusterCIDRs(IPv4); !slices.Equal(got, want) {
		t.Errorf("the IPv4 ranges are %v, want %v", got, want)
	}
}
