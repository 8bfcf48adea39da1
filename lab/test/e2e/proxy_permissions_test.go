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
	"k8s.io/client-go/kubernetes"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"vicinity.dev/vicinity/test/kube"
)

// proxyOwnLease writes Leases with the token of a proxy. The API server allows only the Lease of
// the token's node, and the proxies keep renewing theirs.
func proxyOwnLease(ctx context.Context, s *scene) (string, error) {
	pods := must(s.CoreV1().Pods(vicinityNamespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=proxy"}))
	if len(pods.Items) < 2 {
		return "", fmt.Errorf("%d proxies run; at least 2 are needed", len(pods.Items))
	}
	pod, other := &pods.Items[0], &pods.Items[1]
	lease := func(node string) string { return "vicinity-proxy-" + node }
	ofPod := must(s.leasesAs(ctx, pod))
	unbound := must(s.leasesAs(ctx, &corev1.Pod{Spec: corev1.PodSpec{ServiceAccountName: pod.Spec.ServiceAccountName}}))
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
		err := try.do(ctx, try.leases, try.name)
		refused := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "'vicinity-proxy-leases'")
		switch {
		case err != nil && !refused:
			return "", fmt.Errorf("%s writing Lease %s: %w", try.who, try.name, err)
		case refused == try.allowed:
			return "", fmt.Errorf("%s may write Lease %s: %t, want %t", try.who, try.name, !refused, try.allowed)
		}
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

// leasesAs returns a client for Leases with a token of the pod's account. The token is bound to the
// pod if the pod has a name.
func (s *scene) leasesAs(ctx context.Context, pod *corev1.Pod) (coordination.LeaseInterface, error) {
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
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return client.CoordinationV1().Leases(vicinityNamespace), nil
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
