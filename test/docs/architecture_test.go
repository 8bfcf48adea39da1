package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// place matches a file or folder of the repository, in backquotes or in the picture.
var place = regexp.MustCompile(`\b(?:api|charts|cmd|docs|internal|lab|monitoring|test)/[A-Za-z0-9_./-]*[A-Za-z0-9]`)

// Each file and folder that docs/architecture.md names exists.
func TestArchitecture(t *testing.T) {
	found := place.FindAllString(text(t, "docs/architecture.md"), -1)
	if len(found) < 30 {
		t.Fatalf("docs/architecture.md names %d files and folders, want at least 30", len(found))
	}
	for _, name := range found {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Errorf("docs/architecture.md names %s, which does not exist", name)
		}
	}
}
