package view_test

import (
	"fmt"
	"net/netip"
	"testing"

	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/view"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestExternalIPsAreParsed(t *testing.T) {
	for _, test := range []struct {
		texts []string
		want  compile.ExternalIPs
		err   string
	}{
		{texts: nil, err: `an empty list is not allowed; it must be prefixes such as 203.0.113.0/24, or "all" or "none" alone`},
		{texts: []string{"::ffff:203.0.113.0/120"}, err: `"::ffff:203.0.113.0/120" is not allowed; IPv4 addresses must be in the notation of IPv4, such as 203.0.113.0/24`},
		{texts: []string{"all"}},
		{texts: []string{"none"}, want: compile.ExternalIPs{None: true}},
		{texts: []string{"203.0.113.9/24", "2001:db8::/32"}, want: compile.ExternalIPs{Prefixes: prefixes("203.0.113.0/24", "2001:db8::/32")}},
		{texts: []string{"none", "203.0.113.0/24"}, err: `"none" is not allowed together with others`},
		{texts: []string{"203.0.113.0/24", "all"}, err: `"all" is not allowed together with others`},
		{texts: []string{"203.0.113.1"}, err: `"203.0.113.1" is not allowed; it must be a prefix such as 203.0.113.0/24, or "all" or "none" alone`},
		{texts: []string{"All"}, err: `"All" is not allowed; it must be a prefix such as 203.0.113.0/24, or "all" or "none" alone`},
	} {
		got, err := view.ParseExternalIPs(test.texts)
		if fmt.Sprint(got) != fmt.Sprint(test.want) || (err == nil) != (test.err == "") || err != nil && err.Error() != test.err {
			t.Errorf("%q: %v, %v, want %v, %s", test.texts, got, err, test.want, test.err)
		}
	}
}
