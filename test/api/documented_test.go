package api_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const reference = root + "/docs/reference/api.md"

func readReference(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// schema is the part of a JSON schema that this test needs.
type schema struct {
	Default    any               `json:"default"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
}

// collectFields returns the paths of a schema's fields with their defaults, except those inside types of
// Kubernetes.
func (s schema) collectFields(path string, found map[string]string) {
	if s.Items != nil {
		s.Items.collectFields(path, found)
	}
	for name, property := range s.Properties {
		at := path + "." + name
		found[at] = ""
		switch property.Default.(type) {
		case nil, map[string]any:
		default:
			found[at] = fmt.Sprint(property.Default)
		}
		if !slices.Contains([]string{"selector", "nodeSelector", "namespaceSelector", "matchFields", "conditions"}, name) {
			property.collectFields(at, found)
		}
	}
}

// row matches the first two cells of a row whose first cell is code.
var row = regexp.MustCompile("(?m)^\\| `([a-zA-Z.]+)` \\| *([^|\n]*?) *\\|")

// Every field of a spec that users write is in the document, with its default, and no other. Users read the others with kubectl explain.
func TestFieldsAreDocumented(t *testing.T) {
	documented := map[string]string{}
	for _, cells := range row.FindAllStringSubmatch(readReference(t), -1) {
		if strings.HasPrefix(cells[1], "spec.") {
			documented[cells[1]] = cells[2]
		}
	}
	fields := map[string]string{}
	files, err := filepath.Glob(filepath.Join(root, "charts/vicinity/crds/*.yaml"))
	if err != nil || len(files) != 7 {
		t.Fatalf("%d CRDs, %v; want 7", len(files), err)
	}
	for _, file := range files {
		if strings.Contains(file, "endpointgroups") {
			continue // only the controller writes them
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Versions []struct {
					Schema struct {
						OpenAPIV3Schema schema `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].collectFields("spec", fields)
	}
	if len(fields) < 30 {
		t.Fatalf("only %d fields found, want at least 30", len(fields))
	}
	for field, value := range fields {
		cell, found := documented[field]
		if !found {
			t.Errorf("%s is not in %s", field, reference)
		}
		if value != "" && cell != "`"+value+"`" {
			t.Errorf("%s has the default %s; %s has %s", field, value, reference, cell)
		}
	}
	for field := range documented {
		if _, found := fields[field]; !found {
			t.Errorf("%s is in %s, but does not exist", field, reference)
		}
	}
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// The API server accepts the examples of the document without a warning. Vicinity's webhooks do not
// run in this package, so their warnings are not checked.
func (w *writer) testExamples(t *testing.T) {
	examples := yamlBlock.FindAllStringSubmatch(readReference(t), -1)
	if len(examples) == 0 {
		t.Fatalf("no example is in %s", reference)
	}
	for _, example := range examples {
		resource := "services"
		switch {
		case strings.Contains(example[1], "kind: RoutingPolicy"):
			resource = "routingpolicies"
		case strings.Contains(example[1], "kind: ClusterRoutingPolicy"):
			resource = "clusterroutingpolicies"
		case strings.Contains(example[1], "kind: TopologyDisruptionBudget"):
			resource = "topologydisruptionbudgets"
		case strings.Contains(example[1], "kind: DomainRollout"):
			resource = "domainrollouts"
		}
		_, texts, err := w.write(t.Context(), resource, example[1], metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		// Kubernetes itself warns about the older annotation.
		texts = slices.DeleteFunc(texts, func(text string) bool {
			return strings.HasSuffix(text, "please use service.kubernetes.io/topology-mode instead")
		})
		if err != nil || len(texts) > 0 {
			t.Errorf("%v, warnings %q of\n%s", err, texts, example[1])
		}
	}
}
