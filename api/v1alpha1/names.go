package v1alpha1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Annotations of a Service that say what it asks for.
const (
	AnnotationSameNode     = "endpointslice.kubernetes.io/same-node"
	AnnotationSameZone     = "endpointslice.kubernetes.io/same-zone"
	AnnotationSameRegion   = "endpointslice.kubernetes.io/same-region"
	AnnotationTopologyKeys = "vicinity.dev/topology-keys"
	AnnotationTopologyMode = corev1.AnnotationTopologyMode
	// AnnotationTopologyAwareHints is the older name of AnnotationTopologyMode, which
	// wins over it.
	AnnotationTopologyAwareHints = corev1.DeprecatedAnnotationTopologyAwareHints
)

// The modes, which are the values of the annotations same-node, same-zone and same-region
// too.
const (
	Balanced = "Balanced"
	Prefer   = "Prefer"
	Require  = "Require"
)

// PolicyPrefix is what a value of AnnotationTopologyMode that names a RoutingPolicy
// starts with.
const PolicyPrefix = "vicinity.dev/"

// AnnotationProxy is the annotation of a Service that wants vicinity-proxy to serve
// it, from groups instead of hints. Its value must be "true".
const AnnotationProxy = "vicinity.dev/proxy"

// LabelOwnZone is the label of a Service, from the Gardener project, that asks to
// hint every endpoint to its own zone. Its value must be "true".
const LabelOwnZone = "endpoint-slice-hints.resources.gardener.cloud/consider"

// MaxHints is how many zones, and how many nodes, the Kubernetes API takes as hints of an
// endpoint.
const MaxHints = 8

// LabelRouted is the label that the controller puts on Services whose slices have
// hints of its own, so that Kubernetes copies it to the slices. Its value is "true".
const LabelRouted = "vicinity.dev/routed"

// ConditionTopologyRouting is the type of the condition in which a Service's outcome
// is kept.
const ConditionTopologyRouting = "vicinity.dev/TopologyRouting"

// AnnotationHeld is the annotation of an EndpointSlice that lists hints which the plan
// takes away, but which stay for a while: the addresses, by their zones joined by commas.
// It is written with the hints, so that a controller that starts then can read the plan.
const AnnotationHeld = "vicinity.dev/held"

// AnnotationGroupMarks is the annotation of an EndpointGroup by which the controller
// tells planned endpoints from those that stay for a while. Proxies do not need it.
const AnnotationGroupMarks = "vicinity.dev/marks"

// LabelManagedBy is the label of PodLocators and PodDisruptionBudgets that the controller
// made, with the value ManagedByController. It deletes those when what they were made for is
// gone, and no others.
const LabelManagedBy = "vicinity.dev/managed-by"

// ManagedByController is the value of LabelManagedBy.
const ManagedByController = "vicinity-controller"

// ManagedByKubernetes is the value of the label endpointslice.kubernetes.io/managed-by of
// slices that Kubernetes' own controller writes, which copies the labels of the Service to
// them.
const ManagedByKubernetes = "endpointslice-controller.k8s.io"

// Labels of nodes that run the control plane. Taints that keep other pods off them have
// the same keys.
const (
	LabelControlPlane = "node-role.kubernetes.io/control-plane"
	LabelMaster       = "node-role.kubernetes.io/master"
)

// LabelBudgets is the label that the controller keeps on each namespace that has a
// TopologyDisruptionBudget, so that the webhook of evictions is asked there and nowhere
// else. Its value is "true".
const LabelBudgets = "vicinity.dev/disruption-budgets"

// AnnotationBreakGlass is the annotation of a TopologyDisruptionBudget that lets every
// eviction through for a while: a time as in RFC 3339, a space, and the reason.
const AnnotationBreakGlass = "vicinity.dev/break-glass"

// LabelEvictionRequests is the label of a namespace whose pods name EvictionResponder when
// they are made. Its value must be "true".
const LabelEvictionRequests = "vicinity.dev/eviction-requests"

// EvictionResponder is the name by which Vicinity answers EvictionRequests.
const EvictionResponder = "vicinity.dev/budget"

// EvictionResponderPriority is the priority of EvictionResponder. The controller of the pod, with
// 10000, and Kubernetes' evictor come after it. A responder that must act before the budgets needs
// a higher one.
const EvictionResponderPriority = 90000

// AnnotationEvictionReason is the annotation of EvictionRequests and evictions of Vicinity
// that says what they are for, for people and audit logs.
const AnnotationEvictionReason = "vicinity.dev/eviction-reason"

