// Package changelog reads CHANGELOG.md in the format of keepachangelog.com: a section for each
// version.
package changelog

import (
	"fmt"
	"regexp"
	"strings"
)

// Section has the changes of a version.
type Section struct {
	// Date is the date of the release, or empty before it.
	Date string
	// Text is the section without its heading.
	Text string
}

var heading = regexp.MustCompile(`(?m)^## \[([^\]]+)\](?: - (\d{4}-\d{2}-\d{2}))?$`)

// Find returns the section of a version.
func Find(text, version string) (Section, error) {
	var versions []string
	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		if found[1] != version {
			versions = append(versions, found[1])
			continue
		}
		_, body, _ := strings.Cut(text, found[0]+"\n")
		body, _, _ = strings.Cut(body, "\n## ")
		if !strings.Contains(body, "\n- ") {
			return Section{}, fmt.Errorf("CHANGELOG.md: section [%s] lists no change: write the changes of the version", version)
		}
		return Section{Date: found[2], Text: strings.TrimSpace(body) + "\n"}, nil
	}
	return Section{}, fmt.Errorf("CHANGELOG.md has no section [%s], only %s: write one with the heading \"## [%s] - YEAR-MONTH-DAY\"",
		version, strings.Join(versions, ", "), version)
}
