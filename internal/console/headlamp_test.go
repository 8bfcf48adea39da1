package console

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/coverage"
	"vicinity.dev/vicinity/internal/inspect"
)

var update = flag.Bool("update", false, "write the types and examples of the plugin of Headlamp anew")

// headlampSource is where the plugin of Headlamp has its types and examples of what the console serves.
const headlampSource = "../../headlamp/src"

// TestHeadlampTypes holds the types of the plugin to those that are served.
func TestHeadlampTypes(t *testing.T) {
	types := &typeScript{t: t, names: map[reflect.Type]string{}}
	for _, served := range []any{about{}, serviceView{}, nodeView{}, podView{}, namesView{}} {
		types.of(reflect.TypeOf(served))
	}
	compareHeadlamp(t, "api.gen.ts", []byte("// Generated from the types of the console by make generate.\n"+strings.Join(types.written, "")))
}

// typeScript writes types as what they are in JSON.
type typeScript struct {
	t       *testing.T
	names   map[reflect.Type]string
	written []string
}

var textMarshaler, jsonMarshaler = reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[json.Marshaler]()

// of is what TypeScript calls a type.
func (s *typeScript) of(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Time]() || t == reflect.TypeFor[metav1.Time]() || t.Implements(textMarshaler):
		return "string"
	case t.Kind() == reflect.Pointer:
		return s.of(t.Elem())
	case t.Implements(jsonMarshaler) || reflect.PointerTo(t).Implements(jsonMarshaler):
		s.t.Fatalf("what %v is in JSON is not known here", t)
	}
	switch t.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Float64:
		return "number"
	case reflect.Slice:
		return s.of(t.Elem()) + "[]"
	case reflect.Map:
		return "Record<string, " + s.of(t.Elem()) + ">"
	case reflect.Struct:
		return s.object(t)
	}
	s.t.Fatalf("what %v is in JSON is not known here", t)
	return ""
}

func (s *typeScript) object(t reflect.Type) string {
	if name, found := s.names[t]; found {
		return name
	}
	capital := func(name string) string { return strings.ToUpper(name[:1]) + name[1:] }
	name := capital(t.Name())
	if slices.Contains(slices.Collect(maps.Values(s.names)), name) { // of another package
		name = capital(path.Base(t.PkgPath())) + name
	}
	s.names[t] = name
	var text strings.Builder
	fmt.Fprintf(&text, "\nexport interface %s {\n", name)
	s.fields(&text, t)
	text.WriteString("}\n")
	s.written = append(s.written, text.String())
	return name
}

func (s *typeScript) fields(text *strings.Builder, t reflect.Type) {
	for i := range t.NumField() {
		field := t.Field(i)
		tag, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		kind := field.Type.Kind()
		switch isLeft := strings.Contains(options, "omit"); {
		case tag == "-" || !field.IsExported() && !field.Anonymous:
		case tag == "" && field.Anonymous:
			s.fields(text, field.Type)
		case isLeft:
			fmt.Fprintf(text, "  %s?: %s;\n", tag, s.of(field.Type))
		case kind == reflect.Pointer || kind == reflect.Slice || kind == reflect.Map:
			fmt.Fprintf(text, "  %s: %s | null;\n", tag, s.of(field.Type))
		default:
			fmt.Fprintf(text, "  %s: %s;\n", cmp.Or(tag, field.Name), s.of(field.Type))
		}
	}
}

// changing are the times of when a test runs.
var changing = regexp.MustCompile(`"at": "20[0-9T:.Z-]+"`)

// TestHeadlampExamples holds the examples that the plugin is tested with to what is served.
func TestHeadlampExamples(t *testing.T) {
	given := aService("shop", "given", map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer, v1alpha1.AnnotationProxy: "true"})
	group := &v1alpha1.EndpointGroup{
		TypeMeta:   ownMeta("EndpointGroup"),
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "given-1", ResourceVersion: "7", Labels: map[string]string{v1alpha1.LabelService: "given"}},
		Spec:       v1alpha1.EndpointGroupSpec{Service: "given", AddressType: corev1.IPv4Protocol},
	}
	failing := aLease("c-1", 0)
	failing.Annotations = map[string]string{v1alpha1.AnnotationProbeFailure: "packets are lost"}
	w := newWorld(t, aCluster(given, aSlice("shop", "given", "a-1", "b-1"), group, failing, aZonalBudget())...)
	w.answers.traffic = counted
	w.answers.pod = aRefusedPod()
	w.answers.name = &inspect.NameExplanation{
		Name: "db.data.svc.cluster.local.", Namespace: "data", Service: "db", Rule: inspect.RuleGroups, Why: []string{"the nearest are in its zone"},
		Client: inspect.NameClient{Pod: "shop/web-0", Address: "10.1.0.7", Located: "podLocator", Node: "a-1", Zone: "a"},
		Answers: []inspect.NameAnswer{{Type: "A", Result: inspect.ResultRecords, Why: "1 of 2 is near", Of: 2, Records: []inspect.NameRecord{
			{Name: "db.data.svc.cluster.local.", Type: "A", Address: "10.0.0.1", Zone: "a", Node: "a-1"},
		}}},
	}
	w.start(t)
	w.eventually(t, "traffic is measured over the longest time", func() bool {
		w.get(t, "/services", http.StatusOK)
		m := w.traffic.newest()
		return m.Seconds == 10*(keptReadings-1)
	})
	for name, asked := range map[string]string{
		"service": "/services/shop/web", "handover": "/services/shop/given", "headless": "/services/data/db", "node": "/nodes/a-1", "down": "/nodes/b-2",
		"pod": "/pods/shop/web-0", "names": "/names?name=db.data&from=shop/web-0",
	} {
		var indented bytes.Buffer
		if err := json.Indent(&indented, []byte(w.get(t, apiPrefix+asked, http.StatusOK)), "", "  "); err != nil {
			t.Fatal(err)
		}
		indented.WriteByte('\n')
		compareHeadlamp(t, "examples/"+name+".json", changing.ReplaceAll(indented.Bytes(), []byte(`"at": "2026-01-02T03:04:05Z"`)))
	}
}

