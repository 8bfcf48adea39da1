package cli

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/test/golden"
)

// budgets are of all kinds that convert reads, one of them in a list and without its kind, and other
// objects.
const budgets = `apiVersion: policy/v1
kind: PodDisruptionBudgetList
items:
- metadata: {name: web, namespace: shop}
  spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
---
apiVersion: zonecontrol.k8s.aws/v1
kind: ZoneDisruptionBudget
metadata: {name: queue, namespace: shop}
spec: {maxUnavailable: 10%, selector: {matchLabels: {app: queue}}}
---
apiVersion: v1
kind: List
items:
- apiVersion: rollout-operator.grafana.com/v1
  kind: ZoneAwarePodDisruptionBudget
  metadata: {name: ingester, namespace: mimir}
  spec: {maxUnavailable: 2, selector: {matchLabels: {rollout-group: ingester}}}
- apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: shop}
`

func TestConvertGolden(t *testing.T) {
	code, stdout, stderr := runMain(t.Context(), budgets, "convert", "-f", "-")
	if code != 0 || stderr != "ignored: Deployment of apps/v1 (1)\n" {
		t.Fatalf("code %d: %s", code, stderr)
	}
	golden.Compare(t, "testdata/convert/budgets.yaml", stdout)
	for document := range strings.SplitSeq(stdout, "---\n") {
		if err := yaml.UnmarshalStrict([]byte(document), &writtenBudget{}); err != nil {
			t.Errorf("the output is not a budget: %v\n%s", err, document)
		}
	}
}

func TestConvertStrictLeavesOutWhatAllowsMore(t *testing.T) {
	code, stdout, stderr := runMain(t.Context(), budgets, "convert", "-f", "-", "--strict")
	if code != 1 || strings.Count(stdout, "kind: TopologyDisruptionBudget") != 1 {
		t.Errorf("code %d, printed\n%s", code, stdout)
	}
	for _, want := range []string{
		"ZoneDisruptionBudget shop/queue: --strict: allows more: ",
		"item 1 of List: ZoneAwarePodDisruptionBudget mimir/ingester: --strict: assumes: ",
		"vicinity: 2 budgets were not converted\n",
	} {
		if !strings.Contains(stderr, want) {
			t.Errorf("want %q in %q", want, stderr)
		}
	}
}

func TestConvertRefuses(t *testing.T) {
	const pdb = "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: web}\n"
	for _, test := range []struct {
		name, stdin, args, want string
		code                    int
	}{
		{"no file", "", "", "no manifests are given", 2},
		{"a zone key", "", "-f - --zone-key a/b/c", `--zone-key "a/b/c" is not a label key`, 2},
		{"a group key", "", "-f - --group-by -", `--group-by "-" is not a label key`, 2},
		{"no budget", "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n", "-f -", "the manifests have no budget; convert reads PodDisruptionBudget (policy/v1", 1},
		{"a field", pdb + "spec: {maxUnavailable: x}\n", "-f -", `standard input: document 1: PodDisruptionBudget web: spec.maxUnavailable: Invalid value: "x": must be a number`, 1},
		{"no spec", pdb, "-f -", "spec is missing", 1},
		{"no name", "apiVersion: policy/v1\nkind: PodDisruptionBudget\nspec: {}\n", "-f -", "metadata.name is missing", 1},
		{"no object", "- 1\n", "-f -", "not a Kubernetes object", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := runMain(t.Context(), test.stdin, append([]string{"convert"}, strings.Fields(test.args)...)...)
			if code != test.code || stdout != "" || !strings.Contains(stderr, test.want) {
				t.Errorf("code %d, printed %q: %s", code, stdout, stderr)
			}
		})
	}
}
