package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

// rolloutsArea covers updates by failure domain, and scale-downs that keep the spread.
func rolloutsArea() area {
	return area{
		name:  "rollouts",
		setup: fleet,
		promises: []promise{
			{name: "by-domain", keep: rolledByDomain, within: 5 * time.Minute, tier: inTest},
			{name: "stories", keep: storiesOfUpdates, within: 8 * time.Minute, beside: true, tier: inTest},
			{name: "across-domains", keep: rolledAcrossDomains, within: 3 * time.Minute, beside: true},
			{name: "custom", keep: rolledCustom, within: 4 * time.Minute, beside: true},
			{name: "bad-revision", keep: badRevision, within: 5 * time.Minute, beside: true, tier: inTest},
			{name: "paced", keep: storiesOfScaleDowns, within: 4 * time.Minute, beside: true, tier: inTest},
			{name: "adopted", keep: adoptedWorkloads, within: 4 * time.Minute, beside: true},
			{name: "scale-down", keep: scaledDown, within: 3 * time.Minute, beside: true},
			{name: "spread", keep: updatedSpread, within: 6 * time.Minute, beside: true},
			{name: "ordinals", keep: ordinalsSpread, within: time.Minute, beside: true, tier: inTest},
			{name: "under-load", keep: updatedUnderLoad, within: 5 * time.Minute},
			{name: "compared", keep: updatesCompared, within: 10 * time.Minute},
		},
	}
}

const (
	ofStatefulSet = v1alpha1.KindStatefulSet
	ofDaemonSet   = v1alpha1.KindDaemonSet
	ofDeployment  = v1alpha1.KindDeployment
)

// rolled is a workload with a DomainRollout.
type rolled struct {
	*evictions.Field
	kind, name string
	pods       int // of all zones
}

// rolledPods is the template of its pods, which are ready a moment after they have a node.
const rolledPods = `
  selector: {matchLabels: {app: db}}
  updateStrategy: {type: OnDelete}
  template:
    metadata:
      labels: {app: db}
      annotations: {lab.vicinity.dev/start-time: 500ms}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {lab.vicinity.dev/fake: "true"}
      containers: [{name: main, image: none}]
`

// workloadOf returns the manifest of a workload with three pods in each zone.
func workloadOf(kind string) string {
	head := "apiVersion: apps/v1\nkind: " + kind + "\nmetadata: {name: db}\nspec:\n"
	switch kind {
	case ofStatefulSet:
		return head + "  serviceName: db\n  replicas: 9\n  podManagementPolicy: Parallel" + rolledPods +
			// Zones whose nodes the pods may not use count for the spread too.
			`      topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, nodeAffinityPolicy: Ignore, labelSelector: {matchLabels: {app: db}}}]
`
	case ofDeployment:
		return head + "  replicas: 9" + strings.Replace(rolledPods, "updateStrategy: {type: OnDelete}", "strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0, maxSurge: 3}}", 1) +
			`      schedulingGates: [{name: vicinity.dev/rollout}]
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: db}}}
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: db}}}
`
	}
	return head + rolledPods
}

// roll makes a workload with three pods in each zone, and a DomainRollout that begins in the second
// zone. spec adds lines to its spec.
func (s *scene) roll(ctx context.Context, kind string, spec ...string) (*rolled, error) {
	r := &rolled{Field: s.field(), kind: kind, name: "db", pods: 9}
	manifest := workloadOf(kind)
	manifest += fmt.Sprintf(`---
apiVersion: vicinity.dev/v1alpha1
kind: DomainRollout
metadata: {name: db}
spec:
  targetRef: {kind: %s, name: db}
  topologyKey: topology.kubernetes.io/zone
  order: [%s]
`, kind, r.Zones()[1])
	for _, line := range spec {
		manifest += "  " + line + "\n"
	}
	if err := r.Apply(ctx, r.Namespace, manifest); err != nil {
		return nil, err
	}
	if _, err := r.waitPhase(ctx, v1alpha1.PhaseComplete); err != nil {
		return nil, err
	}
	return r, r.waitHealthy(ctx)
}

// waitHealthy waits until all pods are ready.
func (r *rolled) waitHealthy(ctx context.Context) error {
	return kube.Wait(ctx, "the pods to be ready", func(ctx context.Context) (string, error) {
		pods, err := r.Pods(ctx, r.name, "")
		if err == nil && len(pods) != r.pods {
			return fmt.Sprintf("%d of %d are ready", len(pods), r.pods), nil
		}
		return "", err
	})
}

func (r *rolled) rollout(ctx context.Context, name string) (*v1alpha1.DomainRollout, error) {
	text, err := r.CoreV1().RESTClient().Get().AbsPath("/apis/vicinity.dev/v1alpha1/namespaces/" + r.Namespace + "/domainrollouts/" + name).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	d := &v1alpha1.DomainRollout{}
	return d, json.Unmarshal(text, d)
}

