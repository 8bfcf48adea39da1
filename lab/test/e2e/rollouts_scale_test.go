package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

// These annotations keep the spread of a Deployment's pods over zones; repaired also repairs it
// after a rolling update.
var (
	keepsSpread = fmt.Sprintf("%s: %s", v1alpha1.AnnotationKeepSpread, corev1.LabelTopologyZone)
	repaired    = fmt.Sprintf("%s, %s: %q", keepsSpread, v1alpha1.AnnotationRepairSpread, "true")
)

// zoned is a Deployment whose pods are counted by zone.
type zoned struct {
	*evictions.Field
	name     string
	replicas int
	keeps    bool
}

// apply makes the Deployment, with annotations and more lines of its pods' spec.
func (z zoned) apply(ctx context.Context, annotations string, podSpec ...string) error {
	var more strings.Builder
	for _, line := range podSpec {
		fmt.Fprintf(&more, "\n      %s", line)
	}
	return z.Apply(ctx, z.Namespace, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, annotations: {%[2]s}}
spec:
  replicas: %[3]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s, in: %[7]s, version: "1"}
      annotations: {%[4]s: 500ms}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {%[5]s: "true"}
      containers: [{name: main, image: none}]%[6]s
`, z.name, annotations, z.replicas, shape.AnnotationStartTime, shape.LabelFake, more.String(), z.Namespace))
}

// all returns all pods, including terminating ones.
func (z zoned) all(ctx context.Context) ([]corev1.Pod, error) {
	list, err := z.CoreV1().Pods(z.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + z.name})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

func (z zoned) patch(ctx context.Context, spec string) error {
	_, err := z.AppsV1().Deployments(z.Namespace).Patch(ctx, z.name, types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
	return err
}

// rests waits until exactly so many pods exist, all ready and of a version. It returns the number
// in each zone, the highest first.
func (z zoned) rests(ctx context.Context, replicas int, version string) (counts []int, err error) {
	err = kube.Wait(ctx, fmt.Sprintf("%d pods of %s", replicas, z.name), func(ctx context.Context) (string, error) {
		pods, err := z.all(ctx)
		if err != nil {
			return "", err
		}
		if len(pods) != replicas {
			return fmt.Sprintf("%d exist", len(pods)), nil
		}
		for i := range pods {
			if pods[i].DeletionTimestamp != nil || !kube.PodReady(&pods[i]) || pods[i].Labels["version"] != version {
				return pods[i].Name + " is not ready, or not of version " + version, nil
			}
		}
		counts = z.count(pods)
		return "", nil
	})
	return counts, err
}

// count returns the number of pods in each zone, the highest first.
func (z zoned) count(pods []corev1.Pod) []int {
	domains, zones := evictions.Domains(z.Shape), map[string]int{}
	for _, zone := range z.Zones() {
		zones[zone] = 0
	}
	for i := range pods {
		zones[domains[pods[i].Spec.NodeName]]++
	}
	return descending(slices.Collect(maps.Values(zones)))
}

func descending(counts []int) []int {
	return slices.SortedFunc(slices.Values(counts), func(a, b int) int { return cmp.Compare(b, a) })
}

// best returns the best spread after a scale-down of the counted pods.
func best(counts []int, replicas int) []int {
	counts = descending(counts)
	for range total(counts) - replicas {
		counts[0]--
		counts = descending(counts)
	}
	return counts
}

func total(numbers []int) (n int) {
	for _, m := range numbers {
		n += m
	}
	return n
}

// spreadText formats a spread, such as 4/3/3.
func spreadText(counts []int) string {
	var parts []string
	for _, n := range counts {
		parts = append(parts, strconv.Itoa(n))
	}
	return strings.Join(parts, "/")
}

// skew is the spread before scale-downs.
var skew = []int{6, 3, 1}

// place schedules the pods to zones so that they are skewed. A scheduling gate has held them until
// then.
func (z zoned) place(ctx context.Context) error {
	var pods []corev1.Pod
	err := kube.Wait(ctx, "the pods of "+z.name, func(ctx context.Context) (missing string, err error) {
		if pods, err = z.all(ctx); err == nil && len(pods) != z.replicas {
			missing = fmt.Sprintf("%d exist", len(pods))
		}
		return missing, err
	})
	if err != nil {
		return err
	}
	next := 0
	for i, n := range skew {
		for range n {
			body := fmt.Sprintf(`{"spec":{"schedulingGates":null,"nodeSelector":{%q:%q}}}`, corev1.LabelTopologyZone, z.Zones()[i])
			if _, err := z.CoreV1().Pods(z.Namespace).Patch(ctx, pods[next].Name, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
				return err
			}
			next++
		}
	}
	_, err = z.rests(ctx, z.replicas, "1")
	return err
}

// waitOrdered waits until the deletion costs take each next pod from the zone that then has the most.
func (z zoned) waitOrdered(ctx context.Context) error {
	domains := evictions.Domains(z.Shape)
	return kube.Wait(ctx, "the order of "+z.name, func(ctx context.Context) (string, error) {
		pods, err := z.all(ctx)
		if err != nil {
			return "", err
		}
		costs, left := map[string]int{}, map[string]int{}
		for i := range pods {
			costs[pods[i].Name], _ = strconv.Atoi(pods[i].Annotations[corev1.PodDeletionCost])
			left[domains[pods[i].Spec.NodeName]]++
		}
		slices.SortStableFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(costs[a.Name], costs[b.Name]) })
		for i := range pods {
			zone := domains[pods[i].Spec.NodeName]
			if left[zone] != slices.Max(slices.Collect(maps.Values(left))) {
				return fmt.Sprintf("%s of %s would be deleted with %v left", pods[i].Name, zone, left), nil
			}
			left[zone]--
		}
		return "", nil
	})
}

// shrinking is a way to scale a Deployment down, through these numbers of pods.
type shrinking struct {
	name string
	to   []int
	by   func(context.Context, zoned, int) error
}

func shrinkings() []shrinking {
	edited := func(ctx context.Context, z zoned, replicas int) error {
		return z.patch(ctx, fmt.Sprintf(`{"replicas":%d}`, replicas))
	}
	return []shrinking{
		{"steps", []int{9, 8, 7, 6, 5, 4, 3, 2, 1}, edited},
		{"to-6", []int{6}, edited},
		{"to-3", []int{3}, edited},
		{"to-1", []int{1}, edited},
		{"autoscaled", []int{4}, autoscaled},
	}
}

// autoscaled scales down by a HorizontalPodAutoscaler. Its maximum takes effect without metrics.
func autoscaled(ctx context.Context, z zoned, replicas int) error {
	return z.Apply(ctx, z.Namespace, fmt.Sprintf(`
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: %[1]s}
spec:
  minReplicas: 1
  maxReplicas: %[2]d
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: %[1]s}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
`, z.name, replicas))
}

// shrink scales a Deployment down, and returns the spread after each step.
func (z zoned) shrink(ctx context.Context, way shrinking) (spreads [][]int, err error) {
	annotations := ""
	if z.keeps {
		annotations = keepsSpread
	}
	if err := errors.Join(z.apply(ctx, annotations, "schedulingGates: [{name: lab.vicinity.dev/placed}]"), z.place(ctx)); err != nil {
		return nil, err
	}
	for _, replicas := range way.to {
		if z.keeps {
			if err := z.waitOrdered(ctx); err != nil {
				return nil, err
			}
		}
		if err := way.by(ctx, z, replicas); err != nil {
			return nil, err
		}
		counts, err := z.rests(ctx, replicas, "1")
		if err != nil {
			return nil, err
		}
		if want := best(skew, replicas); z.keeps && !slices.Equal(counts, want) {
			return nil, fmt.Errorf("%s: %d pods are spread %s, best is %s", z.name, replicas, spreadText(counts), spreadText(want))
		}
		spreads = append(spreads, counts)
	}
	return spreads, nil
}

// scaledDown scales Deployments of ten skewed pods down, beside some that Vicinity leaves alone.
func scaledDown(ctx context.Context, s *scene) (string, error) {
	ways := shrinkings()
	with, without := make([][][]int, len(ways)), make([][][]int, len(ways))
	check(meter.InParallel(ctx, 2*len(ways), 2*len(ways), func(ctx context.Context, i int) (err error) {
		way := ways[i/2]
		if i%2 == 0 {
			with[i/2], err = zoned{s.field(), way.name + "-kept", total(skew), true}.shrink(ctx, way)
		} else {
			without[i/2], err = zoned{s.field(), way.name + "-plain", total(skew), false}.shrink(ctx, way)
		}
		return err
	}))
	figures := []string{fmt.Sprintf("%d pods spread %s", total(skew), spreadText(skew))}
	for i, way := range ways {
		figures = append(figures, fmt.Sprintf("%s: %s (without Vicinity %s)", way.name, spreadTexts(with[i]), spreadTexts(without[i])))
	}
	return strings.Join(figures, "; "), nil
}

func spreadTexts(spreads [][]int) string {
	var parts []string
	for _, counts := range spreads {
		parts = append(parts, spreadText(counts))
	}
	return strings.Join(parts, " ")
}

// updatedSpread updates Deployments of twelve pods after a node was drained, beside some that
// Vicinity leaves alone.
func updatedSpread(ctx context.Context, s *scene) (string, error) {
	times := 3
	if soaking() {
		times = 10
	}
	const replicas = 12
	var all []zoned
	for i := range times {
		all = append(all, zoned{s.field(), fmt.Sprintf("kept-%d", i+1), replicas, true}, zoned{s.field(), fmt.Sprintf("plain-%d", i+1), replicas, false})
	}
	each := func(do func(context.Context, zoned, int) error) error {
		return meter.InParallel(ctx, len(all), len(all), func(ctx context.Context, i int) error { return do(ctx, all[i], i) })
	}
	before, after, begun := make([][]int, len(all)), make([][]int, len(all)), make([]time.Time, len(all))
	check(each(func(ctx context.Context, z zoned, _ int) error {
		annotations := ""
		if z.keeps {
			annotations = repaired
		}
		spread := fmt.Sprintf("topologySpreadConstraints: [{maxSkew: 1, topologyKey: %s, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: %s}}}]", corev1.LabelTopologyZone, z.name)
		if err := z.apply(ctx, annotations, spread); err != nil {
			return err
		}
		_, err := z.rests(ctx, replicas, "1")
		return err
	}))
	f := s.field()
	node := f.Nodes(f.Zones()[0])[0]
	_, err := f.Drain(ctx, "in="+f.Namespace, []string{node})
	check(errors.Join(err, f.SetSchedulable(context.WithoutCancel(ctx), true, node)))
	check(each(func(ctx context.Context, z zoned, i int) (err error) {
		before[i], err = z.rests(ctx, replicas, "1")
		return err
	}))
	longest := time.Duration(0)
	var mu sync.Mutex
	check(each(func(ctx context.Context, z zoned, i int) (err error) {
		if err := z.patch(ctx, `{"template":{"metadata":{"labels":{"version":"2"}}}}`); err != nil {
			return err
		}
		if after[i], err = z.rests(ctx, replicas, "2"); err != nil {
			return err
		}
		begun[i] = time.Now()
		if !z.keeps {
			return nil
		}
		err = kube.Wait(ctx, "the repair of "+z.name, func(ctx context.Context) (string, error) {
			counts, err := z.rests(ctx, replicas, "2")
			if err == nil && counts[0] > counts[len(counts)-1]+1 {
				return spreadText(counts), nil
			}
			return "", err
		})
		mu.Lock()
		defer mu.Unlock()
		longest = max(longest, time.Since(begun[i]))
		return err
	}))
	figures := map[bool][]string{}
	for i, z := range all {
		figures[z.keeps] = append(figures[z.keeps], fmt.Sprintf("%s to %s", spreadText(before[i]), spreadText(after[i])))
	}
	return fmt.Sprintf("after the rolling update of %d pods without Vicinity: %s; with: %s, at most one pod from the best spread within %.0f s", replicas,
		strings.Join(figures[false], ", "), strings.Join(figures[true], ", "), longest.Seconds()), nil
}

// ordinalSizes are the sizes of a StatefulSet during the promise.
var ordinalSizes = []int{7, 4, 2}

// ordinalsSpread scales down a StatefulSet whose pods are made at once, beside one that Vicinity
// leaves alone.
func ordinalsSpread(ctx context.Context, s *scene) (string, error) {
	sets := []zoned{{s.field(), "turns", ordinalSizes[0], true}, {s.field(), "plain", ordinalSizes[0], false}}
	spreads := make([][][]int, len(sets))
	check(meter.InParallel(ctx, len(sets), len(sets), func(ctx context.Context, i int) (err error) {
		spreads[i], err = sets[i].shrinkOrdinals(ctx)
		return err
	}))
	return fmt.Sprintf("%d, %d and %d pods are %s (without the annotation %s)", ordinalSizes[0], ordinalSizes[1], ordinalSizes[2], spreadTexts(spreads[0]), spreadTexts(spreads[1])), nil
}

// shrinkOrdinals makes a StatefulSet, scales it down, and returns the spread of each size. With the
// annotation each spread must be the best possible.
func (z zoned) shrinkOrdinals(ctx context.Context) (spreads [][]int, err error) {
	annotations := fmt.Sprintf("%s: 500ms", shape.AnnotationStartTime)
	if z.keeps {
		annotations += fmt.Sprintf(", %s: %s", v1alpha1.AnnotationSpreadOrdinals, corev1.LabelTopologyZone)
	}
	err = z.Apply(ctx, z.Namespace, fmt.Sprintf(`
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  serviceName: %[1]s
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata:
      labels: {app: %[1]s, version: "1"}
      annotations: {%[3]s}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {%[4]s: "true"}
      containers: [{name: main, image: none}]
`, z.name, z.replicas, annotations, shape.LabelFake))
	if err != nil {
		return nil, err
	}
	zones := len(z.Zones())
	for _, replicas := range ordinalSizes {
		body := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
		if _, err := z.AppsV1().StatefulSets(z.Namespace).Patch(ctx, z.name, types.MergePatchType, body, metav1.PatchOptions{}); err != nil {
			return nil, err
		}
		counts, err := z.rests(ctx, replicas, "1")
		if err != nil {
			return nil, err
		}
		want := make([]int, zones)
		for i := range replicas {
			want[i%zones]++
		}
		if z.keeps && !slices.Equal(counts, want) {
			return nil, fmt.Errorf("%d pods of %s are spread %s, best is %s", replicas, z.name, spreadText(counts), spreadText(want))
		}
		spreads = append(spreads, counts)
	}
	return spreads, nil
}
