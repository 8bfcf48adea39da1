package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

// Of the pods of a story, how many are to stay.
const (
	storyPods = 6
	storyLeft = 2
)

// shrunk is the workload of a story that is scaled down.
type shrunk struct {
	*evictions.Field
	number int
	// resource is that of the workload, whose manifest has fewer replicas. The budgets are beside it.
	resource, workload, budgets string
	// inZone and inAll are how many pods may go at once, outside the zone that is not covered.
	inZone, inAll int
	uncovered     string
}

// storiesOfScaleDowns has the proposal's stories hold for scale-downs that are paced, beside some that are not.
func storiesOfScaleDowns(ctx context.Context, s *scene) (string, error) {
	zones := s.field().Zones()
	limits := []shrunk{
		{number: 1, uncovered: zones[0]},
		{number: 2, inZone: 1, inAll: len(zones)},
		{number: 3, inZone: 1, inAll: 1},
		{number: 4, inZone: 1, inAll: 2},
	}
	figures, failed := make([]string, len(limits)), make([]error, len(limits))
	var work sync.WaitGroup
	for i, limit := range limits {
		work.Go(func() {
			if figures[i], failed[i] = s.tellShrunk(ctx, limit); failed[i] != nil {
				failed[i] = fmt.Errorf("story %d: %w", limit.number, failed[i])
			}
		})
	}
	work.Wait()
	return strings.Join(figures, "; "), errors.Join(failed...)
}

func (s *scene) tellShrunk(ctx context.Context, w shrunk) (figure string, err error) {
	manifests, err := story(w.number)
	if err != nil {
		return "", err
	}
	var plain string
	var failed error
	var work sync.WaitGroup
	work.Go(func() { plain, failed = s.shrinkStory(ctx, w, manifests, "plain", shrunk.unpaced) })
	paced, err := s.shrinkStory(ctx, w, manifests, "paced", shrunk.paced)
	work.Wait()
	return fmt.Sprintf("story %d: %s; %s", w.number, plain, paced), errors.Join(failed, err)
}

// shrinkStory makes the story in a namespace of its own.
func (s *scene) shrinkStory(ctx context.Context, w shrunk, manifests, name string, do func(shrunk, context.Context, *leaving) (string, error)) (figure string, err error) {
	w.Field = s.field()
	if w.Namespace, err = s.MakeNamespace(ctx, fmt.Sprintf("%s-%d", name, w.number)); err != nil {
		return "", err
	}
	defer undo(&err, func() error { return s.RemoveNamespace(context.WithoutCancel(ctx), w.Namespace) })
	if err := w.Apply(ctx, w.Namespace, manifests); err != nil {
		return "", err
	}
	cut := strings.LastIndex(manifests, "---\n")
	w.budgets, w.workload = manifests[:cut], manifests[cut:]
	w.resource = "deployments"
	if strings.Contains(w.workload, "kind: StatefulSet") {
		w.resource = "statefulsets"
	}
	w.workload = strings.Replace(w.workload, fmt.Sprintf("replicas: %d", storyPods), fmt.Sprintf("replicas: %d", storyLeft), 1)
	if err := errors.Join(w.count(ctx, storyPods), w.AtRest(ctx)); err != nil {
		return "", err
	}
	l, err := w.watch(ctx)
	if err != nil {
		return "", err
	}
	defer l.stop()
	return do(w, ctx, l)
}

// count waits until there are so many ready pods, and no others.
func (w shrunk) count(ctx context.Context, want int) error {
	return kube.Wait(ctx, fmt.Sprintf("%d pods", want), func(ctx context.Context) (string, error) {
		list, err := w.CoreV1().Pods(w.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", err
		}
		ready, err := w.Pods(ctx, "foo", "")
		if len(list.Items) != want || len(ready) != want {
			return fmt.Sprintf("%d of %d are ready", len(ready), len(list.Items)), err
		}
		return "", err
	})
}

// unpaced has all pods go at once, whatever budgets there are.
func (w shrunk) unpaced(ctx context.Context, l *leaving) (string, error) {
	if err := errors.Join(w.scale(ctx, nil), w.count(ctx, storyLeft)); err != nil {
		return "", err
	}
	most, _ := l.seen()
	return fmt.Sprintf("not paced, %d of %d pods go at once", most, storyPods-storyLeft), nil
}

