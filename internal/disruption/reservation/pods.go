package reservation

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
)

// Indexes of pods: a budget with a hundred pods skips ten thousand others of its namespace. A store changes together with its indexes,
// so pods read by an index are those of one moment.
const (
	indexLabel      = "vicinity.dev/label"
	indexController = "vicinity.dev/controller"
)

func podIndexers() toolscache.Indexers {
	return toolscache.Indexers{
		indexLabel: func(object any) ([]string, error) {
			pod, ok := object.(*corev1.Pod)
			if !ok {
				return nil, nil
			}
			keys := make([]string, 0, len(pod.Labels))
			for key, value := range pod.Labels {
				if !isUnindexed(key) {
					keys = append(keys, labelKey(pod.Namespace, labelPair{key, value}))
				}
			}
			return keys, nil
		},
		indexController: func(object any) ([]string, error) {
			if pod, ok := object.(*corev1.Pod); ok {
				if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
					return []string{string(owner.UID)}, nil
				}
			}
			return nil, nil
		},
	}
}

func labelKey(namespace string, pair labelPair) string {
	return namespace + "/" + pair.key + "=" + pair.value
}

// isUnindexed reports whether a label is useless as an index: it differs for each pod, or is the same for too many.
func isUnindexed(key string) bool {
	switch key {
	case appsv1.StatefulSetPodNameLabel, appsv1.PodIndexLabel, appsv1.ControllerRevisionHashLabelKey, appsv1.DefaultDeploymentUniqueLabelKey,
		corev1.LabelTopologyZone, corev1.LabelTopologyRegion:
		return true
	}
	return false
}

// podsOf lists the pods that a budget selects, the other pods of workloads that have or ask for such pods, and possibly
// more.
func (w *world) podsOf(budget *v1alpha1.TopologyDisruptionBudget, workloads []coverage.Workload) []*corev1.Pod {
	pair, found := w.selectors.pair(budget)
	if !found {
		return ofType[*corev1.Pod](inNamespace(w.pods, budget.Namespace))
	}
	pods := ofType[*corev1.Pod](byIndex(w.pods, indexLabel, labelKey(budget.Namespace, pair)))
	for owner := range controllersOf(coverage.Selector(budget), pods, workloads) {
		for _, other := range ofType[*corev1.Pod](byIndex(w.pods, indexController, string(owner))) {
			// Pods with the label are already listed, as of that moment.
			if value, has := other.Labels[pair.key]; (!has || value != pair.value) && other.Namespace == budget.Namespace {
				pods = append(pods, other)
			}
		}
	}
	return pods
}

// controllersOf lists the controllers of pods that a selector matches or would match, and the other ReplicaSets of
// their Deployments.
func controllersOf(selector labels.Selector, pods []*corev1.Pod, workloads []coverage.Workload) map[types.UID]bool {
	controllers := map[types.UID]bool{}
	for _, pod := range pods {
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && !controllers[owner.UID] && selector.Matches(labels.Set(pod.Labels)) {
			controllers[owner.UID] = true
		}
	}
	above := map[types.UID]bool{}
	for i := range workloads {
		made := &workloads[i]
		if made.Template != nil && selector.Matches(labels.Set(made.Template.Labels)) {
			controllers[made.UID] = true
		}
		if made.Controller != nil && controllers[made.UID] {
			above[made.Controller.UID] = true
		}
	}
	if len(above) == 0 {
		return controllers
	}
	for i := range workloads {
		if made := &workloads[i]; made.Controller != nil && above[made.Controller.UID] {
			controllers[made.UID] = true
		}
	}
	return controllers
}

func inNamespace(store toolscache.Indexer, namespace string) []any {
	return byIndex(store, toolscache.NamespaceIndex, namespace)
}

func byIndex(store toolscache.Indexer, index, key string) []any {
	found, err := store.ByIndex(index, key)
	if err != nil {
		panic(fmt.Sprintf("the caches were made with all indexes: %v", err))
	}
	return found
}
