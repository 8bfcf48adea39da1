package charts_test

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// costLimit is the highest cost of one policy expression in an API server, as CEL's library counts
// it.
const costLimit = 1_000_000

// policy evaluates a policy like an API server.
type policy struct {
	spec admissionv1.ValidatingAdmissionPolicySpec
	env  *cel.Env
	// user writes, by default the controller.
	user map[string]any
}

func newPolicy(t *testing.T, r *admissionv1.ValidatingAdmissionPolicy) *policy {
	t.Helper()
	env, err := cel.NewEnv(cel.OptionalTypes(), cel.HomogeneousAggregateLiterals(), cel.DefaultUTCTimeZone(true),
		cel.Variable("request", cel.DynType), cel.Variable("object", cel.DynType), cel.Variable("oldObject", cel.DynType),
		cel.Variable("variables", cel.MapType(cel.StringType, cel.DynType)))
	if err != nil {
		t.Fatal(err)
	}
	return &policy{r.Spec, env, map[string]any{"username": own}}
}

// eval evaluates an expression, and keeps the highest cost so far in dearest.
func (p *policy) eval(t *testing.T, expression string, input map[string]any, dearest *uint64) any {
	t.Helper()
	ast, issues := p.env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	program, err := p.env.Program(ast, cel.EvalOptions(cel.OptTrackCost))
	if err != nil {
		t.Fatal(err)
	}
	result, details, err := program.Eval(input)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	if cost := details.ActualCost(); cost != nil {
		*dearest = max(*dearest, *cost)
	}
	return result
}

// refuses returns the message of the refusal of a write; empty if the write is allowed.
func (p *policy) refuses(t *testing.T, resource string, before, after map[string]any) (message string, dearest uint64) {
	t.Helper()
	// Match conditions come first: variables may fail for requests that do not match.
	variables := map[string]any{}
	input := map[string]any{
		"request": map[string]any{"resource": map[string]any{"resource": resource}, "userInfo": p.user},
		"object":  after, "oldObject": before, "variables": variables,
	}
	for _, condition := range p.spec.MatchConditions {
		if fmt.Sprint(p.eval(t, condition.Expression, input, &dearest)) != "true" {
			return "", dearest
		}
	}
	for _, variable := range p.spec.Variables {
		variables[variable.Name] = p.eval(t, variable.Expression, input, &dearest)
	}
	for _, validation := range p.spec.Validations {
		if fmt.Sprint(p.eval(t, validation.Expression, input, &dearest)) != "true" {
			return validation.Message, dearest
		}
	}
	return "", dearest
}

// writesPolicy returns the policy of the controller's writes.
func writesPolicy(t *testing.T) *policy {
	t.Helper()
	return newPolicy(t, object[*admissionv1.ValidatingAdmissionPolicy](t, rendered(t), "ValidatingAdmissionPolicy vicinity-controller-writes"))
}

// edited returns an object with a change.
func edited(t *testing.T, object map[string]any, change string) map[string]any {
	t.Helper()
	after := runtime.DeepCopyJSON(object)
	path, text, _ := strings.Cut(change, "=")
	var value any
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		t.Fatal(err)
	}
	fields := strings.Split(path, "/")
	if text == "" {
		unstructured.RemoveNestedField(after, fields...)
	} else if err := unstructured.SetNestedField(after, value, fields...); err != nil {
		t.Fatal(err)
	}
	return after
}

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	object := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	return runtime.DeepCopyJSON(floats(object).(map[string]any))
}

// floats converts numbers to the types that a deep copy accepts.
func floats(value any) any {
	switch value := value.(type) {
	case map[string]any:
		for key := range value {
			value[key] = floats(value[key])
		}
	case []any:
		for i := range value {
			value[i] = floats(value[i])
		}
	case int:
		return int64(value)
	}
	return value
}

const theService = `
metadata: {name: web, labels: {app: web, vicinity.dev/routed: "true"}, annotations: {a: b}, ownerReferences: [{name: o}], resourceVersion: "7"}
spec: {clusterIP: 10.0.0.1, selector: {app: web}, ports: [{port: 80}]}
status: {loadBalancer: {ingress: [{ip: 192.0.2.1}]}, conditions: [{type: Other, status: "True"}, {type: vicinity.dev/TopologyRouting, status: "True"}]}
`

