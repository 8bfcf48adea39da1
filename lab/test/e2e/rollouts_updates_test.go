package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab/test/bench/meter"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

// inNamespace calls do with the scene in a new namespace, for a part of a promise that runs beside
// others.
func (s *scene) inNamespace(ctx context.Context, name string, do func(context.Context, *scene) error) (err error) {
	part := *s
	if part.namespace, err = s.MakeNamespace(ctx, name); err != nil {
		return err
	}
	defer undo(&err, func() error { return s.RemoveNamespace(context.WithoutCancel(ctx), part.namespace) })
	return do(ctx, &part)
}

// withEach calls do for each kind of workload at the same time.
func (s *scene) withEach(ctx context.Context, do func(context.Context, *scene, string) error) error {
	kinds := []string{ofStatefulSet, ofDaemonSet, ofDeployment}
	return meter.InParallel(ctx, len(kinds), len(kinds), func(ctx context.Context, i int) error {
		return s.inNamespace(ctx, strings.ToLower(kinds[i]), func(ctx context.Context, part *scene) error {
			if err := do(ctx, part, kinds[i]); err != nil {
				return fmt.Errorf("%s: %w", kinds[i], err)
			}
			return nil
		})
	})
}

// followed is a workload with an observer of its pods.
type followed struct {
	*rolled
	*observer
}

// withBoth makes two workloads that change at the same time.
func (s *scene) withBoth(ctx context.Context, kinds [2]string, spec []string, do func(a, b followed) error) error {
	return s.inNamespace(ctx, strings.ToLower(kinds[0]), func(ctx context.Context, one *scene) error {
		return s.inNamespace(ctx, strings.ToLower(kinds[1]), func(ctx context.Context, other *scene) error {
			var both [2]followed
			for i, part := range []*scene{one, other} {
				r, err := part.roll(ctx, kinds[i], spec...)
				if err != nil {
					return fmt.Errorf("%s: %w", kinds[i], err)
				}
				o, err := r.observe(ctx)
				if err != nil {
					return fmt.Errorf("%s: %w", kinds[i], err)
				}
				defer o.stop()
				both[i] = followed{r, o}
			}
			return do(both[0], both[1])
		})
	})
}

// rolledByDomain updates workloads zone by zone. Then it updates two of them again while the
// leading controller is ended whenever the status of a rollout changes.
func rolledByDomain(ctx context.Context, s *scene) (string, error) {
	var first observation
	check(s.withEach(ctx, func(ctx context.Context, part *scene, kind string) error {
		r, err := part.roll(ctx, kind, "maxUnavailable: 2")
		if err != nil {
			return err
		}
		o, err := r.observe(ctx)
		if err != nil {
			return err
		}
		defer o.stop()
		if err := errors.Join(r.update(ctx, "2", "500ms", ""), r.waitComplete(ctx, "2")); err != nil {
			return err
		}
		found := o.since()
		if kind == ofStatefulSet {
			first = found
		}
		return found.within(2, r.inOrder()...)
	}))
	ends := 0
	// The gate slows the updates down, so that they do not end before the controller was ended
	// several times.
	spec := []string{"maxUnavailable: 2", "healthGate: {readyFor: 2s}"}
	err := s.withBoth(ctx, [2]string{ofStatefulSet, ofDeployment}, spec, func(a, b followed) (err error) {
		if err := errors.Join(a.update(ctx, "2", "500ms", ""), b.update(ctx, "2", "500ms", "")); err != nil {
			return err
		}
		if ends, err = s.endAtEveryStep(ctx, a.rolled, b.rolled); err != nil {
			return err
		}
		if err := errors.Join(a.waitComplete(ctx, "2"), b.waitComplete(ctx, "2")); err != nil {
			return err
		}
		if ends < 3 {
			return fmt.Errorf("the controller was ended %d times, want at least 3", ends)
		}
		return errors.Join(a.since().within(2, a.inOrder()...), b.since().within(2, b.inOrder()...))
	})
	return fmt.Sprintf("a StatefulSet, a DaemonSet and a Deployment by zones %v, %d pods of one zone down at most; the StatefulSet and the Deployment once more while the leading controller was killed once and deleted %d times",
		first.order, first.most, ends-1), err
}

