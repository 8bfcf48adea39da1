package v1alpha1

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Annotations of a Service that request routing.
const (
	AnnotationSameNode     = "endpointslice.kubernetes.io/same-node"
	AnnotationSameZone     = "endpointslice.kubernetes.io/same-zone"
	AnnotationSameRegion   = "endpointslice.kubernetes.io/same-region"
	AnnotationTopologyKeys = "vicinity.dev/topology-keys"
	AnnotationTopologyMode = corev1.AnnotationTopologyMode
	// AnnotationTopologyAwareHints is the older name of AnnotationTopologyMode.
	// It takes precedence.
	AnnotationTopologyAwareHints = corev1.DeprecatedAnnotationTopologyAwareHints
)

// The modes. They are also the values of the annotations same-node, same-zone
// and same-region.
const (
	Balanced = "Balanced"
	Prefer   = "Prefer"
	Require  = "Require"
)

// PolicyPrefix is the prefix of a value of AnnotationTopologyMode that names a
// RoutingPolicy.
const PolicyPrefix = "vicinity.dev/"

// MarkRouted is the value of AnnotationTopologyMode that vicinity-controller writes
// for programs that ignore hints of Services without a mode. It names no
// RoutingPolicy: their names have no upper case.
const MarkRouted = PolicyPrefix + "Routed"

// AnnotationProxy is the annotation of a Service that asks vicinity-proxy to
// serve it, from groups instead of hints. Its value must be "true".
const AnnotationProxy = "vicinity.dev/proxy"

// LabelOwnZone is the label of a Service, from the Gardener project, that asks to
// hint every endpoint to its own zone. Its value must be "true".
const LabelOwnZone = "endpoint-slice-hints.resources.gardener.cloud/consider"

// MaxHints is the maximum number of zones, and of nodes, in the hints of an
// endpoint in the Kubernetes API.
const MaxHints = 8

// LabelRouted is the label that the controller puts on Services whose slices
// have its hints. Kubernetes copies it to the slices. Its value is "true".
const LabelRouted = "vicinity.dev/routed"

// ConditionTopologyRouting is the type of the Service condition that holds the
// outcome.
const ConditionTopologyRouting = "vicinity.dev/TopologyRouting"

// AnnotationHeld is the annotation of an EndpointSlice that lists hints which the plan
// takes away, but which stay for a while: the addresses, by their zones joined by commas.
// It is written with the hints, so that a controller that starts then can read the plan.
const AnnotationHeld = "vicinity.dev/held"

// AnnotationGroupMarks is the annotation of an EndpointGroup with the state of its changes,
// such as zones that stop using it. Only the controller reads it.
const AnnotationGroupMarks = "vicinity.dev/marks"

// LabelManagedBy is the label of PodLocators and PodDisruptionBudgets that the
// controller created, with the value ManagedByController. It deletes only
// these, once their pod or budget is gone.
const LabelManagedBy = "vicinity.dev/managed-by"

// ManagedByController is the value of LabelManagedBy.
const ManagedByController = "vicinity-controller"

// ManagedByKubernetes is the value of the label
// endpointslice.kubernetes.io/managed-by on slices of Kubernetes' own
// controller. That controller copies the labels of the Service to them.
const ManagedByKubernetes = "endpointslice-controller.k8s.io"

// LabelAggregate is the label of a ClusterRole with rights to read workloads of
// other kinds, which the controller gets. Its value must be "true".
const LabelAggregate = "vicinity.dev/aggregate-to-controller"

// Labels of control-plane nodes. The taints that keep other pods off these
// nodes have the same keys.
const (
	LabelControlPlane = "node-role.kubernetes.io/control-plane"
	LabelMaster       = "node-role.kubernetes.io/master"
)

// TaintProxyNotReady is the key of the taint that keeps pods off a node until
// its vicinity-proxy has programmed the rules. Nodes join with it if the
// administrator wants that, and the proxy of the node removes it.
const TaintProxyNotReady = "vicinity.dev/proxy-not-ready"

// LabelBudgets is the label that the controller keeps on each namespace with a
// TopologyDisruptionBudget, so that the API server calls the webhook of
// evictions only there. Its value is "true".
const LabelBudgets = "vicinity.dev/disruption-budgets"

// AnnotationBreakGlass is the annotation of a TopologyDisruptionBudget that
// allows every eviction for a while: the end as RFC 3339, a space, and the
// reason.
const AnnotationBreakGlass = "vicinity.dev/break-glass"

// LabelEvictionRequests is the label of a namespace whose new pods name
// EvictionResponder. Its value must be "true".
const LabelEvictionRequests = "vicinity.dev/eviction-requests"

// EvictionResponder is the name of Vicinity's responder to EvictionRequests.
const EvictionResponder = "vicinity.dev/budget"

// EvictionResponderPriority is the priority of EvictionResponder. The controller of the pod, with
// 10000, and Kubernetes' evictor come after it. A responder that must act before the budgets needs
// a higher one.
const EvictionResponderPriority = 90000

