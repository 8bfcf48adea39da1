// Package ordinal is the admission webhook for new pods of StatefulSets with v1alpha1.AnnotationSpreadOrdinals in their pod
// template. Their ordinals take turns over failure domains. A StatefulSet deletes its highest ordinals first, so the remaining pods
// of a scale-down are spread as evenly as possible. spread.Assign gives an ordinal its domain, and the webhook
// adds a required node affinity for it to the pod.
//
// A pod with a volume for some nodes stays unchanged, because it must go to its data. A pod with an invalid annotation, a pod that no
// domain takes now, and a pod that could stay pending forever in its domain also stay unchanged, with a warning.
//
// # How it is installed
//
//	rules:             CREATE of pods, v1, scope Namespaced
//	objectSelector:    apps.kubernetes.io/pod-index exists
//	namespaceSelector: not the namespaces that are left alone
//	matchConditions:   the annotation is there, and a StatefulSet of apps controls the pod
//	failurePolicy:     Ignore
//	timeoutSeconds:    2
//	sideEffects:       None
package ordinal

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/scaledown/spread"
)

// Path is where the webhook is served.
const Path = "/spread-ordinals"

const (
	// nodesTrust is shorter than the time to cordon a node, evict a pod and create it again: the pod must not get a domain that was just
	// drained. Pods that are created together share a reading.
	nodesTrust = 500 * time.Millisecond
	// nodesTimeout is shorter than the webhook's timeout.
	nodesTimeout = time.Second
)

// Options are what the webhook depends on.
type Options struct {
	// Metrics are those of all webhooks of the process.
	Metrics *admission.Metrics
}

// Register has a manager serve the webhook.
func Register(mgr manager.Manager, o Options) {
	live := mgr.GetAPIReader()
	nodes := &shell.RecentNodes{Live: live, Cached: true, Clock: clock.RealClock{}, Trust: nodesTrust, Timeout: nodesTimeout}
	j := judge{nodes: nodes, live: live, log: mgr.GetLogger().WithName("webhook").WithName("ordinal")}
	admission.Register(mgr, Path, admission.OfWrites(j.judge), admission.Options{
		Webhook: "ordinal", OnFailure: admission.FailOpen, Metrics: o.Metrics,
	})
}

type judge struct {
	nodes *shell.RecentNodes
	live  client.Reader
	log   logr.Logger
}

func (j judge) judge(ctx context.Context, write admission.Write[corev1.Pod]) (admission.Verdict, error) {
	pod := write.Object
	key, asks := pod.Annotations[v1alpha1.AnnotationSpreadOrdinals]
	ordinal, counted := ordinalOf(pod)
	if write.Stored != nil || !asks || !counted || pod.Spec.NodeName != "" {
		return admission.Verdict{Result: admission.Skipped}, nil
	}
	if reasons := content.IsLabelKey(key); len(reasons) > 0 {
		return j.warn(write, fmt.Sprintf("annotation %s: %.100q is not a label key: %s; the pod is created without a domain",
			v1alpha1.AnnotationSpreadOrdinals, key, strings.Join(reasons, "; "))), nil
	}
	if constraint := countingDomains(&pod.Spec); constraint != "" {
		return j.warn(write, fmt.Sprintf("annotation %s: the spread constraint by %s has minDomains and would count only the domain of this pod. Set its nodeAffinityPolicy to Ignore. The pod is created without a domain",
			v1alpha1.AnnotationSpreadOrdinals, constraint)), nil
	}
	volumes, err := j.volumesOf(ctx, write.Namespace, pod)
	switch {
	case err != nil:
		return admission.Verdict{}, err
	case volumes.pinned:
		return admission.Verdict{Result: admission.Unchanged}, nil
	case volumes.unbound != "":
		return j.warn(write, fmt.Sprintf("annotation %s: volume %s may be provisioned in another domain before the pod has a node. Use a StorageClass with volumeBindingMode: WaitForFirstConsumer. The pod is created without a domain",
			v1alpha1.AnnotationSpreadOrdinals, volumes.unbound)), nil
	}
	nodes, err := j.nodes.List(ctx)
	if err != nil {
		return admission.Verdict{}, err
	}
	places := placesOf(&pod.Spec, key, nodes)
	domain, ok := spread.Assign(ordinal, places)
	if !ok {
		return j.warn(write, fmt.Sprintf("annotation %s: none of the %d domains by the node label %s has a node that takes ordinal %d now; the pod is created without a domain",
			v1alpha1.AnnotationSpreadOrdinals, len(places), key, ordinal)), nil
	}
	patch, err := patch(&pod.Spec, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{domain}})
	return admission.Verdict{Result: admission.Changed, Patch: patch}, err
}

// warn leaves a pod unchanged with a warning. Only the StatefulSet controller sees the warning, so it is logged, too.
func (j judge) warn(write admission.Write[corev1.Pod], warning string) admission.Verdict {
	j.log.Info("Pod gets no domain", "namespace", write.Namespace, "pod", write.Object.Name, "reason", warning)
	return admission.Verdict{Warnings: []string{warning}}
}

// ordinalOf returns the ordinal of a pod, false if no StatefulSet controls it.
func ordinalOf(pod *corev1.Pod) (int, bool) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != "StatefulSet" || schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).Group != appsv1.GroupName {
		return 0, false
	}
	ordinal, err := strconv.Atoi(pod.Labels[appsv1.PodIndexLabel])
	return ordinal, err == nil
}

// patch adds a requirement to the node affinity of a pod. Any one of its terms is enough, so each term gets the requirement.
func patch(spec *corev1.PodSpec, requirement corev1.NodeSelectorRequirement) ([]byte, error) {
	const affinity = "/spec/affinity"
	required := &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{requirement}}}}
	node := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: required}
	switch there := spec.Affinity; {
	case there == nil:
		return admission.AddPatch(affinity, &corev1.Affinity{NodeAffinity: node})
	case there.NodeAffinity == nil:
		return admission.AddPatch(affinity+"/nodeAffinity", node)
	case there.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil:
		return admission.AddPatch(affinity+"/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution", required)
	}
	var operations []shell.Operation
	for i, term := range spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		path := fmt.Sprintf("%s/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/%d/matchExpressions", affinity, i)
		switch {
		case len(term.MatchExpressions) > 0:
			operations = append(operations, shell.Add(path+"/-", requirement))
		case len(term.MatchFields) > 0:
			operations = append(operations, shell.Add(path, []corev1.NodeSelectorRequirement{requirement}))
		}
		// An empty term matches no node. With the requirement it would match some.
	}
	return json.Marshal(operations)
}
