// Package api_test writes valid and invalid objects of Vicinity's API to a real API server with the
// chart's schemas, and checks which it accepts and how it refuses the others.
package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/test/kube"
	"vicinity.dev/vicinity/test/rig"
)

const (
	root      = "../.."
	namespace = "default"
)

// All subtests share one API server.
func TestAPI(t *testing.T) {
	kubernetes := rig.Start(t)
	config := kubernetes.Config()
	received := &warnings{}
	config.WarningHandlerWithContext = received
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{Client: kubernetes.Client, objects: objects, warnings: received}
	t.Run("RoutingPolicy", w.testRoutingPolicy)
	t.Run("ClusterRoutingPolicy", w.testClusterRoutingPolicy)
	t.Run("TopologyDisruptionBudget", w.testTopologyDisruptionBudget)
	t.Run("DomainRollout", w.testDomainRollout)
	t.Run("ZoneShift", w.testZoneShift)
	t.Run("Defaults", w.testDefaults)
	t.Run("EndpointGroup", w.testEndpointGroup)
	t.Run("PodLocator", w.testPodLocator)
	t.Run("UnknownFields", w.testUnknownFields)
	t.Run("Examples", w.testExamples)
}

// writer writes objects as a user does, and keeps the warnings.
type writer struct {
	*kube.Client
	objects  dynamic.Interface
	warnings *warnings
}

// warnings are those of the last accepted write.
type warnings struct{ texts []string }

// HandleWarningHeaderWithContext records a warning.
func (w *warnings) HandleWarningHeaderWithContext(_ context.Context, _ int, _, text string) {
	w.texts = append(w.texts, text)
}

var _ rest.WarningHandlerWithContext = (*warnings)(nil)

// write creates or changes an object, or does so as a dry run. It returns the stored object and the
// warnings.
func (w *writer) write(ctx context.Context, resource, object string, options metav1.CreateOptions) (stored *unstructured.Unstructured, texts []string, err error) {
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(object), &u.Object); err != nil {
		return nil, nil, err
	}
	gvr := v1alpha1.GroupVersion.WithResource(resource)
	if resource == "services" {
		gvr.Group, gvr.Version = "", "v1"
	}
	w.warnings.texts = nil
	var at dynamic.ResourceInterface = w.objects.Resource(gvr)
	if resource != "clusterroutingpolicies" && resource != "zoneshifts" {
		at = w.objects.Resource(gvr).Namespace(namespace)
	}
	before, err := at.Get(ctx, u.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		stored, err = at.Create(ctx, u, options)
	case err == nil:
		u.SetResourceVersion(before.GetResourceVersion())
		stored, err = at.Update(ctx, u, metav1.UpdateOptions{DryRun: options.DryRun, FieldValidation: options.FieldValidation})
	}
	return stored, w.warnings.texts, err
}

// try writes an object as a dry run.
func (w *writer) try(t *testing.T, resource, object string) error {
	t.Helper()
	_, _, err := w.write(t.Context(), resource, object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict})
	return err
}

// expectRefusal fails the test unless an error has all the words. Without words there must be no error.
func expectRefusal(t *testing.T, err error, words ...string) {
	t.Helper()
	switch {
	case len(words) == 0 && err != nil:
		t.Errorf("refused: %v", err)
	case len(words) > 0 && err == nil:
		t.Errorf("accepted, want a refusal with %q", words)
	}
	for _, word := range words {
		if err != nil && !strings.Contains(err.Error(), word) {
			t.Errorf("refused: %v\nwant %q in it", err, word)
		}
	}
}

// routingPolicy returns a RoutingPolicy with a spec in YAML's flow style.
func routingPolicy(name, spec string) string {
	return fmt.Sprintf("{apiVersion: vicinity.dev/v1alpha1, kind: RoutingPolicy, metadata: {name: %s}, spec: %s}", name, spec)
}

