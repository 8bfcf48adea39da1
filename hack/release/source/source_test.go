package source

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// repository makes a repository with a chart, without commits.
func repository(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	chart := filepath.Join(root, "charts", "vicinity")
	if err := os.MkdirAll(chart, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(chart, "Chart.yaml"), []byte("version: 0.3.0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, root, "init", "--quiet")
	return root
}

func run(t *testing.T, root string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "-c", "user.name=a", "-c", "user.email=a@example.org"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_COMMITTER_DATE=1700000000 +0100", "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
}

func TestRead(t *testing.T) {
	t.Setenv(epochVariable, "")
	root := repository(t)
	if s, err := Read(t.Context(), root, ""); err != nil || s.Version != "0.3.0-dev.0" || s.Time.Unix() != 0 {
		t.Errorf("Read without a commit = %+v, %v", s, err)
	}
	if _, err := Read(t.Context(), root, "0.3.0"); err == nil || !strings.HasPrefix(err.Error(), "reading the commit of "+root) {
		t.Errorf("Read of a version without a commit: %v", err)
	}
	run(t, root, "add", ".")
	run(t, root, "commit", "--quiet", "-m", "first")
	clean, err := Read(t.Context(), root, "")
	if err != nil {
		t.Fatal(err)
	}
	if want := "0.3.0-dev.1.g" + clean.Revision[:12]; clean.Version != want || clean.Modified {
		t.Errorf("a clean tree is %+v, want version %s", clean, want)
	}
	if clean.Time.Unix() != 1700000000 || clean.Time.Location().String() != "UTC" {
		t.Errorf("the time is %s, want that of the commit", clean.Time)
	}
	run(t, root, "config", "status.showUntrackedFiles", "no")
	if err := os.WriteFile(filepath.Join(root, "new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	changed, err := Read(t.Context(), root, "")
	if err != nil || !changed.Modified || !strings.HasSuffix(changed.Version, ".modified") {
		t.Errorf("a changed tree is %+v, %v", changed, err)
	}
	t.Setenv(epochVariable, "5")
	released, err := Read(t.Context(), root, "0.3.0")
	if err != nil || released.Version != "0.3.0" || released.Time.Unix() != 5 {
		t.Errorf("Read with a version and a time = %+v, %v", released, err)
	}
	t.Setenv(epochVariable, "today")
	if _, err := Read(t.Context(), root, "0.3.0"); err == nil || err.Error() != `SOURCE_DATE_EPOCH is "today": it must be seconds since 1970` {
		t.Errorf("a wrong time: %v", err)
	}
}
