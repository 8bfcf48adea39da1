package docs_test

import (
	"bytes"
	"context"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/cli"
)

const runbooks = "docs/runbooks/"

// All runbooks have the same three parts, and the list has all runbooks.
func TestRunbooksAreAlike(t *testing.T) {
	all := documents(t)
	list := all[runbooks+"README.md"]
	found := 0
	for name, document := range all {
		file, ok := strings.CutPrefix(name, runbooks)
		if !ok || file == "README.md" {
			continue
		}
		found++
		var sections []string
		for line := range strings.Lines(prose(document)) {
			if title, ok := strings.CutPrefix(line, "## "); ok {
				sections = append(sections, strings.TrimSpace(title))
			}
		}
		if want := []string{"How it looks", "What to run", "What to do"}; !slices.Equal(sections, want) {
			t.Errorf("%s has the sections %q, want %q", name, sections, want)
		}
		if !strings.Contains(list, "("+file+")") {
			t.Errorf("%sREADME.md does not list %s", runbooks, file)
		}
	}
	if found == 0 {
		t.Errorf("there is no runbook in %s", runbooks)
	}
}

// ofProgram matches commands of the program in runbooks and references.
var ofProgram = regexp.MustCompile(`(?m)^(?:\$ )?(?:bin/)?vicinity ([a-z]+\b[^|#\n]*)`)

// Commands that need a cluster are not run, but they exist, with their flags.
func TestCommandsForClustersExist(t *testing.T) {
	help := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = cli.Main(context.Background(), append(args, "--help"), strings.NewReader(""), &out, &errs)
		return code, out.String(), errs.String()
	}
	found := 0
	for name, document := range documents(t) {
		for _, match := range ofProgram.FindAllStringSubmatch(document, -1) {
			args := strings.Fields(match[1])
			if _, about, _ := help(args[0]); !strings.Contains(about, "--kubeconfig") {
				continue // needs no cluster
			}
			found++
			if code, _, stderr := help(args...); code != 0 {
				t.Errorf("%s: vicinity %s: %s", name, match[1], stderr)
			}
		}
	}
	if found == 0 {
		t.Error("no document shows a command for a cluster")
	}
}
