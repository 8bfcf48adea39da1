package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/command"
)

const referenceFile = "../../docs/reference/cli.md"

// TestReferenceIsCurrent compares docs/reference/cli.md with the commands; with
// -update ("make generate") it writes the file.
func TestReferenceIsCurrent(t *testing.T) {
	want := command.Reference("Command reference", newRootCommand(command.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}))
	if *update {
		if err := os.WriteFile(referenceFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(referenceFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s does not say what the commands say; run \"make generate\"", referenceFile)
	}
}
