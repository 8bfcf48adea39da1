package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/hack/release/changelog"
	"vicinity.dev/vicinity/hack/release/source"
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

// What is wrong is said before anything is built or removed.
func TestSettingsAreRefusedEarly(t *testing.T) {
	foreign := t.TempDir()
	write(t, filepath.Join(foreign, "letter"), "kept")
	file := filepath.Join(foreign, "letter")
	for _, test := range []struct{ args, want string }{
		{"images", "--out is empty"},
		{"images --out " + foreign, "--out " + foreign + ": it has files and no DIGESTS of a release"},
		{"images --out " + foreign + "/", "--out " + foreign + ": it has files and no DIGESTS of a release"},
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
			t.Errorf("%s: %v is left, %v", test.args, left, err)
		}
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "kept" {
		t.Errorf("the folder of something else has %q, %v", content, err)
	}
}

func TestReplace(t *testing.T) {
	parent := t.TempDir()
	folder, by := filepath.Join(parent, "out"), filepath.Join(parent, "out.new")
	for _, name := range []string{digestsFile, filepath.Join(imagesFolder, digestsFile)} {
		write(t, filepath.Join(by, name), name)
		if err := replaceable(folder); err != nil {
			t.Errorf("before %s: %v", name, err)
		}
		if err := replace(folder, by); err != nil {
			t.Fatal(err)
		}
		if content, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(content) != name {
			t.Errorf("%s has %q, %v", name, content, err)
		}
		if left, err := os.ReadDir(parent); err != nil || len(left) != 1 {
			t.Errorf("beside it is %v, %v", left, err)
		}
	}
	if _, err := os.Stat(filepath.Join(folder, digestsFile)); err == nil {
		t.Error("a file of the folder before is left")
	}
}

// A program that runs keeps its file, and giving a name the file that it has leaves nothing beside it.
func TestShare(t *testing.T) {
	folder := t.TempDir()
	made, name := filepath.Join(folder, "made"), filepath.Join(folder, "name")
	write(t, name, "before")
	runs, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer runs.Close()
	write(t, made, "after")
	for range 2 {
		if err := share(made, name); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(name)
		entries, listed := os.ReadDir(folder)
		if string(content) != "after" || len(entries) != 2 || err != nil || listed != nil {
			t.Errorf("it has %q, beside %v, %v, %v", content, entries, err, listed)
		}
	}
	if content, err := io.ReadAll(runs); err != nil || string(content) != "before" {
		t.Errorf("what ran has %q, %v", content, err)
	}
}

func TestNotesNameTheCommitIfThereIsOne(t *testing.T) {
	r := release{source: source.Source{Version: "1.2.3", Time: time.Unix(0, 0)}, digests: map[string]string{"vicinity": "sha256:0"}}
	section := changelog.Section{Text: "Better.\n"}
	for revision, want := range map[string]string{
		"":     "- `vicinity:1.2.3@sha256:0`\n\nSHA256SUMS has the checksums of all files.\n",
		"0123": "- `vicinity:1.2.3@sha256:0`\n\nMade of commit 0123. SHA256SUMS has the checksums of all files.\n",
	} {
		r.source.Revision = revision
		if got := r.notes(section, "vicinity-1.2.3.tgz"); !strings.HasPrefix(got, "# Vicinity 1.2.3\n\nBetter.\n") || !strings.HasSuffix(got, want) {
			t.Errorf("of %q they are\n%s", revision, got)
		}
	}
}
