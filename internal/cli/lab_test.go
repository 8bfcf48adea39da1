package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/command"
)

func TestLabRunsItsProgram(t *testing.T) {
	var became []string
	fails := error(nil)
	run := func(args ...string) (code int, said string) {
		var out, errs bytes.Buffer
		root := &cobra.Command{Use: "vicinity", SilenceUsage: true, SilenceErrors: true}
		root.SetOut(&out)
		root.SetErr(&errs)
		root.AddCommand(newLabCommand(func(program string, args, _ []string) error {
			became = append([]string{program}, args...)
			return fails
		}))
		return command.Execute(t.Context(), root, args), errs.String()
	}
	t.Setenv("PATH", t.TempDir())
	if code, said := run("lab", "up"); code != 1 || !strings.Contains(said, "vicinity-lab, which is neither beside this one") || became != nil {
		t.Errorf("without the program: exit code %d, %q, became %q", code, said, became)
	}
	program := filepath.Join(os.Getenv("PATH"), labProgram)
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if code, said := run("lab", "up", "--zones", "a,b", "--help"); code != 0 || said != "" {
		t.Errorf("exit code %d, %q", code, said)
	}
	if want := []string{program, os.Args[0] + "-lab", "up", "--zones", "a,b", "--help"}; !slices.Equal(became, want) {
		t.Errorf("became %q, want %q", became, want)
	}
	fails = errors.New("no")
	if code, said := run("lab"); code != 1 || said != "vicinity: running "+program+": no\n" {
		t.Errorf("a program that cannot be run: exit code %d, %q", code, said)
	}
}