// AnnotationAbandonedRevision is the annotation of a pod that a rollout deletes rather than evicts:
// the revision that the pod is of, which failed or was rolled back. The controller writes it just
// before; a policy of admission lets it delete pods that have it and are not ready, and no others.
const AnnotationAbandonedRevision = "vicinity.dev/abandoned-revision"

// RolloutGate is the scheduling gate in the pod template of a Deployment by which its pods wait until a
// DomainRollout releases them.
const RolloutGate = "vicinity.dev/rollout"

// AnnotationReleasedFor is the annotation of a pod of a Deployment that was released to replace another one. Its
// value is the name of the first pod in that place: a pod that is replaced hands it on.
const AnnotationReleasedFor = "vicinity.dev/released-for"

// AnnotationReleasedAt is the annotation of a pod of a Deployment that says, as RFC 3339, when it was released.
const AnnotationReleasedAt = "vicinity.dev/released-at"

// RolloutDeletionCost is the deletion cost of pods that a rollout has its Deployment delete next, the
// lowest there is. AnnotationDeletionCost has the same value. While a pod of a Deployment has it, no
// other cost is written to pods of that Deployment.
const RolloutDeletionCost = "-2147483648"

// AnnotationDeploymentRevision is the annotation in which Kubernetes counts the revisions of a Deployment. It
// is that of the ReplicaSet which has the template of the Deployment, too.
const AnnotationDeploymentRevision = "deployment.kubernetes.io/revision"

// AnnotationKeepSpread is the annotation of a Deployment, a ReplicaSet or a namespace whose pods
// are deleted in the order that keeps them spread over failure domains. Its value is the label of nodes that
// divides them into domains. That of a workload wins over that of its namespace; if it is empty, the
// workload is left alone.
const AnnotationKeepSpread = "vicinity.dev/keep-spread"

// AnnotationDeletionCost is the annotation of a pod whose deletion cost Vicinity has written. Its value is
// that cost: where the two differ, another owner has set it.
const AnnotationDeletionCost = "vicinity.dev/deletion-cost"

// AnnotationGoesUntil is the annotation of a pod that a paced scale-down removes. Until its time, as RFC 3339, nothing else
// writes deletion costs to pods of the workload.
const AnnotationGoesUntil = "vicinity.dev/goes-until"

// AnnotationRepairSpread is the annotation of a Deployment with AnnotationKeepSpread, or of its namespace, that has
// pods evicted while a rolling update has left them in the wrong domains. Its value must be "true".
const AnnotationRepairSpread = "vicinity.dev/repair-spread"

// AnnotationSpreadOrdinals is the annotation in the pod template of a StatefulSet that has its ordinals take turns over
// failure domains. Its value is the label of nodes that divides them into domains.
const AnnotationSpreadOrdinals = "vicinity.dev/spread-ordinals"

// PaceScaleDown is the label of a namespace, and the annotation of a Deployment, a StatefulSet or a ReplicaSet in such a
// namespace, that has budgets bound its scale-downs. The annotation wins over the label; if it is empty, the workload
// is left alone. The API server asks the webhook only in namespaces with the label.
const PaceScaleDown = "vicinity.dev/pace-scale-down"

// Values of PaceScaleDown.
const (
	// PaceDeny refuses a scale-down that budgets do not allow whole.
	PaceDeny = "Deny"
	// PaceClamp has as many pods go as budgets allow, and the rest later.
	PaceClamp = "Clamp"
	// PaceAnnotated, of a namespace, is for those workloads alone that have the annotation.
	PaceAnnotated = "Annotated"
)

// ConfigMapScaleDowns is the ConfigMap, in the namespace of Vicinity, with the replicas that writes of the subresource scale
// asked for under PaceClamp, until the annotations of the workloads have them.
const ConfigMapScaleDowns = "vicinity-scale-downs"

// AnnotationWantedReplicas is the annotation of a workload whose scale-down is under way by PaceClamp: the replicas
// that were asked for. AnnotationPacedReplicas beside it has the replicas that the controller set last. A workload with
// more was scaled up meanwhile.
const (
	AnnotationWantedReplicas = "vicinity.dev/wanted-replicas"
	AnnotationPacedReplicas  = "vicinity.dev/paced-replicas"
)

// OwnAnnotations are the annotations of an object that are Vicinity's, nil if it has none. Caches keep
// these of the many objects of which they keep little.
func OwnAnnotations(object map[string]string) map[string]string {
	var own map[string]string
	for name, value := range object {
		if strings.HasPrefix(name, "vicinity.dev/") {
			if own == nil {
				own = map[string]string{}
			}
			own[name] = value
		}
	}
	return own
}
