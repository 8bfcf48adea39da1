package changelog

import (
	"os"
	"strings"
	"testing"
)

const example = `# Changelog

Words before the first section.

## [Unreleased]

### Added

- What comes next.

## [0.2.0] - 2026-03-04

In short: it is better.

### Added

- One thing, written
  on two lines.
- Another.

### Security

- A hole is closed.

## [0.1.0]
`

func TestFind(t *testing.T) {
	got, err := Find(example, "0.2.0")
	if err != nil {
		t.Fatal(err)
	}
	if got.Date != "2026-03-04" || !strings.HasPrefix(got.Text, "In short: it is better.\n\n### Added\n") || !strings.HasSuffix(got.Text, "- A hole is closed.\n") {
		t.Errorf("got %+v", got)
	}
	if _, err := Find(example, "0.1.0"); err == nil || !strings.Contains(err.Error(), "lists no change") {
		t.Errorf("a section without a change: %v", err)
	}
}

// The project's changelog must have the format that a release needs.
func TestOwnChangelogIsRead(t *testing.T) {
	text, err := os.ReadFile("../../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Find(string(text), "0.1.0"); err != nil {
		t.Error(err)
	}
}
