package evictions

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/lab/shape"
)

// Domains are the zones of all nodes of a lab.
func Domains(s shape.Shape) map[string]string {
	domains := map[string]string{}
	for _, node := range append(s.Nodes(), s.FakeNodeList()...) {
		domains[node.Name] = node.Zone
	}
	return domains
}

// Workload is a Deployment on nodes without network, spread evenly over their zones.
type Workload struct {
	Name     string
	Replicas int
	// StartTime is how long a pod takes to get ready, and Labels are more labels of its pods.
	StartTime time.Duration
	Labels    map[string]string
	// Responder, if given, is what pods name as their controller for EvictionRequests.
	Responder string
	// Toleration, if not zero, is how long pods stay on a node that is lost.
	Toleration time.Duration
}

// Manifest is the Deployment.
func (w Workload) Manifest() string {
	more := ""
	if w.Responder != "" {
		more = fmt.Sprintf("\n      evictionResponders: [{name: %s, priority: 10000}]", w.Responder)
	}
	if w.Toleration > 0 {
		more += fmt.Sprintf("\n      tolerations: [{key: %s, operator: Exists, effect: NoExecute, tolerationSeconds: %d}]", corev1.TaintNodeUnreachable, int(w.Toleration.Seconds()))
	}
	var labels strings.Builder
	for key, value := range w.Labels {
		fmt.Fprintf(&labels, ", %s: %q", key, value)
	}
	return fmt.Sprintf(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s%[3]s}
      annotations: {%[4]s: %[5]s}
    spec:
      terminationGracePeriodSeconds: 1
      automountServiceAccountToken: false
      nodeSelector: {%[6]s: "true"}
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: DoNotSchedule
        labelSelector: {matchLabels: {app: %[1]s}}
      containers: [{name: main, image: none}]%[7]s
`, w.Name, w.Replicas, labels.String(), shape.AnnotationStartTime, w.StartTime, shape.LabelFake, more)
}

// ByZone is a TopologyDisruptionBudget by zone for the pods with a label, with more lines of its
// spec.
func ByZone(name, key, value string, spec ...string) string {
	var more strings.Builder
	for _, line := range spec {
		fmt.Fprintf(&more, "  %s\n", line)
	}
	return fmt.Sprintf(`---
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: %s}
spec:
  selector: {matchLabels: {%s: %q}}
  nodeSelectorTerm:
    matchExpressions: [{key: topology.kubernetes.io/zone, operator: Exists}]
%s`, name, key, value, more.String())
}

// OneAtATime is a PodDisruptionBudget that lets one pod of a workload go at a time.
func OneAtATime(workload string) string { return native(workload, "app", workload, 1) }

// native is a PodDisruptionBudget for the pods with a label.
func native(name, key, value string, maxUnavailable int) string {
	return fmt.Sprintf("---\napiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: %s}\nspec: {maxUnavailable: %d, selector: {matchLabels: {%s: %q}}}\n",
		name, maxUnavailable, key, value)
}