// waitPhase waits until the rollout is in a phase and has observed its current spec.
func (r *rolled) waitPhase(ctx context.Context, phase v1alpha1.RolloutPhase) (d *v1alpha1.DomainRollout, err error) {
	return r.waitUntil(ctx, string(phase), func(d *v1alpha1.DomainRollout) bool { return d.Status.Phase == phase })
}

// waitUntil waits until the rollout meets a condition and has observed its current spec.
func (r *rolled) waitUntil(ctx context.Context, what string, is func(*v1alpha1.DomainRollout) bool) (d *v1alpha1.DomainRollout, err error) {
	err = kube.Wait(ctx, "the rollout to be "+what, func(ctx context.Context) (string, error) {
		if d, err = r.rollout(ctx, r.name); err != nil {
			return "", err
		}
		if d.Status.ObservedGeneration != d.Generation || !is(d) {
			return fmt.Sprintf("%s: %s", d.Status.Phase, d.Status.WaitingFor), nil
		}
		return "", nil
	})
	return d, err
}

// update changes the template of the workload.
func (r *rolled) update(ctx context.Context, version, startTime, more string) error {
	body := fmt.Sprintf(`{"spec":{"template":{"metadata":{"labels":{"version":%q},"annotations":{%q:%q}}%s}}}`, version, shape.AnnotationStartTime, startTime, more)
	if r.kind == ofCloneSet {
		return r.patchCloneSet(ctx, body, metav1.PatchOptions{})
	}
	resource := strings.ToLower(r.kind) + "s"
	return r.AppsV1().RESTClient().Patch(types.StrategicMergePatchType).Namespace(r.Namespace).Resource(resource).Name(r.name).Body([]byte(body)).Do(ctx).Error()
}

// edit patches the spec of the rollout.
func (r *rolled) edit(ctx context.Context, spec string) error {
	return r.CoreV1().RESTClient().Patch(types.MergePatchType).
		AbsPath("/apis/vicinity.dev/v1alpha1/namespaces/" + r.Namespace + "/domainrollouts/" + r.name).Body([]byte(`{"spec":` + spec + `}`)).Do(ctx).Error()
}

// waitComplete waits until all pods have a version and the rollout is complete.
func (r *rolled) waitComplete(ctx context.Context, version string) error {
	if err := r.waitUpdated(ctx, version); err != nil {
		return err
	}
	_, err := r.waitPhase(ctx, v1alpha1.PhaseComplete)
	return err
}

// waitUpdated waits until all pods have a version.
func (r *rolled) waitUpdated(ctx context.Context, version string) error {
	return kube.Wait(ctx, "all pods to be of version "+version, func(ctx context.Context) (string, error) {
		pods, err := r.Pods(ctx, r.name, "")
		if err != nil {
			return "", err
		}
		n := 0
		for i := range pods {
			if pods[i].Labels["version"] == version {
				n++
			}
		}
		if n != r.pods || n != len(pods) {
			d, err := r.rollout(ctx, r.name)
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("%d of %d are updated; %s: %s", n, r.pods, d.Status.Phase, d.Status.WaitingFor), nil
		}
		return "", nil
	})
}

// observer records deletions and arrivals of a workload's pods, by the API alone.
type observer struct {
	stop    func()
	domains map[string]string // of nodes

	mu   sync.Mutex
	pods map[types.UID]*corev1.Pod
	// expected is the number of pods of each zone.
	expected  map[string]int
	most      map[string]int // most pods of each zone that were down at the same time
	zones     int            // most zones with pods down at the same time
	down      []string       // descriptions of these pods
	order     []string       // the zones of deleted pods, in turns
	scheduled []string       // the zones of scheduled pods, in turns
}

// watchPods calls see for each pod of a field that exists, is added, changes or is deleted, until
// the context ends.
func watchPods(ctx context.Context, f *evictions.Field, selector string, see func(pod *corev1.Pod, gone bool)) error {
	factory := informers.NewSharedInformerFactoryWithOptions(f.Client, 0, informers.WithNamespace(f.Namespace),
		informers.WithTweakListOptions(func(l *metav1.ListOptions) { l.LabelSelector = selector }))
	forward := func(object any, gone bool) {
		if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = tombstone.Obj
		}
		if pod, ok := object.(*corev1.Pod); ok {
			see(pod, gone)
		}
	}
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { forward(object, false) },
		UpdateFunc: func(_, object any) { forward(object, false) },
		DeleteFunc: func(object any) { forward(object, true) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	for _, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return errors.New("pods were not listed in time")
		}
	}
	return nil
}

