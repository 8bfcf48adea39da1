package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/test/kube"
)

// podLocators returns the PodLocators of a namespace, or of all, by namespace/name.
func (s *scene) podLocators(ctx context.Context, namespace string) (map[string]v1alpha1.PodLocator, error) {
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		return nil, err
	}
	list, err := client.Resource(v1alpha1.GroupVersion.WithResource("podlocators")).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]v1alpha1.PodLocator{}
	for i := range list.Items {
		var l v1alpha1.PodLocator
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, &l); err != nil {
			return nil, err
		}
		all[l.Namespace+"/"+l.Name] = l
	}
	return all, nil
}

// locatable returns the pods that run and have addresses of their own, by namespace/name.
func (s *scene) locatable(ctx context.Context) (map[string]corev1.Pod, error) {
	list, err := s.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	all := map[string]corev1.Pod{}
	for i := range list.Items {
		if pod := list.Items[i]; !pod.Spec.HostNetwork && pod.Status.PodIP != "" && pod.Status.Phase == corev1.PodRunning {
			all[pod.Namespace+"/"+pod.Name] = pod
		}
	}
	return all, nil
}

// waitLocated waits until each pod of the cluster has a right PodLocator, and no other exists.
func (s *scene) waitLocated(ctx context.Context) (number int, err error) {
	err = kube.Wait(ctx, "each pod to have its PodLocator", func(ctx context.Context) (string, error) {
		pods, err := s.locatable(ctx)
		if err != nil {
			return "", err
		}
		locators, err := s.podLocators(ctx, "")
		if err != nil {
			return "", err
		}
		for name := range locators {
			if _, found := pods[name]; !found {
				return "no pod belongs to PodLocator " + name, nil
			}
		}
		for name, pod := range pods {
			l, found := locators[name]
			if !found {
				return "pod " + name + " has no PodLocator", nil
			}
			node, err := s.CoreV1().Nodes().Get(ctx, pod.Spec.NodeName, metav1.GetOptions{})
			if err != nil {
				return "", err
			}
			if wrong := misplaced(l, pod, node); wrong != "" {
				return "PodLocator " + name + wrong, nil
			}
		}
		number = len(pods)
		return "", nil
	})
	return number, err
}

// misplaced describes how a PodLocator differs from its pod and node.
func misplaced(l v1alpha1.PodLocator, pod corev1.Pod, node *corev1.Node) string {
	var ips []string
	for _, ip := range pod.Status.PodIPs {
		ips = append(ips, ip.IP)
	}
	switch {
	case !slices.Equal(l.IPs, ips) || l.NodeName != node.Name:
		return fmt.Sprintf(" has %v on node %s, want %v on %s", l.IPs, l.NodeName, ips, node.Name)
	case len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != pod.UID:
		return fmt.Sprintf(" is owned by %v, want the pod %s", l.OwnerReferences, pod.UID)
	}
	for _, key := range []string{hostnameKey, zoneKey, corev1.LabelTopologyRegion, rackLabel} {
		if l.NodeLabels[key] != node.Labels[key] {
			return fmt.Sprintf(" has %s=%s, and its node %s", key, l.NodeLabels[key], node.Labels[key])
		}
	}
	return ""
}

// locators checks that all pods have PodLocators with the labels that Services use, that a
// PodLocator is deleted with its pod, and that tenants cannot write them.
func locators(ctx context.Context, s *scene) (figure string, err error) {
	services := headlessOf("near", keysAnnotation, zoneKey) + headlessOf("racks", keysAnnotation, rackLabel)
	check(s.namedPods(ctx, services, inEachZone...))
	number := must(s.waitLocated(ctx))
	check(s.removePod(ctx, "client-zone-c-2"))
	if _, err := s.waitLocated(ctx); err != nil {
		return "", fmt.Errorf("after a pod was deleted: %w", err)
	}
	refused := must(s.tenantLocatesNothing(ctx))
	return fmt.Sprintf("%d pods have PodLocators, which are deleted with the pod; tenants are refused: %s", number, refused), nil
}

// tenantLocatesNothing checks that a tenant with all rights in the namespace cannot write a
// PodLocator. It returns the policy's message.
func (s *scene) tenantLocatesNothing(ctx context.Context) (quoted string, err error) {
	const tenant = "tenant"
	for _, args := range [][]string{
		{"create", "role", "everything", "--verb=*", "--resource=podlocators.vicinity.dev"},
		{"create", "rolebinding", "everything", "--role=everything", "--user=" + tenant},
	} {
		if _, err := s.kubectl(ctx, "", args...); err != nil {
			return "", err
		}
	}
	forged := locatorManifest("forged", "zone-c-1", map[string]string{zoneKey: "zone-c"}, "10.128.1.2")
	write := func() (refusal string, err error) {
		output, err := s.kubectl(ctx, forged, "create", "-f", "-", "--as", tenant)
		if err == nil {
			return "", errors.New("a tenant made a PodLocator")
		}
		return output, nil
	}
	// The API server needs a moment to apply the role.
	var refusal string
	var made error
	err = kube.Wait(ctx, "the tenant to have all rights to PodLocators", func(context.Context) (string, error) {
		if refusal, made = write(); made != nil || !strings.Contains(refusal, "cannot create resource") {
			return "", nil
		}
		return refusal, nil
	})
	if err := errors.Join(made, err); err != nil {
		return "", err
	}
	const message = "Only vicinity-controller, and those with the verb forge or all verbs on podlocators in the whole cluster, may write"
	if !strings.Contains(refusal, "vicinity-podlocators") || !strings.Contains(refusal, message) {
		return "", fmt.Errorf("the policy vicinity-podlocators should refuse a tenant with all rights; kubectl shows %q", refusal)
	}
	return strconv.Quote(message + " …"), nil
}

// locatorManifest returns a PodLocator.
func locatorManifest(name, node string, labels map[string]string, ips ...string) string {
	var quoted, pairs []string
	for _, ip := range ips {
		quoted = append(quoted, strconv.Quote(ip))
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, fmt.Sprintf("%q: %q", key, labels[key]))
	}
	return fmt.Sprintf("---\napiVersion: vicinity.dev/v1alpha1\nkind: PodLocator\nmetadata: {name: %s}\nips: [%s]\nnodeName: %q\nnodeLabels: {%s}\n",
		name, strings.Join(quoted, ", "), node, strings.Join(pairs, ", "))
}
