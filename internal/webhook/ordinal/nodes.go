package ordinal

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/spread"
)

// nodesTrust is how long nodes count as they were read. The pods of a StatefulSet that are made at once share a read. It is
// shorter than it takes to cordon a node, evict a pod and have it made again: the pod must not be given a domain that was just drained.
const nodesTrust = 500 * time.Millisecond

// recentNodes are the nodes a moment ago. The cache of the manager does not have what says whether they take pods.
type recentNodes struct {
	live  client.Reader
	clock clock.PassiveClock

	mu    sync.Mutex
	read  time.Time
	nodes []corev1.Node // with what placesOf looks at
}

func (r *recentNodes) list(ctx context.Context) ([]corev1.Node, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.Now()
	if !r.read.IsZero() && now.Sub(r.read) < nodesTrust {
		return r.nodes, nil
	}
	var list corev1.NodeList
	// The API server answers from its memory, which is as good here.
	if err := r.live.List(ctx, &list, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}); err != nil {
		return nil, fmt.Errorf("reading nodes: %w", err)
	}
	r.read, r.nodes = now, make([]corev1.Node, len(list.Items))
	for i := range list.Items {
		node := &list.Items[i]
		r.nodes[i] = corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels},
			Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
		}
	}
	return r.nodes, nil
}

// placesOf are the domains that a pod can be in, by a label of nodes, sorted by name. Domains without a usable node are
// among them, since they come back. Nodes of the control plane, which never take such a pod, make none.
func placesOf(spec *corev1.PodSpec, key string, nodes []corev1.Node) []spread.Place {
	affinity := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity)
	usable := map[string]bool{}
	for i := range nodes {
		node := &nodes[i]
		domain, found := node.Labels[key]
		matches, err := affinity.Match(node)
		if !found || !matches || err != nil {
			continue
		}
		taint, tainted := untoleratedTaint(spec, node)
		if tainted && (taint.Key == v1alpha1.LabelControlPlane || taint.Key == v1alpha1.LabelMaster) {
			continue
		}
		usable[domain] = usable[domain] || !tainted && !node.Spec.Unschedulable
	}
	var places []spread.Place
	for _, name := range slices.Sorted(maps.Keys(usable)) {
		places = append(places, spread.Place{Name: name, Usable: usable[name]})
	}
	return places
}

// untoleratedTaint is a taint that keeps a pod off a node. That of the control plane comes before others, which may pass.
func untoleratedTaint(spec *corev1.PodSpec, node *corev1.Node) (corev1.Taint, bool) {
	find := func(included func(*corev1.Taint) bool) (corev1.Taint, bool) {
		return corev1helpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, spec.Tolerations, func(taint *corev1.Taint) bool {
			return taint.Effect != corev1.TaintEffectPreferNoSchedule && included(taint)
		}, true)
	}
	isControlPlane := func(taint *corev1.Taint) bool {
		return taint.Key == v1alpha1.LabelControlPlane || taint.Key == v1alpha1.LabelMaster
	}
	if taint, found := find(isControlPlane); found {
		return taint, true
	}
	return find(func(*corev1.Taint) bool { return true })
}