// observe follows the pods, and returns when all are ready.
func (r *rolled) observe(ctx context.Context) (*observer, error) {
	ctx, cancel := context.WithCancel(ctx)
	o := &observer{stop: cancel, domains: evictions.Domains(r.Shape), pods: map[types.UID]*corev1.Pod{}, most: map[string]int{}}
	if err := watchPods(ctx, r.Field, "app="+r.name, o.see); err != nil {
		cancel()
		return nil, err
	}
	err := kube.Wait(ctx, "all pods to be seen", func(context.Context) (string, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if up := o.up(); sum(up) == r.pods {
			o.expected = up
			return "", nil
		}
		return fmt.Sprintf("%d of %d are ready", sum(o.up()), r.pods), nil
	})
	if err != nil {
		cancel()
	}
	return o, err
}

func sum(of map[string]int) (n int) {
	for m := range maps.Values(of) {
		n += m
	}
	return n
}

// up returns the number of pods that are ready and stay, by zone.
func (o *observer) up() map[string]int {
	found := map[string]int{}
	for _, pod := range o.pods {
		if pod.DeletionTimestamp == nil && kube.PodReady(pod) {
			found[o.domains[pod.Spec.NodeName]]++
		}
	}
	return found
}

func (o *observer) see(pod *corev1.Pod, gone bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.pods[pod.UID]
	if wasThere := before != nil && before.DeletionTimestamp == nil && before.Spec.NodeName != ""; wasThere && (gone || pod.DeletionTimestamp != nil) {
		o.order = inTurn(o.order, o.domains[pod.Spec.NodeName])
	}
	if hadNode := before != nil && before.Spec.NodeName != ""; !hadNode && pod.Spec.NodeName != "" && o.expected != nil {
		o.scheduled = inTurn(o.scheduled, o.domains[pod.Spec.NodeName])
	}
	if o.pods[pod.UID] = pod; gone {
		delete(o.pods, pod.UID)
	}
	if o.expected == nil {
		return
	}
	up, zones := o.up(), 0
	for zone, n := range o.expected {
		if down := n - up[zone]; down > 0 {
			zones++
			o.most[zone] = max(o.most[zone], down)
		}
	}
	if zones > o.zones {
		o.zones, o.down = zones, o.notUp()
	}
}

// notUp describes why pods are not up.
func (o *observer) notUp() (found []string) {
	for _, pod := range o.pods {
		switch zone := o.domains[pod.Spec.NodeName]; {
		case pod.DeletionTimestamp != nil:
			found = append(found, fmt.Sprintf("%s of %s is being deleted", pod.Name, zone))
		case !kube.PodReady(pod):
			i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
			reason := "no condition"
			if i >= 0 {
				reason = fmt.Sprintf("%s %s", pod.Status.Conditions[i].Reason, pod.Status.Conditions[i].Message)
			}
			found = append(found, fmt.Sprintf("%s of %s is not ready (%s: %s)", pod.Name, zone, pod.Status.Phase, reason))
		}
	}
	slices.Sort(found)
	return found
}

// inTurn appends a zone, unless it is the last one already.
func inTurn(zones []string, zone string) []string {
	if last := len(zones) - 1; last >= 0 && zones[last] == zone {
		return zones
	}
	return append(zones, zone)
}

// observation has the records of an observer.
type observation struct {
	order, scheduled []string
	most, zones      int // most pods of one zone down, most zones with pods down
	down             []string
}

// since returns the records since the last call.
func (o *observer) since() observation {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := observation{order: o.order, scheduled: o.scheduled, zones: o.zones, down: o.down}
	for most := range maps.Values(o.most) {
		found.most = max(found.most, most)
	}
	o.order, o.scheduled, o.zones, o.down, o.most = nil, nil, 0, nil, map[string]int{}
	return found
}

// across returns an error unless a pod of each zone was down at the same time, and never a second one.
func (s observation) across(zones int) error {
	if s.most != 1 || s.zones != zones {
		return fmt.Errorf("%d pods of a zone were down at most, and %d zones at the same time, want 1 and %d: %s", s.most, s.zones, zones, strings.Join(s.down, ", "))
	}
	return nil
}

// within returns an error if too many pods of a zone were down, or pods of two zones. Zones must be
// updated in the given order, and pods may be scheduled only to these zones, in that order.
func (s observation) within(most int, order ...string) error {
	if s.most > most || s.zones > 1 {
		return fmt.Errorf("%d pods of a zone and %d zones were down at the same time, want at most %d and 1: %s", s.most, s.zones, most, strings.Join(s.down, ", "))
	}
	if !slices.Equal(s.order, order) {
		return fmt.Errorf("zones were updated in the order %v, want %v", s.order, order)
	}
	for _, zone := range s.scheduled {
		at := slices.Index(order, zone)
		if at < 0 {
			return fmt.Errorf("pods were scheduled to the zones %v, want %v in this order", s.scheduled, s.order)
		}
		order = order[at+1:]
	}
	return nil
}
