package vicinity

import (
	"net/netip"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/caddy/caddyfile"
	"github.com/coredns/coredns/core/dnsserver"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		text string
		err  string // part of it, empty if it is right
		want func(o *options)
	}{
		{text: "vicinity cluster.local", want: func(*options) {}},
		{text: "vicinity Cluster.Local. in-addr.arpa ip6.arpa", want: func(*options) {}},
		{text: "vicinity cluster.local other.test", want: func(o *options) { o.zones = append(o.zones, "other.test.") }},
		{text: "vicinity cluster.local {\nttl 0\n}", want: func(o *options) { o.ttl = 0 }},
		{text: "vicinity cluster.local {\nttl 3600\nplan\n}", want: func(o *options) { o.ttl, o.plan = 3600, true }},
		{
			text: "vicinity cluster.local {\nclient_subnet 10.0.0.53 fd00::/64\nclient_subnet 10.1.0.9/16 ::ffff:10.2.0.0/112\n}",
			want: func(o *options) {
				o.subnetSources = []netip.Prefix{netip.MustParsePrefix("10.0.0.53/32"), netip.MustParsePrefix("fd00::/64"), netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.0/16")}
			},
		},
		{text: "vicinity cluster.local {\nkubeconfig /k here\n}", want: func(o *options) { o.apiServer = apiServer{"/k", "here"} }},
		{text: "vicinity cluster.local {\nstartup_timeout 1m\n}", want: func(o *options) { o.startupTimeout = time.Minute }},

		{text: "vicinity", err: "the zone of the cluster is missing"},
		{text: "vicinity .", err: "the zone of the cluster is missing"},
		{text: "vicinity in-addr.arpa", err: "the zone of the cluster is missing"},
		{text: "vicinity cluster.local\nvicinity cluster.local", err: "once"},
		{text: "vicinity cluster.local {\nttl\n}", err: "ttl : it must have one number of seconds"},
		{text: "vicinity cluster.local {\nttl 1 2\n}", err: "ttl 1 2: it must have one number of seconds"},
		{text: "vicinity cluster.local {\nttl x\n}", err: `ttl "x": it must be a number of seconds from 0 to 3600`},
		{text: "vicinity cluster.local {\nttl -1\n}", err: `ttl "-1": it must be a number of seconds from 0 to 3600`},
		{text: "vicinity cluster.local {\nttl 3601\n}", err: `ttl "3601": it must be`},
		{text: "vicinity cluster.local {\nplan b\n}", err: "plan b: it must have no arguments"},
		{text: "vicinity cluster.local {\nclient_subnet\n}", err: "client_subnet: it must have the addresses or ranges"},
		{text: "vicinity cluster.local {\nclient_subnet ten\n}", err: `client_subnet "ten": it must be an address`},
		{text: "vicinity cluster.local {\nkubeconfig\n}", err: "kubeconfig : it must have a file and at most one context"},
		{text: "vicinity cluster.local {\nkubeconfig a b c\n}", err: "it must have a file and at most one context"},
		{text: "vicinity cluster.local {\nstartup_timeout soon\n}", err: `startup_timeout "soon": it must be a duration such as 5s`},
		{text: "vicinity cluster.local {\nstartup_timeout -1s\n}", err: `startup_timeout "-1s"`},
		{text: "vicinity cluster.local {\nzonal\n}", err: `unknown directive "zonal": allowed are client_subnet, kubeconfig, plan, startup_timeout and ttl`},
	} {
		_, o, err := parse(caddy.NewTestController("dns", tt.text))
		switch {
		case tt.err == "" && err != nil:
			t.Errorf("%s: %v", tt.text, err)
		case tt.err == "":
			want := &options{zones: []string{"cluster.local."}, ttl: 5, startupTimeout: 5 * time.Second}
			tt.want(want)
			if !reflect.DeepEqual(o, want) {
				t.Errorf("%s: got %+v, want %+v", tt.text, o, want)
			}
		case err == nil || !strings.Contains(err.Error(), tt.err):
			t.Errorf("%s: got %v, want %q", tt.text, err, tt.err)
		}
	}
}

func TestOrder(t *testing.T) {
	for order, want := range map[string]string{
		"errors dnssec vicinity cache kubernetes": "",
		"vicinity kubernetes":                     "",
		"cache vicinity kubernetes":               "built with cache before vicinity: clients would get answers for other clients",
		"kubernetes vicinity cache":               "built with kubernetes before vicinity",
		"vicinity dnssec cache":                   "built with vicinity before dnssec: answers would be signed before they are chosen",
	} {
		err := checkOrder(strings.Fields(order))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v", order, err)
		}
	}
}

// The Corefiles of the README and of the documents are valid.
func TestExamples(t *testing.T) {
	fenced := regexp.MustCompile("(?ms)^ *(?:~~~|```) ?corefile\n(.*?)^ *(?:~~~|```)$")
	found := 0
	for _, file := range []string{"README.md", "../../docs/dns.md"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, example := range fenced.FindAllStringSubmatch(string(text), -1) {
			blocks, err := caddyfile.Parse("Corefile", strings.NewReader(example[1]), append(slices.Clone(dnsserver.Directives), pluginName))
			if err != nil {
				t.Errorf("%s: %v in\n%s", file, err, example[1])
				continue
			}
			for _, block := range blocks {
				tokens, ok := block.Tokens[pluginName]
				if !ok {
					continue
				}
				found++
				var keys []string
				for _, key := range block.Keys {
					name, _, _ := strings.Cut(key, ":")
					keys = append(keys, name)
				}
				c := &caddy.Controller{Dispenser: caddyfile.NewDispenserTokens("Corefile", tokens), ServerBlockKeys: keys}
				if _, _, err := parse(c); err != nil {
					t.Errorf("%s: %v in\n%s", file, err, example[1])
				}
			}
		}
	}
	if found < 4 {
		t.Errorf("%d examples with the plugin were found", found)
	}
}

// An accepted block makes a server that answers by the Corefile. Other blocks are refused with a reason.
func FuzzCorefile(f *testing.F) {
	for _, text := range []string{
		"vicinity cluster.local", "vicinity cluster.local {\n ttl 30\n plan\n client_subnet 10.0.0.0/24 ::ffff:10.0.0.1 fd00::/8\n}", "vicinity", "vicinity . {\n}", "vicinity a {\n ttl -1\n}",
		"vicinity a {\n startup_timeout 9999999h\n}", "vicinity a\nvicinity b", "vicinity 10.0.0.0/8 a", "vicinity \x00 {",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c := caddy.NewTestController("dns", text)
		v, o, err := parse(c)
		if err != nil {
			if v != nil || o != nil {
				t.Fatalf("%+v in spite of %v", o, err)
			}
			return
		}
		if v.ttl > maxTTL || o.startupTimeout < 0 || len(o.zones) == 0 {
			t.Fatalf("accepted %+v", o)
		}
		for _, zone := range v.zones {
			if !strings.HasSuffix(zone, ".") || zone == "." {
				t.Fatalf("the zone is %q", zone)
			}
		}
		for _, source := range v.subnetSources {
			if !source.IsValid() || source != source.Masked() || source.Addr().Is4In6() {
				t.Fatalf("the source is %s", source)
			}
		}
	})
}