// rolledAcrossDomains updates a StatefulSet and a DaemonSet in all zones at once, under the budget of story 2. New pods are
// not ready, so exactly one pod of each zone is down and stays so, until another template mends them.
func rolledAcrossDomains(ctx context.Context, s *scene) (string, error) {
	kinds := []string{ofStatefulSet, ofDaemonSet}
	err := meter.InParallel(ctx, len(kinds), len(kinds), func(ctx context.Context, i int) error {
		return s.inNamespace(ctx, "across-"+strings.ToLower(kinds[i]), func(ctx context.Context, part *scene) error {
			if err := part.rollAcross(ctx, kinds[i]); err != nil {
				return fmt.Errorf("%s: %w", kinds[i], err)
			}
			return nil
		})
	})
	return "one pod of each of three zones was down at the same time, and never a second one of a zone", err
}

func (s *scene) rollAcross(ctx context.Context, kind string) error {
	r, err := s.roll(ctx, kind, "waves: {type: All}")
	if err != nil {
		return err
	}
	if err := r.Apply(ctx, r.Namespace, evictions.ByZone("db", "app", "db", "maxUnavailable: 1")); err != nil {
		return err
	}
	if err := r.AtRest(ctx); err != nil {
		return err
	}
	o, err := r.observe(ctx)
	if err != nil {
		return err
	}
	defer o.stop()
	if err := r.update(ctx, "2", "1h", ""); err != nil {
		return err
	}
	err = kube.Wait(ctx, "a pod of each zone to be replaced", func(ctx context.Context) (string, error) {
		pods, err := r.Pods(ctx, r.name, "")
		if err != nil || len(pods) == r.pods-len(r.Zones()) && o.zonesDown() == len(r.Zones()) {
			return "", err
		}
		return fmt.Sprintf("%d of %d pods are ready", len(pods), r.pods), nil
	})
	if err != nil {
		return err
	}
	if err := errors.Join(r.update(ctx, "3", "500ms", ""), r.waitComplete(ctx, "3")); err != nil {
		return err
	}
	return o.since().across(len(r.Zones()))
}

// zonesDown returns how many zones lack a pod now.
func (o *observer) zonesDown() (zones int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	up := o.up()
	for zone, n := range o.expected {
		if up[zone] < n {
			zones++
		}
	}
	return zones
}

// inOrder returns the zones in the order of the rollouts.
func (r *rolled) inOrder() []string {
	zones := r.Zones()
	return []string{zones[1], zones[0], zones[2]}
}

// endAtEveryStep ends the leading controller whenever the status of a rollout has changed, until
// all are complete. The first is killed, so that its Lease must expire. The others are deleted and
// release the Lease, so that the next one leads soon.
func (s *scene) endAtEveryStep(ctx context.Context, rollouts ...*rolled) (ends int, err error) {
	before := map[*rolled]string{}
	err = kube.Wait(ctx, "the rollouts to be complete", func(ctx context.Context) (string, error) {
		waits, changed := "", map[*rolled]string{}
		for _, r := range rollouts {
			d, err := r.rollout(ctx, r.name)
			if err != nil {
				return "", err
			}
			if d.Status.Phase == v1alpha1.PhaseComplete && d.Status.ObservedGeneration == d.Generation && ends > 0 {
				continue
			}
			waits += fmt.Sprintf("%s %s: %s. ", r.kind, d.Status.Phase, d.Status.WaitingFor)
			if d.ResourceVersion != before[r] && d.Status.Phase != v1alpha1.PhaseComplete {
				changed[r] = d.ResourceVersion
			}
		}
		if len(changed) == 0 {
			return waits, nil
		}
		leader, err := s.leader(ctx)
		if err != nil || leader == "" {
			return waits, err
		}
		how := metav1.DeleteOptions{}
		if ends == 0 {
			how = atOnce()
		}
		if err := s.CoreV1().Pods(vicinityNamespace).Delete(ctx, leader, how); err != nil {
			return waits, err
		}
		ends++
		maps.Copy(before, changed)
		return waits, nil
	})
	return ends, errors.Join(err, s.waitControllers(ctx))
}