// aZonalBudget has a domain of each zone, as the API server stores it.
func aZonalBudget() *v1alpha1.TopologyDisruptionBudget {
	one := intstr.FromInt32(1)
	return &v1alpha1.TopologyDisruptionBudget{
		TypeMeta: ownMeta("TopologyDisruptionBudget"), ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 1},
		Spec: v1alpha1.TopologyDisruptionBudgetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, MaxUnavailable: &one,
			NodeSelectorTerm: &v1alpha1.NodeSelectorTerm{MatchExpressions: []v1alpha1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpExists}}},
		},
		Status: v1alpha1.TopologyDisruptionBudgetStatus{
			ObservedGeneration: 1, ExpectedPods: 4, CurrentHealthy: 3, DesiredHealthy: 2,
			Domains:    []v1alpha1.DomainStatus{{Domain: "a", Expected: 2, Healthy: 1, Desired: 1, Disturbed: true}, {Domain: "b", Expected: 2, Healthy: 2, Desired: 1}},
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionDisruptionAllowed, Status: metav1.ConditionFalse, Reason: "InsufficientPods", Message: "a is disturbed", LastTransitionTime: metav1.Unix(1700000000, 0)}},
		},
	}
}

// aRefusedPod may not be evicted, since another pod of its zone is down.
func aRefusedPod() *inspect.PodExplanation {
	pod := func(name, node string, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{NodeName: node},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
				{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Unix(1700000000, 0)},
			}},
		}
	}
	pods := []*corev1.Pod{pod("web-0", "a-1", corev1.ConditionTrue), pod("web-1", "a-2", corev1.ConditionFalse), pod("web-2", "b-1", corev1.ConditionTrue)}
	nodes := map[string]*corev1.Node{}
	for _, name := range []string{"a-1", "a-2", "b-1"} {
		nodes[name] = aNode(name, name[:1], true)
	}
	return inspect.ExplainPod(&inspect.PodReading{
		Pod: pods[0], Budgets: []inspect.BudgetReading{{World: coverage.World{Budget: aZonalBudget(), Pods: pods, Nodes: nodes}}}, Now: time.Unix(1700000600, 0),
	})
}

// compareHeadlamp compares a file of the plugin with what it should be, or writes it.
func compareHeadlamp(t *testing.T, name string, want []byte) {
	t.Helper()
	file := filepath.Join(headlampSource, filepath.FromSlash(name))
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, want, 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what the console serves: make generate writes it anew\n%s", name, firstDifference(string(got), string(want)))
	}
}

// firstDifference is the first line that differs.
func firstDifference(got, want string) string {
	has, wants := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range wants {
		if i >= len(has) || has[i] != wants[i] {
			return fmt.Sprintf("line %d: want %s", i+1, wants[i])
		}
	}
	return "it is longer"
}

func TestNodeJSON(t *testing.T) {
	w := newWorld(t, aCluster(aZonalBudget())...).start(t)
	v, _ := read[nodeView](t, w, "/nodes/a-2")
	if v.Node.Node != "a-2" || v.Node.Proxy != inspect.ProxySilent || v.Zone.Zone != "a" || v.Zone.Nodes != 2 || !v.KnowsProxies {
		t.Errorf("got %+v", v)
	}
	if len(v.Budgets) != 1 || v.Budgets[0].Domain != "a" || !v.Budgets[0].Blocking || !slices.Equal(v.Budgets[0].Keys, []string{corev1.LabelTopologyZone}) || !v.Budgets[0].States[0].Disturbed {
		t.Errorf("budgets are %+v", v.Budgets)
	}
	if v, _ = read[nodeView](t, w, "/nodes/c-1"); len(v.Budgets) != 0 {
		t.Errorf("no pod is expected in zone c: %+v", v.Budgets)
	}
	holds(t, w.get(t, apiPrefix+"/nodes/none", http.StatusNotFound), `there is no Node \"none\"`)
	w.get(t, "/nodes/a-2", http.StatusNotFound)
}

func TestNodeJSONWithoutRights(t *testing.T) {
	w := newWorld(t, aCluster()...)
	w.refuse("nodes", forbidden("nodes"))
	w.start(t)
	w.eventually(t, "it is said", func() bool {
		return strings.Contains(w.get(t, apiPrefix+"/nodes/a-1", http.StatusNotFound), "Nodes may not be read")
	})
}

func TestPodJSON(t *testing.T) {
	w := newWorld(t, aCluster()...)
	w.answers.pod = aRefusedPod()
	w.start(t)
	v, _ := read[podView](t, w, "/pods/shop/web-0")
	if v.Explanation.Verdict != inspect.VerdictRefused || len(v.Explanation.Budgets) != 1 || !slices.Equal(v.Headless, []string{"db.data"}) {
		t.Errorf("got %+v", v)
	}
	w.answers.pod = nil
	if v, _ = read[podView](t, w, "/pods/shop/none"); v.Explanation != nil || v.Problem != `no pod "none" is in namespace "shop"` {
		t.Errorf("got %+v", v)
	}
}
