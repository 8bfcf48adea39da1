package evictions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
	"vicinity.dev/vicinity/test/kube"
)

// Field is a namespace of a lab with Vicinity.
type Field struct {
	*lab.Client
	Shape     shape.Shape
	Namespace string
	// Kubectl is the path of the program, Kubeconfig that of its file.
	Kubectl, Kubeconfig string
}

// applying is the number of concurrent writes.
const applying = 20

// Run applies manifests and Deployments, and waits until all pods are ready and all budgets are
// enforced.
func (f *Field) Run(ctx context.Context, manifests string, workloads ...Workload) error {
	err := meter.InParallel(ctx, applying, len(workloads), func(ctx context.Context, i int) error {
		return f.Apply(ctx, f.Namespace, workloads[i].Manifest())
	})
	if err != nil {
		return err
	}
	if err := f.ApplyAll(ctx, strings.Split(manifests, "---\n")); err != nil {
		return err
	}
	for _, w := range workloads {
		if err := f.WaitDeployment(ctx, f.Namespace, w.Name); err != nil {
			return err
		}
	}
	return f.AtRest(ctx)
}

// ApplyAll applies many manifests concurrently.
func (f *Field) ApplyAll(ctx context.Context, manifests []string) error {
	return meter.InParallel(ctx, applying, len(manifests), func(ctx context.Context, i int) error {
		return f.Apply(ctx, f.Namespace, manifests[i])
	})
}

// Budgets returns the budgets of the namespace.
func (f *Field) Budgets(ctx context.Context) ([]v1alpha1.TopologyDisruptionBudget, error) {
	text, err := f.CoreV1().RESTClient().Get().AbsPath("/apis/vicinity.dev/v1alpha1/namespaces/" + f.Namespace + "/topologydisruptionbudgets").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	var list v1alpha1.TopologyDisruptionBudgetList
	err = json.Unmarshal(text, &list)
	return list.Items, err
}

// restTime limits AtRest: pods become healthy, and a reservation ends in two minutes.
const restTime = 5 * time.Minute

// AtRest waits until all budgets are enforced, all expected pods are healthy and nothing is reserved.
func (f *Field) AtRest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, restTime)
	defer cancel()
	return kube.Wait(ctx, "the budgets to be at rest", func(ctx context.Context) (string, error) {
		all, err := f.Budgets(ctx)
		if err != nil {
			return "", err
		}
		for i := range all {
			if missing := unrest(&all[i]); missing != "" {
				return missing, nil
			}
		}
		return "", nil
	})
}

func unrest(b *v1alpha1.TopologyDisruptionBudget) string {
	if b.Status.ObservedGeneration != b.Generation {
		return b.Name + " is not looked at"
	}
	if c := Condition(b, v1alpha1.ConditionEnforced); c == nil || c.Status != metav1.ConditionTrue {
		return fmt.Sprintf("the condition of %s is %+v", b.Name, c)
	}
	if len(b.Status.Reservations) > 0 || b.Status.CurrentHealthy != b.Status.ExpectedPods || b.Status.ExpectedPods == 0 {
		text := fmt.Sprintf("%d of %d pods of %s are healthy and %d are reserved", b.Status.CurrentHealthy, b.Status.ExpectedPods, b.Name, len(b.Status.Reservations))
		for _, r := range b.Status.Reservations {
			text += fmt.Sprintf("; %s by %q until %s", r.Pod, r.Holder, r.Expires.Format(time.TimeOnly))
		}
		return text
	}
	return ""
}

