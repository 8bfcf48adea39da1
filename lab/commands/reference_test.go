package commands

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/command"
)

var update = flag.Bool("update", false, "write the reference anew")

const referenceFile = "../../docs/reference/lab.md"

// TestReferenceIsCurrent compares docs/reference/lab.md with the commands; with
// -update ("make generate") it writes the file.
func TestReferenceIsCurrent(t *testing.T) {
	want := command.Reference("Commands of labs", newRootCommand(command.Streams{In: strings.NewReader(""), Out: &bytes.Buffer{}, Err: &bytes.Buffer{}}))
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