// scale asks for the smaller number.
func (w shrunk) scale(ctx context.Context, dryRun []string) error {
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "foo", Namespace: w.Namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: storyLeft}}
	options := metav1.UpdateOptions{DryRun: dryRun}
	var err error
	if w.resource == "statefulsets" {
		_, err = w.AppsV1().StatefulSets(w.Namespace).UpdateScale(ctx, "foo", scale, options)
	} else {
		_, err = w.AppsV1().Deployments(w.Namespace).UpdateScale(ctx, "foo", scale, options)
	}
	return err
}

// pace gives the namespace a mode, and waits until it holds: one refuses what is not allowed whole, the other does not.
func (w shrunk) pace(ctx context.Context, mode string) (refusal string, err error) {
	body := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, v1alpha1.PaceScaleDown, mode)
	if _, err := w.CoreV1().Namespaces().Patch(ctx, w.Namespace, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		return "", err
	}
	err = kube.Wait(ctx, "scale-downs to be paced by "+mode, func(ctx context.Context) (string, error) {
		asked := w.scale(ctx, []string{metav1.DryRunAll})
		if apierrors.IsTooManyRequests(asked) != (mode == v1alpha1.PaceDeny) {
			return fmt.Sprintf("the answer is %v", asked), nil
		}
		if asked != nil {
			refusal = asked.Error()
		}
		return "", nil
	})
	return refusal, err
}

// paced refuses the scale-down first, and then has it go on as budgets allow while a loop applies the same manifest
// again and again.
func (w shrunk) paced(ctx context.Context, l *leaving) (string, error) {
	refusal, err := w.pace(ctx, v1alpha1.PaceDeny)
	if err != nil {
		return "", err
	}
	if err := w.scale(ctx, nil); !apierrors.IsTooManyRequests(err) {
		return "", fmt.Errorf("a scale-down beyond the budgets gives %w", err)
	}
	if !strings.Contains(refusal, "asked for "+strconv.Itoa(storyLeft)) {
		return "", fmt.Errorf("the refusal is %q", refusal)
	}
	if replicas, _, err := w.replicas(ctx); err != nil || replicas != storyPods {
		return "", errors.Join(err, fmt.Errorf("after a refusal there are %d replicas, want %d", replicas, storyPods))
	}
	if _, err := w.pace(ctx, v1alpha1.PaceClamp); err != nil {
		return "", err
	}
	begun := time.Now()
	loop := w.reapply(ctx)
	stops := ""
	if w.uncovered != "" {
		stops, err = w.opens(ctx, l)
	}
	if err == nil {
		err = w.ends(ctx)
	}
	applied, failed := loop()
	if err := errors.Join(err, failed); err != nil {
		return "", err
	}
	took := time.Since(begun)
	most, inZone := l.seen()
	if w.uncovered == "" && (most > w.inAll || inZone > w.inZone) {
		return "", fmt.Errorf("%d pods of a zone and %d in all went at once, want %d and %d at most: %s", inZone, most, w.inZone, w.inAll, strings.Join(l.told(), ", "))
	}
	return fmt.Sprintf("Deny refuses, Clamp has %d at once and %d of a zone go in %.1f s%s, with the manifest applied %d times beside it", most, inZone, took.Seconds(), stops, applied), nil
}

// ends waits until the scale-down is over.
func (w shrunk) ends(ctx context.Context) error {
	err := kube.Wait(ctx, "the scale-down to end", func(ctx context.Context) (string, error) {
		replicas, wanted, err := w.replicas(ctx)
		if replicas != storyLeft || wanted != "" {
			return fmt.Sprintf("it has %d replicas, and %q are wanted", replicas, wanted), err
		}
		return "", err
	})
	return errors.Join(err, w.count(ctx, storyLeft))
}

// replicas are those that the workload has, and that it is to have in the end.
func (w shrunk) replicas(ctx context.Context) (replicas int, wanted string, err error) {
	if w.resource == "statefulsets" {
		set, err := w.AppsV1().StatefulSets(w.Namespace).Get(ctx, "foo", metav1.GetOptions{})
		if err != nil {
			return 0, "", err
		}
		return int(*set.Spec.Replicas), set.Annotations[v1alpha1.AnnotationWantedReplicas], nil
	}
	d, err := w.AppsV1().Deployments(w.Namespace).Get(ctx, "foo", metav1.GetOptions{})
	if err != nil {
		return 0, "", err
	}
	return int(*d.Spec.Replicas), d.Annotations[v1alpha1.AnnotationWantedReplicas], nil
}

