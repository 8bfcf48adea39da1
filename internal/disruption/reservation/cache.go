package reservation

import (
	"fmt"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/kit/podcache"
)

// CacheOptions adds to a manager's cache what the Ledger reads: all pods, budgets of both kinds, and workloads. The
// cache must keep the labels of nodes.
func CacheOptions(options *cache.Options) {
	podcache.Add(options, podcache.Disruption)
	shared := true
	if options.ByObject == nil {
		options.ByObject = map[client.Object]cache.ByObject{}
	}
	for _, object := range []client.Object{
		&v1alpha1.TopologyDisruptionBudget{}, &policyv1.PodDisruptionBudget{},
	} {
		options.ByObject[object] = cache.ByObject{Transform: cache.TransformStripManagedFields(), UnsafeDisableDeepCopy: &shared}
	}
	for _, object := range workloadKinds() {
		options.ByObject[object] = cache.ByObject{Transform: trimWorkload, UnsafeDisableDeepCopy: &shared}
	}
}

func workloadKinds() []client.Object {
	return []client.Object{&appsv1.Deployment{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}}
}

// trimWorkload drops most of the pod template, which is large and unused.
func trimWorkload(object any) (any, error) {
	switch w := object.(type) {
	case *appsv1.Deployment:
		trim(&w.ObjectMeta, &w.Spec.Template)
	case *appsv1.ReplicaSet:
		trim(&w.ObjectMeta, &w.Spec.Template)
	case *appsv1.StatefulSet:
		trim(&w.ObjectMeta, &w.Spec.Template)
		w.Spec.VolumeClaimTemplates = nil
	case *appsv1.DaemonSet:
		trim(&w.ObjectMeta, &w.Spec.Template)
	}
	return object, nil
}

func trim(m *metav1.ObjectMeta, t *corev1.PodTemplateSpec) {
	revision, found := m.Annotations[v1alpha1.AnnotationDeploymentRevision]
	m.ManagedFields, m.Labels, m.Annotations = nil, nil, v1alpha1.OwnAnnotations(m.Annotations)
	if found {
		metav1.SetMetaDataAnnotation(m, v1alpha1.AnnotationDeploymentRevision, revision)
	}
	kept := corev1.PodSpec{NodeSelector: t.Spec.NodeSelector, SchedulingGates: t.Spec.SchedulingGates}
	for _, constraint := range t.Spec.TopologySpreadConstraints { // the projection to PodDisruptionBudgets reads them
		kept.TopologySpreadConstraints = append(kept.TopologySpreadConstraints, corev1.TopologySpreadConstraint{WhenUnsatisfiable: constraint.WhenUnsatisfiable})
	}
	if affinity := t.Spec.Affinity; affinity != nil && affinity.NodeAffinity != nil {
		kept.Affinity = &corev1.Affinity{NodeAffinity: affinity.NodeAffinity}
	}
	t.ObjectMeta, t.Spec = metav1.ObjectMeta{Labels: t.Labels}, kept
}

// Synced is a readiness check. It fails until all caches have their first list, and while the clock is off.
func (l *Ledger) Synced(*http.Request) error {
	for _, synced := range l.world.synced {
		if !synced.done() {
			return fmt.Errorf("%s: the cache is not filled yet", synced.what)
		}
	}
	return l.checkClock()
}

// checkClock fails if the clock of this process is too far off to tell which reservations have expired. Two clocks with the allowed
// offset differ by less than ClockSkew, even though the measured offset may be a second short. The error is logged once.
func (l *Ledger) checkClock() error {
	const allowed = disruption.ClockSkew/2 - time.Second
	ahead, is := l.ahead(), "ahead of"
	if ahead < 0 {
		ahead, is = -ahead, "behind"
	}
	if ahead <= allowed {
		l.clockIsOff.Store(false)
		return nil
	}
	err := fmt.Errorf("the clock of vicinity-controller is %s %s the API server's, but at most %s is allowed: correct the clock of its node", ahead.Round(time.Second), is, allowed)
	if !l.clockIsOff.Swap(true) {
		l.log.Error(err, "This replica admits no eviction and writes no budget")
	}
	return err
}
