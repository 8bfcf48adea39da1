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

// A story's workload is scaled down from storyPods to storyLeft.
const (
	storyPods = 6
	storyLeft = 2
)

// shrunk is the scaled-down workload of a story.
type shrunk struct {
	*evictions.Field
	number int
	// resource is the kind of the workload. workload is its manifest with fewer replicas. The
	// budgets are separate.
	resource, workload, budgets string
	// inZone and inAll are how many pods may go at once. They do not apply with an uncovered zone.
	inZone, inAll int
	uncovered     string
}

// storiesOfScaleDowns checks that the proposal's stories hold for paced scale-downs, and shows
// unpaced ones beside them.
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
			if figures[i], failed[i] = s.scaleStory(ctx, limit); failed[i] != nil {
				failed[i] = fmt.Errorf("story %d: %w", limit.number, failed[i])
			}
		})
	}
	work.Wait()
	return strings.Join(figures, "; "), errors.Join(failed...)
}

func (s *scene) scaleStory(ctx context.Context, w shrunk) (figure string, err error) {
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

// shrinkStory runs a story in its own namespace.
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

// count waits until so many pods exist and all are ready.
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

// unpaced scales down without pacing: all pods go at once, whatever the budgets allow.
func (w shrunk) unpaced(ctx context.Context, l *leaving) (string, error) {
	if err := errors.Join(w.scale(ctx, nil), w.count(ctx, storyLeft)); err != nil {
		return "", err
	}
	most, _ := l.mostAtOnce()
	return fmt.Sprintf("not paced, %d of %d pods are deleted at once", most, storyPods-storyLeft), nil
}

// scale requests the smaller number of replicas.
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

// pace sets the namespace's mode, and waits until it is in effect: Deny refuses a scale-down beyond
// the budgets, Clamp does not.
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

// paced checks that the scale-down is refused at first. Then it lets the scale-down go on as
// budgets allow, while a loop keeps applying the manifest.
func (w shrunk) paced(ctx context.Context, l *leaving) (string, error) {
	refusal, err := w.pace(ctx, v1alpha1.PaceDeny)
	if err != nil {
		return "", err
	}
	if err := w.scale(ctx, nil); !apierrors.IsTooManyRequests(err) {
		return "", fmt.Errorf("a scale-down beyond the budgets was answered with %w", err)
	}
	if !strings.Contains(refusal, "asked for "+strconv.Itoa(storyLeft)) {
		return "", fmt.Errorf("the refusal lacks the wanted number: %q", refusal)
	}
	if replicas, _, err := w.replicas(ctx); err != nil || replicas != storyPods {
		return "", errors.Join(err, fmt.Errorf("%d replicas after a refusal, want %d", replicas, storyPods))
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
	most, inZone := l.mostAtOnce()
	if w.uncovered == "" && (most > w.inAll || inZone > w.inZone) {
		return "", fmt.Errorf("%d pods of a zone and %d in total were deleted at once, want at most %d and %d: %s", inZone, most, w.inZone, w.inAll, strings.Join(l.deletedPods(), ", "))
	}
	return fmt.Sprintf("Deny refuses, with Clamp at most %d pods and %d of a zone are deleted at once, in %.1f s%s, while the manifest was applied %d times", most, inZone, took.Seconds(), stops, applied), nil
}

// ends waits until the scale-down is over.
func (w shrunk) ends(ctx context.Context) error {
	err := kube.Wait(ctx, "the scale-down to end", func(ctx context.Context) (string, error) {
		replicas, wanted, err := w.replicas(ctx)
		if replicas != storyLeft || wanted != "" {
			return fmt.Sprintf("it has %d replicas and the annotation wants %q", replicas, wanted), err
		}
		return "", err
	})
	return errors.Join(err, w.count(ctx, storyLeft))
}

// replicas returns the replicas of the workload, and the wanted number of its annotation.
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

// reapply keeps applying the manifest with the smaller number until stop is called. No write may
// fail, and the number may never rise.
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

// opens waits until the scale-down stops before the highest pod outside the uncovered zone. Then it
// lets one pod of each zone go.
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
			return fmt.Sprintf("it has %d replicas and the annotation wants %q", replicas, wanted), err
		}
		return "", err
	})
	if err != nil {
		return "", err
	}
	if gone := l.outside(w.uncovered); len(gone) > 0 {
		return "", fmt.Errorf("%v were deleted, but only pods in %s may be", gone, w.uncovered)
	}
	stops := fmt.Sprintf(" after it stopped at %d until the budget was edited", floor)
	return stops, w.Apply(ctx, w.Namespace, strings.Replace(w.budgets, "maxUnavailable: 0", "maxUnavailable: 1", 1))
}

// leaving records the deletions of pods, by the API alone.
type leaving struct {
	stop    func()
	domains map[string]string // of nodes

	mu    sync.Mutex
	going map[types.UID]string // the zones of pods that are being deleted
	gone  map[string][]string  // pods that were or are being deleted, by zone
	// most is the highest number of pods deleted at once, mostInZone that of one zone.
	most, mostInZone int
	log              []string // descriptions of deleted pods
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

// mostAtOnce returns how many pods were deleted at once, in total and of one zone.
func (l *leaving) mostAtOnce() (most, inZone int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most, l.mostInZone
}

// deletedPods describes the deleted pods.
func (l *leaving) deletedPods() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.log)
}

// outside returns the deleted pods of other zones.
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
