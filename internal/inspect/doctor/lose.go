package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Loss is the input of a rehearsal: a cluster, and the zone that it loses.
type Loss struct {
	Zone string
	// Bound is the most overload of an endpoint, in percent of its traffic today.
	Bound int
	// Unread says why kinds could not be read, by the name of their resource. Their fields are empty.
	Unread map[Source]string

	Nodes       []*corev1.Node
	Pods        []*corev1.Pod
	Services    []*corev1.Service
	Slices      []*discoveryv1.EndpointSlice
	Volumes     []*corev1.PersistentVolume
	Claims      []*corev1.PersistentVolumeClaim
	PDBs        []*policyv1.PodDisruptionBudget
	Autoscalers []*autoscalingv2.HorizontalPodAutoscaler
	Webhooks    []inspect.WebhookConfiguration // of all programs
}

// lossConsequences are the judgements of a rehearsal that need a resource. It always needs nodes and pods.
var lossConsequences = map[Source]string{
	"services":                        "which Services lose all endpoints, and whether the cluster's DNS does",
	"endpointslices":                  "which Services, webhooks and API servers have endpoints in the zone only",
	"persistentvolumes":               "which volumes are only in the zone",
	"persistentvolumeclaims":          "which volumes pods have",
	"poddisruptionbudgets":            "which PodDisruptionBudgets freeze evictions",
	"horizontalpodautoscalers":        "which autoscalers cannot add pods",
	"mutatingwebhookconfigurations":   "which mutating webhooks fail",
	"validatingwebhookconfigurations": "which validating webhooks fail",
}

// LostZone is a summary of what goes with a zone, and of the room for its pods. Finished pods do not count.
type LostZone struct {
	Zone      string `json:"zone"`
	Nodes     int    `json:"nodes"`
	LostNodes int    `json:"lostNodes"`
	Pods      int    `json:"pods"`
	LostPods  int    `json:"lostPods"`
	// MovingPods are the lost pods that their controllers create again. Requested are their requests.
	MovingPods int                 `json:"movingPods"`
	Requested  corev1.ResourceList `json:"requested"`
	// Free is not requested on the other nodes that take pods, without nodes of the control plane.
	Free corev1.ResourceList `json:"free"`
}

// Lines writes the summary for people.
func (z *LostZone) Lines() string {
	return fmt.Sprintf("If zone %q goes now: %d of %s and %d of %s are lost.\n%s must move, with requests of %s. The other nodes have %s free.\n", z.Zone,
		z.LostNodes, plaintext.Plural(z.Nodes, "node"), z.LostPods, plaintext.Plural(z.Pods, "pod"), plaintext.Plural(z.MovingPods, "pod"), amount(z.Requested), amount(z.Free))
}

// Rehearse judges what breaks if a zone goes now. It fails if the zone does not exist or is the only one.
func Rehearse(l *Loss) (*Report, error) {
	zones, _ := nodeZones(l.Nodes)
	switch names := slices.Sorted(maps.Keys(zones)); {
	case len(names) == 0:
		return nil, errors.New("no node has the label " + corev1.LabelTopologyZone + ", so there is no zone to lose")
	case zones[l.Zone] == nil:
		return nil, fmt.Errorf("zone %q has no node; the zones are %s", l.Zone, plaintext.List(names))
	case len(names) == 1:
		return nil, fmt.Errorf("zone %q is the only zone, so nothing is left without it", l.Zone)
	}
	r := newRehearsal(l)
	r.checkPlaces()
	r.checkMembers()
	r.checkControlPlane()
	r.checkWebhooks()
	r.checkServices()
	r.checkWorkloads()
	r.checkEvictions()
	report := r.report()
	report.Loss, report.NotKnown = &r.summary, notKnown(lossConsequences, l.Unread)
	return report, nil
}

// workload has the pods of a controller that have not finished.
type workload struct {
	object     Object
	pods, lost []*corev1.Pod
	// stays and goes count the ready pods outside the zone and in it.
	stays, goes int
	// explained says that a finding names it or a Service of its pods.
	explained bool
	// wanted are the replicas that an overloaded Service needs, 0 for most.
	wanted int
}

// scales reports whether the workload has replicas to lose and to add.
func (w *workload) scales() bool {
	return w.object.Kind == "Deployment" || w.object.Kind == "StatefulSet"
}