// AnnotationEvictionReason is the annotation of Vicinity's EvictionRequests and
// evictions with their purpose, for people and audit logs.
const AnnotationEvictionReason = "vicinity.dev/eviction-reason"

// Requesters of Vicinity's EvictionRequests: DomainRollouts, and repairs of a spread.
const (
	RequesterRollout = "vicinity.dev/rollout"
	RequesterSpread  = "vicinity.dev/spread"
)

// AnnotationAbandonedRevision is the annotation of a pod that a rollout deletes
// rather than evicts: the pod's revision, which failed, was rolled back, or was
// replaced. The controller writes it just before the deletion. An admission
// policy lets it delete only unready pods with this annotation.
const AnnotationAbandonedRevision = "vicinity.dev/abandoned-revision"

// RolloutGate is the scheduling gate in the pod template of a Deployment. Its
// pods wait until a DomainRollout releases them.
const RolloutGate = "vicinity.dev/rollout"

// AnnotationAdopted is the annotation of a workload that "vicinity rollout adopt"
// has changed, with the changed fields as they were. A DomainRollout that adopt
// made has it too, with the value "true".
const AnnotationAdopted = "vicinity.dev/adopted"

// AnnotationReleasedFor is the annotation of a pod of a Deployment that was
// released to replace another one. Its value is the name of the first pod in
// that place: each replacement takes it over.
const AnnotationReleasedFor = "vicinity.dev/released-for"

// AnnotationReleasedAt is the annotation of a pod of a Deployment with the time
// of its release, as RFC 3339.
const AnnotationReleasedAt = "vicinity.dev/released-at"

// RolloutDeletionCost is the deletion cost of pods that the Deployment should
// delete next in a rollout. It is the lowest possible cost.
// AnnotationDeletionCost has the same value. While a pod of a Deployment has
// it, Vicinity writes no other cost to pods of that Deployment.
const RolloutDeletionCost = "-2147483648"

// AnnotationDeploymentRevision is the annotation in which Kubernetes counts the
// revisions of a Deployment. The ReplicaSet with the Deployment's present
// template has the same value.
const AnnotationDeploymentRevision = "deployment.kubernetes.io/revision"

// AnnotationKeepSpread is the annotation of a Deployment, a ReplicaSet or a
// namespace. Its pods are deleted in an order that keeps them spread over
// failure domains. Its value is the node label that defines the domains. A
// workload's value takes precedence over its namespace's; an empty one opts the
// workload out.
const AnnotationKeepSpread = "vicinity.dev/keep-spread"

// AnnotationDeletionCost is the annotation of a pod with the deletion cost that
// Vicinity has written. If the actual cost differs, another owner has set it.
const AnnotationDeletionCost = "vicinity.dev/deletion-cost"

// AnnotationGoesUntil is the annotation of a pod that a paced scale-down removes. Until its time, as RFC 3339, nothing else
// writes deletion costs to pods of the workload.
const AnnotationGoesUntil = "vicinity.dev/goes-until"

// AnnotationRepairSpread is the annotation of a Deployment with
// AnnotationKeepSpread, or of its namespace. Pods that a rolling update has
// left in the wrong domains are then evicted. Its value must be "true".
const AnnotationRepairSpread = "vicinity.dev/repair-spread"

// AnnotationSpreadOrdinals is the annotation in the pod template of a
// StatefulSet whose ordinals alternate between failure domains. Its value is
// the node label that defines the domains.
const AnnotationSpreadOrdinals = "vicinity.dev/spread-ordinals"

// PaceScaleDown is the label of a namespace, and the annotation of a Deployment, a StatefulSet or a ReplicaSet in such a
// namespace, that has budgets bound its scale-downs. The annotation wins over the label; if it is empty, the workload
// is left alone. The API server asks the webhook only in namespaces with the label.
const PaceScaleDown = "vicinity.dev/pace-scale-down"

// Values of PaceScaleDown.
const (
	// PaceDeny refuses a scale-down that budgets do not allow in full.
	PaceDeny = "Deny"
	// PaceClamp removes as many pods as budgets allow now, and the others
	// later.
	PaceClamp = "Clamp"
	// PaceAnnotated, on a namespace, limits only workloads with the annotation.
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

// AnnotationDNSBefore is the annotation that "vicinity dns enable" puts on the
// Deployment and the ConfigMap of the cluster's DNS server, with the image and
// the Corefile that "vicinity dns disable" restores.
const AnnotationDNSBefore = "vicinity.dev/dns-before"

// AnnotationDNS is the annotation in the pod template of the cluster's DNS
// server while its Corefile has the plugin vicinity. Setting it replaces pods.
const AnnotationDNS = "vicinity.dev/dns"

// OwnAnnotations returns Vicinity's annotations of an object, nil if it has
// none. Caches that keep few fields of many objects keep these.
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