// reapply applies the manifest with the smaller number until it is told to stop. No write fails, and the number never rises.
func (w shrunk) reapply(ctx context.Context) (stop func() (applied int, err error)) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	applied, last := 0, storyPods
	var failed error
	work.Go(func() {
		for ticker := time.NewTicker(500 * time.Millisecond); ; {
			err := w.Apply(ctx, w.Namespace, w.workload)
			replicas, _, also := w.replicas(ctx)
			if ctx.Err() != nil {
				return
			}
			if err := errors.Join(err, also); err != nil && failed == nil {
				failed = fmt.Errorf("applying the manifest: %w", err)
			}
			if applied++; also == nil && replicas > last && failed == nil {
				failed = fmt.Errorf("%d replicas became %d", last, replicas)
			}
			last = min(last, replicas)
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	return func() (int, error) {
		cancel()
		work.Wait()
		return applied, failed
	}
}

// opens waits until no more pods may go, which is before the highest one outside the first zone, and lets one of each zone go.
func (w shrunk) opens(ctx context.Context, l *leaving) (string, error) {
	pods, err := w.CoreV1().Pods(w.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	domains, floor := evictions.Domains(w.Shape), 0
	for i := range pods.Items {
		ordinal, err := strconv.Atoi(strings.TrimPrefix(pods.Items[i].Name, "foo-"))
		if err != nil {
			return "", err
		}
		if domains[pods.Items[i].Spec.NodeName] != w.uncovered {
			floor = max(floor, ordinal+1)
		}
	}
	err = kube.Wait(ctx, fmt.Sprintf("the scale-down to stop at %d", floor), func(ctx context.Context) (string, error) {
		replicas, wanted, err := w.replicas(ctx)
		if replicas != floor || wanted != strconv.Itoa(storyLeft) {
			return fmt.Sprintf("it has %d replicas, and %q are wanted", replicas, wanted), err
		}
		return "", err
	})
	if err != nil {
		return "", err
	}
	if gone := l.outside(w.uncovered); len(gone) > 0 {
		return "", fmt.Errorf("%v went, and only pods in %s may", gone, w.uncovered)
	}
	stops := fmt.Sprintf(" after it stopped at %d until the budget was edited", floor)
	return stops, w.Apply(ctx, w.Namespace, strings.Replace(w.budgets, "maxUnavailable: 0", "maxUnavailable: 1", 1))
}

// leaving sees pods go, by the API alone.
type leaving struct {
	stop    func()
	domains map[string]string // of nodes

	mu    sync.Mutex
	going map[types.UID]string // the zones of pods that are being deleted
	gone  map[string][]string  // pods that went or go, by zone
	// most are those that went at once, mostInZone those of one zone.
	most, mostInZone int
	log              []string // of the pods that went, for people
}

func (w shrunk) watch(ctx context.Context) (*leaving, error) {
	ctx, cancel := context.WithCancel(ctx)
	l := &leaving{stop: cancel, domains: evictions.Domains(w.Shape), going: map[types.UID]string{}, gone: map[string][]string{}}
	if err := watchPods(ctx, w.Field, "", l.see); err != nil {
		cancel()
		return nil, err
	}
	return l, nil
}

func (l *leaving) see(pod *corev1.Pod, gone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if gone {
		defer delete(l.going, pod.UID)
	}
	if pod.DeletionTimestamp == nil {
		return
	}
	zone := l.domains[pod.Spec.NodeName]
	if l.going[pod.UID] = zone; !slices.Contains(l.gone[zone], pod.Name) {
		l.gone[zone] = append(l.gone[zone], pod.Name)
		l.log = append(l.log, fmt.Sprintf("%s of %s with the cost %q by %s", pod.Name, zone, pod.Annotations[corev1.PodDeletionCost], pod.DeletionTimestamp.Format(time.TimeOnly)))
	}
	inZone := map[string]int{}
	for _, zone := range l.going {
		inZone[zone]++
		l.mostInZone = max(l.mostInZone, inZone[zone])
	}
	l.most = max(l.most, len(l.going))
}

// seen is how many pods went at once, in all and of one zone.
func (l *leaving) seen() (most, inZone int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most, l.mostInZone
}

// told says which pods went.
func (l *leaving) told() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.log)
}

// outside are the pods of other zones that went.
func (l *leaving) outside(zone string) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for other, gone := range l.gone {
		if other != zone {
			names = append(names, gone...)
		}
	}
	slices.Sort(names)
	return names
}
