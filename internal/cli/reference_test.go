package cli

import (
	"bytes"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/test/golden"
	"vicinity.dev/vicinity/test/help"
)

const referenceFile = "../../docs/reference/cli.md"

// TestReferenceIsCurrent compares docs/reference/cli.md with the commands; with
// -update ("make generate") it writes the file.
func TestReferenceIsCurrent(t *testing.T) {
	want := help.Reference("Command reference", newRootCommand(command.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}))
	golden.Compare(t, referenceFile, string(want))
}
