package lab

import (
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
)

// Cordon keeps new pods from a node, or lets them come again.
func (c *Client) Cordon(ctx context.Context, node string, cordoned bool) error {
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, cordoned)
	_, err := c.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("cordoning node %s: %w", node, err)
	}
	return nil
}

// Drain cordons a node and evicts its pods but those of DaemonSets, which would come
// back. An eviction that a budget refuses is asked for again until the context ends;
// the first refusal of each pod goes to the log. It returns when the last pod has gone.
func (c *Client) Drain(ctx context.Context, log io.Writer, node string) error {
	if err := c.Cordon(ctx, node, true); err != nil {
		return err
	}
	fmt.Fprintf(log, "node %s cordoned\n", node)
	d := drain{client: c, log: log, evicted: map[types.UID]bool{}, refused: map[types.UID]bool{}}
	err := Wait(ctx, fmt.Sprintf("node %s to be empty", node), func(ctx context.Context) (string, error) {
		pods, err := c.podsOf(ctx, node)
		if err != nil {
			return "", err
		}
		var names []string
		for i := range pods {
			if ofDaemonSet(&pods[i]) {
				continue
			}
			names = append(names, pods[i].Namespace+"/"+pods[i].Name)
			if err := d.evict(ctx, &pods[i]); err != nil {
				return "", err
			}
			if d.failed != nil {
				return "", nil // to wait longer would not help
			}
		}
		return listSome(names), nil
	})
	if d.failed != nil {
		return d.failed
	}
	return err
}

// drain is what is known of the evictions of a node's pods.
type drain struct {
	client           *Client
	log              io.Writer
	evicted, refused map[types.UID]bool
	// failed is the error of an eviction that will never be granted.
	failed error
}

// evict asks for the eviction of a pod unless it was granted before. The error is one
// that passes.
func (d *drain) evict(ctx context.Context, pod *corev1.Pod) error {
	if d.evicted[pod.UID] {
		return nil
	}
	err := d.client.evict(ctx, pod)
	switch {
	case err == nil:
		d.evicted[pod.UID] = true
		fmt.Fprintf(d.log, "pod %s/%s evicted\n", pod.Namespace, pod.Name)
	case apierrors.IsNotFound(err):
		d.evicted[pod.UID] = true
	case apierrors.IsTooManyRequests(err):
		if !d.refused[pod.UID] {
			d.refused[pod.UID] = true
			fmt.Fprintf(d.log, "pod %s/%s not evicted yet: %v\n", pod.Namespace, pod.Name, err)
		}
	case passes(err):
		return fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	default:
		d.failed = fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// passes reports whether an error of the API may be none when it is asked again: the
// API was not reached or is being restarted, or the pod goes with its namespace.
func passes(err error) bool {
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

func ofDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// podsOf are the pods that are bound to a node.
func (c *Client) podsOf(ctx context.Context, node string) ([]corev1.Pod, error) {
	list, err := c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	return list.Items, nil
}

// evict asks for the eviction of this very pod, not of a later one with its name.
// A refusal comes back at once, also one that says when to try again.
func (c *Client) evict(ctx context.Context, pod *corev1.Pod) error {
	return c.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
}
