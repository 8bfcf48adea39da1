package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// update has the test write what it would compare: "make generate".
var update = flag.Bool("update", false, "write the reference of flags anew")

const (
	referenceFile = "../../docs/reference/proxy.md"
	flagsBegin    = "<!-- flags: written by make generate -->\n"
	flagsEnd      = "<!-- end of flags -->\n"
	settingsBegin = "<!-- settings: compared with the flags by a test -->\n```yaml\n"
	settingsEnd   = "```\n"
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

// The file in the reference is read, and has all settings.
func TestFileInReference(t *testing.T) {
	_, rest, begun := strings.Cut(reference(t), settingsBegin)
	text, _, ended := strings.Cut(rest, settingsEnd)
	if !begun || !ended {
		t.Fatalf("%s has no file with settings", referenceFile)
	}
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var s settings
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.addFlags(flags)
	set, err := load(path, flags)
	if err != nil {
		t.Fatal(err)
	}
	if wrong := s.check(); wrong != nil {
		t.Errorf("%s: %s", wrong.Flag, wrong.Text)
	}
	var missing []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !set[f.Name] {
			missing = append(missing, fieldOf(f.Name))
		}
		if f.DefValue != f.Value.String() && !slices.Contains([]string{"node-name", "lease-namespace", "cluster-cidr"}, f.Name) {
			t.Errorf("%s is %s, by default it is %s", fieldOf(f.Name), f.Value, f.DefValue)
		}
	})
	if len(missing) > 0 {
		t.Errorf("it does not have %q", missing)
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
