package conventions_test

import (
	"strings"
	"testing"
)

// layers are the parts of the project, the lowest layer first. A part is a folder
// with all below it. It may import itself and the parts of lower layers; parts of
// one layer do not know each other, so nothing imports a command and no shell
// imports another.
var layers = [][]string{
	{"api", "charts", "internal/built", "internal/command", "internal/version"},
	{"internal/lifecycle", "internal/topology", "internal/plaintext", "internal/netset", "internal/kubeproxy", "internal/podcache"},
	{"internal/endpoint"},
	{"internal/allocate", "internal/disruption", "internal/rollout", "internal/spread", "internal/locate", "internal/kube"},
	{"internal/simulate", "internal/location"},
	{"internal/explain"},
	{"internal/report"},
	{"internal/translate", "internal/coverage"},
	{"internal/capacity"},
	{"internal/routing"},
	{"internal/routingflags"},
	// What a node's rules are, as the proxy makes them and as the command line explains
	// them, and what the DNS server answers.
	{"internal/proxy/ruleset", "internal/proxy/netlink"},
	{"internal/proxy/compile", "internal/proxy/kernel", "internal/names"},
	{"internal/proxy/view"},
	{"internal/inspect", "internal/convert", "internal/reservation", "internal/proxy/proxyflags"},
	{"internal/requester", "internal/pacing"},
	// A shell that the command line starts, with readers of its own.
	{"internal/console"},
	{"internal/controller", "internal/webhook", "internal/proxy", "plugin", "internal/cli"},
	{"cmd", "test"},
	{"lab", "monitoring"},
}

// place finds the part that a package belongs to, and its layer.
func place(path string) (part string, layer int, ok bool) {
	for layer, parts := range layers {
		for _, part := range parts {
			if within(path, part) {
				return part, layer, true
			}
		}
	}
	return "", 0, false
}

// within reports whether a package is in a folder or below it.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

func TestImportsFollowTheDesign(t *testing.T) {
	for _, p := range list(t) {
		if !ours(p.ImportPath) {
			continue
		}
		part, layer, ok := place(p.path())
		if !ok {
			t.Errorf("%s has no place in the layers: give it one in test/conventions", p.path())
			continue
		}
		for _, imported := range p.Imports {
			if !ours(imported) {
				continue
			}
			path := pkg{ImportPath: imported}.path()
			// A package without a place is a violation of its own.
			other, lower, ok := place(path)
			switch {
			case !ok || other == part:
			case lower == layer:
				t.Errorf("%s imports %s: the two must not know each other", p.path(), path)
			case lower > layer:
				t.Errorf("%s imports %s: imports run the other way", p.path(), path)
			}
		}
	}
}
