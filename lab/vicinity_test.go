package lab

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"vicinity.dev/vicinity/lab/shape"
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
	if got := why(alone); !strings.Contains(got, "without kube-proxy") {
		t.Errorf("without a proxy: %q", got)
	}
}

// A program that was built anew, and nothing else, replaces the pods.
func TestChartValuesFollowTheProgram(t *testing.T) {
	folder := t.TempDir()
	c := &Cluster{options: Options{Program: filepath.Join(folder, "vicinity")}}
	c.known.Shape = shape.Default()
	build := func(content string) any {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, "vicinity-controller"), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		values, err := c.chartValues()
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

// Pods on nodes that only pretend would only pretend, too.
func TestControllerStaysOffFakeNodes(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "vicinity-controller"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{options: Options{Program: filepath.Join(folder, "vicinity")}}
	c.known.Shape = shape.Default()
	values, err := c.chartValues()
	if err != nil {
		t.Fatal(err)
	}
	if values["affinity"] != nil {
		t.Errorf("without fake nodes there is an affinity: %v", values["affinity"])
	}
	c.known.Shape.FakeNodes = 3
	if values, err = c.chartValues(); err != nil {
		t.Fatal(err)
	}
	if err := values.Validate(); err != nil {
		t.Error(err)
	}
	want := onNodes(c.known.Shape.Nodes())
	if got := values["affinity"]; !reflect.DeepEqual(got, want) {
		t.Errorf("the affinity is %v, want %v", got, want)
	}
}
