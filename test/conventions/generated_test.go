package conventions_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// crds is the chart's folder of CRDs, and api the folder of their types.
const (
	crds = "charts/vicinity/crds"
	api  = "api/v1alpha1"
)

// isCurrent fails unless files that were just generated equal those in another folder.
func isCurrent(t *testing.T, generated, folder string) {
	t.Helper()
	entries, err := os.ReadDir(generated)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		want, err := os.ReadFile(filepath.Join(generated, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(folder, entry.Name())
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s does not match the types: make generate writes it again", entry.Name())
		}
	}
	if len(entries) == 0 {
		t.Errorf("no file was generated for %s", folder)
	}
}

func TestGeneratedFilesAreCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the generator")
	}
	folder := t.TempDir()
	generator := filepath.Join(folder, "controller-gen")
	for _, command := range [][]string{
		{"go", "-C", "hack/tools", "build", "-buildvcs=false", "-o", generator, "sigs.k8s.io/controller-tools/cmd/controller-gen"},
		{generator, "object", "crd", "paths=./api/...", "output:crd:dir=" + filepath.Join(folder, "crds"), "output:object:dir=" + filepath.Join(folder, "api")},
	} {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", command, err, out)
		}
	}
	isCurrent(t, filepath.Join(folder, "crds"), filepath.Join(root, crds))
	isCurrent(t, filepath.Join(folder, "api"), filepath.Join(root, api))
}
