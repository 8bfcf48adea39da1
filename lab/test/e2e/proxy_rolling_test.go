package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab/shape"
)

// shortDrain is for how long an endpoint that is to end has to serve on at least, for no
// connection to be lost: until then all nodes have to lead new ones elsewhere.
const shortDrain = 5 * time.Second

// proxyRollingUpdate replaces all endpoints, which drain for patientDrain. Its long form then
// replaces the new ones, which drain for shortDrain and no longer. Beside a Service without affinity one is asked whose clients stay with their
// endpoints: they lose nothing when these end, and stay with others then.
func proxyRollingUpdate(ctx context.Context, s *scene) (string, error) {
	const endpoints = 12
	if err := s.deployed(ctx, endpoints, annotated(zoneAnnotation, "Prefer")); err != nil {
		return "", err
	}
	if err := s.Apply(ctx, s.namespace, twin("sticky", `vicinity.dev/proxy: "true"`)+"  sessionAffinity: ClientIP\n"); err != nil {
		return "", err
	}
	if err := s.servedBy(ctx, "sticky", true); err != nil {
		return "", err
	}
	replaced := fmt.Sprintf("%d endpoints replaced that serve on for %s, and until nobody has asked for %s", endpoints, patientDrain, quietDrain)
	type drain struct{ least, quiet time.Duration } // of the pods that come
	drains := []drain{{patientDrain, quietDrain}}
	if soaking() {
		replaced += fmt.Sprintf(", and then as many for %s and no longer", shortDrain)
		drains = []drain{{shortDrain, 0}, {patientDrain, quietDrain}}
	}
	u, err := s.unharmed(ctx, func(ctx context.Context, _ *traffic) error {
		for _, d := range drains {
			if err := s.redeploy(ctx, d.least, d.quiet); err != nil {
				return err
			}
			if err := s.clientsStay(ctx, "sticky"); err != nil {
				return err
			}
		}
		return nil
	}, "sticky")
	if err != nil {
		return "", err
	}
	if u.ended == 0 {
		return "", errors.New("no long connection ended with its endpoint, so none was replaced")
	}
	return fmt.Sprintf("%s, also of a Service with affinity; %s", replaced, u), nil
}

// redeploy replaces all pods of the echo Deployment by such that serve on for a time when they
// are to end, and until nobody has asked for a while, and waits until those of before have ended.
func (s *scene) redeploy(ctx context.Context, drain, quiet time.Duration) error {
	// The time has pods replaced that are as they should be already.
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"redeployed":%q}},"spec":{"containers":[{"name":"echo","env":[{"name":"ECHO_DRAIN","value":%q},{"name":"ECHO_DRAIN_QUIET","value":%q}]}]}}}}`,
		time.Now().Format(time.RFC3339Nano), drain, quiet)
	if _, err := s.AppsV1().Deployments(s.namespace).Patch(ctx, "echo", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return err
	}
	if err := s.WaitDeployment(ctx, s.namespace, "echo"); err != nil {
		return err
	}
	return s.haveGone(ctx)
}

// haveGone waits until those echo pods have ended that are to.
func (s *scene) haveGone(ctx context.Context) error {
	return kube.Wait(ctx, "the pods of before to have ended", func(ctx context.Context) (string, error) {
		pods, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=echo"})
		if err != nil {
			return "", err
		}
		if i := slices.IndexFunc(pods.Items, func(pod corev1.Pod) bool { return pod.DeletionTimestamp != nil }); i >= 0 {
			return pods.Items[i].Name + " has not", nil
		}
		return "", nil
	})
}

// clientsStay is an error if a client of a Service with affinity is answered by two pods.
func (s *scene) clientsStay(ctx context.Context, service string) error {
	object, err := s.CoreV1().Services(s.namespace).Get(ctx, service, metav1.GetOptions{})
	if err != nil {
		return err
	}
	list, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=client"})
	if err != nil {
		return err
	}
	for i := range list.Items {
		client := &list.Items[i]
		p := probe{
			namespace: shape.PodNamespace(s.cluster.Shape().Name, string(client.UID)), network: "tcp", http: true,
			to: netip.AddrPortFrom(netip.MustParseAddr(object.Spec.ClusterIP), 80), timeout: patience,
		}
		first := ""
		// That all would go to the same one by chance is as likely as one in 20,000.
		for range 5 {
			answer, _, err := exchange(ctx, p)
			if err != nil {
				return fmt.Errorf("from %s: %w", client.Name, err)
			}
			if first == "" {
				first = answer.Pod
			}
			if answer.Pod != first {
				return fmt.Errorf("%s is answered by %s and then by %s, although it should stay", client.Name, first, answer.Pod)
			}
		}
	}
	return nil
}
