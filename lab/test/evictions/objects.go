package evictions

import (
	_ "embed" // for manifests
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/lab/shape"
)

var (
	//go:embed manifests/deployment.yaml
	deployment string
	//go:embed manifests/statefulset.yaml
	statefulSet string
	// podTemplate runs the pods of both on nodes without network, spread evenly over their zones.
	//go:embed manifests/pods.yaml
	podTemplate string
	//go:embed manifests/by-zone.yaml
	byZone string
	//go:embed manifests/native.yaml
	nativeBudget string
	//go:embed manifests/rollout.yaml
	rollout string
)

// Domains maps all nodes of a lab to their zones.
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
	// StartTime is the time that a pod takes to get ready, and Labels are more labels of its pods.
	StartTime time.Duration
	Labels    map[string]string
	// Responder, if set, is the controller that pods name for EvictionRequests.
	Responder string
	// Toleration, if not zero, is how long pods stay on a lost node.
	Toleration time.Duration
}

// Manifest returns the Deployment.
func (w Workload) Manifest() string {
	text := deployment + podTemplate
	if w.Responder != "" {
		text += fmt.Sprintf("      evictionResponders: [{name: %s, priority: 10000}]\n", w.Responder)
	}
	if w.Toleration > 0 {
		text += fmt.Sprintf("      tolerations: [{key: %s, operator: Exists, effect: NoExecute, tolerationSeconds: %d}]\n", corev1.TaintNodeUnreachable, int(w.Toleration.Seconds()))
	}
	labels := ""
	for key, value := range w.Labels {
		labels += fmt.Sprintf(", %s: %q", key, value)
	}
	return strings.NewReplacer("$NAME", w.Name, "$REPLICAS", strconv.Itoa(w.Replicas), "$LABELS", labels, "$START_TIME", w.StartTime.String()).Replace(text)
}

// ByZone returns a TopologyDisruptionBudget by zone for the pods with a label, with more lines of its
// spec.
func ByZone(name, key, value string, spec ...string) string {
	text := strings.NewReplacer("$NAME", name, "$KEY", key, "$VALUE", value).Replace(byZone)
	for _, line := range spec {
		text += "  " + line + "\n"
	}
	return text
}

// OneAtATime returns a PodDisruptionBudget that allows one pod of a workload down.
func OneAtATime(workload string) string { return native(workload, "app", workload, 1) }

func native(name, key, value string, maxUnavailable int) string {
	return strings.NewReplacer("$NAME", name, "$KEY", key, "$VALUE", value, "$MOST", strconv.Itoa(maxUnavailable)).Replace(nativeBudget)
}
