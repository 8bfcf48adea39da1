package main

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/coredns/coredns/core/dnsserver"
)

// pluginsOf are the plugins that a file imports.
func pluginsOf(t *testing.T, path string) (plugins []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range file.Imports {
		if at := strings.Index(one.Path.Value, "/plugin/"); at >= 0 {
			plugins = append(plugins, strings.Trim(one.Path.Value[at:], `"`))
		}
	}
	return plugins
}

// A comparison is of one plugin, so that is the only one in which the programs differ.
func TestPluginsAreThoseOfVicinityDNS(t *testing.T) {
	theirs := pluginsOf(t, "main.go")
	ours := slices.DeleteFunc(pluginsOf(t, "../../cmd/vicinity-dns/plugins.go"), func(name string) bool { return name == "/plugin/vicinity" })
	if len(ours) == 0 || !slices.Equal(theirs, ours) {
		t.Errorf("the plugins are\n%v\nvicinity-dns has\n%v", theirs, ours)
	}
	if slices.Contains(dnsserver.Directives, "vicinity") {
		t.Errorf("the order has the plugin vicinity: %v", dnsserver.Directives)
	}
}
