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

	"vicinity.dev/vicinity/internal/kube"
)

// Cordon sets whether pods can be scheduled to a node.
func (c *Client) Cordon(ctx context.Context, node string, cordoned bool) error {
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, cordoned)
	_, err := c.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: kube.FieldManager})
	if err != nil {
		return fmt.Errorf("cordoning node %s: %w", node, err)
	}
	return nil
}

// Drain cordons a node and evicts its pods except those of DaemonSets, and returns when
// they are gone. Evictions that a budget refuses are retried until the context ends; the
// first refusal of each pod is logged.
func (c *Client) Drain(ctx context.Context, log io.Writer, node string) error {
	if err := c.Cordon(ctx, node, true); err != nil {
		return err
	}
	fmt.Fprintf(log, "node %s cordoned\n", node)
	d := drain{client: c, log: log, evicted: map[types.UID]bool{}, refused: map[types.UID]bool{}}
	err := kube.Wait(ctx, fmt.Sprintf("node %s to be empty", node), func(ctx context.Context) (string, error) {
		pods, err := c.podsOn(ctx, node)
		if err != nil {
			return "", err
		}
		var names []string
		for i := range pods {
			if isDaemonSetPod(&pods[i]) {
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
		return kube.Abbreviate(names), nil
	})
	if d.failed != nil {
		return d.failed
	}
	return err
}

type drain struct {
	client           *Client
	log              io.Writer
	evicted, refused map[types.UID]bool
	// failed is the error of an eviction that will never succeed.
	failed error
}

// evict evicts a pod unless it was evicted before. It returns temporary errors only.
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
	case isTemporary(err):
		return fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	default:
		d.failed = fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// isTemporary reports whether a request may succeed if it is repeated: the API server was
// not reached or is restarting, or the pod is deleted with its namespace.
func isTemporary(err error) bool {
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) ||
		apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

func isDaemonSetPod(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

func (c *Client) podsOn(ctx context.Context, node string) ([]corev1.Pod, error) {
	list, err := c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	return list.Items, nil
}

// evict evicts a pod by its UID. It returns a refusal at once.
func (c *Client) evict(ctx context.Context, pod *corev1.Pod) error {
	return c.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
}
