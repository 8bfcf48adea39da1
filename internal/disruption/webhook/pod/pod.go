// Package pod is the admission webhook for new pods. In namespaces that ask for it, it adds Vicinity's responder to
// EvictionRequests, which is only possible at creation. An EvictionRequest for the pod then waits for its budgets before any responder
// of lower priority has its turn, including the pod's controller.
//
// It leaves out pods if the API server would drop the field, pods of a PodGroup, which EvictionRequests do not support, and pods with
// the maximum of responders. Budgets still hold for them at pods/eviction.
//
// # How it is installed
//
//	rules:             CREATE of pods, v1, scope Namespaced
//	namespaceSelector: vicinity.dev/eviction-requests=true, without the namespaces that are left alone
//	failurePolicy:     Ignore
//	timeoutSeconds:    1
//	sideEffects:       None
package pod

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
)

// Path is where the webhook is served.
const Path = "/mutate-pod"

// maxResponders is the maximum of Kubernetes.
const maxResponders = 10

// Options are what the webhook depends on.
type Options struct {
	// Served reports whether the API server keeps the names of responders.
	Served func() bool
	// Metrics are those of all webhooks of the process.
	Metrics *admission.Metrics
}

// Register has a manager serve the webhook.
func Register(mgr manager.Manager, o Options) {
	admission.Register(mgr, Path, admission.OfWrites(judge{o}.judge), admission.Options{
		Webhook: "pod", OnFailure: admission.FailOpen, Metrics: o.Metrics,
	})
}

type judge struct{ Options }

func (j judge) judge(_ context.Context, write admission.Write[corev1.Pod]) (admission.Verdict, error) {
	spec := &write.Object.Spec
	switch {
	case write.Stored != nil || !j.Served() || spec.SchedulingGroup != nil:
		return admission.Verdict{}, nil
	case slices.ContainsFunc(spec.EvictionResponders, func(r corev1.EvictionResponder) bool { return r.Name == v1alpha1.EvictionResponder }):
		return admission.Verdict{}, nil
	case len(spec.EvictionResponders) >= maxResponders:
		return admission.Verdict{Warnings: []string{fmt.Sprintf(
			"spec.evictionResponders has the maximum of %d entries, so %s is not added; requests to evict this pod do not wait for its budgets",
			maxResponders, v1alpha1.EvictionResponder)}}, nil
	}
	patch, err := patch(spec.EvictionResponders)
	return admission.Verdict{Patch: patch}, err
}

func patch(there []corev1.EvictionResponder) ([]byte, error) {
	own := corev1.EvictionResponder{Name: v1alpha1.EvictionResponder, Priority: new(int32(v1alpha1.EvictionResponderPriority))}
	if len(there) == 0 {
		return admission.AddPatch("/spec/evictionResponders", []corev1.EvictionResponder{own})
	}
	return admission.AddPatch("/spec/evictionResponders/-", own)
}
