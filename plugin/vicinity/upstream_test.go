package vicinity

import (
	"fmt"
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
	"slices"

	"github.com/coredns/coredns/plugin/kubernetes/object"
	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/plugin/vicinity"
)

// ServeDNS answers through the plugin vicinity, to which all headless Services have groups.
func (k Kubernetes) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	v := vicinity.New(k.Zones)
	v.Next = unchained{k}
	for _, service := range k.APIConn.ServiceList() {
		if !slices.Contains(service.ClusterIPs, corev1.ClusterIPNone) {
			continue
		}
		for _, endpoints := range k.APIConn.EpIndex(object.ServiceKey(service.Name, service.Namespace)) {
			for _, subset := range endpoints.Subsets {
				for _, address := range subset.Addresses {
					v.GroupForAll(service.Namespace, service.Name, address.IP)
				}
			}
		}
	}
	return v.ServeDNS(ctx, w, r)
}

type unchained struct{ Kubernetes }

func (u unchained) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	return u.serveUnchained(ctx, w, r)
}
`

// grouped is put into this package while those tests run.
const grouped = `package vicinity

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology"
)

// GroupForAll gives an endpoint of a Service a group that all clients use.
func (v *Vicinity) GroupForAll(namespace, service, address string) {
	group := &v1alpha1.EndpointGroup{Spec: v1alpha1.EndpointGroupSpec{
		Service: service, AddressType: corev1.IPv4Protocol, AnyReady: true, Tiers: []string{topology.Anywhere},
		Endpoints: []v1alpha1.GroupEndpoint{{Address: address}},
	}}
	if strings.Contains(address, ":") {
		group.Spec.AddressType = corev1.IPv6Protocol
	}
	group.Namespace, group.Name = namespace, service+address
	v.cluster.setGroup(group)
	fmt.Println("a group of", service)
}
`

// The tests of the plugin kubernetes run in a copy of its module in which each query first passes this plugin, and each
// headless Service has groups. Answers are filtered and keep all their records.
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
	read := func(path ...string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	work, folder := t.TempDir(), t.TempDir()
	write := func(text string, path ...string) string {
		t.Helper()
		file := filepath.Join(path...)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	source := strings.TrimSpace(command("list", "-m", "-f", "{{.Dir}}", module))
	if err := os.CopyFS(folder, os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	handler := filepath.Join(folder, "plugin", "kubernetes", "handler.go")
	before := read(handler)
	after := strings.Replace(before, "func (k Kubernetes) ServeDNS(", "func (k Kubernetes) serveUnchained(", 1)
	if after == before {
		t.Fatalf("%s has no ServeDNS that can be renamed", handler)
	}
	// Files of the module cache, and so of the copy, may not be written.
	if err := os.Remove(handler); err != nil {
		t.Fatal(err)
	}
	write(after, handler)
	write(chained, filepath.Dir(handler), "chained.go")
	overlay := write(fmt.Sprintf(`{"Replace": {%q: %q}}`, filepath.Join(root, "plugin", "vicinity", "grouped.go"), write(grouped, work, "grouped.go")), work, "overlay.json")
	write(read(root, "go.sum"), work, "go.sum")
	modfile := write(read(root, "go.mod"), work, "go.mod")
	command("mod", "edit", "-replace", module+"="+folder, modfile)
	out := command("test", "-mod=mod", "-modfile="+modfile, "-overlay="+overlay, "-count=1", "-v", module+"/plugin/kubernetes")
	for _, table := range []string{"TestServeDNS", "TestServeDNSZonal", "TestServeDNSModeDisabled", "TestServeDNSModeInsecure", "TestServeDNSModeVerified"} {
		if !strings.Contains(out, "--- PASS: "+table+" ") {
			t.Errorf("%s did not run or pass", table)
		}
	}
	for _, service := range []string{"hdls1", "hdlsprtls", "hdls"} {
		if !strings.Contains(out, "a group of "+service+"\n") {
			t.Errorf("the headless Service %s had no group", service)
		}
	}
}
