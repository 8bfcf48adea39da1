package evictions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/test/kube"
)

// BudgetsOptions describe evictions under many budgets or one.
type BudgetsOptions struct {
	// Workloads is their number. Each has a budget, or with OneBudget all share one.
	Workloads           int
	OneBudget           bool
	InFlight, Evictions int
	// Died is the interval at which pods die by themselves.
	Died time.Duration
	// Midway is called after a third of the evictions.
	Midway func(context.Context) error
	// Hasty ends when all pods are healthy. A reservation that Midway interrupted ends two minutes
	// later.
	Hasty bool
}

// BudgetsFigures are the results of evictions over many budgets.
type BudgetsFigures struct {
	Figures
	Report
}

// CrowdPods is the number of pods of each workload of a storm.
const CrowdPods = 6

// CrowdWorkloads returns the workloads of a storm.
func CrowdWorkloads(number int) []Workload {
	var all []Workload
	for i := range number {
		all = append(all, Workload{Name: fmt.Sprintf("crowd-%d", i), Replicas: CrowdPods, Labels: map[string]string{"crowd": "true"}})
	}
	return all
}

// crowdBudgets returns budgets for a number of workloads each, which allow a third of a zone of them
// at a time.
func (o BudgetsOptions) manifests() (manifests []string, expected map[string]int) {
	expected = map[string]int{}
	if o.OneBudget {
		expected["all"] = o.Workloads * CrowdPods
		return []string{ByZone("all", "crowd", "true", fmt.Sprintf("maxUnavailable: %d", o.Workloads*CrowdPods/9))}, expected
	}
	for i := range o.Workloads {
		name := fmt.Sprintf("crowd-%d", i)
		expected[name] = CrowdPods
		manifests = append(manifests, ByZone(name, "app", name, "maxUnavailable: 1"))
	}
	return manifests, expected
}

// EvictCrowd evicts pods of CrowdWorkloads, which must run. It makes budgets for them and removes
// them.
func (f *Field) EvictCrowd(ctx context.Context, o BudgetsOptions) (figures BudgetsFigures, err error) {
	manifests, expected := o.manifests()
	if err := f.ApplyAll(ctx, manifests); err != nil {
		return figures, err
	}
	defer func() {
		ctx := context.WithoutCancel(ctx)
		err = errors.Join(err, f.Delete(ctx, f.Namespace, strings.Join(manifests, "")))
	}()
	if err := f.AtRest(ctx); err != nil {
		return figures, err
	}
	h, err := f.Follow(ctx)
	if err != nil {
		return figures, err
	}
	defer h.Stop()
	storm := &Storm{API: f.Client, History: h, InFlight: o.InFlight, Evictions: o.Evictions, Died: o.Died}
	var beside sync.WaitGroup
	var failed error
	if o.Midway != nil {
		beside.Go(func() {
			failed = kube.Wait(ctx, "a third of the evictions", func(context.Context) (string, error) {
				if n := storm.Progress(); n < o.Evictions/3 {
					return fmt.Sprintf("%d were admitted", n), nil
				}
				return "", nil
			})
			failed = cmp.Or(failed, o.Midway(ctx))
		})
	}
	figures.Figures, err = storm.Run(ctx)
	beside.Wait()
	if err := errors.Join(err, failed); err != nil {
		return figures, err
	}
	if err := f.settled(ctx, o); err != nil {
		return figures, err
	}
	figures.Report, err = f.Judge(ctx, h, expected)
	return figures, err
}

// settled waits until evictions have left nothing behind, or with Hasty nothing that a pod shows.
func (f *Field) settled(ctx context.Context, o BudgetsOptions) error {
	if !o.Hasty {
		return f.AtRest(ctx)
	}
	for _, w := range CrowdWorkloads(o.Workloads) {
		if err := f.WaitDeployment(ctx, f.Namespace, w.Name); err != nil {
			return err
		}
	}
	return nil
}

