package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Faults are reported before anything is built or removed.
func TestSettingsAreRefusedEarly(t *testing.T) {
	foreign := t.TempDir()
	write(t, filepath.Join(foreign, "letter"), "kept")
	file := filepath.Join(foreign, "letter")
	for _, test := range []struct{ args, want string }{
		{"images", "--out is empty"},
		{"images --out " + foreign, "--out " + foreign + ": it has files but no DIGESTS of a release"},
		{"images --out " + foreign + "/", "--out " + foreign + ": it has files but no DIGESTS of a release"},
		{"images --out " + file, "not a directory"},
		{"images --out NEW --registry https://example.org", `REGISTRY "https://example.org": write a host`},
		{"images --out NEW --platforms linux/none", `PLATFORMS "linux/none"`},
		{"images --out NEW --version v1.0.0", `VERSION "v1.0.0" begins with v`},
		{"all --out NEW --version 0.1.0 --address example.org", `DOWNLOADS "example.org": write the URL of a folder`},
		{"all --out NEW", "VERSION is missing"},
	} {
		folder := t.TempDir()
		command := newCommand()
		command.SetArgs(append(strings.Fields(strings.ReplaceAll(test.args, "NEW", filepath.Join(folder, "new"))), "--root", "../.."))
		command.SetOut(new(bytes.Buffer))
		if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", test.args, err, test.want)
		}
		if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
			t.Errorf("%s: the folder has %v, %v; want it empty", test.args, left, err)
		}
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "kept" {
		t.Errorf("the other folder has %q, %v", content, err)
	}
}
