package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"vicinity.dev/vicinity/test/golden"
)

const (
	referenceFile = "../../docs/reference/controller.md"
	flagsBegin    = "<!-- flags: written by make generate -->\n"
	flagsEnd      = "<!-- end of flags -->\n"
)

// TestReferenceIsCurrent compares the flags in docs/reference/controller.md with the program's; with
// -update it writes them.
func TestReferenceIsCurrent(t *testing.T) {
	for _, name := range []string{"NODE_NAME", "POD_NAMESPACE", "POD_SERVICE_ACCOUNT"} {
		t.Setenv(name, "") // it would change a default
	}
	command := newCommand()
	golden.CompareBetween(t, referenceFile, flagsBegin, flagsEnd,
		fmt.Sprintf("```text\n%s\n\nUsage: %s\n\nFlags:\n%s```\n", command.Long, command.UseLine(), command.Flags().FlagUsages()))
}

func reference(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	checkAdded      = regexp.MustCompile(`Add(?:Healthz|Readyz)Check\("([^"]+)"`)
	checkDocumented = regexp.MustCompile("(?m)^\\| `/(?:healthz|readyz)/([^`]+)` \\|")
)

// TestChecksAreDocumented compares the checks behind /healthz and /readyz with the
// table of the reference.
func TestChecksAreDocumented(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var added []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		added = append(added, firstGroups(checkAdded, string(source))...)
	}
	documented := firstGroups(checkDocumented, reference(t))
	slices.Sort(added)
	slices.Sort(documented)
	if len(added) == 0 || !slices.Equal(added, documented) {
		t.Errorf("the checks are %q, %s has %q", added, referenceFile, documented)
	}
}

func firstGroups(pattern *regexp.Regexp, text string) []string {
	var all []string
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		all = append(all, match[1])
	}
	return all
}