// badRevision tries a revision that is bad in the second zone, and beside it one that is bad
// everywhere. The rollout stops there, and a rollback restores the old revision.
func badRevision(ctx context.Context, s *scene) (figure string, err error) {
	var waits string
	parts := []func(context.Context, *scene, string) error{
		func(ctx context.Context, part *scene, kind string) error {
			found, err := part.badInSecondZone(ctx, kind)
			if kind == ofStatefulSet {
				waits = found
			}
			return err
		},
		func(ctx context.Context, part *scene, kind string) error { return part.neverReady(ctx, kind) },
	}
	err = meter.InParallel(ctx, len(parts), len(parts), func(ctx context.Context, i int) error { return s.withEach(ctx, parts[i]) })
	return fmt.Sprintf("in the second zone it stops (%q) and a rollback restores; of pods that are never ready only one was made, under a budget of one, and the rollback replaced it; a Deployment keeps the old pods", waits), err
}

// badInSecondZone tries a revision whose pods cannot run in the second zone of the order: they keep
// away from the zone of a blocker. It returns the reason for which the rollout waits.
func (s *scene) badInSecondZone(ctx context.Context, kind string) (waits string, err error) {
	zones := s.field().Zones()
	const blocker = `
apiVersion: v1
kind: Pod
metadata: {name: blocker, labels: {app: blocker}}
spec:
  terminationGracePeriodSeconds: 0
  nodeSelector: {lab.vicinity.dev/fake: "true", topology.kubernetes.io/zone: %s}
  containers: [{name: main, image: none}]
`
	const elsewhere = `,"spec":{"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"topology.kubernetes.io/zone","labelSelector":{"matchLabels":{"app":"blocker"}}}]}}}`
	r, err := s.roll(ctx, kind, "healthGate: {progressDeadline: 8s}", `maxUnavailable: "100%"`)
	if err != nil {
		return "", err
	}
	block := &rolled{Field: r.Field, name: "blocker", pods: 1}
	if err := errors.Join(r.Apply(ctx, r.Namespace, fmt.Sprintf(blocker, zones[0])), block.waitHealthy(ctx)); err != nil {
		return "", err
	}
	o, err := r.observe(ctx)
	if err != nil {
		return "", err
	}
	defer o.stop()
	if err := r.update(ctx, "2", "500ms", elsewhere); err != nil {
		return "", err
	}
	d, err := r.waitPhase(ctx, v1alpha1.PhaseFailed)
	if err != nil {
		return "", err
	}
	if f := d.Status.Failure; f == nil || f.Domain != zones[0] {
		return "", fmt.Errorf("the failure is %+v, want one in %s", f, zones[0])
	}
	want := []string{zones[1], zones[0]}
	if kind == ofDeployment { // no pod is deleted before its replacement is ready
		want = want[:1]
	}
	if err := o.since().within(3, want...); err != nil {
		return "", err
	}
	// The rollout waits until a user decides.
	if err := r.edit(ctx, fmt.Sprintf(`{"stop":{"revision":%q,"action":"Rollback"},"healthGate":null}`, d.Status.Revision)); err != nil {
		return "", err
	}
	if err := r.waitComplete(ctx, ""); err != nil {
		return "", err
	}
	restored, err := r.rollout(ctx, r.name)
	if err != nil {
		return "", err
	}
	if st := restored.Status; st.Revision != d.Status.PreviousRevision || !slices.Contains(st.AbandonedRevisions, d.Status.Revision) {
		return "", fmt.Errorf("%s was rolled back to %s, and the revision is %s with %v abandoned", d.Status.Revision, d.Status.PreviousRevision, st.Revision, st.AbandonedRevisions)
	}
	if slices.Contains(o.since().order, zones[2]) {
		return "", fmt.Errorf("a pod of %s was deleted, which the rollout had not reached", zones[2])
	}
	return d.Status.WaitingFor, nil
}

