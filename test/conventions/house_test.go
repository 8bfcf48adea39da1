package conventions_test

import (
	"strings"
	"testing"
)

// kind decides what a package may do and import. A package imports packages of lower kinds, and of its
// own kind as the comments say.
type kind int

const (
	// wire is the types of the API.
	wire kind = iota
	// ground is pure, and imports only the standard library and ground.
	ground
	// front decides for a room. It is pure, and also imports API types, ground and other fronts.
	front
	// kit is shared by back doors and views: clients, libraries, flags. It also imports kit.
	kit
	// judge is a view that is as pure as a front.
	judge
	// door is a back door of a room: it reads, calls and writes. It imports only doors of its own
	// room.
	door
	// view prints. It imports other views, but no door.
	view
	// wiring is a program.
	wiring
	// checks import everything but the lab.
	checks
	// laboratory imports everything.
	laboratory
)

var kindNames = [...]string{"wire", "ground", "front", "kit", "judge", "door", "view", "wiring", "checks", "laboratory"}

func (k kind) String() string { return kindNames[k] }

// house has the kind of each package: the kind of the longest folder here that contains it.
var house = map[string]kind{
	"api":    wire,
	"charts": wire,

	"internal/topology": ground,
	"internal/allocate": ground,
	"internal/simulate": ground,

	"internal/endpoint": front,

	"internal/routing":              front,
	"internal/routing/capacity":     kit, // evaluates CEL
	"internal/routing/routingflags": kit,
	"internal/routing/controller":   door,
	"internal/routing/webhook":      door,

	"internal/proxy":            door,
	"internal/proxy/compile":    front,
	"internal/proxy/ruleset":    front,
	"internal/proxy/nodenet":    front,
	"internal/proxy/view":       front,
	"internal/proxy/proxyflags": kit,
	"internal/proxy/netlink":    kit,
	"internal/proxy/kernel":     kit, // the command line reads a node's rules

	"internal/names":             front,
	"internal/names/corefile":    kit, // reads with CoreDNS's lexer
	"internal/names/coreplugins": kit,
	"internal/names/controller":  door,
	"plugin":                     door,

	"internal/disruption":             front,
	"internal/disruption/reservation": kit, // every evicting controller uses the ledger
	"internal/disruption/requester":   kit, // every evicting controller uses it
	"internal/disruption/controller":  door,
	"internal/disruption/responder":   door,
	"internal/disruption/webhook":     door,

	"internal/rollout":            front,
	"internal/rollout/controller": door,

	"internal/shift":            front,
	"internal/shift/controller": door,

	"internal/scaledown":        door,
	"internal/scaledown/spread": front,

	"internal/kit":           kit,
	"internal/kit/bools":     ground,
	"internal/kit/plaintext": ground,

	"internal/inspect": judge,
	"internal/report":  view,
	"internal/console": view,
	"internal/cli":     view,

	"cmd":        wiring,
	"test":       checks,
	"lab":        laboratory,
	"monitoring": laboratory,
}

// kindOf returns the kind of a package.
func kindOf(path string) (kind, bool) {
	for folder := path; ; {
		if k, ok := house[folder]; ok {
			return k, true
		}
		i := strings.LastIndexByte(folder, '/')
		if i < 0 {
			return 0, false
		}
		folder = folder[:i]
	}
}

// roomOf returns the folder of a package's room.
func roomOf(path string) string {
	parts := strings.SplitN(path, "/", 3)
	return strings.Join(parts[:min(len(parts), 2)], "/")
}

// within reports whether a package is in or below a folder.
func within(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// mayImport reports whether a package may import another package of the project.
func mayImport(from, to string) bool {
	importer, _ := kindOf(from)
	imported, ok := kindOf(to)
	switch {
	case !ok: // reported on its own
		return true
	case importer == door && imported == door, importer == wiring && imported == wiring:
		return roomOf(from) == roomOf(to)
	case importer == door && imported == judge, importer == view && imported == door:
		return false
	}
	return imported <= importer
}

// TestImportsFollowTheHouse also fails for an entry of house without a package.
func TestImportsFollowTheHouse(t *testing.T) {
	packages := list(t)
	used := map[string]bool{}
	for _, p := range packages {
		if !ours(p.ImportPath) {
			continue
		}
		k, ok := kindOf(p.path())
		if !ok {
			t.Errorf("%s has no kind: give it one in house, in test/conventions", p.path())
			continue
		}
		for folder := range house {
			used[folder] = used[folder] || within(p.path(), folder)
		}
		for _, imported := range p.Imports {
			path := pkg{ImportPath: imported}.path()
			if ours(imported) && !mayImport(p.path(), path) {
				other, _ := kindOf(path)
				t.Errorf("%s (%s) imports %s (%s)", p.path(), k, path, other)
			}
		}
	}
	for folder := range house {
		if !used[folder] {
			t.Errorf("house has %s, which has no package", folder)
		}
	}
}
