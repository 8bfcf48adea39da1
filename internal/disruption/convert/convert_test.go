package convert

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/test/golden"
)

// inputs returns the objects in testdata as JSON, by file name.
func inputs(t testing.TB) map[string][]byte {
	t.Helper()
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if all[file], err = yaml.YAMLToJSONStrict(text); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if len(all) < 20 {
		t.Fatalf("found %d inputs", len(all))
	}
	return all
}

func kindOf(t testing.TB, object []byte) schema.GroupVersionKind {
	t.Helper()
	var of struct{ APIVersion, Kind string }
	if err := json.Unmarshal(object, &of); err != nil {
		t.Fatal(err)
	}
	return schema.FromAPIVersionAndKind(of.APIVersion, of.Kind)
}

// rendered formats a conversion as in the golden files: the spec and the notes.
func rendered(t testing.TB, object []byte, options Options) string {
	t.Helper()
	c, err := Convert(kindOf(t, object), object, options)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# From %s, weaker: %t\n", c.Source, c.IsWeaker())
	for _, note := range c.Notes {
		fmt.Fprintf(&b, "# %s\n", note)
	}
	text, err := yaml.Marshal(map[string]any{
		"name": c.Budget.Name, "namespace": c.Budget.Namespace, "labels": c.Budget.Labels, "annotations": c.Budget.Annotations, "spec": c.Budget.Spec,
	})
	if err != nil {
		t.Fatal(err)
	}
	b.Write(text)
	return b.String()
}

func TestConvertGolden(t *testing.T) {
	for file, object := range inputs(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			got := rendered(t, object, Options{})
			golden.Compare(t, strings.TrimSuffix(file, ".yaml")+".golden", got)
		})
	}
}

func TestOptions(t *testing.T) {
	objects := inputs(t)
	if got := rendered(t, objects["testdata/zpdb-partition-label.yaml"], Options{GroupBy: "example.com/cache"}); !strings.Contains(got, "groupBy: example.com/cache") {
		t.Errorf("a label in place of the names: got\n%s", got)
	}
	if got := rendered(t, objects["testdata/zpdb.yaml"], Options{ZoneKey: "example.com/rack"}); !strings.Contains(got, "key: example.com/rack") || !strings.Contains(got, "node label example.com/rack;") {
		t.Errorf("another label of zones: got\n%s", got)
	}
}

// TestOrdinalsOfRegularExpressions compares the expressions that count as ordinals with the part of pod names that they match.
func TestOrdinalsOfRegularExpressions(t *testing.T) {
	for text, want := range map[string]bool{
		`[a-z\-]+-zone-[a-z]-([0-9]+)`: true,
		`.*-(\d+)`:                     true,
		`cache-([0-9]+)`:               true,
		`.*([0-9]+)`:                   false, // matches only the 2 of 12
		`.*-([0-9])`:                   false,
		`.*-([0-9]*)`:                  false,
		`.*-([1-9]+)`:                  false,
		`([a-z]+)-.*`:                  false,
		`cache-([0-9]+)-.*`:            false,
		`([0-9]+)`:                     false,
		`a-([0-9]+)|b-([0-9]+)`:        false,
	} {
		if got := isOrdinal(text, 1); got != want {
			t.Errorf("%s is an ordinal: got %v, want %v", text, got, want)
		}
	}
}

// FuzzConvert converts arbitrary objects of each kind. A successful conversion must be a valid budget.
func FuzzConvert(f *testing.F) {
	for _, object := range inputs(f) {
		f.Add(object)
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		for kind := range kinds {
			c, err := Convert(kind, object, Options{})
			if err != nil {
				if strings.ContainsAny(err.Error(), "\n\r") {
					t.Errorf("the message has several lines: %q", err)
				}
				continue
			}
			spec := c.Budget.Spec
			if faults := coverage.Faults(&spec); c.Budget.Name == "" || len(faults) > 0 {
				t.Errorf("%s: a budget without a name, or one that makes no sense (%v): %+v", kind, faults, c.Budget)
			}
		}
	})
}
