package lab

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

func TestWhyNoVicinity(t *testing.T) {
	folder := t.TempDir()
	options := Options{Root: folder, Program: filepath.Join(folder, "vicinity")}
	program := filepath.Join(folder, "vicinity-controller")
	why := func(s shape.Shape) string {
		t.Helper()
		text, err := WhyNoVicinity(s, options)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if got := why(shape.Default()); !strings.Contains(got, program) || !strings.Contains(got, "make build") {
		t.Errorf("without the program: %q", got)
	}
	if err := os.WriteFile(program, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := why(shape.Default()); !strings.Contains(got, program) {
		t.Errorf("with a file that is no program: %q", got)
	}
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := why(shape.Default()); got != "" {
		t.Errorf("with the program: %q", got)
	}
	only := shape.Default()
	only.ControlPlaneOnly = true
	if got := why(only); !strings.Contains(got, "only a control plane") {
		t.Errorf("without nodes that run pods: %q", got)
	}
	alone := shape.Default()
	alone.Proxy = shape.ProxyNone
	if got := why(alone); !strings.Contains(got, "without a proxy") {
		t.Errorf("without a proxy: %q", got)
	}
	for _, proxy := range []shape.Proxy{shape.ProxyVicinity, shape.ProxyBoth} {
		s := shape.Default()
		s.Proxy = proxy
		if got := why(s); !strings.Contains(got, filepath.Join(folder, "vicinity-proxy")) || !strings.Contains(got, "make build") {
			t.Errorf("%s without its program: %q", proxy, got)
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "vicinity-proxy"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, proxy := range []shape.Proxy{shape.ProxyVicinity, shape.ProxyBoth} {
		s := shape.Default()
		s.Proxy = proxy
		if got := why(s); got != "" {
			t.Errorf("%s with its program: %q", proxy, got)
		}
	}
}

// Only a new build of the program replaces the pods.
func TestChartValuesFollowTheProgram(t *testing.T) {
	folder := t.TempDir()
	c := &Cluster{options: Options{Program: filepath.Join(folder, "vicinity")}}
	c.known.Shape = shape.Default()
	build := func(content string) any {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, "vicinity-controller"), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		values, err := c.ownValues()
		if err != nil {
			t.Fatal(err)
		}
		if err := values.Validate(); err != nil {
			t.Fatal(err)
		}
		annotations, _ := values["podAnnotations"].(map[string]any)
		return annotations["lab.vicinity.dev/program"]
	}
	if one, other := build("one"), build("another"); one == other {
		t.Errorf("two programs are both %v", one)
	}
}

// Without kube-proxy, vicinity-proxy serves all Services and finds the API server by its
// address.
func TestChartValuesOfTheProxy(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"vicinity-controller", "vicinity-proxy"} {
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := &Cluster{options: Options{Program: filepath.Join(folder, "vicinity")}}
	var err error
	if c.dir, err = state.Create(folder, "values"); err != nil {
		t.Fatal(err)
	}
	values := func(proxy shape.Proxy) map[string]any {
		t.Helper()
		c.known.Shape = shape.Default()
		c.known.Shape.Proxy = proxy
		values, err := c.ownValues()
		if err != nil {
			t.Fatal(err)
		}
		if err := values.Validate(); err != nil {
			t.Fatal(err)
		}
		of, _ := values["proxy"].(map[string]any)
		return of
	}
	if got := values(shape.ProxyKubeProxy); len(got) > 0 {
		t.Errorf("with kube-proxy alone: %v", got)
	}
	if got := values(shape.ProxyBoth); got["enabled"] != true || got["allServices"] != nil || got["apiServer"] != nil {
		t.Errorf("with both: %v", got)
	}
	// The machine's own limit of connections is not a node's to change.
	if got, _ := values(shape.ProxyVicinity)["conntrack"].(map[string]any); got["maxPerCore"] != 0 {
		t.Errorf("without kube-proxy connections are tracked by %v", got)
	}
	if got := values(shape.ProxyVicinity); got["enabled"] != true || got["allServices"] != true || got["apiServer"] != "172.30.0.1:6443" {
		t.Errorf("without kube-proxy: %v", got)
	}
}

// Pods do not run on fake nodes.
func TestControllerStaysOffFakeNodes(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "vicinity-controller"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{options: Options{Program: filepath.Join(folder, "vicinity")}}
	c.known.Shape = shape.Default()
	values, err := c.ownValues()
	if err != nil {
		t.Fatal(err)
	}
	if values["affinity"] != nil {
		t.Errorf("without fake nodes there is an affinity: %v", values["affinity"])
	}
	c.known.Shape.FakeNodes = 3
	if values, err = c.ownValues(); err != nil {
		t.Fatal(err)
	}
	if err := values.Validate(); err != nil {
		t.Error(err)
	}
	want := nodeAffinity(c.known.Shape.Nodes())
	if got := values["affinity"]; !reflect.DeepEqual(got, want) {
		t.Errorf("the affinity is %v, want %v", got, want)
	}
}
