package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/internal/endpoint"
)

// WaitDeployment waits until all replicas of a Deployment are up to date and available.
func (c *Client) WaitDeployment(ctx context.Context, namespace, name string) error {
	return Wait(ctx, fmt.Sprintf("Deployment %s/%s", namespace, name), func(ctx context.Context) (string, error) {
		deployment, err := c.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		return missingReplicas(deployment), nil
	})
}

func missingReplicas(d *appsv1.Deployment) string {
	want, status := ptr.Deref(d.Spec.Replicas, 1), d.Status
	switch {
	case status.ObservedGeneration < d.Generation:
		return "the controller-manager has not observed it yet"
	case status.UpdatedReplicas < want || status.AvailableReplicas < want || status.Replicas > want:
		return fmt.Sprintf("of %d replicas, %d are up to date and %d available; %d exist",
			want, status.UpdatedReplicas, status.AvailableReplicas, status.Replicas)
	}
	return ""
}

// WaitDaemonSet waits until all pods of a DaemonSet are up to date and available.
func (c *Client) WaitDaemonSet(ctx context.Context, namespace, name string) error {
	return Wait(ctx, fmt.Sprintf("DaemonSet %s/%s", namespace, name), func(ctx context.Context) (string, error) {
		set, err := c.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		want, status := set.Status.DesiredNumberScheduled, set.Status
		switch {
		case status.ObservedGeneration < set.Generation:
			return "the controller-manager has not observed it yet", nil
		case status.UpdatedNumberScheduled < want || status.NumberAvailable < want || status.NumberMisscheduled > 0:
			return fmt.Sprintf("of %d pods, %d are up to date and %d available; %d are on wrong nodes",
				want, status.UpdatedNumberScheduled, status.NumberAvailable, status.NumberMisscheduled), nil
		}
		return "", nil
	})
}

// WaitNodes waits until the named nodes, or all if none is named, are ready or not ready.
func (c *Client) WaitNodes(ctx context.Context, ready bool, names ...string) error {
	what := "nodes to be ready"
	if !ready {
		what = "nodes to be not ready"
	}
	return Wait(ctx, what, func(ctx context.Context) (string, error) {
		// The API server's cache is cheap for thousands of nodes.
		list, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return "", err
		}
		found := make(map[string]bool, len(list.Items))
		for i := range list.Items {
			found[list.Items[i].Name] = NodeReady(&list.Items[i])
		}
		wanted := names
		if len(wanted) == 0 {
			for name := range found {
				wanted = append(wanted, name)
			}
		}
		var missing []string
		for _, name := range wanted {
			if isReady, exists := found[name]; !exists || isReady != ready {
				missing = append(missing, name)
			}
		}
		return Abbreviate(missing), nil
	})
}

// NodeReady reports whether a node is ready.
func NodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// PodReady reports whether a pod is ready.
func PodReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// WaitGone waits until a namespace is removed.
func (c *Client) WaitGone(ctx context.Context, namespace string) error {
	return Wait(ctx, fmt.Sprintf("namespace %s to be removed", namespace), func(ctx context.Context) (string, error) {
		_, err := c.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return "", nil
		}
		return "it still exists", err
	})
}

// Endpoints returns the endpoints of a Service in slices of one family, by address; of duplicates it
// returns the one that counts.
func (c *Client) Endpoints(ctx context.Context, namespace, service string, family discoveryv1.AddressType) (map[string]discoveryv1.Endpoint, error) {
	list, err := c.DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: discoveryv1.LabelServiceName + "=" + service,
	})
	if err != nil {
		return nil, fmt.Errorf("listing the slices of Service %s/%s: %w", namespace, service, err)
	}
	endpoints := map[string]discoveryv1.Endpoint{}
	for _, slice := range list.Items { // the API server sorts the list by name
		if slice.AddressType != family {
			continue
		}
		for _, e := range slice.Endpoints {
			for _, address := range e.Addresses {
				if other, found := endpoints[address]; !found || endpoint.StateOf(&e).Before(endpoint.StateOf(&other)) {
					endpoints[address] = e
				}
			}
		}
	}
	return endpoints, nil
}

// WaitEndpoints waits until a Service has a number of ready endpoints.
func (c *Client) WaitEndpoints(ctx context.Context, namespace, service string, want int) error {
	return Wait(ctx, fmt.Sprintf("%d endpoints of Service %s/%s", want, namespace, service), func(ctx context.Context) (string, error) {
		endpoints, err := c.Endpoints(ctx, namespace, service, discoveryv1.AddressTypeIPv4)
		if err != nil {
			return "", err
		}
		ready := 0
		for _, e := range endpoints {
			if endpoint.StateOf(&e).IsReady() {
				ready++
			}
		}
		if ready != want {
			return fmt.Sprintf("%d are ready", ready), nil
		}
		return "", nil
	})
}

// Abbreviate lists the first few of many names.
func Abbreviate(names []string) string {
	const most = 5
	slices.Sort(names)
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// WaitHints waits until all ready endpoints of a Service have zone hints, or none has.
func (c *Client) WaitHints(ctx context.Context, namespace, service string, wanted bool) error {
	what := fmt.Sprintf("hints of Service %s/%s", namespace, service)
	if !wanted {
		what += " to be removed"
	}
	return Wait(ctx, what, func(ctx context.Context) (string, error) {
		endpoints, err := c.Endpoints(ctx, namespace, service, discoveryv1.AddressTypeIPv4)
		if err != nil {
			return "", err
		}
		if len(endpoints) == 0 {
			return "the Service has no endpoints", nil
		}
		hinted := 0
		for _, e := range endpoints {
			if e.Hints != nil && len(e.Hints.ForZones) > 0 {
				hinted++
			}
		}
		if wanted && hinted < len(endpoints) || !wanted && hinted > 0 {
			return fmt.Sprintf("%d of %d endpoints have hints", hinted, len(endpoints)), nil
		}
		return "", nil
	})
}
