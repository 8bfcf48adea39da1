// Package licences finds the licences and notices of the modules in the shipped programs, for Linux on
// amd64 and arm64. It refuses a licence that is not allowed, an unknown text, and a module without a
// licence.
package licences

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// Notices returns the texts that must accompany the programs of a repository.
func Notices(root string) (string, error) {
	all, err := dependencies(root)
	if err != nil {
		return "", err
	}
	var faults []error
	for _, d := range all {
		faults = append(faults, d.check())
	}
	if err := errors.Join(faults...); err != nil {
		return "", err
	}
	return texts(all), nil
}

// platforms are those of the shipped programs.
var platforms = []string{"amd64", "arm64"}

// dependency is a module with parts in shipped programs.
type dependency struct {
	Module, Version string
	Programs        []string
	Files           []file

	unknown []error // texts that were not recognized
}

// file is a text of a module.
type file struct {
	Name, Text string // path in the module
	// Licences are those in the text; a notice has none.
	Licences []string
}

// listed is a package in the output of the go command.
type listed struct {
	ImportPath, Dir, Name string
	Standard              bool
	Deps                  []string
	Module                *struct {
		Path, Version, Dir string
		Main               bool
	}
}

// goRoot is the name of the standard library as a module.
const goRoot = "the Go standard library"

// dependencies returns the modules in the programs of ./cmd, sorted.
func dependencies(root string) ([]*dependency, error) {
	all := map[string]*dependency{}
	folders := map[*dependency]map[string]string{} // module folders, by package folder
	for _, platform := range platforms {
		packages, err := list(root, platform)
		if err != nil {
			return nil, err
		}
		for _, program := range packages {
			if program.Name != "main" || program.Module == nil || !program.Module.Main {
				continue
			}
			for _, of := range append([]string{program.ImportPath}, program.Deps...) {
				p := packages[of]
				if p == nil || p.Module != nil && p.Module.Main || p.Module == nil && !p.Standard {
					continue
				}
				module, version, dir := goRoot, "", ""
				if p.Module != nil {
					module, version, dir = p.Module.Path, p.Module.Version, p.Module.Dir
				}
				d := all[module]
				if d == nil {
					d = &dependency{Module: module, Version: version}
					all[module], folders[d] = d, map[string]string{}
				}
				if name := path.Base(program.ImportPath); !slices.Contains(d.Programs, name) {
					d.Programs = append(d.Programs, name)
				}
				if dir != "" {
					folders[d][p.Dir] = dir
				}
			}
		}
	}
	var sorted []*dependency
	for _, d := range all {
		slices.Sort(d.Programs)
		if d.Module == goRoot {
			dir, err := exec.Command("go", "env", "GOROOT").Output()
			if err != nil {
				return nil, fmt.Errorf("finding the standard library: %w", err)
			}
			at := strings.TrimSpace(string(dir))
			folders[d] = map[string]string{at: at}
		}
		if err := d.read(folders[d]); err != nil {
			return nil, err
		}
		sorted = append(sorted, d)
	}
	slices.SortFunc(sorted, func(a, b *dependency) int {
		return strings.Compare(strings.ToLower(a.Module), strings.ToLower(b.Module))
	})
	return sorted, nil
}

// list returns all packages of the programs by path.
func list(root, platform string) (map[string]*listed, error) {
	command := exec.Command("go", "list", "-deps", "-json=ImportPath,Dir,Name,Standard,Deps,Module", "./cmd/...")
	command.Dir = root
	command.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+platform, "CGO_ENABLED=0")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages for linux/%s: %w: %s", platform, err, stderr.String())
	}
	packages := map[string]*listed{}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		p := new(listed)
		switch err := decoder.Decode(p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, fmt.Errorf("reading the list of packages: %w", err)
		}
		packages[p.ImportPath] = p
	}
}

