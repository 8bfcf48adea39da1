package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// usableTrust is how long a live reading of the nodes counts. Denied repairs ask often.
	usableTrust = time.Minute
	// usableTimeout bounds that reading, which other repairs wait for.
	usableTimeout = 10 * time.Second
)

// nodes finds the domains where pods fit. All workloads share the nodes, since a large cluster has many.
type nodes struct {
	cached, live client.Reader
	clock        clock.PassiveClock

	knownMu sync.Mutex
	known   []corev1.Node // from the cache, nil after a change

	usableMu sync.Mutex    // held for a whole live reading, so the handler of nodes must not take it
	usable   []corev1.Node // that take pods, from the last live reading: the cache drops that
	read     time.Time
}

// forget drops the cached nodes after a change.
func (o *nodes) forget() {
	o.knownMu.Lock()
	defer o.knownMu.Unlock()
	o.known = nil
}

// domainsOf returns the domains with a node for the pods of a workload.
func (o *nodes) domainsOf(ctx context.Context, c *current) ([]string, error) {
	known, err := o.readKnown(ctx)
	if err != nil {
		return nil, err
	}
	return domainsFor(c, known), nil
}

// readKnown reads the nodes from the cache. The caller must not change them.
func (o *nodes) readKnown(ctx context.Context) ([]corev1.Node, error) {
	o.knownMu.Lock()
	defer o.knownMu.Unlock()
	if o.known == nil {
		var list corev1.NodeList
		if err := o.cached.List(ctx, &list); err != nil {
			return nil, fmt.Errorf("reading nodes: %w", err)
		}
		o.known = list.Items
	}
	return o.known, nil
}

// usableDomainsOf returns the domains with a node that takes the pods of a workload.
func (o *nodes) usableDomainsOf(ctx context.Context, c *current) ([]string, error) {
	usable, err := o.readUsable(ctx)
	if err != nil {
		return nil, err
	}
	return domainsFor(c, usable), nil
}

// readUsable reads the nodes that take pods. The caller must not change them.
func (o *nodes) readUsable(ctx context.Context) ([]corev1.Node, error) {
	o.usableMu.Lock()
	defer o.usableMu.Unlock()
	now := o.clock.Now()
	if o.usable != nil && now.Sub(o.read) < usableTrust {
		return o.usable, nil
	}
	ctx, cancel := context.WithTimeout(ctx, usableTimeout)
	defer cancel()
	var list corev1.NodeList
	if err := o.live.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("reading nodes: %w", err)
	}
	o.usable, o.read = []corev1.Node{}, now
	for i := range list.Items {
		if node := &list.Items[i]; takesPods(node) {
			o.usable = append(o.usable, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}})
		}
	}
	return o.usable, nil
}

// setOf returns the ReplicaSet of the pod that domainsFor checks.
func setOf(c *current) types.UID {
	if len(c.pods) == 0 {
		return ""
	}
	return metav1.GetControllerOfNoCopy(anyPod(c)).UID
}

// anyPod returns the first pod by name. All pods of a workload have the same requirements of nodes.
func anyPod(c *current) *corev1.Pod { return c.pods[slices.Min(slices.Collect(maps.Keys(c.pods)))] }

// domainsFor returns the domains of the nodes that the pods of a workload fit.
func domainsFor(c *current, nodes []corev1.Node) []string {
	names := []string{}
	if len(c.pods) == 0 {
		return names
	}
	affinity, found := nodeaffinity.GetRequiredNodeAffinity(anyPod(c)), map[string]bool{}
	for i := range nodes {
		domain, labelled := nodes[i].Labels[c.key]
		if !labelled || found[domain] {
			continue
		}
		if matches, err := affinity.Match(&nodes[i]); err == nil && matches {
			found[domain] = true
			names = append(names, domain)
		}
	}
	slices.Sort(names)
	return names
}

// takesPods reports whether a node takes pods. It ignores tolerations, to repair too little rather than too much.
func takesPods(node *corev1.Node) bool {
	return !node.Spec.Unschedulable && !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Effect != corev1.TaintEffectPreferNoSchedule
	})
}
