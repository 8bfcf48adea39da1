// Package changelog reads CHANGELOG.md in the format of keepachangelog.com: a section for each
// version, with lists of changes by kind.
package changelog

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Section has the changes of a version.
type Section struct {
	Version string
	// Date is the date of the release, or empty before it.
	Date string
	// Text is the section without its heading.
	Text    string
	Changes []Change
}

// Change is one entry of a list.
type Change struct {
	Kind        string // one of kinds
	Description string // without line breaks
}

// kinds are the headings of lists.
var kinds = []string{"added", "changed", "deprecated", "removed", "fixed", "security"}

var heading = regexp.MustCompile(`^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$`)

// Find returns the section of a version.
func Find(text, version string) (Section, error) {
	sections, err := parse(text)
	if err != nil {
		return Section{}, fmt.Errorf("CHANGELOG.md: %w", err)
	}
	var versions []string
	for _, section := range sections {
		if section.Version != version {
			versions = append(versions, section.Version)
			continue
		}
		if len(section.Changes) == 0 {
			return Section{}, fmt.Errorf("CHANGELOG.md: section [%s] lists no change: write the changes of the version", version)
		}
		return section, nil
	}
	return Section{}, fmt.Errorf("CHANGELOG.md has no section [%s], only %s: write one with the heading \"## [%s] - YEAR-MONTH-DAY\"",
		version, strings.Join(versions, ", "), version)
}

func parse(text string) ([]Section, error) {
	var sections []Section
	var body strings.Builder
	kind, number := "", 0
	end := func() {
		if len(sections) > 0 {
			sections[len(sections)-1].Text = strings.TrimSpace(body.String()) + "\n"
		}
		body.Reset()
		kind = ""
	}
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimRight(line, " \n")
		if strings.HasPrefix(line, "## ") {
			found := heading.FindStringSubmatch(line)
			if found == nil {
				return nil, fmt.Errorf("line %d: %q: write \"## [VERSION] - YEAR-MONTH-DAY\", or \"## [Unreleased]\"", number, line)
			}
			end()
			sections = append(sections, Section{Version: found[1], Date: found[2]})
			continue
		}
		if len(sections) == 0 {
			continue
		}
		body.WriteString(line + "\n")
		changes := &sections[len(sections)-1].Changes
		item, listed := strings.CutPrefix(line, "- ")
		more, indented := strings.CutPrefix(line, "  ")
		switch name, isKind := strings.CutPrefix(line, "### "); {
		case isKind:
			kind = strings.ToLower(name)
			if !slices.Contains(kinds, kind) {
				return nil, fmt.Errorf("line %d: the heading %q: write one of %s", number, name, strings.Join(kinds, ", "))
			}
		case listed && kind == "":
			return nil, fmt.Errorf("line %d: a change without a heading: write a heading such as \"### Added\" above it", number)
		case listed:
			*changes = append(*changes, Change{Kind: kind, Description: item})
		case indented && len(*changes) > 0:
			last := &(*changes)[len(*changes)-1]
			last.Description += " " + strings.TrimSpace(more)
		}
	}
	end()
	return sections, nil
}