func (w *writer) testRoutingPolicy(t *testing.T) {
	const (
		threshold = "must be a percentage above 0 and at most 1000, such as 50%"
		start     = "must be a number of endpoints from 0 to 1000000, such as 12, or one for each zone, such as 3x"
		operator  = "each operator must be In or NotIn, with values, or Exists or DoesNotExist, without values"
	)
	long := strings.Repeat("a", 254)
	for _, test := range []struct {
		spec string
		want []string // words of the refusal
	}{
		{"{}", nil},
		{"{selector: {}}", nil},
		{"{selector: {matchLabels: {app: web}}, mode: Require, level: Region}", nil},
		{"{mode: Prefer}", nil},
		{"{level: Node}", nil},
		{"{mode: prefer}", []string{"spec.mode", `"prefer"`, `"Balanced", "Prefer", "Require"`}},
		{"{level: Rack}", []string{"spec.level", `"Rack"`, `"Node", "Zone", "Region"`}},
		{"{algorithm: auto}", []string{"spec.algorithm", `"auto"`, `"optimal"`}},

		{`{keys: []}`, nil},
		{`{keys: ["*"]}`, nil},
		{`{keys: [example.com/rack, topology.kubernetes.io/zone, "*"]}`, nil},
		{`{keys: [rack, A.b_C-d, a.b/9]}`, nil},
		{`{keys: [r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, r13, r14, r15, r16]}`, nil},
		{`{keys: [r1, r2, r3, r4, r5, r6, r7, r8, r9, r10, r11, r12, r13, r14, r15, r16, "*"]}`, []string{"spec.keys", "Too many: 17", "at most 16"}},
		{`{keys: ["*", rack]}`, []string{"spec.keys", "* matches everything and must be the last key"}},
		{`{keys: [rack, hall, rack]}`, []string{"spec.keys", `"rack" is given twice; each key may appear once`}},
		{`{keys: ["*", "*"]}`, []string{"spec.keys", "* matches everything and must be the last key"}},
		{`{keys: [rack, ""]}`, []string{`spec.keys[1]: Invalid value: "": "" is not a key that a node label can have`}},
		{`{keys: [-rack]}`, []string{`spec.keys[0]`, `"-rack" is not a key that a node label can have`}},
		{`{keys: [a/b/c]}`, []string{`spec.keys[0]`, `"a/b/c" is not a key`}},
		{`{keys: [Example.com/rack]}`, []string{`spec.keys[0]`, `"Example.com/rack" is not a key`}},
		{`{keys: [/rack]}`, []string{`spec.keys[0]`, `"/rack" is not a key`}},
		{`{keys: [` + long + `/rack]}`, []string{`spec.keys[0]`, `is not a key`}},
		{`{keys: [` + long[:253] + `/rack]}`, nil},
		{`{keys: [` + long[:64] + `]}`, []string{`spec.keys[0]`, `is not a key`}},
		{`{keys: [` + long[:63] + `]}`, nil},
		{`{keys: [rack], mode: Require}`, []string{"spec.mode", "mode cannot be given together with keys"}},
		{`{keys: [rack], level: Zone}`, []string{"spec.level", "level cannot be given together with keys"}},

		{`{overloadThreshold: "12.5%"}`, nil},
		{`{overloadThreshold: "1000%"}`, nil},
		{`{overloadThreshold: "-50%"}`, []string{"spec.overloadThreshold", `"-50%"`, threshold}},
		{`{overloadThreshold: "0%"}`, []string{"spec.overloadThreshold", `"0%"`, threshold}},
		{`{overloadThreshold: "0.00%"}`, []string{"spec.overloadThreshold", threshold}},
		{`{overloadThreshold: "1000.01%"}`, []string{"spec.overloadThreshold", threshold}},
		{`{overloadThreshold: "50"}`, []string{"spec.overloadThreshold", `"50"`, threshold}},
		{`{overloadThreshold: 50}`, []string{"spec.overloadThreshold", "must be of type string"}},
		{`{startingThreshold: 0}`, nil},
		{`{startingThreshold: 1.5x}`, nil},
		{`{startingThreshold: -1}`, []string{"spec.startingThreshold", "-1", start}},
		{`{startingThreshold: 1000001}`, []string{"spec.startingThreshold", start}},
		{`{startingThreshold: "12"}`, []string{"spec.startingThreshold", `"12"`, "must be a number, which is written without quotes: 12, or one for each zone, such as 3x"}},
		{`{startingThreshold: "twelve"}`, []string{"spec.startingThreshold", `"twelve"`, start}},
		{`{startingThreshold: -3x}`, []string{"spec.startingThreshold", `"-3x"`, start}},
		{`{padding: 0}`, nil},
		{`{padding: -1}`, []string{"spec.padding", "-1", "greater than or equal to 0"}},
		{`{padding: 1001}`, []string{"spec.padding", "1001", "less than or equal to 1000"}},

		{`{capacity: {type: CPU}}`, nil},
		{`{capacity: {type: Expression, expression: zone.cpu}}`, nil},
		{`{capacity: {type: Memory}}`, []string{"spec.capacity.type", `"Memory"`, `"Nodes", "CPU", "Expression"`}},
		{`{capacity: {type: Expression}}`, []string{"spec.capacity.expression", "must be given if type is Expression"}},
		{`{capacity: {type: Expression, expression: ""}}`, []string{"spec.capacity.expression", "must be given if type is Expression"}},
		{`{capacity: {expression: zone.cpu}}`, []string{"spec.capacity.expression", "has no effect unless type is Expression"}},
		{`{capacity: {type: Expression, expression: "` + strings.Repeat("1+", 512) + `1"}}`, []string{"spec.capacity.expression", "Too long"}},

		{`{nodeSelector: {matchExpressions: [{key: pool, operator: In, values: [web]}, {key: gpu, operator: DoesNotExist}]}}`, nil},
		{`{selector: {matchExpressions: [{key: app, operator: Near}]}}`, []string{"spec.selector.matchExpressions", operator}},
		{`{nodeSelector: {matchExpressions: [{key: app, operator: In}]}}`, []string{"spec.nodeSelector.matchExpressions", operator}},
		{`{nodeSelector: {matchExpressions: [{key: app, operator: Exists, values: [x]}]}}`, []string{"spec.nodeSelector.matchExpressions", operator}},
	} {
		t.Run(test.spec[:min(len(test.spec), 60)], func(t *testing.T) {
			expectRefusal(t, w.try(t, "routingpolicies", routingPolicy("near", test.spec)), test.want...)
		})
	}
}