// neverReady tries a revision whose pods are never ready, under a budget that one of them uses up.
func (s *scene) neverReady(ctx context.Context, kind string) error {
	r, err := s.roll(ctx, kind, "healthGate: {progressDeadline: 6s}", "onFailure: Rollback", "maxUnavailable: 2")
	if err != nil {
		return err
	}
	if err := r.Apply(ctx, r.Namespace, oneDown); err != nil {
		return err
	}
	if err := r.AtRest(ctx); err != nil {
		return err
	}
	o, err := r.observe(ctx)
	if err != nil {
		return err
	}
	defer o.stop()
	if err := r.update(ctx, "2", "1h", ""); err != nil {
		return err
	}
	// A Deployment keeps all its old pods, so that its rollback may be over before it is seen.
	_, err = r.waitUntil(ctx, "rolling back", func(d *v1alpha1.DomainRollout) bool {
		return d.Status.RollingBack || kind == ofDeployment && len(d.Status.AbandonedRevisions) > 0
	})
	if err != nil {
		return err
	}
	if err := r.waitComplete(ctx, ""); err != nil {
		return err
	}
	down := 1
	if kind == ofDeployment {
		down = 0
	}
	return o.since().within(down, r.Zones()[1])
}

// oneDown is a budget that a single bad pod uses up.
const oneDown = `
apiVersion: vicinity.dev/v1alpha1
kind: TopologyDisruptionBudget
metadata: {name: db}
spec: {selector: {matchLabels: {app: db}}, maxUnavailable: 1}
`

// workloadsOfStories are the workloads of the stories, except for the StatefulSet, which the documentation has in story 1.
var workloadsOfStories = map[string]string{
	ofDaemonSet: `apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: foo
spec:
  updateStrategy: {type: OnDelete}
  selector:
    matchLabels: {app: foo}
  template:
    metadata:
      labels: {app: foo}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: lab/sleep
`,
	ofDeployment: `apiVersion: apps/v1
kind: Deployment
metadata:
  name: foo
spec:
  replicas: 6
  selector:
    matchLabels: {app: foo}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxUnavailable: 0, maxSurge: 2}
  template:
    metadata:
      labels: {app: foo}
    spec:
      terminationGracePeriodSeconds: 1
      schedulingGates:
      - name: vicinity.dev/rollout
      topologySpreadConstraints:
      - maxSkew: 1
        topologyKey: topology.kubernetes.io/zone
        whenUnsatisfiable: ScheduleAnyway
        labelSelector:
          matchLabels: {app: foo}
      containers:
      - name: main
        image: lab/sleep
`,
}

// workloadOfStory returns a workload with its DomainRollout.
func workloadOfStory(number int, kind string) (string, error) {
	workload := workloadsOfStories[kind]
	if kind == ofStatefulSet {
		text, err := story(1)
		if err != nil {
			return "", err
		}
		_, set, found := strings.Cut(text, "---\n")
		if workload = set; !found || !strings.Contains(set, "kind: StatefulSet\n") {
			return "", errors.New("story 1 has no StatefulSet")
		}
	}
	pace := "maxUnavailable: 100%"
	if number == 2 {
		text, err := os.ReadFile(root + "/docs/rollouts.md")
		if err != nil {
			return "", err
		}
		if pace, err = documentedBlock(string(text), "yaml", "# example: across"); err != nil {
			return "", err
		}
	}
	return workload + fmt.Sprintf(`
---
apiVersion: vicinity.dev/v1alpha1
kind: DomainRollout
metadata: {name: foo}
spec:
  targetRef: {kind: %s, name: foo}
  topologyKey: topology.kubernetes.io/zone
  %s
`, kind, strings.ReplaceAll(pace, "\n", "\n  ")), nil
}

