package main

import (
	"fmt"
	"testing"

	"vicinity.dev/vicinity/test/golden"
)

const (
	referenceFile = "../../docs/reference/proxy.md"
	flagsBegin    = "<!-- flags: written by make generate -->\n"
	flagsEnd      = "<!-- end of flags -->\n"
)

// docs/reference/proxy.md has the current flags. With -update the test writes them.
func TestReferenceIsCurrent(t *testing.T) {
	for _, name := range []string{"POD_NAMESPACE", "NODE_NAME"} {
		t.Setenv(name, "") // it would change a default
	}
	command := newCommand()
	golden.CompareBetween(t, referenceFile, flagsBegin, flagsEnd,
		fmt.Sprintf("```text\n%s\n\nUsage: %s\n\nFlags:\n%s```\n", command.Long, command.UseLine(), command.Flags().FlagUsages()))
}