// A ClusterRoutingPolicy is like a RoutingPolicy, but must select namespaces.
func (w *writer) testClusterRoutingPolicy(t *testing.T) {
	for _, test := range []struct {
		spec string
		want []string // words of the refusal
	}{
		{"{namespaceSelector: {}}", nil},
		{"{namespaceSelector: {matchLabels: {near: yes-it-is}}, selector: {}, overloadThreshold: 30%}", nil},
		{"{}", []string{"spec.namespaceSelector: Required value: must be given; an empty one, {}, chooses all namespaces"}},
		{"{selector: {}, mode: Prefer}", []string{"spec.namespaceSelector: Required value"}},
		{"{namespaceSelector: {matchExpressions: [{key: near, operator: Near}]}}", []string{"spec.namespaceSelector.matchExpressions", "each operator must be In or NotIn"}},
	} {
		t.Run(test.spec, func(t *testing.T) {
			expectRefusal(t, w.try(t, "clusterroutingpolicies", clusterRoutingPolicy("near", test.spec)), test.want...)
		})
	}
}

func clusterRoutingPolicy(name, spec string) string {
	return fmt.Sprintf("{apiVersion: vicinity.dev/v1alpha1, kind: ClusterRoutingPolicy, metadata: {name: %s}, spec: %s}", name, spec)
}

