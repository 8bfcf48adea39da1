package pacing

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/scaledown/spread"
)

// Kind is the kind of a workload that can be scaled down.
type Kind string

// The kinds.
const (
	Deployment  Kind = "Deployment"
	StatefulSet Kind = "StatefulSet"
	ReplicaSet  Kind = "ReplicaSet"
	// Scale is the subresource of any other workload, which must remove pods as a ReplicaSet does, or at least by deletion cost.
	Scale Kind = "Scale"
)

// Kinds lists the kinds that can be read.
func Kinds() []Kind { return []Kind{Deployment, StatefulSet, ReplicaSet} }

// New makes an empty object of the kind.
func (k Kind) New() client.Object {
	switch k {
	case StatefulSet:
		return &appsv1.StatefulSet{}
	case ReplicaSet:
		return &appsv1.ReplicaSet{}
	case Scale:
		return &autoscalingv1.Scale{}
	default:
		return &appsv1.Deployment{}
	}
}

// Workload is a stored workload.
type Workload struct {
	Kind     Kind
	Object   client.Object
	Replicas int32
	// Wanted is the final number of replicas of a running scale-down, and Paced the number of its last step. Both are nil without a
	// scale-down.
	Wanted, Paced *int32

	selector *metav1.LabelSelector
	pods     string // the selector of a Scale
	start    int32  // the lowest ordinal
}

// String names the workload for people.
func (w Workload) String() string {
	return fmt.Sprintf("%s %s/%s", w.Kind, w.Object.GetNamespace(), w.Object.GetName())
}

// Of reads a workload.
func Of(object client.Object) Workload {
	w := Workload{Object: object}
	var replicas *int32
	switch o := object.(type) {
	case *appsv1.Deployment:
		w.Kind, w.selector, replicas = Deployment, o.Spec.Selector, o.Spec.Replicas
	case *appsv1.StatefulSet:
		w.Kind, w.selector, replicas = StatefulSet, o.Spec.Selector, o.Spec.Replicas
		w.start = ptr.Deref(o.Spec.Ordinals, appsv1.StatefulSetOrdinals{}).Start
	case *appsv1.ReplicaSet:
		w.Kind, w.selector, replicas = ReplicaSet, o.Spec.Selector, o.Spec.Replicas
	case *autoscalingv1.Scale:
		w.Kind, w.pods, replicas = Scale, o.Status.Selector, &o.Spec.Replicas
	}
	w.Replicas = ptr.Deref(replicas, 1)
	w.Wanted = readNumber(object.GetAnnotations()[v1alpha1.AnnotationWantedReplicas])
	w.Paced = readNumber(object.GetAnnotations()[v1alpha1.AnnotationPacedReplicas])
	return w
}

// readNumber returns nil if the text is not a number of replicas.
func readNumber(text string) *int32 {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return nil
	}
	return new(int32(n))
}

// OfDeployment reports whether a Deployment controls the workload. Then the Deployment is paced instead.
func (w Workload) OfDeployment() bool {
	owner := metav1.GetControllerOfNoCopy(w.Object)
	return w.Kind == ReplicaSet && owner != nil && owner.Kind == string(Deployment)
}

// ReadMode reads the namespace of a workload, and returns the workload's mode.
func ReadMode(ctx context.Context, namespaces client.Reader, w Workload) (string, error) {
	namespace, err := shell.ReadNamespace(ctx, namespaces, w.Object.GetNamespace())
	if err != nil {
		return "", err
	}
	return w.Mode(namespace.Labels), nil
}

// Mode returns how the scale-downs of a workload are bounded: v1alpha1.PaceDeny, PaceClamp, or empty for not at all. Any other value
// denies, so that the mistake is noticed. The labels are those of the workload's namespace. Annotations of a Scale do not count: the user
// who writes it chooses them, and the workload never has them.
func (w Workload) Mode(namespace map[string]string) string {
	mode, labelled := namespace[v1alpha1.PaceScaleDown]
	if !labelled || w.OfDeployment() {
		return ""
	}
	if own, annotated := w.Object.GetAnnotations()[v1alpha1.PaceScaleDown]; annotated && w.Kind != Scale {
		mode = own
	} else if mode == v1alpha1.PaceAnnotated {
		return ""
	}
	if mode != "" && mode != v1alpha1.PaceClamp {
		return v1alpha1.PaceDeny
	}
	return mode
}

// Read reads a workload. It returns nil if the workload does not exist.
func Read(ctx context.Context, reader client.Reader, kind Kind, key types.NamespacedName) (*Workload, error) {
	object := kind.New()
	if err := reader.Get(ctx, key, object); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("reading %s %s: %w", kind, key, err)
	}
	w := Of(object)
	return &w, nil
}

// Annotate sets annotations of a workload and removes those whose value is nil. It fails if the workload has changed since it was
// read. It returns the stored workload: the webhook may have turned the write into a step of the scale-down.
func Annotate(ctx context.Context, writer client.Writer, w Workload, annotations map[string]*string) (Workload, error) {
	stored := w.Kind.New()
	if err := shell.Annotate(ctx, writer, w.Object, stored, annotations); err != nil {
		return Workload{}, err
	}
	return Of(stored), nil
}

func (w Workload) labelSelector() (labels.Selector, error) {
	selector, err := metav1.LabelSelectorAsSelector(w.selector)
	if w.Kind == Scale { // without a selector, the owner alone counts
		selector, err = labels.Parse(w.pods)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the selector of %s: %w", w, err)
	}
	return selector, nil
}

var phases = map[corev1.PodPhase]spread.Phase{corev1.PodUnknown: spread.Unknown, corev1.PodRunning: spread.Running}

// RankedPod converts a pod of a ReplicaSet for package spread, without its domain.
func RankedPod(pod *corev1.Pod) spread.Pod {
	p := spread.Pod{
		Name: pod.Name, Set: metav1.GetControllerOfNoCopy(pod).Name, Node: pod.Spec.NodeName,
		Phase: phases[pod.Status.Phase], UID: string(pod.UID), Created: pod.CreationTimestamp.Time,
	}
	p.Ready, p.ReadySince = coverage.Readiness(pod)
	if cost, set := pod.Annotations[corev1.PodDeletionCost]; set {
		p.Cost, p.Foreign = deletionCost(cost), pod.Annotations[v1alpha1.AnnotationDeletionCost] != cost
	}
	return p
}

// deletionCost reads a cost as ReplicaSets do. A value that they do not accept is 0.
func deletionCost(text string) int32 {
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "0") {
		return 0
	}
	cost, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int32(cost)
}

// isActive reports whether a ReplicaSet counts a pod.
func isActive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// GoesUntil returns until when the deletion cost of a pod must stay, because a paced scale-down removes the pod. It is zero
// without a mark, if the time is over, or if no Pacer can have written it.
func GoesUntil(pod *corev1.Pod, now time.Time) time.Time {
	until, err := time.Parse(time.RFC3339, pod.Annotations[v1alpha1.AnnotationGoesUntil])
	if err != nil || !until.After(now) || until.After(now.Add(disruption.ReservationTime+disruption.ClockSkew)) {
		return time.Time{}
	}
	return until
}