// Licences and notices that must accompany a module.
var (
	licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|unlicense)([.-].*)?$`)
	noticeFile  = regexp.MustCompile(`(?i)^(notice|patents)([.].*)?$`)
	codeFile    = regexp.MustCompile(`[.](go|s|py|sh|tmpl)$`)
)

// read reads the texts in the folders of packages and above, up to the folder of the module: a part of
// a module can have its own licence.
func (d *dependency) read(folders map[string]string) error {
	seen := map[string]bool{}
	for folder, module := range folders {
		for at := folder; !seen[at]; at = filepath.Dir(at) {
			seen[at] = true
			entries, err := os.ReadDir(at)
			if err != nil {
				return fmt.Errorf("reading %s: %w", d.Module, err)
			}
			for _, entry := range entries {
				name := entry.Name()
				isLicence := licenceFile.MatchString(name)
				if entry.IsDir() || codeFile.MatchString(name) || !isLicence && !noticeFile.MatchString(name) {
					continue
				}
				if err := d.add(module, filepath.Join(at, name), isLicence); err != nil {
					return err
				}
			}
			if at == module {
				break
			}
		}
	}
	slices.SortFunc(d.Files, func(a, b file) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

func (d *dependency) add(module, at string, isLicence bool) error {
	name, err := filepath.Rel(module, at)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(at)
	if err != nil {
		return fmt.Errorf("reading %s of %s: %w", name, d.Module, err)
	}
	f := file{Name: filepath.ToSlash(name), Text: string(text)}
	if isLicence {
		if f.Licences, err = classify(text); err != nil {
			d.unknown = append(d.unknown, fmt.Errorf("%s of %s %s (%s): %w. Use another module, or read the licence and add it to hack/release/licences",
				f.Name, d.Module, d.Version, at, err))
		}
	}
	d.Files = append(d.Files, f)
	return nil
}

func (d *dependency) licences() []string {
	var names []string
	for _, f := range d.Files {
		names = append(names, f.Licences...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// check returns an error if a module may not be shipped.
func (d *dependency) check() error {
	if len(d.unknown) > 0 {
		return errors.Join(d.unknown...)
	}
	names := d.licences()
	if len(names) == 0 {
		return fmt.Errorf("%s %s has no licence file, so it may not be distributed", d.Module, d.Version)
	}
	no := slices.DeleteFunc(names, func(name string) bool { return slices.Contains(allowed, name) })
	if len(no) > 0 {
		return fmt.Errorf("%s %s is under %s; allowed are %s. Use another module, or propose to allow the licence in hack/release/licences",
			d.Module, d.Version, strings.Join(no, ", "), strings.Join(allowed, ", "))
	}
	return nil
}

// allowed are the SPDX names of licences for parts of shipped programs. All of them allow distribution
// under the Apache License 2.0 with their texts. MPL-2.0 also requires that the source of its files is
// available, which an unchanged module of the Go proxy is.
var allowed = []string{"0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MPL-2.0", "Unlicense"}

// leastKnown is the least percentage of a text that must match licences. The rest are titles and file
// names. pkg.go.dev has the same limit.
const leastKnown = 75

// classify returns the SPDX names of the licences in a text.
func classify(text []byte) (names []string, err error) {
	found := licensecheck.Scan(text)
	if found.Percent < leastKnown {
		return nil, fmt.Errorf("only %.0f %% of it is a known licence; at least %d %% must be", found.Percent, leastKnown)
	}
	for _, match := range found.Match {
		if !slices.Contains(names, match.ID) {
			names = append(names, match.ID)
		}
	}
	return names, nil
}

// texts returns the licences and notices of all modules, without duplicates in a module.
func texts(all []*dependency) string {
	var b strings.Builder
	b.WriteString("The programs of Vicinity have parts of the following modules, each under the texts below its name.\n")
	for _, d := range all {
		for _, f := range d.Files {
			title := strings.TrimSpace(d.Module + " " + d.Version)
			fmt.Fprintf(&b, "\n%s\n%s: %s\n%[1]s\n\n%[4]s\n", strings.Repeat("=", 80), title, f.Name, strings.TrimSpace(f.Text))
		}
	}
	return b.String()
}
