// Package corefile reads the Corefile of a cluster's DNS server, and adds and removes the line of the plugin vicinity. It has the
// plugins of vicinity-dns.
//
// It uses CoreDNS's lexer and changes whole lines only, so comments and spaces stay. It does not read imported files.
package corefile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coredns/caddy/caddyfile"
)

// Plugins has the plugins of vicinity-dns in the order of a query. It is the order of CoreDNS, except that cache comes after dnssec.
// vicinity is between the two: the cache has the same answers for all clients, and the chosen answers are signed.
var Plugins = []string{
	"root",
	"metadata",
	"cancel",
	"timeouts",
	"multisocket",
	"reload",
	"nsid",
	"bufsize",
	"bind",
	"debug",
	"ready",
	"health",
	"pprof",
	"prometheus",
	"errors",
	"log",
	"local",
	"dns64",
	"any",
	"chaos",
	"loadbalance",
	"tsig",
	"rewrite",
	"autopath",
	"acl",
	"header",
	"dnssec",
	"vicinity",
	"cache",
	"tls",
	"minimal",
	"template",
	"transfer",
	"hosts",
	"k8s_external",
	"kubernetes",
	"file",
	"auto",
	"secondary",
	"loop",
	"forward",
	"erratic",
	"whoami",
	"on",
	"view",
}

// The plugins that the line of vicinity depends on.
const (
	pluginVicinity   = "vicinity"
	pluginKubernetes = "kubernetes"
	importDirective  = "import"
)

// directive is a line of a server block, with the block that follows it.
type directive struct {
	name string
	args []string
	keys []string // of the server block
	// first and last are the directive's lines, from 0.
	first, last int
}

// read returns the directives of all server blocks and snippets, and imports between them.
func read(text string) []*directive {
	var all []*directive
	var current *directive
	var keys []string
	depth, lineBefore := 0, -1
	tokens := caddyfile.NewDispenser("Corefile", strings.NewReader(text))
	for tokens.Next() {
		word, line := tokens.Val(), tokens.Line()-1
		begins := line != lineBefore
		lineBefore = line + strings.Count(word, "\n")
		switch {
		case word == "{":
			depth++
		case word == "}":
			if depth--; depth <= 0 {
				depth, current, keys = 0, nil, nil
			}
		case begins && (depth == 1 || depth == 0 && word == importDirective):
			current = &directive{name: word, keys: keys, first: line}
			all = append(all, current)
		case current != nil && line == current.first:
			current.args = append(current.args, word)
		case depth == 0:
			current, keys = nil, append(keys, word)
		}
		if current != nil {
			current.last = lineBefore
		}
	}
	return all
}

// named returns the directives of a plugin.
func named(all []*directive, plugin string) []*directive {
	return slices.DeleteFunc(all, func(d *directive) bool { return d.name != plugin })
}

// zones returns the zones of a directive, without those of reverse names and the root.
func (d *directive) zones() []string {
	from := d.args
	if len(from) == 0 {
		from = d.keys
	}
	var zones []string
	for _, zone := range from {
		if _, rest, found := strings.Cut(zone, "://"); found {
			zone = rest
		}
		zone, _, _ = strings.Cut(zone, ":")
		zone = strings.Trim(zone, ".,")
		lower := strings.ToLower(zone)
		if zone != "" && !strings.ContainsAny(zone, "/(") && !strings.HasSuffix(lower, "in-addr.arpa") && !strings.HasSuffix(lower, "ip6.arpa") {
			zones = append(zones, zone)
		}
	}
	return zones
}

// Missing returns the plugins of a Corefile that vicinity-dns lacks: it would not start. imports has the files that were not read.
func Missing(text string) (plugins, imports []string) {
	for _, d := range read(text) {
		switch {
		case d.name == importDirective && len(d.args) > 0 && strings.Contains(text, "("+d.args[0]+")"): // a snippet
		case d.name == importDirective:
			imports = append(imports, strings.Join(d.args, " "))
		case !slices.Contains(Plugins, d.name) && !slices.Contains(plugins, d.name):
			plugins = append(plugins, d.name)
		}
	}
	return plugins, imports
}

// Has reports whether a Corefile has the plugin vicinity.
func Has(text string) bool { return len(named(read(text), pluginVicinity)) > 0 }

// Domain returns the first zone of the plugin kubernetes in lower case, such as cluster.local.
func Domain(text string) (string, error) {
	found := named(read(text), pluginKubernetes)
	if len(found) == 0 {
		return "", errors.New("it has no plugin kubernetes in a server block")
	}
	for _, d := range found {
		if zones := d.zones(); len(zones) > 0 {
			return strings.ToLower(zones[0]), nil
		}
	}
	return "", fmt.Errorf("line %d: kubernetes must name the zone of the cluster, such as \"kubernetes cluster.local\"", found[0].first+1)
}

// With returns a Corefile with a line of vicinity before each line of kubernetes that has zones, for the same zones. It returns a
// Corefile that has the plugin unchanged.
func With(text string) string {
	if Has(text) {
		return text
	}
	lines := strings.SplitAfter(text, "\n")
	for _, d := range slices.Backward(named(read(text), pluginKubernetes)) {
		zones := d.zones()
		if len(zones) == 0 {
			continue // vicinity refuses a line without zones
		}
		below := lines[d.first]
		indent := below[:len(below)-len(strings.TrimLeft(below, " \t"))]
		lines = slices.Insert(lines, d.first, indent+pluginVicinity+" "+strings.Join(zones, " ")+"\n")
	}
	return strings.Join(lines, "")
}

// Without returns a Corefile without the lines of vicinity.
func Without(text string) string {
	lines := strings.SplitAfter(text, "\n")
	for _, d := range slices.Backward(named(read(text), pluginVicinity)) {
		lines = slices.Delete(lines, d.first, d.last+1)
	}
	return strings.Join(lines, "")
}
