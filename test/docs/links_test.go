package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`) // not part of an anchor
)

// documents returns README.md, CONTRIBUTING.md, SECURITY.md and all pages below docs, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".md") {
			return err
		}
		name, err := filepath.Rel(root, path)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, name := range names {
		all[name] = text(t, name)
	}
	return all
}

// prose returns a document without its blocks of code.
func prose(document string) string {
	var b strings.Builder
	fenced := false
	for line := range strings.Lines(document) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		} else if !fenced {
			b.WriteString(line)
		}
	}
	return b.String()
}

// anchors returns the link names of a document's headings.
func anchors(document string) []string {
	var all []string
	for _, match := range heading.FindAllStringSubmatch(prose(document), -1) {
		all = append(all, strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-"))
	}
	return all
}

// dangling returns the links of a document that lead nowhere. It does not check other sites.
func dangling(name, document string, all map[string]string) []string {
	var dead []string
	for _, match := range link.FindAllStringSubmatch(prose(document), -1) {
		place, anchor, anchored := strings.Cut(match[1], "#")
		if strings.Contains(place, "://") {
			continue
		}
		target := name
		if place != "" {
			target = filepath.ToSlash(filepath.Join(filepath.Dir(name), place))
		}
		text, known := all[target]
		_, err := os.Stat(filepath.Join(root, target))
		switch {
		case !known && err != nil, anchored && !slices.Contains(anchors(text), anchor):
			dead = append(dead, match[1])
		}
	}
	return dead
}

func TestLinksAreValid(t *testing.T) {
	all := documents(t)
	for name, document := range all {
		for _, dead := range dangling(name, document, all) {
			t.Errorf("%s links to %s, which does not exist", name, dead)
		}
	}
}
