package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/command"
)

const goodCSV = "name,a,b\none,1 4,1 4\n"

// run calls the program in a folder with the given files.
func runIn(t *testing.T, files map[string]string, args ...string) (code int, stderr string) {
	t.Helper()
	t.Chdir(t.TempDir())
	for name, text := range files {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out, err bytes.Buffer
	code = Main(t.Context(), args, strings.NewReader(""), &out, &err)
	if left, _ := filepath.Glob("*.partial"); len(left) > 0 {
		t.Errorf("left %q behind", left)
	}
	return code, err.String()
}

func content(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestOutputNeverReplacesInput(t *testing.T) {
	code, stderr := runIn(t, map[string]string{"w.csv": goodCSV}, "simulate", "--dataset", "w.csv", "--report", "w.csv")
	if code != command.ExitUsage || !strings.Contains(stderr, "it would be lost") || content(t, "w.csv") != goodCSV {
		t.Errorf("exit code %d, %q, the file is now %q", code, stderr, content(t, "w.csv"))
	}
}

func TestFailedRunKeepsEarlierOutput(t *testing.T) {
	code, stderr := runIn(t, map[string]string{"bad.csv": "name,a\none,x\n", "good.html": "earlier"},
		"simulate", "--dataset", "bad.csv", "--report", "good.html")
	if code != command.ExitFailure || content(t, "good.html") != "earlier" {
		t.Errorf("exit code %d, %q, the file is now %q", code, stderr, content(t, "good.html"))
	}
}
