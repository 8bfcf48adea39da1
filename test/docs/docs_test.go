// Package docs_test runs the commands in the documentation and checks its links and lists.
package docs_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/cli"
)

const root = "../.."

// program is the path of the program in the documentation.
const program = "bin/vicinity "

// cluster stands in for the output of kubectl about a cluster, and budgets for its budgets.
const (
	cluster = root + "/internal/cli/testdata/plan/cluster.yaml"
	budgets = root + "/internal/disruption/convert/testdata/pdb.yaml"
)

// example is a command in a block of shell commands.
type example struct {
	document, command string
}

// Every command of the program runs without an error, in a folder of its own.
func TestCommands(t *testing.T) {
	examples := listExamples(t)
	if len(examples) < 5 {
		t.Fatalf("found %d commands in the documents, want at least 5; are the blocks still marked ```sh?", len(examples))
	}
	printed := map[bool]string{}
	for ofBudgets, file := range map[bool]string{false: cluster, true: budgets} {
		manifests, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		printed[ofBudgets] = string(manifests)
	}
	for _, e := range examples {
		t.Run(e.document+"/"+e.command, func(t *testing.T) {
			source, command, piped := strings.Cut(e.command, " | ")
			if !piped {
				source, command = "", e.command
			}
			stdin := strings.NewReader("")
			switch {
			case strings.HasPrefix(source, "kubectl get "):
				stdin = strings.NewReader(printed[strings.Contains(command, " convert ")])
			case source != "":
				t.Fatalf("there is no input for %q", source)
			}
			command, _, _ = strings.Cut(command, " > ") // only a shell writes the file
			args := strings.Fields(onFewCases(t, strings.TrimPrefix(command, program)))
			t.Chdir(t.TempDir())
			var stdout, stderr bytes.Buffer
			if code := cli.Main(context.Background(), args, stdin, &stdout, &stderr); code != 0 {
				t.Errorf("exit code %d\n%s", code, &stderr)
			}
			if stdout.Len() == 0 {
				t.Error("the command printed nothing")
			}
		})
	}
}

// whole reports whether a command scores all cases of the published data set, which takes minutes.
const whole = "--dataset published"

// onFewCases makes a command of the whole published data set score a few cases. The acceptance tests
// must run the whole command, so that it runs once.
func onFewCases(t *testing.T, command string) string {
	t.Helper()
	args, ok := strings.CutPrefix(command, "simulate ")
	if !ok || !strings.Contains(args, whole) {
		return command
	}
	accepted, err := os.ReadFile(filepath.Join(root, "test", "acceptance", "published_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(accepted), `"`+args+`"`) {
		t.Errorf("no acceptance test runs %q: add one to test/acceptance that also compares its figures", args)
	}
	return strings.Replace(command, whole, "--dataset representative", 1)
}

// listExamples lists the commands of the program in all documents.
func listExamples(t *testing.T) []example {
	t.Helper()
	var examples []example
	for name, document := range documents(t) {
		inBlock := false
		for line := range strings.Lines(document) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "```") {
				inBlock = line == "```sh"
				continue
			}
			if inBlock && (strings.HasPrefix(line, program) || strings.Contains(line, "| "+program)) {
				examples = append(examples, example{name, line})
			}
		}
	}
	return examples
}