func budget(name, spec string) string {
	return fmt.Sprintf("{apiVersion: vicinity.dev/v1alpha1, kind: TopologyDisruptionBudget, metadata: {name: %s}, spec: %s}", name, spec)
}

func (w *writer) testTopologyDisruptionBudget(t *testing.T) {
	const (
		amount = "must be a number of pods, 0 or more, or a percentage from 0% to 100%"
		settle = "must be a duration from 0s to 24h, such as 90s or 5m"
		number = "Gt and Lt need exactly one value, a whole number in quotes"
	)
	term := func(expressions string) string {
		return "{maxUnavailable: 1, nodeSelectorTerm: {matchExpressions: [" + expressions + "]}}"
	}
	for _, test := range []struct {
		spec string
		want []string // words of the refusal
	}{
		{"{maxUnavailable: 1}", nil},
		{"{selector: {}, minAvailable: 0}", nil},
		{`{selector: {matchLabels: {app: web}}, minAvailable: "80%", maxUnavailableTotal: "100%", maxUnavailableDomains: 1, groupBy: example.com/shard,
		  settleTime: 1m30s, unhealthyPodEvictionPolicy: AlwaysAllow}`, nil},
		{"{}", []string{"spec.maxUnavailable: Required value: either minAvailable or maxUnavailable must be given"}},
		{"{minAvailable: 1, maxUnavailable: 1}", []string{"spec.minAvailable: Forbidden: minAvailable and maxUnavailable cannot be given together"}},

		{"{minAvailable: -1}", []string{"spec.minAvailable", "-1", amount}},
		{"{maxUnavailable: 2147483648}", []string{"spec.maxUnavailable", amount}},
		{`{maxUnavailable: "101%"}`, []string{"spec.maxUnavailable", `"101%"`, amount}},
		{`{maxUnavailable: "1.5%"}`, []string{"spec.maxUnavailable", amount}},
		{`{maxUnavailable: "-1%"}`, []string{"spec.maxUnavailable", amount}},
		{`{maxUnavailable: "%"}`, []string{"spec.maxUnavailable", amount}},
		{`{maxUnavailable: "1"}`, []string{"spec.maxUnavailable", "must be a number, which is written without quotes: 1, or a percentage"}},
		{`{maxUnavailable: 1, maxUnavailableTotal: "200%"}`, []string{"spec.maxUnavailableTotal", amount}},
		{"{maxUnavailable: 1, maxUnavailableDomains: -1}", []string{"spec.maxUnavailableDomains", "greater than or equal to 0"}},

		{"{maxUnavailable: 1, settleTime: 0s}", nil},
		{"{maxUnavailable: 1, settleTime: 24h0m0s}", nil},
		{"{maxUnavailable: 1, settleTime: 24h1s}", []string{"spec.settleTime", settle}},
		{"{maxUnavailable: 1, settleTime: -1s}", []string{"spec.settleTime", settle}},
		{"{maxUnavailable: 1, settleTime: 90}", []string{"spec.settleTime", "must be of type string"}},
		{"{maxUnavailable: 1, settleTime: soon}", []string{"spec.settleTime", settle}},

		{"{maxUnavailable: 1, groupBy: shard}", nil},
		{"{maxUnavailable: 1, groupBy: a/b/c}", []string{"spec.groupBy", `"a/b/c" is not a key that a label can have`}},
		{"{maxUnavailable: 1, unhealthyPodEvictionPolicy: Never}", []string{"spec.unhealthyPodEvictionPolicy", `"IfHealthyBudget", "AlwaysAllow"`}},
		{"{maxUnavailable: 1, selector: {matchExpressions: [{key: app, operator: In}]}}", []string{"spec.selector.matchExpressions", "each operator must be In or NotIn"}},

		{"{maxUnavailable: 1, nodeSelectorTerm: {}}", nil},
		{"{maxUnavailable: 1, nodeSelectorTerm: {matchFields: []}}", nil},
		{"{maxUnavailable: 1, nodeSelectorTerm: {matchFields: [{key: metadata.name, operator: In, values: [a]}]}}", []string{
			"spec.nodeSelectorTerm.matchFields", "fields of nodes are not supported; use matchExpressions, which are about labels",
		}},
		{term("{key: failure-domain.beta.kubernetes.io/zone, operator: Exists}, {key: rack, operator: Exists, values: []}"), nil},
		{term(`{key: pool, operator: In, values: [a, b, ""]}, {key: old, operator: NotIn, values: [x]}, {key: gpu, operator: DoesNotExist}, {key: disks, operator: Gt, values: ["4"]}, {key: disks, operator: Lt, values: ["8"]}`), nil},
		{term("{key: pool, operator: In}"), []string{"spec.nodeSelectorTerm.matchExpressions[0].values: Required value: In and NotIn need one value or more"}},
		{term("{key: pool, operator: NotIn, values: []}"), []string{"matchExpressions[0].values: Required value"}},
		{term("{key: zone, operator: Exists, values: [a]}"), []string{"matchExpressions[0].values: Forbidden: Exists and DoesNotExist take no values"}},
		{term("{key: zone, operator: DoesNotExist, values: [a]}"), []string{"Exists and DoesNotExist take no values"}},
		{term("{key: disks, operator: Gt}"), []string{"matchExpressions[0].values", number}},
		{term(`{key: disks, operator: Lt, values: ["1", "2"]}`), []string{number}},
		{term(`{key: disks, operator: Lt, values: [few]}`), []string{number}},
		{term("{key: zone, operator: Near}"), []string{"matchExpressions[0].operator", `"Near"`, `"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"`}},
		{term("{key: -zone, operator: Exists}"), []string{"matchExpressions[0].key", `"-zone" is not a key that a node label can have`}},
		{term("{key: zone, operator: In, values: [a b]}"), []string{"matchExpressions[0].values[0]", `"a b"`}},
		{term("{key: zone, operator: Exists}, {key: pool, operator: Exists}, {key: zone, operator: Exists}"), []string{"spec.nodeSelectorTerm.matchExpressions", "a key may be given with Exists once only"}},
		{term(strings.Repeat("{key: zone, operator: DoesNotExist}, ", 17)), []string{"matchExpressions", "Too many: 17", "at most 16"}},
	} {
		t.Run(test.spec[:min(len(test.spec), 80)], func(t *testing.T) {
			expectRefusal(t, w.try(t, "topologydisruptionbudgets", budget("steady", test.spec)), test.want...)
		})
	}
}

