package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Where there is no database that is said, and nothing is said to be fine.
func TestDatabasesThatCannotBeReached(t *testing.T) {
	code := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
	defer server.Close()
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, test := range []struct {
		name, database string
		code           int
		strict         bool
		said, fault    string
	}{
		{"no server", gone.URL, 0, false, "NOT CHECKED: the database " + gone.URL + " cannot be reached: ", ""},
		{"no server, strict", gone.URL, 0, true, "", "nothing was checked: the database " + gone.URL + " cannot be reached: "},
		{"a proxy that refuses", server.URL, http.StatusForbidden, false, "NOT CHECKED: ", ""},
		{"a server with troubles, strict", server.URL, http.StatusBadGateway, true, "", "nothing was checked: "},
		{"another server", server.URL, http.StatusNotFound, false, "", "is no database of vulnerabilities: it answers 404"},
		{"no folder", "file:///nonexistent", 0, false, "", "is no database of vulnerabilities: "},
		{"no scheme", "vuln.go.dev", 0, false, "", "its scheme must be https, http or file"},
		{"no tool", server.URL, http.StatusOK, false, "", "running /nonexistent: "},
	} {
		code = test.code
		var out bytes.Buffer
		err := run(t.Context(), options{tool: "/nonexistent", scan: "package", database: test.database, strict: test.strict}, &out)
		if (err == nil) != (test.fault == "") || err != nil && !strings.Contains(err.Error(), test.fault) || !strings.Contains(out.String(), test.said) {
			t.Errorf("%s: %q, %v", test.name, out.String(), err)
		}
		if strings.Contains(out.String(), "no known vulnerability") {
			t.Errorf("%s: %q, though nothing was checked", test.name, out.String())
		}
	}
}

// A tool that ends well and says nothing has found nothing out.
func TestSilenceIsAnError(t *testing.T) {
	silent, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = run(t.Context(), options{tool: silent, scan: "package", database: madeUp(t, "github.com/spf13/cobra")}, &out)
	if err == nil || !strings.Contains(err.Error(), "ended before it said") || strings.Contains(out.String(), "no known vulnerability") {
		t.Errorf("%v, %q", err, out.String())
	}
}

// A vulnerability that is made up, of a package that we link, is found, and one of another package of the module is not.
func TestVulnerabilitiesAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("builds govulncheck")
	}
	tool := filepath.Join(t.TempDir(), "govulncheck")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", tool, "golang.org/x/vuln/cmd/govulncheck")
	build.Dir = filepath.Join("..", "tools")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building govulncheck: %v: %s", err, output)
	}
	for name, test := range map[string]struct {
		linked string
		found  bool
	}{
		"linked":     {"github.com/spf13/cobra", true},
		"not linked": {"github.com/spf13/cobra/doc", false},
	} {
		var out bytes.Buffer
		err := run(t.Context(), options{tool: tool, scan: "package", database: madeUp(t, test.linked), folder: filepath.Join("..", ".."), patterns: []string{"./cmd/vicinity-proxy"}}, &out)
		found := err != nil && strings.HasPrefix(err.Error(), "there are known vulnerabilities")
		if found != test.found || !found && err != nil || strings.Contains(out.String(), "GO-2026-9999") != test.found || strings.Contains(out.String(), "no known vulnerability") == test.found {
			t.Errorf("%s: %v, %s", name, err, out.String())
		}
	}
}

// madeUp makes a database with one vulnerability, in a package of cobra, of every version.
func madeUp(t *testing.T, of string) string {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{
		"index/db.json":      `{"modified":"2026-01-02T15:04:05Z"}`,
		"index/modules.json": `[{"path":"github.com/spf13/cobra","vulns":[{"id":"GO-2026-9999","modified":"2026-01-02T15:04:05Z"}]}]`,
		"index/vulns.json":   `[{"id":"GO-2026-9999","modified":"2026-01-02T15:04:05Z"}]`,
		"ID/GO-2026-9999.json": `{"schema_version":"1.3.1","id":"GO-2026-9999","modified":"2026-01-02T15:04:05Z","published":"2026-01-02T15:04:05Z",
			"summary":"Made up","details":"Made up for a test.","database_specific":{"url":"https://example.com/GO-2026-9999"},"affected":[{"package":{"name":"github.com/spf13/cobra","ecosystem":"Go"},
			"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],"ecosystem_specific":{"imports":[{"path":"` + of + `"}]}}]}`,
	} {
		file := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return (&url.URL{Scheme: "file", Path: filepath.ToSlash(folder)}).String()
}
