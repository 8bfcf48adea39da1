package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/kube"
)

// shortDrain is for how long an endpoint that is to end has to serve on at least, for no
// connection to be lost: until then all nodes have to lead new ones elsewhere.
const shortDrain = 5 * time.Second

// proxyRollingUpdate replaces all endpoints, which drain for patientDrain. Its long form then
// replaces the new ones, which drain for shortDrain and no longer.
func proxyRollingUpdate(ctx context.Context, s *scene) (string, error) {
	const endpoints = 12
	if err := s.deployed(ctx, endpoints, preferZone); err != nil {
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
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if u.ended == 0 {
		return "", errors.New("no long connection ended with its endpoint, so none was replaced")
	}
	return fmt.Sprintf("%s; %s", replaced, u), nil
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