// Condition returns a condition of a budget, or nil.
func Condition(b *v1alpha1.TopologyDisruptionBudget, kind string) *metav1.Condition {
	i := slices.IndexFunc(b.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
	if i < 0 {
		return nil
	}
	return &b.Status.Conditions[i]
}

// Reserved returns an error if a budget has reservations.
func (f *Field) Reserved(ctx context.Context) error {
	all, err := f.Budgets(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		if n := len(all[i].Status.Reservations); n > 0 {
			return fmt.Errorf("%s has %d reservations, want none", all[i].Name, n)
		}
	}
	return nil
}

// Pods returns the healthy pods of a workload in a zone, or in all if that is empty.
func (f *Field) Pods(ctx context.Context, workload, zone string) ([]corev1.Pod, error) {
	list, err := f.CoreV1().Pods(f.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + workload})
	if err != nil {
		return nil, err
	}
	domains := Domains(f.Shape)
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || !kube.PodReady(&p) || zone != "" && domains[p.Spec.NodeName] != zone
	}), nil
}

// Evict requests an eviction.
func (f *Field) Evict(ctx context.Context, pod string, options *metav1.DeleteOptions) error {
	return f.PolicyV1().Evictions(f.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: f.Namespace}, DeleteOptions: options,
	})
}

// Nodes returns the nodes without network of a zone.
func (f *Field) Nodes(zone string) []string {
	var names []string
	for _, node := range f.Shape.FakeNodeList() {
		if node.Zone == zone {
			names = append(names, node.Name)
		}
	}
	return names
}

// Zones returns the names of the lab's zones.
func (f *Field) Zones() []string {
	var names []string
	for _, zone := range f.Shape.Zones {
		names = append(names, zone.Name)
	}
	return names
}

// Drain runs kubectl drain for some nodes at once, for the pods of the namespace with a label, and
// returns the output.
func (f *Field) Drain(ctx context.Context, selector string, nodes []string, more ...string) (string, error) {
	var mu sync.Mutex
	var printed strings.Builder
	var failed error
	var wait sync.WaitGroup
	for _, node := range nodes {
		wait.Go(func() {
			args := append([]string{"drain", node, "--ignore-daemonsets", "--pod-selector", selector, "--kubeconfig", f.Kubeconfig}, more...)
			output, err := exec.CommandContext(ctx, f.Kubectl, args...).CombinedOutput()
			mu.Lock()
			defer mu.Unlock()
			printed.Write(output)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("kubectl drain %s: %w: %s", node, err, reason(output)))
			}
		})
	}
	wait.Wait()
	return printed.String(), failed
}

// reason shortens the output of kubectl.
func reason(output []byte) string {
	const most = 400
	text := strings.TrimSpace(string(output))
	return text[max(0, len(text)-most):]
}

// SetSchedulable cordons nodes, or uncordons them.
func (f *Field) SetSchedulable(ctx context.Context, schedulable bool, nodes ...string) error {
	return meter.InParallel(ctx, applying, len(nodes), func(ctx context.Context, i int) error {
		return f.Cordon(ctx, nodes[i], !schedulable)
	})
}

// UnseenFor is how long a replica may not know that a pod died, on a busy machine.
const UnseenFor = time.Minute

// Follow records the history of the namespace.
func (f *Field) Follow(ctx context.Context) (*History, error) {
	return Follow(ctx, f.Config(), f.Namespace)
}

// Judge waits until everything is recorded, and checks budgets with an expected number of pods, by
// zone.
func (f *Field) Judge(ctx context.Context, h *History, expected map[string]int) (Report, error) {
	own := map[string]string{}
	for _, zone := range f.Zones() {
		own[zone] = zone
	}
	return f.JudgeBy(ctx, h, own, expected)
}

// JudgeBy is Judge by the domains of zones. Zones without a domain are not covered.
func (f *Field) JudgeBy(ctx context.Context, h *History, zones map[string]string, expected map[string]int) (Report, error) {
	if err := h.CaughtUp(ctx); err != nil {
		return Report{}, err
	}
	domains := Domains(f.Shape)
	for node, zone := range domains {
		domains[node] = zones[zone]
	}
	maps.DeleteFunc(domains, func(_, domain string) bool { return domain == "" })
	report := h.Check(World{Domains: domains, Expected: expected, Lag: UnseenFor})
	return report, report.Err()
}
