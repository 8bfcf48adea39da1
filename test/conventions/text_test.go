package conventions_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// stains are patterns that no text of the project may match. They are written so that they do not
// match themselves.
var stains = []struct {
	pattern *regexp.Regexp
	why     string
}{
	{regexp.MustCompile(`(^|[^\w.~)}>])/(home|root|work|Users)/\w`), "a path of one machine means nothing on another"},
	{regexp.MustCompile(`\b(T[O]DO|F[I]XME|X[X]X)\b`), "finish it, or say in words what it does not do"},
	{regexp.MustCompile(`//\s*(no[l]int|lint[:]ignore)|#no[s]ec`), "mend the code instead of the linter"},
}

// isClean fails for each stain in a text of the project.
func isClean(t *testing.T, name, text string) {
	t.Helper()
	n := 0
	for line := range strings.Lines(text) {
		n++
		for _, stain := range stains {
			if found := stain.pattern.FindString(line); found != "" {
				t.Errorf("%s:%d: %q: %s", name, n, strings.TrimSpace(found), stain.why)
			}
		}
	}
}

func TestTextsAreClean(t *testing.T) {
	forEachText(t, func(name, text string) { isClean(t, name, text) })
}

// forEachText visits every text file of the repository.
func forEachText(t *testing.T, visit func(name, text string)) {
	t.Helper()
	texts := 0
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
		// Git and the go command write .git, which is a file in a worktree, and the checksums of
		// modules.
		if !entry.Type().IsRegular() || name == ".git" || strings.HasSuffix(name, ".sum") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if utf8.Valid(text) {
			texts++
			visit(filepath.ToSlash(name), string(text))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if texts == 0 {
		t.Error("the repository holds no text")
	}
}
