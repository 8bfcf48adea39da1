package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

const (
	vicinityNamespace = "vicinity-system"
	vicinityObjects   = "app.kubernetes.io/instance=vicinity"
	controllerObjects = vicinityObjects + ",app.kubernetes.io/component=controller"
)

// installed installs Vicinity in a lab of its own as users do, changes how it is
// installed, and removes it again.
func installed(ctx context.Context, s *scene) (string, error) {
	wanted := shape.Default()
	wanted.Name = fmt.Sprintf("install-%d", os.Getpid())
	cluster, err := lab.Up(ctx, wanted, s.options)
	if err != nil {
		return "", err
	}
	// The context of a promise that took too long has ended.
	figure, err := installedIn(ctx, cluster)
	return figure, errors.Join(err, cluster.Down(context.WithoutCancel(ctx)))
}

func installedIn(ctx context.Context, cluster *lab.Cluster) (string, error) {
	client, err := cluster.Client()
	if err != nil {
		return "", err
	}
	begun := time.Now()
	if err := cluster.InstallVicinity(ctx); err != nil {
		return "", err
	}
	took := time.Since(begun)
	first, err := controllers(ctx, client)
	if err != nil {
		return "", err
	}
	zones := zonesOf(first)
	if len(first) != 2 || len(zones) != 2 {
		return "", fmt.Errorf("pods %q are ready, in zones %q; want two in two zones", names(first), zones)
	}
	before, err := authorities(ctx, client)
	if err != nil {
		return "", err
	}
	if err := cluster.InstallVicinity(ctx, "routing.takeOverAuto=true"); err != nil {
		return "", fmt.Errorf("with other values: %w", err)
	}
	after, err := authorities(ctx, client)
	if err != nil {
		return "", err
	}
	if !slices.EqualFunc(before, after, bytes.Equal) {
		return "", errors.New("with other values the webhooks' authority is another, so they failed for a while")
	}
	changed, err := controllers(ctx, client)
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(names(changed), func(name string) bool { return slices.Contains(names(first), name) }) {
		return "", fmt.Errorf("with other values pods %q are still there, of %q", names(changed), names(first))
	}
	if err := cluster.RemoveVicinity(ctx); err != nil {
		return "", err
	}
	if err := removed(ctx, client); err != nil {
		return "", err
	}
	return fmt.Sprintf("works after %.1f s in %s; changed and removed", took.Seconds(), strings.Join(zones, " and ")), nil
}

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

// zonesOf are the zones of some pods, each once.
func zonesOf(pods []corev1.Pod) []string {
	var zones []string
	for i := range pods {
		zones = append(zones, pods[i].Labels[corev1.LabelTopologyZone])
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// names are those of some pods.
func names(pods []corev1.Pod) []string {
	var names []string
	for i := range pods {
		names = append(names, pods[i].Name)
	}
	return names
}

// authorities are the CA bundles of the webhooks. Each must have one.
func authorities(ctx context.Context, client *lab.Client) ([][]byte, error) {
	var all [][]byte
	mutating, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "vicinity", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, w := range mutating.Webhooks {
		all = append(all, w.ClientConfig.CABundle)
	}
	validating, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, "vicinity", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	for _, w := range validating.Webhooks {
		all = append(all, w.ClientConfig.CABundle)
	}
	for _, authority := range all {
		if len(authority) == 0 {
			return nil, errors.New("a webhook has no authority that it is believed by")
		}
	}
	return all, nil
}

// installs are the kinds of objects that the chart makes.
var installs = []schema.GroupVersionResource{
	{Version: "v1", Resource: "services"},
	{Version: "v1", Resource: "secrets"},
	{Version: "v1", Resource: "serviceaccounts"},
	{Version: "v1", Resource: "pods"},
	{Group: "apps", Version: "v1", Resource: "deployments"},
	{Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"},
	{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterrolebindings"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"},
}

// removed waits until nothing is left of what the chart makes.
func removed(ctx context.Context, client *lab.Client) error {
	untyped, err := dynamic.NewForConfig(client.Config())
	if err != nil {
		return err
	}
	return kube.Wait(ctx, "all of Vicinity to go", func(ctx context.Context) (string, error) {
		var left []string
		for _, resource := range installs {
			found, err := untyped.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: vicinityObjects})
			if err != nil {
				return "", err
			}
			for _, object := range found.Items {
				left = append(left, object.GetKind()+" "+object.GetName())
			}
		}
		return strings.Join(left, ", "), nil
	})
}