// EvictNatively evicts pods of CrowdWorkloads like EvictCrowd, under PodDisruptionBudgets that allow
// as many pods of the namespace at a time. It shows what clients, the API server and Kubernetes'
// controllers can do in the same lab without Vicinity.
func (f *Field) EvictNatively(ctx context.Context, o BudgetsOptions) (figures Figures, err error) {
	const zones = 3
	var manifests strings.Builder
	if o.OneBudget {
		manifests.WriteString(native("all", "crowd", "true", zones*(o.Workloads*CrowdPods/9)))
	} else {
		for i := range o.Workloads {
			name := fmt.Sprintf("crowd-%d", i)
			manifests.WriteString(native(name, "app", name, zones))
		}
	}
	if err := f.Apply(ctx, f.Namespace, manifests.String()); err != nil {
		return figures, err
	}
	defer func() {
		err = errors.Join(err, f.Delete(context.WithoutCancel(ctx), f.Namespace, manifests.String()))
	}()
	err = kube.Wait(ctx, "the PodDisruptionBudgets to be at rest", func(ctx context.Context) (string, error) {
		list, err := f.PolicyV1().PodDisruptionBudgets(f.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		for i := range list.Items {
			if b := &list.Items[i]; b.Status.DisruptionsAllowed < b.Spec.MaxUnavailable.IntVal {
				return fmt.Sprintf("%s allows %d", b.Name, b.Status.DisruptionsAllowed), nil
			}
		}
		return "", nil
	})
	if err != nil {
		return figures, err
	}
	h, err := f.Follow(ctx)
	if err != nil {
		return figures, err
	}
	defer h.Stop()
	return (&Storm{API: f.Client, History: h, InFlight: o.InFlight, Evictions: o.Evictions, Died: o.Died}).Run(ctx)
}

// RecycleOptions describe the move of a service to other nodes.
type RecycleOptions struct {
	Pods      int
	StartTime time.Duration
	// Budget is a manifest for the pods with the label app=service.
	Budget string
	// Nodes is the number of nodes without network to use.
	Nodes int
	// Within, if not zero, ends the drains early.
	Within time.Duration
}

// RecycleFigures are the results of the move.
type RecycleFigures struct {
	Took   time.Duration
	Moved  int
	Report Report
}

// Recycle moves a service that is spread over three zones from one half of each zone's nodes to the
// other, by draining the first half at once with kubectl.
func (f *Field) Recycle(ctx context.Context, o RecycleOptions) (figures RecycleFigures, err error) {
	var first, second, unused []string
	zones := f.Zones()
	for _, zone := range zones {
		nodes := f.Nodes(zone)
		each := o.Nodes / len(zones)
		first, second, unused = append(first, nodes[:each/2]...), append(second, nodes[each/2:each]...), append(unused, nodes[each:]...)
	}
	if err := f.SetSchedulable(ctx, false, slices.Concat(second, unused)...); err != nil {
		return figures, err
	}
	defer func() {
		err = errors.Join(err, f.SetSchedulable(context.WithoutCancel(ctx), true, slices.Concat(first, second, unused)...))
	}()
	w := Workload{Name: "service", Replicas: o.Pods, StartTime: o.StartTime}
	if err := f.Run(ctx, o.Budget, w); err != nil {
		return figures, err
	}
	defer func() {
		err = errors.Join(err, f.Delete(context.WithoutCancel(ctx), f.Namespace, w.Manifest()+o.Budget))
	}()
	if err := f.SetSchedulable(ctx, true, second...); err != nil {
		return figures, err
	}
	h, err := f.Follow(ctx)
	if err != nil {
		return figures, err
	}
	defer h.Stop()
	begun := time.Now()
	limit := []string{}
	if o.Within > 0 {
		limit = append(limit, "--timeout", o.Within.String())
	}
	for {
		_, err := f.Drain(ctx, "app=service", first, limit...)
		if err == nil || o.Within > 0 {
			break
		}
		if ctx.Err() != nil {
			return figures, err
		}
		// kubectl gave up.
	}
	if err := f.WaitDeployment(ctx, f.Namespace, w.Name); err != nil {
		return figures, err
	}
	figures.Took = time.Since(begun)
	if figures.Report, err = f.Judge(ctx, h, map[string]int{"service": o.Pods}); err != nil {
		return figures, err
	}
	figures.Moved = figures.Report.Evictions
	return figures, nil
}

// RetryFigures are the costs of drainers that are refused all the time.
type RetryFigures struct {
	Refused int
	// Admitted are evictions of terminating pods. The history shows that no other eviction was
	// admitted.
	Admitted int
	// Failed are evictions without an answer in time.
	Failed  int
	Failure string // of one of them
	Took    time.Duration
	Calls   float64
	Writes  int // of budgets
}

// Retry makes a drainer, which knows nothing of budgets, request the eviction of a pod on each of some
// nodes every second. Budgets that allow none refuse all, for workloads with the expected replicas.
func (f *Field) Retry(ctx context.Context, during time.Duration, pods []string, expected map[string]int) (figures RetryFigures, err error) {
	h, err := f.Follow(ctx)
	if err != nil {
		return figures, err
	}
	defer h.Stop()
	calls := CountCalls(f.Client)
	before, err := calls.Total(ctx)
	if err != nil {
		return figures, err
	}
	limited, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	begun := time.Now()
	var mu sync.Mutex
	var wait sync.WaitGroup
	for i, pod := range pods {
		wait.Go(func() {
			// The drainers start one after another.
			timer := time.NewTimer(time.Duration(i) * time.Second / time.Duration(len(pods)))
			defer timer.Stop()
			for {
				select {
				case <-limited.Done():
					return
				case <-timer.C:
				}
				timer.Reset(time.Second)
				err := f.Evict(limited, pod, nil)
				if limited.Err() != nil {
					return
				}
				mu.Lock()
				switch {
				case apierrors.IsTooManyRequests(err):
					figures.Refused++
				case err == nil:
					figures.Admitted++
				default: // on an overloaded machine
					figures.Failed++
					figures.Failure = err.Error()
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	figures.Took = time.Since(begun)
	after, err := calls.Total(ctx)
	if err != nil {
		return figures, err
	}
	figures.Calls = after - before
	if _, err := f.Judge(ctx, h, expected); err != nil {
		return figures, err
	}
	figures.Writes = h.Writes()
	return figures, nil
}