// budgetsOfStory returns the budgets of a story, without its workload.
func budgetsOfStory(number int) (string, error) {
	text, err := story(number)
	if err != nil {
		return "", err
	}
	var budgets []string
	for part := range strings.SplitSeq(text, "---\n") {
		if strings.Contains(part, "kind: TopologyDisruptionBudget\n") {
			budgets = append(budgets, part)
		}
	}
	if len(budgets) == 0 {
		return "", fmt.Errorf("story %d has no budget", number)
	}
	return strings.Join(budgets, "---\n"), nil
}

// storiesOfUpdates checks that the proposal's stories, as documented, hold for updates of a
// StatefulSet. The first also holds for a DaemonSet and the fourth for a Deployment; the long form
// checks all for each kind.
func storiesOfUpdates(ctx context.Context, s *scene) (string, error) {
	type storyCase struct {
		number int
		kind   string
	}
	cases := []storyCase{{1, ofStatefulSet}, {2, ofStatefulSet}, {3, ofStatefulSet}, {4, ofStatefulSet}, {1, ofDaemonSet}, {4, ofDeployment}}
	covered := "stories 1 to 4 of a StatefulSet, 1 of a DaemonSet, 4 of a Deployment"
	if soaking() {
		cases, covered = nil, "stories 1 to 4, each of a StatefulSet, a DaemonSet and a Deployment"
		for _, kind := range []string{ofStatefulSet, ofDaemonSet, ofDeployment} {
			for number := range 4 {
				cases = append(cases, storyCase{number + 1, kind})
			}
		}
	}
	var mu sync.Mutex
	most := 0
	stopped := ""
	err := meter.InParallel(ctx, len(cases), len(cases), func(ctx context.Context, i int) error {
		t := cases[i]
		return s.inNamespace(ctx, fmt.Sprintf("story-%d", t.number), func(ctx context.Context, part *scene) error {
			found, waits, err := part.updateStory(ctx, t.number, t.kind)
			if err != nil {
				return fmt.Errorf("story %d with a %s: %w", t.number, t.kind, err)
			}
			mu.Lock()
			defer mu.Unlock()
			most = max(most, found.most)
			if waits != "" && t.kind == ofStatefulSet {
				stopped = waits
			}
			return nil
		})
	})
	return fmt.Sprintf("%s: %d pods of a zone down at most; in story 1 the rollout %s, and goes on after the budget is edited", covered, most, stopped), err
}

// updateStory updates a workload under the budgets of a story.
func (s *scene) updateStory(ctx context.Context, number int, kind string) (found observation, waits string, err error) {
	workload, err := workloadOfStory(number, kind)
	if err != nil {
		return observation{}, "", err
	}
	budgets, err := budgetsOfStory(number)
	if err != nil {
		return observation{}, "", err
	}
	r := &rolled{Field: s.field(), kind: kind, name: "foo", pods: map[string]int{ofStatefulSet: 6, ofDaemonSet: 12, ofDeployment: 6}[kind]}
	if err := r.Apply(ctx, r.Namespace, workload+"\n---\n"+budgets); err != nil {
		return observation{}, "", err
	}
	if err := errors.Join(r.waitHealthy(ctx), r.AtRest(ctx)); err != nil {
		return observation{}, "", err
	}
	if _, err := r.waitPhase(ctx, v1alpha1.PhaseComplete); err != nil {
		return observation{}, "", err
	}
	o, err := r.observe(ctx)
	if err != nil {
		return observation{}, "", err
	}
	defer o.stop()
	h, err := r.Follow(ctx)
	if err != nil {
		return observation{}, "", err
	}
	defer h.Stop()
	if err := r.update(ctx, "2", "0s", ""); err != nil {
		return observation{}, "", err
	}
	zones := r.Zones()
	if number == 1 {
		for i, zone := range zones[1:] {
			d, err := r.waitStopBefore(ctx, zone)
			if err != nil {
				return observation{}, "", err
			}
			if i == 0 {
				waits = d.Status.WaitingFor
			}
			// One more zone is uncovered.
			budgets = strings.Replace(budgets, "- "+zones[0]+"\n", "- "+zones[0]+"\n      - "+zone+"\n", 1)
			if err := r.Apply(ctx, r.Namespace, budgets); err != nil {
				return observation{}, "", err
			}
		}
		if err := r.waitComplete(ctx, "2"); err != nil {
			return observation{}, "", err
		}
		found = o.since()
		return found, waits, found.within(r.pods, zones...)
	}
	if err := r.waitComplete(ctx, "2"); err != nil {
		return observation{}, "", err
	}
	expected, domains := map[string]int{"app-pdb": r.pods}, map[string]string{}
	for _, zone := range zones {
		domains[zone] = zone
	}
	if number != 2 {
		domains = map[string]string{zones[0]: "all", zones[1]: "all", zones[2]: "all"}
	}
	if _, err := r.JudgeBy(ctx, h, domains, expected); err != nil {
		return observation{}, "", err
	}
	found = o.since()
	if number == 2 {
		if kind == ofDeployment { // it has new pods before old ones go
			return found, "", nil
		}
		return found, "", found.across(len(zones))
	}
	return found, "", found.within(1, zones...)
}