// The controller may write only its own parts of Services.
func TestControllerWritesItsOwnToServices(t *testing.T) {
	p, before := writesPolicy(t), parsed(t, theService)
	for change, want := range map[string]string{
		"metadata/resourceVersion='8'":                                                 "",
		"metadata/labels/vicinity.dev~routed=":                                         "",
		"metadata/labels/service.kubernetes.io~service-proxy-name=vicinity":            "",
		"metadata/labels/service.kubernetes.io~service-proxy-name=other":               "give a Service to vicinity-proxy",
		"metadata/labels={app: web}":                                                   "",
		"metadata/labels=":                                                             "change labels",
		"metadata/labels/app=other":                                                    "change labels",
		"metadata/labels/new=other":                                                    "change labels",
		"metadata/labels/vicinity.development=other":                                   "change labels",
		"metadata/annotations/vicinity.dev~note=now":                                   "",
		"metadata/annotations/a=":                                                      "change annotations",
		"metadata/annotations/new=b":                                                   "change annotations",
		"metadata/annotations/service.kubernetes.io~topology-mode=vicinity.dev/Routed": "",
		"metadata/annotations/service.kubernetes.io~topology-mode=Auto":                "topology-mode of a Service to vicinity.dev/Routed",
		"metadata/ownerReferences=":                                                    "owners",
		"metadata/finalizers=[a]":                                                      "owners",
		"spec/selector/app=other":                                                      "change the spec",
		"spec/ports=[{port: 443}]":                                                     "change the spec",
		"spec/externalIPs=[192.0.2.7]":                                                 "change the spec",
		"spec/type=ExternalName":                                                       "change the spec",
		"status/loadBalancer={}":                                                       "load balancer",
		"status/conditions=[{type: Other, status: 'True'}]":                            "",
		"status/conditions=[{type: Other, status: 'False'}]":                           "the condition",
		"status/conditions=":                                                           "the condition",
		"status/conditions=[{type: Other, status: 'True'}, {type: Third}]":             "the condition",
		"status/conditions=[{type: vicinity.dev/TopologyRouting}, {type: Other, status: 'True'}]": "",
	} {
		path, value, _ := strings.Cut(change, "=")
		after := parsed(t, theService)
		if strings.Contains(path, "~") {
			fields := strings.Split(path, "/")
			last := len(fields) - 1
			labels, _, _ := unstructured.NestedMap(after, fields[:last]...)
			if key := strings.ReplaceAll(fields[last], "~", "/"); value == "" {
				delete(labels, key)
			} else {
				labels[key] = value
			}
			if err := unstructured.SetNestedMap(after, labels, fields[:last]...); err != nil {
				t.Fatal(err)
			}
		} else {
			after = parsed(t, string(must(yaml.Marshal(floats(edited(t, after, change))))))
		}
		got, _ := p.refuses(t, "services", before, after)
		if want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: refused %q, want %q", change, got, want)
		}
	}
	if got, _ := p.refuses(t, "services", map[string]any{"metadata": map[string]any{}}, map[string]any{"metadata": map[string]any{}}); got != "" {
		t.Errorf("an empty one is refused: %s", got)
	}
	given := parsed(t, theService)
	labels := map[string]any{"app": "web", "vicinity.dev/routed": "true", "service.kubernetes.io/service-proxy-name": "cilium"}
	given["metadata"].(map[string]any)["labels"] = labels
	if got, _ := p.refuses(t, "services", given, before); !strings.Contains(got, "take it back only") {
		t.Errorf("a Service of another proxy is taken: %q", got)
	}
	for mode, want := range map[string]string{"vicinity.dev/Routed": "", "Disabled": "and remove that, only"} {
		given := parsed(t, theService)
		given["metadata"].(map[string]any)["annotations"].(map[string]any)["service.kubernetes.io/topology-mode"] = mode
		if got, _ := p.refuses(t, "services", given, before); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("the mode %s goes: refused %q, want %q", mode, got, want)
		}
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// bigSlice returns a slice with so many endpoints, each with all fields.
func bigSlice(endpoints int) map[string]any {
	slice := map[string]any{
		"metadata":    map[string]any{"name": "web-1", "labels": map[string]any{"kubernetes.io/service-name": "web"}},
		"addressType": "IPv6", "ports": []any{map[string]any{"port": int64(80)}},
	}
	var list []any
	for i := range endpoints {
		list = append(list, map[string]any{
			"addresses": []any{fmt.Sprintf("fd00:1234:5678:9abc:def0:1234:5678:%04x", i)}, "hostname": fmt.Sprintf("web-%d", i),
			"nodeName": fmt.Sprintf("node-%d", i), "zone": "zone-a", "conditions": map[string]any{"ready": true, "serving": true, "terminating": false},
			"targetRef":          map[string]any{"kind": "Pod", "namespace": "shop", "name": fmt.Sprintf("web-%d", i), "uid": fmt.Sprint(i)},
			"deprecatedTopology": map[string]any{"a": "b"},
			"hints":              map[string]any{"forZones": []any{map[string]any{"name": "zone-a"}}},
		})
	}
	slice["endpoints"] = list
	return slice
}

