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

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/coverage"
)

// reference is the document about the API.
const reference = root + "/docs/reference/api.md"

func readReference(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// schema is the part of a JSON schema that matters here.
type schema struct {
	Default    any               `json:"default"`
	Properties map[string]schema `json:"properties"`
	Items      *schema           `json:"items"`
}

// fields are the paths of a schema's fields with their defaults, but for those inside
// of what Kubernetes defines.
func (s schema) fields(path string, found map[string]string) {
	if s.Items != nil {
		s.Items.fields(path, found)
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
			property.fields(at, found)
		}
	}
}

// row is the first two cells of a row of a table, where the first is code.
var row = regexp.MustCompile("(?m)^\\| `([a-zA-Z.]+)` \\| *([^|\n]*?) *\\|")

// Every field is in the document, with its default, and no other.
func TestFieldsAreDocumented(t *testing.T) {
	documented := map[string]string{}
	for _, cells := range row.FindAllStringSubmatch(readReference(t), -1) {
		if strings.HasPrefix(cells[1], "spec.") || strings.HasPrefix(cells[1], "status.") {
			documented[cells[1]] = cells[2]
		}
	}
	fields := map[string]string{}
	files, err := filepath.Glob(filepath.Join(root, "charts/vicinity/crds/*.yaml"))
	if err != nil || len(files) != 6 {
		t.Fatalf("%d resources, %v", len(files), err)
	}
	for _, file := range files {
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
		for _, part := range []string{"spec", "status"} {
			crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties[part].fields(part, fields)
		}
	}
	if len(fields) < 30 {
		t.Fatalf("only %d fields found", len(fields))
	}
	for field, value := range fields {
		cell, found := documented[field]
		if !found {
			t.Errorf("%s is not in %s", field, reference)
		}
		if value != "" && cell != "`"+value+"`" {
			t.Errorf("%s has the default %s; %s says %s", field, value, reference, cell)
		}
	}
	for field := range documented {
		if _, found := fields[field]; !found {
			t.Errorf("%s is in %s and does not exist", field, reference)
		}
	}
}

func TestNamesAreDocumented(t *testing.T) {
	text := readReference(t)
	for _, name := range []string{
		v1alpha1.AnnotationSameNode, v1alpha1.AnnotationSameZone, v1alpha1.AnnotationSameRegion, v1alpha1.AnnotationTopologyKeys,
		v1alpha1.AnnotationTopologyMode, v1alpha1.AnnotationTopologyAwareHints, v1alpha1.AnnotationProxy,
		v1alpha1.LabelOwnZone, v1alpha1.LabelRouted, v1alpha1.LabelServiceProxyName, v1alpha1.ConditionTopologyRouting,
		v1alpha1.LabelBudgets, v1alpha1.AnnotationBreakGlass,
		v1alpha1.LabelEvictionRequests, v1alpha1.EvictionResponder, v1alpha1.AnnotationEvictionReason, v1alpha1.AnnotationAbandonedRevision, v1alpha1.AnnotationSpreadOrdinals,
		v1alpha1.LabelService, v1alpha1.LabelNotForPrefix + "ZONE", v1alpha1.LabelHandOver,
	} {
		if !strings.Contains(text, "`"+name+"`") {
			t.Errorf("%s is not in %s", name, reference)
		}
	}
}

func TestConditionsOfBudgetsAreDocumented(t *testing.T) {
	_, text, found := strings.Cut(readReference(t), "\n## TopologyDisruptionBudget\n")
	if !found {
		t.Fatal("there is no chapter about budgets")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	for _, name := range []string{
		v1alpha1.ConditionEnforced, v1alpha1.ConditionValid, v1alpha1.ConditionSatisfiable, v1alpha1.ConditionDisruptionAllowed,
		v1alpha1.ConditionDeletesDirectly, v1alpha1.ConditionBreakGlass, v1alpha1.ConditionProjected,
	} {
		if !strings.Contains(text, "\n| `"+name+"` |") {
			t.Errorf("the condition %s has no row in %s", name, reference)
		}
	}
	for _, reason := range []string{
		coverage.ReasonInvalid, coverage.ReasonNoNodes, coverage.ReasonBlocked, coverage.ReasonNodeWithoutKey, coverage.ReasonSatisfiable, coverage.ReasonValid,
	} {
		if !strings.Contains(text, "`"+reason+"`") {
			t.Errorf("the reason %s is not in %s", reason, reference)
		}
	}
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// The examples of the document are taken as they are, without a warning of ours.
func (w *writer) testExamples(t *testing.T) {
	examples := yamlBlock.FindAllStringSubmatch(readReference(t), -1)
	if len(examples) < 4 {
		t.Fatalf("only %d examples in %s", len(examples), reference)
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
		_, said, err := w.write(t.Context(), resource, example[1], metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
		// Kubernetes has words of its own about the older annotation.
		said = slices.DeleteFunc(said, func(text string) bool {
			return strings.HasSuffix(text, "please use service.kubernetes.io/topology-mode instead")
		})
		if err != nil || len(said) > 0 {
			t.Errorf("%v, warnings %q of\n%s", err, said, example[1])
		}
	}
}