// waitStopBefore waits until the budget stops the rollout before a zone: the zones before it are
// updated, and none of its pods is.
func (r *rolled) waitStopBefore(ctx context.Context, zone string) (*v1alpha1.DomainRollout, error) {
	return r.waitUntil(ctx, "kept from "+zone, func(d *v1alpha1.DomainRollout) bool {
		before := true
		for _, domain := range d.Status.Domains {
			switch {
			case domain.Name == zone:
				before = false
				if domain.Updated > 0 {
					return false
				}
			case before && domain.Healthy < domain.Pods:
				return false
			}
		}
		return !before && strings.Contains(d.Status.WaitingFor, "app-pdb")
	})
}

// updatesCompared updates a StatefulSet by a DomainRollout and by its own rolling update. The long
// form adds a controller that evicts every pod that budgets permit, and a rolling update of one pod
// at a time. A DomainRollout and that controller disturb one zone at a time, with a bounded number
// of requests.
func updatesCompared(ctx context.Context, s *scene) (string, error) {
	pods, startTime, updaters := 27, time.Second, []evictions.Updater{evictions.ByRollout, evictions.ByNativeMax}
	if soaking() {
		pods, startTime = 420, 2*time.Second
		updaters = append(updaters, evictions.ByEvictor, evictions.ByNative)
	}
	text := ""
	calls := map[evictions.Updater]float64{}
	for _, by := range updaters {
		o := evictions.UpdateOptions{By: by, Pods: pods, StartTime: startTime}
		if by == evictions.ByNative {
			o.Within = time.Hour
		}
		figures, err := s.field().Update(ctx, o)
		if err != nil {
			return "", fmt.Errorf("%s: %w", by, err)
		}
		calls[by] = figures.CallsPerPod()
		if by == evictions.ByRollout || by == evictions.ByEvictor {
			if err := figures.Waves.Err(evictions.Limits{Evictions: pods, Down: pods / 3, Domains: 1}); err != nil {
				return "", fmt.Errorf("%s: %w", by, err)
			}
		}
		text += fmt.Sprintf("%s %.0f s, %d zones down at most, %.1f API calls a pod; ", by, figures.Whole().Seconds(), figures.Waves.MostDomains, figures.CallsPerPod())
	}
	// An eviction costs one request, the write of the pod's condition, and a part of the writes of
	// reservations and status. The evictor is also refused. In the short form few pods share the writes of a wave.
	limits := map[evictions.Updater]float64{evictions.ByRollout: 1.6, evictions.ByEvictor: 2}
	if !soaking() {
		limits[evictions.ByRollout] = 2.2
	}
	for by, most := range limits {
		if native := calls[evictions.ByNativeMax]; calls[by] > most*native {
			return "", fmt.Errorf("%s%s needs %.2f times the API calls of a rolling update, at most %.1f are allowed", text, by, calls[by]/native, most)
		}
	}
	return fmt.Sprintf("%sof %d pods", text, pods), nil
}