type rehearsal struct {
	*Loss
	findings
	summary   LostZone
	inZone    map[string]bool                // by the names and addresses of nodes
	rest      []*corev1.Node                 // outside the zone, sorted
	room      map[string]corev1.ResourceList // that is not requested, by node outside the zone
	on        map[string][]*corev1.Pod       // that do not terminate, by node outside the zone
	pods      map[string][]*corev1.Pod       // that have not finished, by namespace
	moving    []*corev1.Pod                  // lost pods that their controllers create again
	workloads map[Object]*workload
	scalers   map[Object]*autoscalingv2.HorizontalPodAutoscaler
	services  map[types.NamespacedName]*corev1.Service
	endpoints map[types.NamespacedName]readyEndpoints
	reported  map[types.NamespacedName]bool // Services that a finding names
}

func newRehearsal(l *Loss) *rehearsal {
	r := &rehearsal{
		Loss: l, summary: LostZone{Zone: l.Zone, Nodes: len(l.Nodes), Requested: corev1.ResourceList{}, Free: corev1.ResourceList{}}, inZone: map[string]bool{},
		room: map[string]corev1.ResourceList{}, on: map[string][]*corev1.Pod{}, pods: map[string][]*corev1.Pod{}, workloads: map[Object]*workload{}, scalers: map[Object]*autoscalingv2.HorizontalPodAutoscaler{},
		services: byName(l.Services), endpoints: map[types.NamespacedName]readyEndpoints{}, reported: map[types.NamespacedName]bool{},
	}
	for _, node := range slices.SortedFunc(slices.Values(l.Nodes), func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) }) {
		r.inZone[node.Name] = node.Labels[corev1.LabelTopologyZone] == l.Zone
		for _, address := range node.Status.Addresses {
			r.inZone[address.Address] = r.inZone[node.Name]
		}
		if r.inZone[node.Name] {
			r.summary.LostNodes++
		} else {
			r.rest, r.room[node.Name] = append(r.rest, node), node.Status.Allocatable.DeepCopy()
		}
	}
	for _, pod := range l.Pods {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			r.addPod(pod)
		}
	}
	for _, scaler := range l.Autoscalers {
		target := scaler.Spec.ScaleTargetRef
		r.scalers[Object{target.Kind, scaler.Namespace, target.Name}] = scaler
	}
	r.countEndpoints()
	return r
}

func (r *rehearsal) addPod(pod *corev1.Pod) {
	object, node := workloadOf(pod), pod.Spec.NodeName
	w := r.workloads[object]
	if w == nil {
		w = &workload{object: object}
		r.workloads[object] = w
	}
	w.pods, r.pods[pod.Namespace] = append(w.pods, pod), append(r.pods[pod.Namespace], pod)
	r.summary.Pods++
	ready, _ := coverage.Readiness(pod)
	if !r.inZone[node] {
		if ready {
			w.stays++
		}
		if r.room[node] != nil {
			change(r.room[node], requestsOf(pod), (*resource.Quantity).Sub)
		}
		if pod.DeletionTimestamp == nil {
			r.on[node] = append(r.on[node], pod)
		}
		return
	}
	w.lost = append(w.lost, pod)
	r.summary.LostPods++
	if ready {
		w.goes++
	}
	// A terminating pod is replaced already.
	if stays := []string{"DaemonSet", "Pod", staticPods}; pod.DeletionTimestamp == nil && !slices.Contains(stays, object.Kind) {
		r.moving = append(r.moving, pod)
	}
}

func byName[T named](list []T) map[types.NamespacedName]T {
	all := map[types.NamespacedName]T{}
	for _, object := range list {
		all[types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}] = object
	}
	return all
}

// only returns the pods that match.
func only(pods []*corev1.Pod, matches func(*corev1.Pod) bool) []*corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return !matches(pod) })
}

func selectorOf(selector *metav1.LabelSelector) func(*corev1.Pod) bool {
	read, err := metav1.LabelSelectorAsSelector(selector)
	return func(pod *corev1.Pod) bool { return err == nil && read.Matches(labels.Set(pod.Labels)) }
}

// staticPods is the kind of the static pods of one component, which are in no object.
const staticPods = "StaticPods"

// controllerOf returns the controller of a pod, or the pod if it has none.
func controllerOf(pod *corev1.Pod) Object {
	switch owner := metav1.GetControllerOfNoCopy(pod); {
	case owner == nil:
		return objectOf("Pod", pod)
	case owner.Kind == "Node":
		return Object{staticPods, pod.Namespace, cmp.Or(pod.Labels["component"], pod.Name)}
	default:
		return Object{owner.Kind, pod.Namespace, owner.Name}
	}
}

// workloadOf is controllerOf, with the Deployment of a ReplicaSet.
func workloadOf(pod *corev1.Pod) Object {
	object := controllerOf(pod)
	if hash := pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; object.Kind == "ReplicaSet" && hash != "" {
		if name, cut := strings.CutSuffix(object.Name, "-"+hash); cut {
			object.Kind, object.Name = "Deployment", name
		}
	}
	return object
}
