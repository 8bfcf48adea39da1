package charts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// controllers is where the tests of vicinity's commands find the controller's Deployment as
// the chart has it, since they do not link Helm.
const controllers = "../../../internal/cli/testdata/controllers"

// TestControllersOfTheChart compares these Deployments with what the chart renders; with
// -update it writes them.
func TestControllersOfTheChart(t *testing.T) {
	for name, values := range map[string]map[string]any{
		"default": nil,
		"changed": {
			"nameOverride": "other", "fullnameOverride": "another",
			"routing": map[string]any{
				"takeOverAuto": true, "sliceLimit": 7, "shrinkGrace": "1m30s", "excludedNamespaces": []any{"a", "b"},
				"groups": map[string]any{"enabled": false, "size": 250}, "hints": map[string]any{"enabled": false},
			},
		},
		"nothing-excluded": {"routing": map[string]any{"excludedNamespaces": []any{}}},
	} {
		rendered, err := renderValues(t, values)
		if err != nil {
			t.Fatal(err)
		}
		text := ""
		for document := range strings.SplitSeq(rendered.Manifest, "\n---\n") {
			var deployment appsv1.Deployment
			if err := yaml.Unmarshal([]byte(document), &deployment); err != nil {
				t.Fatal(err)
			}
			if deployment.Kind == "Deployment" {
				text = strings.TrimSpace(document) + "\n"
			}
		}
		path := filepath.Join(controllers, name+".yaml")
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != text {
			t.Errorf("%s is not what the chart renders; run \"make generate\"", path)
		}
	}
}
