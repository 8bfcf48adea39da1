package charts_test

import (
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	release "helm.sh/helm/v4/pkg/release/v1"
	"helm.sh/helm/v4/pkg/strvals"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"

	"vicinity.dev/vicinity/charts"
	"vicinity.dev/vicinity/test/golden"
)

const (
	folder    = "../../../charts/vicinity"
	namespace = "vicinity-system"
)

// oldest returns the oldest Kubernetes that a chart supports.
func oldest(t *testing.T, c *chart.Chart) *common.KubeVersion {
	t.Helper()
	version, err := common.ParseKubeVersion(strings.TrimPrefix(c.Metadata.KubeVersion, ">="))
	if err != nil {
		t.Fatal(err)
	}
	return version
}

// load reads the chart from its folder, as helm does.
func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render makes a release of the chart without a cluster. The assignments are those of helm's --set.
func render(t *testing.T, assignments ...string) (*release.Release, error) {
	t.Helper()
	values := map[string]any{}
	for _, assignment := range assignments {
		if err := strvals.ParseInto(assignment, values); err != nil {
			t.Fatal(err)
		}
	}
	return renderValues(t, values)
}

func renderValues(t *testing.T, values map[string]any) (*release.Release, error) {
	t.Helper()
	return renderIn(t, namespace, values)
}

// renderIn renders a release in a namespace.
func renderIn(t *testing.T, namespace string, values map[string]any) (*release.Release, error) {
	t.Helper()
	install := action.NewInstall(action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler)))
	install.ReleaseName, install.Namespace = "vicinity", namespace
	c := load(t)
	install.DryRunStrategy, install.KubeVersion = action.DryRunClient, oldest(t, c)
	rendered, err := install.Run(c, values)
	if err != nil {
		return nil, err
	}
	r, ok := rendered.(*release.Release)
	if !ok {
		t.Fatalf("a release is a %T", rendered)
	}
	return r, nil
}

// rendered is render that must not fail.
func rendered(t *testing.T, assignments ...string) *release.Release {
	t.Helper()
	r, err := render(t, assignments...)
	if err != nil {
		t.Fatalf("%s: %v", assignments, err)
	}
	return r
}

// objects returns the objects of a release by kind and name. A field that Kubernetes does not know
// fails the test.
func objects(t *testing.T, r *release.Release) map[string]runtime.Object {
	t.Helper()
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, monitoringv1.AddToScheme} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
	all := map[string]runtime.Object{}
	for document := range strings.SplitSeq(r.Manifest, "\n---\n") {
		if strings.TrimSpace(strings.Trim(document, "-\n")) == "" {
			continue
		}
		object, kind, err := decoder.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		accessor, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		metadata, _ := accessor["metadata"].(map[string]any)
		name := fmt.Sprintf("%s %s", kind.Kind, metadata["name"])
		if all[name] != nil {
			t.Errorf("%s exists twice", name)
		}
		all[name] = object
	}
	return all
}

// object returns an object of a release.
func object[T runtime.Object](t *testing.T, r *release.Release, name string) T {
	t.Helper()
	all := objects(t, r)
	found, ok := all[name].(T)
	if !ok {
		t.Fatalf("%s is missing; the objects are %q", name, slices.Sorted(maps.Keys(all)))
	}
	return found
}

func TestLint(t *testing.T) {
	lint := action.NewLint()
	lint.Namespace, lint.Strict, lint.KubeVersion = namespace, true, oldest(t, load(t))
	result := lint.Run([]string{folder}, nil)
	for _, message := range result.Messages {
		t.Log(message)
	}
	for _, err := range result.Errors {
		t.Error(err)
	}
	if result.TotalChartsLinted != 1 {
		t.Errorf("%d charts were looked at", result.TotalChartsLinted)
	}
}

func TestDefaultsRenderAsBefore(t *testing.T) {
	r := rendered(t)
	golden.Compare(t, "testdata/default.yaml", r.Manifest)
	golden.Compare(t, "testdata/notes.txt", r.Info.Notes+"\n")
	golden.Compare(t, "testdata/all-notes.txt", rendered(t, "profile=all").Info.Notes+"\n")

	// The tests of vicinity's commands read the rendered Deployment of the controller here, because
	// they do not link Helm.
	for name, values := range map[string]map[string]any{
		"default": nil,
		"changed": {
			"nameOverride": "other", "fullnameOverride": "another",
			"routing": map[string]any{
				"takeOverAuto": true, "shrinkGrace": "1m30s", "excludedNamespaces": []any{"a", "b"},
				"groups": map[string]any{"enabled": false, "size": 250}, "hints": map[string]any{"enabled": false},
			},
		},
	} {
		r, err := renderValues(t, values)
		if err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, "../../../internal/cli/testdata/controllers/"+name+".yaml", document(t, r, "Deployment"))
	}
	r, err := renderValues(t, map[string]any{"routing": map[string]any{"excludedNamespaces": []any{}}})
	if err != nil || !strings.Contains(document(t, r, "Deployment"), "- --exclude-namespaces=\n") {
		t.Errorf("without excluded namespaces: %v", err)
	}
}

func TestProxyRendersAsBefore(t *testing.T) {
	r := rendered(t, "routing.enabled=false,proxy.enabled=true,warnings.enabled=false")
	golden.Compare(t, "testdata/proxy.yaml", r.Manifest)
	golden.Compare(t, "testdata/proxy-notes.txt", r.Info.Notes+"\n")

	// In place of kube-proxy, the proxy uses kube-proxy's ports. It needs the API server's address,
	// because no Service exists before it runs.
	r = rendered(t, "routing.enabled=false,proxy.enabled=true,proxy.allServices=true,proxy.apiServer=[fd00::1]:6443,proxy.conntrack.udpTimeout=1m")
	golden.Compare(t, "testdata/proxy-all-services.yaml", document(t, r, "DaemonSet"))
}

// document returns the text of the only object of a kind.
func document(t *testing.T, r *release.Release, kind string) string {
	t.Helper()
	found := ""
	for text := range strings.SplitSeq(r.Manifest, "\n---\n") {
		if strings.Contains(text, "\nkind: "+kind+"\n") {
			found += strings.TrimSpace(text) + "\n"
		}
	}
	return found
}

// The program embeds all files of the folder.
func TestEmbeddedChartIsWhole(t *testing.T) {
	embedded, err := charts.Vicinity()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range load(t).Raw {
		got, err := fs.ReadFile(embedded, f.Name)
		if err != nil || !slices.Equal(got, f.Data) {
			t.Errorf("%s is not embedded unchanged: %v", f.Name, err)
		}
	}
}
