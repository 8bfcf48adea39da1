package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

// update has the test write what it would compare: "make generate".
var update = flag.Bool("update", false, "write the reference of flags anew")

const (
	referenceFile = "../../docs/reference/proxy.md"
	flagsBegin    = "<!-- flags: written by make generate -->\n"
	flagsEnd      = "<!-- end of flags -->\n"
)

// TestReferenceIsCurrent compares the flags in docs/reference/proxy.md with those that
// there are; with -update it writes them.
func TestReferenceIsCurrent(t *testing.T) {
	for _, name := range []string{"POD_NAMESPACE", "NODE_NAME"} {
		t.Setenv(name, "") // or it would be a default
	}
	text := reference(t)
	before, rest, begun := strings.Cut(text, flagsBegin)
	_, after, ended := strings.Cut(rest, flagsEnd)
	if !begun || !ended {
		t.Fatalf("%s has no place for the flags: %q and %q", referenceFile, flagsBegin, flagsEnd)
	}
	command := newCommand()
	want := fmt.Sprintf("%s%s```text\n%s\n\nUsage: %s\n\nFlags:\n%s```\n%s%s",
		before, flagsBegin, command.Long, command.UseLine(), command.Flags().FlagUsages(), flagsEnd, after)
	if *update {
		if err := os.WriteFile(referenceFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text != want {
		t.Errorf("%s does not say what the flags say; run \"make generate\"", referenceFile)
	}
}

func reference(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
