package e2e_test

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
)

const (
	vicinityNamespace = "vicinity-system"
	vicinityObjects   = "app.kubernetes.io/instance=vicinity"
	controllerObjects = vicinityObjects + ",app.kubernetes.io/component=controller"
)

// controllers are the pods of the controller that are ready.
func controllers(ctx context.Context, client *lab.Client) ([]corev1.Pod, error) {
	list, err := client.CoreV1().Pods(vicinityNamespace).List(ctx, metav1.ListOptions{LabelSelector: controllerObjects})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || !kube.PodReady(&pod)
	}), nil
}

// names are those of some pods.
func names(pods []corev1.Pod) []string {
	var names []string
	for i := range pods {
		names = append(names, pods[i].Name)
	}
	return names
}

// leads waits until one of the controllers that run now leads.
func (s *scene) leads(ctx context.Context) error {
	return kube.Wait(ctx, "a controller to lead", func(ctx context.Context) (string, error) {
		leader, err := s.leader(ctx)
		if err != nil || leader != "" {
			return "", err
		}
		return "no lease is held by a pod that runs", nil
	})
}

// leader is the pod that leads of the controllers that run now, if one does.
func (s *scene) leader(ctx context.Context) (string, error) {
	pods, err := controllers(ctx, s.Client)
	if err != nil {
		return "", err
	}
	leases, err := s.CoordinationV1().Leases(vicinityNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	for i := range leases.Items {
		holder := leases.Items[i].Spec.HolderIdentity
		for j := range pods {
			if holder != nil && strings.HasPrefix(*holder, pods[j].Name+"_") {
				return pods[j].Name, nil
			}
		}
	}
	return "", nil
}
