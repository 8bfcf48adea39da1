package api_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func zoneShift(name, spec string) string {
	return fmt.Sprintf("{apiVersion: vicinity.dev/v1alpha1, kind: ZoneShift, metadata: {name: %s}, spec: %s}", name, spec)
}

func (w *writer) testZoneShift(t *testing.T) {
	const lasts = "must be a duration from 1m to 72h, such as 90m or 1h"
	of := func(fields string) string { return "{from: {value: zone-a}, reason: packet loss, " + fields + "}" }
	for _, test := range []struct {
		spec string
		want []string // words of the refusal
	}{
		{of("for: 1h"), nil},
		{of("for: 72h, ramp: '0', maxOverload: 1, services: {selector: {matchLabels: {app: web}}, namespaceSelector: {}}"), nil},
		{"{from: {key: example.com/rack, value: r-1}, for: 1m, reason: a}", nil},

		{"{from: {value: zone-a}, reason: a}", []string{"spec.for: Required value"}},
		{of("for: 59s"), []string{"spec.for", lasts}},
		{of("for: 73h"), []string{"spec.for", lasts}},
		{of("for: tomorrow"), []string{"spec.for", lasts}},
		{of("for: 1h, ramp: 61m"), []string{"spec.ramp", "must be a duration from 0s to 1h, such as 1m"}},
		{of("for: 1h, drainConnections: 0s"), nil},
		{of("for: 1h, drainConnections: 2h"), []string{"spec.drainConnections", "must be a duration from 0s to 1h, such as "}},
		{of("for: 1h, maxOverload: 0"), []string{"spec.maxOverload", "greater than or equal to 1"}},
		{of("for: 1h, maxOverload: 10001"), []string{"spec.maxOverload", "less than or equal to 10000"}},
		{"{for: 1h, reason: a}", []string{"spec.from: Required value"}},
		{"{from: {key: zone}, for: 1h, reason: a}", []string{"spec.from.value: Required value"}},
		{"{from: {value: zone a}, for: 1h, reason: a}", []string{"spec.from.value", `"zone a" is not a value that a node label can have`}},
		{"{from: {key: -zone, value: a}, for: 1h, reason: a}", []string{"spec.from.key", `"-zone" is not a key that a node label can have`}},
		{"{from: {value: zone-a}, for: 1h}", []string{"spec.reason: Required value"}},
		{"{from: {value: zone-a}, for: 1h, reason: ' '}", []string{"spec.reason", "must say why the domain is taken out of service"}},
		{"{from: {value: zone-a}, for: 1h, reason: " + strings.Repeat("a", 513) + "}", []string{"spec.reason", "512"}},
		{of("for: 1h, services: {selector: {matchExpressions: [{key: app, operator: In}]}}"), []string{"spec.services.selector.matchExpressions", "each operator must be In or NotIn, with values"}},
	} {
		expectRefusal(t, w.try(t, "zoneshifts", zoneShift("tried", test.spec)), test.want...)
	}
	stored, _, err := w.write(t.Context(), "zoneshifts", zoneShift("stored", of("for: 1h")), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	spec, _ := stored.Object["spec"].(map[string]any)
	if from, _ := spec["from"].(map[string]any); from["key"] != "topology.kubernetes.io/zone" || spec["ramp"] != "1m" || spec["maxOverload"] != int64(50) {
		t.Errorf("the defaults are %v", spec)
	}
	expectRefusal(t, w.try(t, "zoneshifts", zoneShift("stored", of("for: 2h"))))
	expectRefusal(t, w.try(t, "zoneshifts", zoneShift("stored", "{from: {value: zone-b}, for: 1h, reason: a}")), "spec.from", "cannot be changed; delete the ZoneShift, and create one for the other domain")
}