// Defaults are in the stored object.
func (w *writer) testDefaults(t *testing.T) {
	stored, _, err := w.write(t.Context(), "routingpolicies", routingPolicy("near", "{capacity: {}}"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(stored.Object["spec"])
	if err != nil {
		t.Fatal(err)
	}
	const want = "capacity:\n  type: Nodes\noverloadThreshold: 50%\n"
	if string(got) != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func (w *writer) testEndpointGroup(t *testing.T) {
	for _, test := range []struct {
		spec string
		want []string
	}{
		{
			`{service: web, addressType: IPv4, anyReady: true, tiers: [topology.kubernetes.io/zone, "*"], consumers: [{zone: a}, {zone: b, weight: 500}],
			  ports: [{name: http, port: 80}], endpoints: [{address: 10.0.0.1, zone: a, node: a1, domains: {rack: r1}}, {address: 10.0.0.2, notReady: true}]}`, nil,
		},
		{`{service: web, addressType: IPv6, endpoints: [{address: "fd00::1"}]}`, nil},
		{`{addressType: IPv4}`, []string{"spec.service", "Required"}},
		{`{service: web, addressType: FQDN}`, []string{"spec.addressType", `"FQDN"`, `"IPv4", "IPv6"`}},
		{`{service: web, addressType: IPv4, endpoints: [{address: web.example}]}`, []string{"spec.endpoints[0].address", `"web.example"`}},
		{`{service: web, addressType: IPv4, consumers: [{zone: a}, {zone: a}]}`, []string{"spec.consumers[1]", "Duplicate"}},
		{`{service: web, addressType: IPv4, consumers: [{zone: a, weight: 0}]}`, []string{"spec.consumers[0].weight", "greater than or equal to 1"}},
		{`{service: web, addressType: IPv4, ports: [{port: 0}]}`, []string{"spec.ports[0].port", "greater than or equal to 1"}},
		{`{service: web, addressType: IPv4, ports: [{port: 80, protocol: ICMP}]}`, []string{"spec.ports[0].protocol", `"ICMP"`}},
		{`{service: web, addressType: IPv4, endpoints: [` + endpoints(1001) + `]}`, []string{"spec.endpoints", "1001", "1000"}},
	} {
		t.Run(test.spec[:min(len(test.spec), 60)], func(t *testing.T) {
			object := fmt.Sprintf("{apiVersion: vicinity.dev/v1alpha1, kind: EndpointGroup, metadata: {name: web-1}, spec: %s}", test.spec)
			expectRefusal(t, w.try(t, "endpointgroups", object), test.want...)
		})
	}
}

func (w *writer) testPodLocator(t *testing.T) {
	for _, test := range []struct {
		fields string
		want   []string
	}{
		{`ips: [10.0.0.1, "fd00::1"], nodeName: n1, nodeLabels: {topology.kubernetes.io/zone: a}`, nil},
		{`ips: [10.0.0.1]`, nil}, // its node was deleted
		{`ips: [10.0.0.1], podCreationTimestamp: "2026-01-02T03:04:05Z"`, nil},
		{`podCreationTimestamp: yesterday`, []string{"podCreationTimestamp", "date-time"}},
		{`ips: [web.example]`, []string{"ips[0]", `"web.example"`}},
		{`ips: [""]`, []string{"ips[0]", "at least 2"}},
		{`nodeName: ` + strings.Repeat("n", 254), []string{"nodeName", "Too long"}},
		{`nodeLabels: {a: 1}`, []string{"nodeLabels.a", "string"}},
		{`ips: [` + strings.Repeat("10.0.0.1, ", 17) + `]`, []string{"ips", "17", "16"}},
	} {
		t.Run(test.fields[:min(len(test.fields), 60)], func(t *testing.T) {
			object := fmt.Sprintf("{apiVersion: vicinity.dev/v1alpha1, kind: PodLocator, metadata: {name: web-1}, %s}", test.fields)
			expectRefusal(t, w.try(t, "podlocators", object), test.want...)
		})
	}
}

func endpoints(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("{address: 10.0.%d.%d}", i/250, i%250)
	}
	return strings.Join(list, ", ")
}

// With strict validation, which is kubectl's default, an unknown field is refused. Otherwise it is
// dropped.
func (w *writer) testUnknownFields(t *testing.T) {
	expectRefusal(t, w.try(t, "routingpolicies", routingPolicy("far", "{modes: Prefer}")), `unknown field "spec.modes"`)
	stored, texts, err := w.write(t.Context(), "routingpolicies", routingPolicy("far", "{modes: Prefer}"), metav1.CreateOptions{FieldValidation: metav1.FieldValidationWarn})
	if err != nil {
		t.Fatal(err)
	}
	if _, found, _ := unstructured.NestedString(stored.Object, "spec", "modes"); found {
		t.Error("spec.modes is stored")
	}
	if len(texts) != 1 || texts[0] != `unknown field "spec.modes"` {
		t.Errorf("warnings %q", texts)
	}
}
