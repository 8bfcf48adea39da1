package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
)

const (
	// usableTrust is how long a live reading of the nodes counts. Denied repairs ask often.
	usableTrust = time.Minute
	// usableTimeout bounds that reading, which other repairs wait for.
	usableTimeout = 10 * time.Second
)

// domainsOf returns the domains with a node for the pods of a workload. A node without the label has none.
func (r *reconciler) domainsOf(ctx context.Context, c *current) ([]string, error) {
	var list corev1.NodeList
	if err := r.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("reading nodes: %w", err)
	}
	return domainsFor(c, list.Items), nil
}

// usableDomainsOf returns the domains with a node that takes the pods of a workload.
func (r *reconciler) usableDomainsOf(ctx context.Context, c *current) ([]string, error) {
	nodes, err := r.nodes.List(ctx)
	if err != nil {
		return nil, err
	}
	usable := slices.DeleteFunc(slices.Clone(nodes), func(node corev1.Node) bool { return !takesPods(&node) })
	return domainsFor(c, usable), nil
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
