package lab

import (
	"context"
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
// back. An eviction that a budget refuses is asked for again until the context ends.
// It returns when the last pod has gone.
func (c *Client) Drain(ctx context.Context, log io.Writer, node string) error {
	if err := c.Cordon(ctx, node, true); err != nil {
		return err
	}
	fmt.Fprintf(log, "node %s cordoned\n", node)
	asked := map[types.UID]bool{}
	return Wait(ctx, fmt.Sprintf("node %s to be empty", node), func(ctx context.Context) (string, error) {
		pods, err := c.podsToEvict(ctx, node)
		if err != nil {
			return "", err
		}
		var names []string
		for i := range pods {
			pod := &pods[i]
			names = append(names, pod.Namespace+"/"+pod.Name)
			if asked[pod.UID] {
				continue
			}
			switch err := c.evict(ctx, pod); {
			case err == nil:
				asked[pod.UID] = true
				fmt.Fprintf(log, "pod %s/%s evicted\n", pod.Namespace, pod.Name)
			case apierrors.IsNotFound(err):
				asked[pod.UID] = true
			case !apierrors.IsTooManyRequests(err):
				return "", fmt.Errorf("evicting pod %s/%s: %w", pod.Namespace, pod.Name, err)
			}
		}
		return listSome(names), nil
	})
}

func (c *Client) podsToEvict(ctx context.Context, node string) ([]corev1.Pod, error) {
	list, err := c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	var pods []corev1.Pod
	for i := range list.Items {
		owner := metav1.GetControllerOf(&list.Items[i])
		if owner == nil || owner.Kind != "DaemonSet" {
			pods = append(pods, list.Items[i])
		}
	}
	return pods, nil
}

// evict asks for the eviction of this very pod, not of a later one with its name.
// A refusal comes back at once, also one that says when to try again.
func (c *Client) evict(ctx context.Context, pod *corev1.Pod) error {
	return c.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}},
	})
}
