package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

// evictionContract sends each kind of request, and expects the answers that clients of the API
// know.
func evictionContract(ctx context.Context, s *scene) (string, error) {
	f := s.field()
	w := evictions.Workload{Name: "held", Replicas: 6, StartTime: time.Second}
	check(f.Run(ctx, evictions.ByZone("held", "app", "held", "maxUnavailable: 1"), w))
	zone := f.Zones()[0]
	pods := must(f.Pods(ctx, w.Name, zone))
	if len(pods) != 2 {
		return "", fmt.Errorf("%d pods are in %s, want 2", len(pods), zone)
	}
	check(s.waitVerdict(ctx, pods[0].Name, "allowed"))
	check(s.dryRuns(ctx, pods[0].Name))
	other := types.UID("00000000-0000-0000-0000-000000000000")
	for _, wrong := range []struct {
		what, pod string
		options   *metav1.DeleteOptions
		is        func(error) bool
	}{
		{"a missing pod", "missing", nil, apierrors.IsNotFound},
		{"a precondition that does not hold", pods[0].Name, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}}, apierrors.IsConflict},
	} {
		if err := f.Evict(ctx, wrong.pod, wrong.options); !wrong.is(err) {
			return "", fmt.Errorf("%s: got %w", wrong.what, err)
		}
	}
	// A PodDisruptionBudget that allows nothing refuses, and uses nothing of the other budget.
	pdb := "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: native}\nspec: {maxUnavailable: 0, selector: {matchLabels: {app: held}}}\n"
	check(s.Apply(ctx, s.namespace, pdb))
	check(kube.Wait(ctx, "the PodDisruptionBudget to refuse", func(ctx context.Context) (string, error) {
		err := f.Evict(ctx, pods[0].Name, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "native") {
			return fmt.Sprintf("the answer is %v", err), nil
		}
		return "", nil
	}))
	check(s.waitVerdict(ctx, pods[0].Name, "refused"))
	if err := f.Evict(ctx, pods[0].Name, nil); !apierrors.IsTooManyRequests(err) {
		return "", fmt.Errorf("with a PodDisruptionBudget that allows nothing: got %w", err)
	}
	check(errors.Join(f.Reserved(ctx), s.Delete(ctx, s.namespace, pdb)))
	check(s.refusal(ctx, pods[0].Name, pods[1].Name))
	check(s.WaitDeployment(ctx, s.namespace, w.Name))
	held := must(s.refusedElsewhere(ctx, w.Name))
	return fmt.Sprintf("a missing pod 404, another UID 409, two dry runs and a PodDisruptionBudget reserve nothing, a refusal is a 429 with its cause, "+
		"and a reservation that another webhook refused lasts at most %.0f s", held.Seconds()), nil
}

// dryRuns sends both forms of a dry run.
func (s *scene) dryRuns(ctx context.Context, pod string) error {
	f := s.field()
	if err := f.Evict(ctx, pod, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		return fmt.Errorf("a dry run by the body: %w", err)
	}
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: s.namespace}}
	err := s.PolicyV1().RESTClient().Post().AbsPath("/api/v1").Namespace(s.namespace).Resource("pods").Name(pod).SubResource("eviction").
		Param("dryRun", metav1.DryRunAll).Body(eviction).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("a dry run by the query: %w", err)
	}
	return f.Reserved(ctx)
}

// waitVerdict waits until explain predicts the wanted answer to an eviction of a pod.
func (s *scene) waitVerdict(ctx context.Context, pod, want string) error {
	return kube.Wait(ctx, "explain to predict "+want, func(ctx context.Context) (string, error) {
		output, err := s.vicinityJSON(ctx, "explain", "pod/"+pod, "-n", s.namespace)
		if err != nil || output["verdict"] == want {
			return "", err
		}
		return fmt.Sprintf("it predicts %v: %v", output["verdict"], output["why"]), nil
	})
}

