package api_test

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func domainRollout(name, spec string) string {
	return fmt.Sprintf("{apiVersion: vicinity.dev/v1alpha1, kind: DomainRollout, metadata: {name: %s}, spec: %s}", name, spec)
}

func (w *writer) testDomainRollout(t *testing.T) {
	const (
		amount = "must be a number of pods, 1 or more, or a percentage from 1% to 100%"
		bake   = "must be a duration from 0s to 168h, such as 90s or 5m"
	)
	of := func(fields string) string {
		return "{targetRef: {kind: StatefulSet, name: db}, topologyKey: topology.kubernetes.io/zone, " + fields + "}"
	}
	gate := func(fields string) string { return of("healthGate: {" + fields + "}") }
	for _, test := range []struct {
		spec string
		want []string // words of the refusal
	}{
		{of("paused: false"), nil},
		{of(`order: [zone-b, zone-a], maxUnavailable: "25%", waves: {type: Exponential, most: 8}, bakeTime: 5m, pauseBefore: [zone-c],
		  healthGate: {readyFor: 30s, progressDeadline: 10m, prometheus: {url: "https://prometheus.example:9090/tenant", query: "up > 0"}, maxOverload: 40%},
		  onFailure: Rollback, approved: {revision: db-1, domains: [zone-c], failuresBefore: "2026-03-01T10:00:00Z"}, stop: {revision: db-1, action: Abort}`), nil},

		{"{topologyKey: zone}", []string{"spec.targetRef: Required value"}},
		{"{targetRef: {kind: StatefulSet, name: db}}", []string{"spec.topologyKey: Required value"}},
		{"{targetRef: {kind: Job, name: db}, topologyKey: zone}", []string{"spec.targetRef.kind", `"Job" is not StatefulSet, DaemonSet or Deployment; a workload of another kind needs apiVersion`}},
		{"{targetRef: {apiVersion: apps/v1, kind: CloneSet, name: db}, topologyKey: zone}", []string{"spec.targetRef.kind", `"CloneSet" is not StatefulSet, DaemonSet or Deployment`}},
		{"{targetRef: {apiVersion: v1, kind: Pod, name: db}, topologyKey: zone}", []string{"spec.targetRef.apiVersion", `"v1" is not a group and a version, such as apps.kruise.io/v1alpha1`}},
		{"{targetRef: {apiVersion: apps/v1, kind: StatefulSet, name: db}, topologyKey: zone, onFailure: Rollback}", nil},
		{"{targetRef: {apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, name: db}, topologyKey: zone}", nil},
		{"{targetRef: {apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, name: db}, topologyKey: zone, onFailure: Rollback}", []string{"spec.onFailure: Forbidden", "Rollback needs a StatefulSet"}},
		{"{targetRef: {apiVersion: apps.kruise.io/v1alpha1, kind: CloneSet, name: db}, topologyKey: zone, stop: {revision: a, action: Rollback}}", []string{"spec.stop: Forbidden", "write the old template"}},
		{"{targetRef: {kind: DaemonSet, name: ''}, topologyKey: zone}", []string{"spec.targetRef.name", "at least 1"}},
		{"{targetRef: {kind: DaemonSet, name: D_b}, topologyKey: zone}", []string{"spec.targetRef.name", `"D_b" is not a name that a workload can have`}},
		{"{targetRef: {kind: DaemonSet, name: db}, topologyKey: -zone}", []string{"spec.topologyKey", `"-zone" is not a key that a node label can have`}},

		{of(`order: [a, b, a]`), []string{"spec.order[2]", `"a"`, "Duplicate"}},
		{of(`order: ["a b"]`), []string{"spec.order[0]", `"a b"`}},
		{of(`order: [""]`), []string{"spec.order[0]", "at least 1"}},
		{of(`pauseBefore: [a, a]`), []string{"spec.pauseBefore[1]", "Duplicate"}},
		{of(`order: [` + domainNames(501) + `]`), []string{"spec.order", "Too many: 501", "at most 500"}},
		{of(`order: [` + domainNames(500) + `]`), nil},

		{of("maxUnavailable: 1"), nil},
		{of("maxUnavailable: 0"), []string{"spec.maxUnavailable", "0", amount}},
		{of(`maxUnavailable: "0%"`), []string{"spec.maxUnavailable", `"0%"`, amount}},
		{of(`maxUnavailable: "101%"`), []string{"spec.maxUnavailable", amount}},
		{of(`maxUnavailable: "2"`), []string{"spec.maxUnavailable", "must be a number, which is written without quotes: 2, or a percentage"}},

		{of("waves: {}"), nil},
		{of("waves: {domains: 2}"), nil},
		{of("waves: {type: All}"), nil},
		{of("waves: {type: All, domains: 2}"), []string{"spec.waves.domains: Forbidden", "has no effect unless type is Fixed"}},
		{of("waves: {type: All, most: 2}"), []string{"spec.waves.most: Forbidden", "has no effect unless type is Exponential"}},
		{of("waves: {type: Linear}"), []string{"spec.waves.type", `"Linear"`, `"Fixed", "Exponential", "All"`}},
		{of("waves: {domains: 0}"), []string{"spec.waves.domains", "greater than or equal to 1"}},
		{of("waves: {type: Fixed, most: 2}"), []string{"spec.waves.most: Forbidden", "has no effect unless type is Exponential"}},

		{of("bakeTime: 168h"), nil},
		{of("bakeTime: 168h1s"), []string{"spec.bakeTime", bake}},
		{of("bakeTime: -5m"), []string{"spec.bakeTime", bake}},
		{of("bakeTime: 5"), []string{"spec.bakeTime", "must be of type string"}},

		{gate("readyFor: 25h"), []string{"spec.healthGate.readyFor", "must be a duration from 0s to 24h"}},
		{gate("progressDeadline: 0s"), []string{"spec.healthGate.progressDeadline", "must be a duration from 1s to 24h"}},
		{gate("progressDeadline: soon"), []string{"spec.healthGate.progressDeadline", "must be a duration from 1s to 24h"}},
		{gate(`maxOverload: "40"`), []string{"spec.healthGate.maxOverload", `"40"`, "must be a percentage from 0 to 1000, such as 40%"}},
		{gate(`maxOverload: "1001%"`), []string{"spec.healthGate.maxOverload", "must be a percentage from 0 to 1000"}},
		{gate(`maxOverload: 0%`), nil},
		{gate(`prometheus: {url: "http://prometheus:9090"}`), []string{"spec.healthGate.prometheus.query: Required value"}},
		{gate(`prometheus: {url: "prometheus:9090", query: up}`), []string{"spec.healthGate.prometheus.url", `"prometheus:9090" is not the URL of a server, such as http://`}},
		{gate(`prometheus: {url: "file:///etc/passwd", query: up}`), []string{"spec.healthGate.prometheus.url", "is not the URL of a server"}},
		{gate(`prometheus: {url: "http://prometheus", query: ""}`), []string{"spec.healthGate.prometheus.query", "at least 1"}},

		{of("onFailure: Ignore"), []string{"spec.onFailure", `"Ignore"`, `"Pause", "Rollback"`}},
		{of("stop: {revision: db-1}"), []string{"spec.stop.action: Required value"}},
		{of("stop: {action: Abort}"), []string{"spec.stop.revision: Required value"}},
		{of("stop: {revision: db-1, action: Undo}"), []string{"spec.stop.action", `"Undo"`, `"Abort", "Rollback"`}},
		{of("approved: {domains: [a]}"), []string{"spec.approved.revision: Required value"}},
		{of("approved: {revision: db-1, failuresBefore: now}"), []string{"spec.approved.failuresBefore", "date-time"}},
	} {
		t.Run(test.spec[:min(len(test.spec), 130)], func(t *testing.T) {
			expectRefusal(t, w.try(t, "domainrollouts", domainRollout("db", test.spec)), test.want...)
		})
	}
	t.Run("another target", func(t *testing.T) {
		if _, _, err := w.write(t.Context(), "domainrollouts", domainRollout("stays", of("paused: true")), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		expectRefusal(t, w.try(t, "domainrollouts", domainRollout("stays", of("paused: false"))))
		expectRefusal(t, w.try(t, "domainrollouts", domainRollout("stays", "{targetRef: {kind: StatefulSet, name: other}, topologyKey: zone}")),
			"spec.targetRef: Forbidden", "cannot be changed; make another DomainRollout for another workload")
	})
}

func domainNames(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("zone-%d", i)
	}
	return strings.Join(names, ", ")
}
