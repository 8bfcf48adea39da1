package vicinity

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// chained is put into a copy of the plugin kubernetes, whose own ServeDNS gets another name.
const chained = `package kubernetes

import (
	"context"

	"github.com/miekg/dns"

	"vicinity.dev/vicinity/plugin/vicinity"
)

// ServeDNS answers through the plugin vicinity.
func (k Kubernetes) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	v := vicinity.New(k.Zones)
	v.Next = unchained{k}
	return v.ServeDNS(ctx, w, r)
}

type unchained struct{ Kubernetes }

func (u unchained) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	return u.serveUnchained(ctx, w, r)
}
`

// TestTablesOfCoreDNS runs the tests of the plugin kubernetes as they are, in a copy of its module
// in which each query passes this plugin first.
func TestTablesOfCoreDNS(t *testing.T) {
	if testing.Short() {
		t.Skip("builds CoreDNS' plugin kubernetes with its tests, which takes minutes")
	}
	const module = "github.com/coredns/coredns"
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	command := func(arguments ...string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "go", arguments...)
		c.Dir = root
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
		return string(out)
	}
	folder := t.TempDir()
	source := strings.TrimSpace(command("list", "-m", "-f", "{{.Dir}}", module))
	if err := os.CopyFS(folder, os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	plugin := filepath.Join(folder, "plugin", "kubernetes")
	// Files of the module cache, and so of the copy, may not be written.
	replace := func(file, before, after string) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(text), before, after, 1)
		if changed == string(text) {
			t.Fatalf("%s has no %q", file, before)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace(filepath.Join(plugin, "handler.go"), "func (k Kubernetes) ServeDNS(", "func (k Kubernetes) serveUnchained(")
	if err := os.WriteFile(filepath.Join(plugin, "chained.go"), []byte(chained), 0o600); err != nil {
		t.Fatal(err)
	}
	modfile := filepath.Join(t.TempDir(), "go.mod")
	for from, to := range map[string]string{"go.mod": modfile, "go.sum": strings.TrimSuffix(modfile, "mod") + "sum"} {
		text, err := os.ReadFile(filepath.Join(root, from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	command("mod", "edit", "-replace", module+"="+folder, modfile)
	out := command("test", "-mod=mod", "-modfile="+modfile, "-count=1", "-v", module+"/plugin/kubernetes")
	for _, table := range []string{"TestServeDNS", "TestServeDNSZonal", "TestServeDNSModeDisabled", "TestServeDNSModeInsecure", "TestServeDNSModeVerified"} {
		if !strings.Contains(out, "--- PASS: "+table+" ") {
			t.Errorf("%s did not run or pass", table)
		}
	}
}
