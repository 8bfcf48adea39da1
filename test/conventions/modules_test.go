package conventions_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// apart has the module files that may require other versions, with the reason.
var apart = map[string]string{
	"hack/tools/go.mod":            "each tool is built with the libraries that its authors chose, and the project links none of them",
	"lab/kubernetes/oldest.mod":    "an older release of Kubernetes comes with older libraries",
	"test/consumers/calico/go.mod": "Calico is tried as its authors build it",
	"test/consumers/cilium/go.mod": "Cilium is tried as its authors build it",
}

// required maps modules to the versions that a module file compiles.
type required map[string]string

// haveOneVersion fails for modules that files require in different versions, since each version is
// compiled. It also fails for files in apart that do not differ.
func haveOneVersion(t *testing.T, files map[string]required) {
	t.Helper()
	// users has the files that require a module, by version.
	users := map[string]map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if apart[name] != "" {
			continue
		}
		for module, version := range files[name] {
			if users[module] == nil {
				users[module] = map[string][]string{}
			}
			users[module][version] = append(users[module][version], name)
		}
	}
	for _, module := range slices.Sorted(maps.Keys(users)) {
		if len(users[module]) == 1 {
			continue
		}
		var versions []string
		for _, version := range slices.Sorted(maps.Keys(users[module])) {
			versions = append(versions, version+" in "+strings.Join(users[module][version], " and "))
		}
		t.Errorf("%s is compiled more than once: %s", module, strings.Join(versions, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(apart)) {
		differs := false
		for module, version := range files[name] {
			differs = differs || users[module] != nil && users[module][version] == nil
		}
		if !differs {
			t.Errorf("%s is in apart, but requires no different version: remove it", name)
		}
	}
}

// readModuleFile asks the go command for the versions in a module file. The version of a replacement
// by another module is path@version; a replacement by a folder has none.
func readModuleFile(t *testing.T, name string) required {
	t.Helper()
	type version struct{ Path, Version string }
	var file struct {
		Require []version
		Replace []struct{ Old, New version }
	}
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json", name).Output()
	if err != nil {
		t.Fatalf("go mod edit -json %s: %v", name, err)
	}
	if err := json.Unmarshal(out, &file); err != nil {
		t.Fatal(err)
	}
	versions := required{}
	for _, require := range file.Require {
		versions[require.Path] = require.Version
	}
	for _, replace := range file.Replace {
		if _, ok := versions[replace.Old.Path]; !ok {
			continue
		}
		versions[replace.Old.Path] = replace.New.Version
		if replace.New.Version != "" && replace.New.Path != replace.Old.Path {
			versions[replace.Old.Path] = replace.New.Path + "@" + replace.New.Version
		}
	}
	return versions
}

func TestModulesHaveOneVersion(t *testing.T) {
	files := map[string]required{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() && (name == ".git" || name == "bin") {
			return filepath.SkipDir
		}
		if filepath.Ext(name) == ".mod" {
			files[filepath.ToSlash(name)] = readModuleFile(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	haveOneVersion(t, files)
}
