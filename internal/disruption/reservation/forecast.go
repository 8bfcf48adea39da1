package reservation

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Pods lists the pods of a namespace that a selector matches, at least as new as the API server has them now. The caller must not change
// them.
func (l *Ledger) Pods(ctx context.Context, namespace string, selector labels.Selector) ([]*corev1.Pod, error) {
	if err := l.Synced(nil); err != nil {
		return nil, err
	}
	live := &metav1.PartialObjectMetadataList{}
	live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := l.client.List(ctx, live, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("reading the pods of %s: %w", namespace, err)
	}
	version := ""
	for i := range live.Items {
		version = later(version, live.Items[i].ResourceVersion)
	}
	if err := l.world.awaitPods(ctx, version); err != nil {
		return nil, err
	}
	var pods []*corev1.Pod
	for i := range live.Items {
		read := &live.Items[i]
		if pod := l.world.pod(client.ObjectKeyFromObject(read)); pod != nil && pod.UID == read.UID {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// Forecast returns how many of some pods of a namespace, in their order, could be evicted one after the other, and why the next could
// not. It reserves nothing.
func (l *Ledger) Forecast(ctx context.Context, pods []*corev1.Pod) (admitted int, denial string, err error) {
	if err := l.Synced(nil); err != nil {
		return 0, "", err
	}
	commits := map[types.NamespacedName]*commit{}
	for i, pod := range pods {
		if denial, err = l.forecast(ctx, pod, commits); denial != "" || err != nil {
			return i, denial, err
		}
	}
	return len(pods), "", nil
}

func (l *Ledger) forecast(ctx context.Context, pod *corev1.Pod, commits map[types.NamespacedName]*commit) (string, error) {
	budgets := l.world.selectors.matching(pod.Namespace, pod.Labels)
	if len(budgets) == 0 {
		return "", nil
	}
	gate, closed := l.world.gateOf(pod)
	if closed != nil {
		return closed.message, nil
	}
	for _, budget := range budgets {
		c, found := commits[budget]
		if !found {
			var err error
			if c, err = l.gatherUnstored(budget); err != nil {
				return "", err
			}
			commits[budget] = c
		}
		if c == nil {
			continue // it is gone
		}
		if err := ctx.Err(); err != nil {
			return "", err
		}
		// The commit itself is never stored.
		c.down = map[types.UID]bool{pod.UID: true}
		r := c.admit(newJob(ctx, pod, Request{Holder: "forecast"}, gate))
		switch {
		case r.err != nil:
			return "", r.err
		case r.denial != nil:
			return r.denial.message, nil
		case !r.decision.Allowed:
			return r.decision.Brief(), nil
		}
	}
	return "", nil
}

// gatherUnstored gathers a commit that is never stored; nil if there is no such budget.
func (l *Ledger) gatherUnstored(budget types.NamespacedName) (*commit, error) {
	stored, found := stored[*v1alpha1.TopologyDisruptionBudget](l.world.budgets, budget)
	if !found {
		return nil, nil
	}
	q := &queue{ledger: l, key: budget}
	return q.gather(l.newestKnown(stored))
}
