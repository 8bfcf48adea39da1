package charts_test

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/util/jsonpath"
	"sigs.k8s.io/yaml"
)

// definition is what of a CRD says how kubectl lists its objects.
type definition struct {
	Spec struct {
		Versions []struct {
			Columns []struct {
				Name     string `json:"name"`
				JSONPath string `json:"jsonPath"`
			} `json:"additionalPrinterColumns"`
		} `json:"versions"`
	} `json:"spec"`
}

// Of the results of a column the API server prints the first and no other: a column of
// what is there several times would show a part as if it were all.
func TestColumnsShowAllOfWhatTheySay(t *testing.T) {
	list := func(key string, values ...any) []any {
		var all []any
		for _, value := range values {
			all = append(all, map[string]any{key: value})
		}
		return all
	}
	object := map[string]any{
		"metadata": map[string]any{"creationTimestamp": "2026-11-01T12:00:00Z"},
		"ips":      []any{"10.0.0.1", "fd00::1"}, "nodeName": "n1", "nodeLabels": map[string]any{"topology.kubernetes.io/zone": "a"},
		"spec": map[string]any{
			"service": "web", "addressType": "IPv4",
			"consumers": list("zone", "a", "b"), "endpoints": list("address", "10.0.0.1", "10.0.0.2"),
			"mode": "Prefer", "level": "Zone", "keys": []any{"a", "b"}, "algorithm": "optimal",
			"minAvailable": "80%", "maxUnavailable": 1, "maxUnavailableDomains": 1,
			"targetRef": map[string]any{"kind": "StatefulSet", "name": "db"},
		},
		"status": map[string]any{"services": 1, "disruptionsAllowed": 1, "disturbedDomains": 1, "phase": "Paused", "currentDomains": []any{"a", "b"}, "revision": "db-1", "waitingFor": "b", "conditions": []any{
			map[string]any{"type": "Other", "status": "False"},
			map[string]any{"type": "Accepted", "status": "True"},
			map[string]any{"type": "Enforced", "status": "True"},
		}},
	}
	files, err := filepath.Glob(filepath.Join(folder, "crds", "*.yaml"))
	if err != nil || len(files) != 6 {
		t.Fatalf("found %q: %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd definition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		for _, version := range crd.Spec.Versions {
			if len(version.Columns) == 0 {
				t.Errorf("%s has no columns", file)
			}
			for _, column := range version.Columns {
				path := jsonpath.New(column.Name)
				if err := path.Parse("{" + column.JSONPath + "}"); err != nil {
					t.Fatal(err)
				}
				results, err := path.FindResults(object)
				if err != nil || len(results) != 1 || len(results[0]) != 1 {
					t.Errorf("%s: column %s shows the first of %v: %v", file, column.Name, results, err)
				}
			}
		}
	}
}
