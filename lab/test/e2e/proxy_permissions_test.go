package e2e_test

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"vicinity.dev/vicinity/test/kube"
)

// proxyOwnLease writes Leases and Nodes with the token of a proxy. The API server allows only the
// Lease of the token's node, and no change of a Node but the removal of the start-up taint. The
// proxies keep renewing their Leases.
func proxyOwnLease(ctx context.Context, s *scene) (string, error) {
	pods := must(s.CoreV1().Pods(vicinityNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=proxy"}))
	if len(pods.Items) < 2 {
		return "", fmt.Errorf("%d proxies run; at least 2 are needed", len(pods.Items))
	}
	pod, other := &pods.Items[0], &pods.Items[1]
	lease := func(node string) string { return "vicinity-proxy-" + node }
	clientOfPod := must(s.clientAs(ctx, pod))
	unboundClient := must(s.clientAs(ctx, &corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: pod.Spec.ServiceAccountName}}))
	ofPod, unbound := clientOfPod.CoordinationV1().Leases(vicinityNamespace), unboundClient.CoordinationV1().Leases(vicinityNamespace)
	admin := s.CoordinationV1().Leases(vicinityNamespace)
	tried := 0
	for _, try := range []struct {
		who     string
		leases  coordination.LeaseInterface
		name    string
		do      func(context.Context, coordination.LeaseInterface, string) error
		allowed bool
	}{
		{"the node's proxy", ofPod, lease(pod.Spec.NodeName), rewriteLease, true},
		{"the node's proxy", ofPod, lease(other.Spec.NodeName), rewriteLease, false},
		{"the node's proxy", ofPod, "vicinity-controller", rewriteLease, false},
		{"the node's proxy as another's", ofPod, lease(pod.Spec.NodeName), holdLeaseAs(other.Spec.NodeName), false},
		{"the node's proxy", ofPod, lease("nowhere"), createLease, false},
		{"the node's proxy", ofPod, "other", createLease, false},
		{"a proxy of no node", unbound, "vicinity-controller", rewriteLease, false},
		{"an administrator", admin, lease(other.Spec.NodeName), rewriteLease, true},
		{"an administrator", admin, "other", createLease, true},
	} {
		check(answered(try.who+" writing Lease "+try.name, try.do(ctx, try.leases, try.name), "vicinity-proxy-leases", try.allowed))
		tried++
	}
	for _, try := range []struct {
		who     string
		client  kubernetes.Interface
		node    string
		patch   string
		allowed bool
	}{
		{"the node's proxy", clientOfPod, pod.Spec.NodeName, `{}`, true},
		{"the node's proxy", clientOfPod, pod.Spec.NodeName, `{"spec":{"unschedulable":true}}`, false},
		{"the node's proxy", clientOfPod, pod.Spec.NodeName, `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`, false},
		{"the node's proxy", clientOfPod, pod.Spec.NodeName, `{"metadata":{"labels":{"a":"b"}}}`, false},
		{"the node's proxy", clientOfPod, other.Spec.NodeName, `{}`, false},
		{"a proxy of no node", unboundClient, pod.Spec.NodeName, `{}`, false},
		{"an administrator", s.Client, other.Spec.NodeName, `{"metadata":{"labels":{"a":"b"}}}`, true},
	} {
		_, err := try.client.CoreV1().Nodes().Patch(ctx, try.node, types.MergePatchType, []byte(try.patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		check(answered(fmt.Sprintf("%s writing %s to Node %s", try.who, try.patch, try.node), err, "vicinity-proxy-taint", try.allowed))
		tried++
	}
	// The policy must not hinder any proxy.
	from := metav1.NowMicro()
	for i := range pods.Items {
		name := lease(pods.Items[i].Spec.NodeName)
		check(kube.Wait(ctx, "Lease "+name+" to be renewed", func(ctx context.Context) (string, error) {
			found, err := admin.Get(ctx, name, metav1.GetOptions{})
			switch {
			case err != nil:
				return "", err
			case found.Spec.RenewTime.Before(&from):
				return "it was renewed at " + found.Spec.RenewTime.String(), nil
			}
			return "", nil
		}))
	}
	return fmt.Sprintf("%d writes were allowed or refused rightly, %d proxies renewed their Leases", tried, len(pods.Items)), nil
}

// answered returns an error unless a policy allowed or refused a write as wanted.
func answered(what string, err error, policy string, allowed bool) error {
	refused := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "'"+policy+"'")
	switch {
	case err != nil && !refused:
		return fmt.Errorf("%s: %w", what, err)
	case refused == allowed:
		return fmt.Errorf("%s is allowed: %t, want %t", what, !refused, allowed)
	}
	return nil
}

// clientAs returns a client with a token of the pod's account. The token is bound to the pod if the
// pod has a name.
func (s *scene) clientAs(ctx context.Context, pod *corev1.Pod) (kubernetes.Interface, error) {
	request := &authenticationv1.TokenRequest{}
	if pod.Name != "" {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	made, err := s.CoreV1().ServiceAccounts(vicinityNamespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(s.Config())
	config.BearerToken = made.Status.Token
	return kubernetes.NewForConfig(config)
}

// rewriteLease tries to write a Lease unchanged.
func rewriteLease(ctx context.Context, leases coordination.LeaseInterface, name string) error {
	return writeLease(ctx, leases, name, func(*coordinationv1.Lease) {})
}

// holdLeaseAs tries to write a Lease with another node as its holder.
func holdLeaseAs(node string) func(context.Context, coordination.LeaseInterface, string) error {
	return func(ctx context.Context, leases coordination.LeaseInterface, name string) error {
		return writeLease(ctx, leases, name, func(lease *coordinationv1.Lease) { lease.Spec.HolderIdentity = &node })
	}
}

func writeLease(ctx context.Context, leases coordination.LeaseInterface, name string, change func(*coordinationv1.Lease)) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found, err := leases.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(found)
		_, err = leases.Update(ctx, found, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// createLease tries to create a Lease.
func createLease(ctx context.Context, leases coordination.LeaseInterface, name string) error {
	_, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}
