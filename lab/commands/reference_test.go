package commands

import (
	"bytes"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/test/golden"
	"vicinity.dev/vicinity/test/help"
)

const referenceFile = "../../docs/reference/lab.md"

// TestReferenceIsCurrent compares docs/reference/lab.md with the commands; with
// -update ("make generate") it writes the file.
func TestReferenceIsCurrent(t *testing.T) {
	want := help.Reference("Commands of labs", newRootCommand(command.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}))
	golden.Compare(t, referenceFile, string(want))
}
