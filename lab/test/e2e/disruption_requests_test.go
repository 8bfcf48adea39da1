package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/requester"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/requests"
)

// evictionRequests has all pods of a workload evicted by request, through a responder that deletes
// them, which no webhook of evictions sees. Pods name Vicinity's responder by its webhook.
func evictionRequests(ctx context.Context, s *scene) (figure string, err error) {
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"true"}}}`, v1alpha1.LabelEvictionRequests)
	if _, err := s.CoreV1().Namespaces().Patch(ctx, s.namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		return "", err
	}
	f := s.field()
	const deleter = "example.com/deleter"
	w := evictions.Workload{Name: "asked", Replicas: 24, StartTime: time.Second, Responder: deleter}
	if err := f.Run(ctx, evictions.ByZone("asked", "app", "asked", "maxUnavailable: 2"), w); err != nil {
		return "", err
	}
	pods, err := f.Pods(ctx, w.Name, "")
	if err != nil {
		return "", err
	}
	domains, all := evictions.Domains(s.cluster.Shape()), make([]*corev1.Pod, len(pods))
	for i := range pods {
		all[i] = &pods[i]
		if !slices.ContainsFunc(pods[i].Spec.EvictionResponders, func(r corev1.EvictionResponder) bool { return r.Name == v1alpha1.EvictionResponder }) {
			return "", fmt.Errorf("pod %s does not name Vicinity's responder", pods[i].Name)
		}
	}
	h, err := f.Follow(ctx)
	if err != nil {
		return "", err
	}
	defer h.Stop()

	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- requests.New(s.Client, s.namespace).Run(running) }()
	deletes := requests.Deleter{Client: s.Client, Namespace: s.namespace, Name: deleter}
	go func() { ended <- deletes.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended, <-ended)
	}()

	begun := time.Now()
	pool := requester.Pool{
		Requester: requester.New(s.Client, func() bool { return true }), Name: "example.com/drain", Reason: "a promise",
		Domain: func(pod *corev1.Pod) string { return domains[pod.Spec.NodeName] }, Longest: 3 * time.Second,
	}
	explained := false
	pool.Report = func(r requester.Result) {
		explained = explained || slices.ContainsFunc(r.Outcome.Causes, func(cause string) bool {
			return strings.Contains(cause, "budget "+s.namespace+"/asked: ")
		})
	}
	for _, r := range pool.Evict(ctx, all) {
		if r.Err != nil || r.Outcome.State != requester.Evicted && r.Outcome.State != requester.Gone {
			return "", fmt.Errorf("pod %s: %s %q, %w", r.Pod.Name, r.Outcome.State, r.Outcome.Causes, r.Err)
		}
	}
	took := time.Since(begun)
	if !explained {
		return "", errors.New("no requester was told why a pod waits")
	}
	if err := s.WaitDeployment(ctx, s.namespace, w.Name); err != nil {
		return "", err
	}
	report, err := f.Judge(ctx, h, map[string]int{"asked": w.Replicas})
	if err != nil {
		return "", err
	}
	if report.Reservations < w.Replicas {
		return "", fmt.Errorf("of %d pods that were deleted %d had a reservation", w.Replicas, report.Reservations)
	}
	return fmt.Sprintf("%d pods deleted by a responder in %.0f s, two of a zone at a time, over budget %d", w.Replicas, took.Seconds(), report.OverBudget), nil
}