// refusal evicts a pod, and checks that the eviction of another is refused in the form that makes
// clients retry.
func (s *scene) refusal(ctx context.Context, first, second string) error {
	f := s.field()
	// A replica of the webhook can learn late that the PodDisruptionBudget is gone.
	if err := kube.Wait(ctx, "the first eviction", func(ctx context.Context) (string, error) {
		err := f.Evict(ctx, first, nil)
		if apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), "PodDisruptionBudget native") {
			return err.Error(), nil
		}
		return "", err
	}); err != nil {
		return err
	}
	err := f.Evict(ctx, second, nil)
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return fmt.Errorf("a second eviction: got %w, want a refusal", err)
	}
	got := status.Status()
	if got.Code != http.StatusTooManyRequests || got.Reason != metav1.StatusReasonTooManyRequests {
		return fmt.Errorf("a refusal is %d %s, want 429 TooManyRequests: %w", got.Code, got.Reason, err)
	}
	if got.Details == nil || got.Details.RetryAfterSeconds != 0 ||
		!slices.ContainsFunc(got.Details.Causes, func(c metav1.StatusCause) bool { return c.Type == policyv1.DisruptionBudgetCause }) {
		return fmt.Errorf("a refusal has the details %+v, want the cause DisruptionBudget and no retry time", got.Details)
	}
	for _, want := range []string{"/held", f.Zones()[0]} {
		if !strings.Contains(got.Message, want) {
			return fmt.Errorf("a refusal does not name %q: %s", want, got.Message)
		}
	}
	// Until the replacement exists, the missing pod has no name.
	if !strings.Contains(got.Message, "held-") && !strings.Contains(got.Message, "1 pod is missing") {
		return fmt.Errorf("a refusal does not name the pod that is down: %s", got.Message)
	}
	return nil
}

// refusedElsewhere makes a webhook that does not answer refuse evictions that the budget admits.
// The reservation expires, and retries do not extend it.
func (s *scene) refusedElsewhere(ctx context.Context, workload string) (held time.Duration, err error) {
	f := s.field()
	other := fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: other.example.com
  admissionReviewVersions: [v1]
  clientConfig: {service: {namespace: %[1]s, name: nothing}}
  rules: [{apiGroups: [""], apiVersions: [v1], resources: [pods/eviction], operations: [CREATE]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}
  sideEffects: None
  failurePolicy: Fail
  timeoutSeconds: 1
`, s.namespace)
	check(s.Apply(ctx, "", other))
	defer undo(&err, func() error { return s.Delete(context.WithoutCancel(ctx), "", other) })
	pods := must(f.Pods(ctx, workload, f.Zones()[1]))
	check(kube.Wait(ctx, "the other webhook to refuse", func(ctx context.Context) (string, error) {
		if f.Evict(ctx, pods[0].Name, &metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}) == nil {
			return "it is not asked", nil
		}
		return "", nil
	}))
	begun := time.Now()
	if err := f.Evict(ctx, pods[0].Name, nil); err == nil {
		return 0, errors.New("an eviction that another webhook refuses was admitted")
	}
	before := must(s.expiries(ctx))
	if err := f.Evict(ctx, pods[0].Name, nil); err == nil {
		return 0, errors.New("an eviction that another webhook refuses was admitted")
	}
	after := must(s.expiries(ctx))
	for uid, expires := range after {
		if was, ok := before[uid]; ok && expires.After(was) {
			return 0, fmt.Errorf("a retry extended a reservation from %s to %s", was, expires)
		}
		held = max(held, expires.Sub(begun))
	}
	if most := 2*time.Minute + 2*time.Second; held > most {
		return 0, fmt.Errorf("a reservation lasts %s, more than %s", held, most)
	}
	return held, nil
}

// expiries returns when the reservations of the scene end, by pod.
func (s *scene) expiries(ctx context.Context) (map[types.UID]time.Time, error) {
	f := s.field()
	all, err := f.Budgets(ctx)
	if err != nil {
		return nil, err
	}
	found := map[types.UID]time.Time{}
	for i := range all {
		for _, r := range all[i].Status.Reservations {
			found[r.UID] = r.Expires.Time
		}
	}
	return found, nil
}