// The controller may write only hints to slices, even with the highest number of endpoints.
func TestControllerWritesHintsToSlices(t *testing.T) {
	p := writesPolicy(t)
	for name, change := range map[string]func(slice, endpoint map[string]any){
		"": func(_, e map[string]any) { delete(e, "hints") },
		" ": func(_, e map[string]any) {
			e["hints"] = map[string]any{"forNodes": []any{map[string]any{"name": "n"}}}
		},
		"  ": func(s, _ map[string]any) {
			s["metadata"].(map[string]any)["annotations"] = map[string]any{"vicinity.dev/held": "a"}
		},
		"addresses":          func(_, e map[string]any) { e["addresses"] = []any{"fd00::1"} },
		"hostname":           func(_, e map[string]any) { e["hostname"] = "other" },
		"nodeName":           func(_, e map[string]any) { delete(e, "nodeName") },
		"zone":               func(_, e map[string]any) { e["zone"] = "zone-b" },
		"conditions":         func(_, e map[string]any) { e["conditions"] = map[string]any{"ready": false} },
		"targetRef":          func(_, e map[string]any) { e["targetRef"].(map[string]any)["name"] = "other" },
		"deprecatedTopology": func(_, e map[string]any) { delete(e, "deprecatedTopology") },
		"ports":              func(s, _ map[string]any) { delete(s, "ports") },
		"addressType":        func(s, _ map[string]any) { s["addressType"] = "IPv4" },
		"fewer":              func(s, _ map[string]any) { s["endpoints"] = s["endpoints"].([]any)[1:] },
		"none":               func(s, _ map[string]any) { delete(s, "endpoints") },
		"more":               func(s, e map[string]any) { s["endpoints"] = append(s["endpoints"].([]any), maps.Clone(e)) },
		"swapped": func(s, _ map[string]any) {
			list := s["endpoints"].([]any)
			list[0], list[len(list)-1] = list[len(list)-1], list[0]
		},
		"proxy": func(s, _ map[string]any) {
			s["metadata"].(map[string]any)["labels"].(map[string]any)["service.kubernetes.io/service-proxy-name"] = "vicinity"
		},
		"service": func(s, _ map[string]any) {
			s["metadata"].(map[string]any)["labels"].(map[string]any)["kubernetes.io/service-name"] = "other"
		},
	} {
		after := bigSlice(1000)
		change(after, after["endpoints"].([]any)[999].(map[string]any))
		message, cost := p.refuses(t, "endpointslices", bigSlice(1000), after)
		if allowed := strings.TrimSpace(name) == ""; allowed != (message == "") {
			t.Errorf("%q: refused %q", name, message)
		}
		if cost > costLimit/2 {
			t.Errorf("%q: an expression costs %d of %d", name, cost, costLimit)
		}
		if name == "" {
			t.Logf("with 1,000 endpoints the dearest expression costs %d of %d", cost, costLimit)
		}
	}
}

// The policy must be extended when Kubernetes adds a field to endpoints.
func TestEveryFieldOfAnEndpointIsHeld(t *testing.T) {
	rendered := fmt.Sprint(writesPolicy(t).spec.Validations)
	endpoint := reflect.TypeFor[discoveryv1.Endpoint]()
	for i := range endpoint.NumField() {
		if field, _, _ := strings.Cut(endpoint.Field(i).Tag.Get("json"), ","); field != "hints" && !strings.Contains(rendered, "e.?"+field) {
			t.Errorf("the policy does not compare the field %s of endpoints", field)
		}
	}
}
