package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/handover"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/shift"
)

const (
	// shiftedEach is the time between two Services that a shift wakes. An outage is a bad moment for many writes at once.
	shiftedEach = 20 * time.Millisecond
	// surveyWriting and surveyEvery are the times between two surveys of a shift, while it begins or ends and in between.
	surveyWriting, surveyEvery = time.Second, 10 * time.Second
	// surveyShare is the least ratio of the time between surveys to the time that one takes.
	surveyShare = 5
	// mostStays is how many Services a status names.
	mostStays = 50
)

type shiftReconciler struct{ *reconciler }

func (r *reconciler) addShifts(mgr manager.Manager) error {
	warm := true
	return builder.ControllerManagedBy(mgr).
		Named("zoneshift").
		For(&v1alpha1.ZoneShift{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Funcs{UpdateFunc: isAnother}))).
		WithOptions(controller.Options{EnableWarmup: &warm}).
		Complete(shiftReconciler{r})
}

// isAnother reports whether an update is the deletion of a ZoneShift and the creation of another with its name.
func isAnother(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() }

// shiftHandler wakes the Services of a shift when it begins, changes or ends: those with the most endpoints first.
func (r *reconciler) shiftHandler() handler.Funcs {
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*v1alpha1.ZoneShift), e.ObjectNew.(*v1alpha1.ZoneShift)
			if isAnother(e) {
				r.wakeShifted(ctx, before, q)
			}
			if isAnother(e) || before.Generation != after.Generation || isAccepted(before) != isAccepted(after) && !isOver(after) || isOver(before) != isOver(after) {
				r.wakeShifted(ctx, after, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			r.wakeShifted(ctx, e.Object.(*v1alpha1.ZoneShift), q)
		},
	}
}

func isAccepted(zs *v1alpha1.ZoneShift) bool {
	return meta.IsStatusConditionTrue(zs.Status.Conditions, v1alpha1.Accepted)
}

// isOver reports whether the status says that the time is over.
func isOver(zs *v1alpha1.ZoneShift) bool {
	c := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.ConditionInForce)
	return c != nil && slices.Contains([]string{shift.ReasonReturning, shift.ReasonEnded}, c.Reason)
}

func (r *reconciler) wakeShifted(ctx context.Context, zs *v1alpha1.ZoneShift, q queue) {
	services, err := r.servicesIn(ctx, zs)
	if err != nil {
		return // the cache has not started; its start wakes all Services
	}
	keys := slices.SortedFunc(maps.Keys(services), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(services[b], services[a]), strings.Compare(a.String(), b.String()))
	})
	for i, key := range keys {
		q.AddAfter(reconcile.Request{NamespacedName: key}, time.Duration(i)*shiftedEach)
	}
}

// wakeAllShifted wakes the Services of all shifts in force: a node may have come into a domain.
func (r *reconciler) wakeAllShifted(ctx context.Context, q queue) {
	var all v1alpha1.ZoneShiftList
	if r.client.List(ctx, &all) != nil {
		return // as in wakeShifted
	}
	for i := range all.Items {
		if running, _ := shift.Of(&all.Items[i], r.clock.Now()); running != nil {
			r.wakeShifted(ctx, &all.Items[i], q)
		}
	}
}

// servicesIn counts the endpoints in the domain of a shift by Service, without Services that have none.
func (r *reconciler) servicesIn(ctx context.Context, zs *v1alpha1.ZoneShift) (map[types.NamespacedName]int, error) {
	cluster, err := r.nodes.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading Nodes: %w", err)
	}
	var list discoveryv1.EndpointSliceList
	if err := r.client.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("reading EndpointSlices: %w", err)
	}
	domain, inside := shift.Begun(zs), map[types.NamespacedName]int{}
	for i := range list.Items {
		slice := &list.Items[i]
		key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		for j := range slice.Endpoints {
			if key.Name != "" && domain.HoldsEndpoint(&slice.Endpoints[j], cluster) {
				inside[key]++
			}
		}
	}
	return inside, nil
}

// shiftsOf returns the shifts that a Service follows, and how long they stay as they are, zero for ever.
func shiftsOf(ctx context.Context, c client.Reader, service *corev1.Service, now time.Time) (list []shift.Shift, lasts time.Duration, err error) {
	var all v1alpha1.ZoneShiftList
	if err := c.List(ctx, &all); err != nil {
		return nil, 0, fmt.Errorf("reading ZoneShifts: %w", err)
	}
	if len(all.Items) == 0 {
		return nil, 0, nil
	}
	namespace, err := shell.ReadNamespace(ctx, c, service.Namespace)
	if client.IgnoreNotFound(err) != nil {
		return nil, 0, err
	}
	list, lasts = shift.For(shell.Pointers(all.Items), service.Labels, namespace.Labels, now)
	return list, lasts, nil
}

// Reconcile judges a ZoneShift, and reads back how far it is in force.
func (r shiftReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer r.syncs.Begin("ZoneShift " + request.Name)()
	zs := new(v1alpha1.ZoneShift)
	if err := r.client.Get(ctx, request.NamespacedName, zs); err != nil || zs.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	after, begun := zs.DeepCopy(), time.Now()
	again, err := r.update(ctx, after)
	if err != nil {
		return reconcile.Result{}, err
	}
	if again > 0 { // in a large cluster a survey takes long
		again = max(again, surveyShare*time.Since(begun))
		if left := shift.Until(zs).Sub(r.clock.Now()); left > 0 {
			again = min(again, left)
		}
	}
	if equality.Semantic.DeepEqual(zs.Status, after.Status) {
		return reconcile.Result{RequeueAfter: again}, nil
	}
	switch err := r.client.Status().Update(ctx, after); {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err): // the cache is behind
		return reconcile.Result{RequeueAfter: shell.BehindWait}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("writing the status of ZoneShift %s: %w", zs.Name, err)
	}
	for i := range after.Status.Conditions {
		r.reportShift(ctx, zs, &after.Status.Conditions[i])
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

// reportShift writes an event for a condition whose status or reason is new.
func (r shiftReconciler) reportShift(ctx context.Context, zs *v1alpha1.ZoneShift, c *metav1.Condition) {
	before := meta.FindStatusCondition(zs.Status.Conditions, c.Type)
	if before != nil && before.Status == c.Status && before.Reason == c.Reason {
		return
	}
	kind := corev1.EventTypeNormal
	if c.Type == v1alpha1.Accepted && c.Status == metav1.ConditionFalse || c.Type == v1alpha1.ConditionYielding && c.Status == metav1.ConditionTrue {
		kind = corev1.EventTypeWarning
	}
	r.recorder.Eventf(zs, nil, kind, c.Reason, "Shifting", "%s: %s", c.Type, c.Message)
	log.FromContext(ctx).Info("zone shift", "shift", zs.Name, "condition", c.Type, "status", c.Status, "reason", c.Reason, "message", c.Message)
}

// update sets the status of a ZoneShift, and returns when to look again.
func (r shiftReconciler) update(ctx context.Context, zs *v1alpha1.ZoneShift) (again time.Duration, err error) {
	now := r.clock.Now()
	until := metav1.NewTime(shift.Until(zs))
	status := &zs.Status
	status.ObservedGeneration, status.Until = zs.Generation, &until
	var list v1alpha1.ZoneShiftList
	if err := r.client.List(ctx, &list); err != nil {
		return 0, fmt.Errorf("reading ZoneShifts: %w", err)
	}
	others := slices.DeleteFunc(shell.Pointers(list.Items), func(other *v1alpha1.ZoneShift) bool { return other.Name == zs.Name })
	survey, err := r.survey(ctx, zs, others, now)
	if err != nil {
		return 0, err
	}
	set := func(kind string, is metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: is, Reason: reason, Message: message, ObservedGeneration: zs.Generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		})
	}
	// A refusal holds until someone edits the object: a refused shift that begins hours later would be a surprise. So does
	// the end.
	accepted := meta.FindStatusCondition(status.Conditions, v1alpha1.Accepted)
	if accepted == nil || accepted.Status == metav1.ConditionUnknown || accepted.Status == metav1.ConditionFalse && accepted.ObservedGeneration != zs.Generation {
		reason, message, awaited := survey.fault(zs, others, now)
		if awaited == "" && r.options.Awaits != nil {
			if awaited, err = r.options.Awaits(ctx, zs); err != nil {
				return 0, err
			}
		}
		switch {
		case reason != "":
			set(v1alpha1.Accepted, metav1.ConditionFalse, reason, message)
		case awaited != "":
			set(v1alpha1.Accepted, metav1.ConditionUnknown, shift.ReasonWaiting, awaited)
			again = surveyWriting
		default:
			set(v1alpha1.Accepted, metav1.ConditionTrue, shift.ReasonAccepted, "")
		}
	}
	switch accepted := meta.FindStatusCondition(status.Conditions, v1alpha1.Accepted); {
	case accepted.Status == metav1.ConditionFalse && accepted.Reason == shift.ReasonEnded && isOver(zs):
		return 0, nil
	case accepted.Status != metav1.ConditionTrue:
		*status = v1alpha1.ZoneShiftStatus{ObservedGeneration: status.ObservedGeneration, Until: status.Until, Conditions: status.Conditions}
		set(v1alpha1.ConditionInForce, metav1.ConditionFalse, shift.ReasonNotAccepted, "no endpoint leaves, because the shift is not accepted")
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionYielding)
		return again, nil
	default: // the time may be another one
		set(v1alpha1.Accepted, metav1.ConditionTrue, shift.ReasonAccepted, fmt.Sprintf("endpoints with %s=%s leave until %s", zs.Spec.From.Key, zs.Spec.From.Value, until.UTC().Format(time.RFC3339)))
	}
	status.Services, status.Yielding, status.Staying = survey.moving, int32(len(survey.yielding)), int32(len(survey.staying))
	stays := slices.Concat(survey.yielding, survey.staying)
	status.Stays = stays[:min(len(stays), mostStays)]
	switch left := until.Sub(now); {
	case left > 0:
		again = min(surveyEvery, left)
		switch {
		case survey.isStored() && survey.ignored == "":
			set(v1alpha1.ConditionInForce, metav1.ConditionTrue, shift.ReasonStored, survey.text())
		case survey.isStored():
			set(v1alpha1.ConditionInForce, metav1.ConditionFalse, shift.ReasonIgnored, survey.ignored+"; "+survey.text())
		default:
			set(v1alpha1.ConditionInForce, metav1.ConditionFalse, shift.ReasonWriting, survey.text())
			again = min(surveyWriting, left)
		}
		if len(survey.yielding) > 0 {
			set(v1alpha1.ConditionYielding, metav1.ConditionTrue, "Overload", survey.yields(zs))
		} else {
			set(v1alpha1.ConditionYielding, metav1.ConditionFalse, "WithinBound", "no Service yields")
		}
	case survey.left > 0 || survey.ramps:
		set(v1alpha1.ConditionInForce, metav1.ConditionFalse, shift.ReasonReturning, fmt.Sprintf("the time is over; endpoints that still get no new connections: %d", survey.left))
		set(v1alpha1.ConditionYielding, metav1.ConditionFalse, shift.ReasonEnded, "the time is over")
		again = surveyWriting
	default:
		set(v1alpha1.Accepted, metav1.ConditionFalse, shift.ReasonEnded, "the time is over; with more time, the shift is judged anew")
		set(v1alpha1.ConditionInForce, metav1.ConditionFalse, shift.ReasonEnded, "the time is over, and no hints and no groups keep endpoints out of service; to remove the record: kubectl delete zoneshift "+zs.Name)
		set(v1alpha1.ConditionYielding, metav1.ConditionFalse, shift.ReasonEnded, "the time is over")
		status.Services, status.Yielding, status.Staying, status.Stays = 0, 0, 0, nil
	}
	return again, nil
}

// fault returns why a ZoneShift cannot begin, or what it waits for. Both are empty if it can begin.
func (s *shiftSurvey) fault(zs *v1alpha1.ZoneShift, others []*v1alpha1.ZoneShift, now time.Time) (reason, message, awaited string) {
	for _, other := range others {
		// The cache may lack the judgement.
		isUnjudged := meta.FindStatusCondition(other.Status.Conditions, v1alpha1.Accepted) == nil
		if isUnjudged && cmp.Or(other.CreationTimestamp.Compare(zs.CreationTimestamp.Time), strings.Compare(other.Name, zs.Name)) < 0 {
			return "", "", "ZoneShift " + other.Name + " is judged first"
		}
	}
	if reason, message = shift.Fault(zs, others, s.cluster, now); reason == "" {
		reason, message = shift.Overloads(zs, s.inside, s.outside)
	}
	return reason, message, ""
}

// shiftSurvey is how far a shift is in force.
type shiftSurvey struct {
	cluster *intent.Cluster
	// moving counts the Services that move. Services that move in part are in staying, too.
	moving            int32
	yielding, staying []v1alpha1.StayingService
	// inside and outside count the ready endpoints of the Services that move or yield.
	inside, outside int
	// slices, groups and names count the objects that should keep endpoints out, and that do. Names are groups for DNS.
	slices, groups, names stored
	// proxied has the groups that proxies have to program, by Service. nodes counts the nodes that have to, and that have.
	proxied map[string][]handover.GroupVersion
	nodes   stored
	// left counts endpoints that get no new connections, whether or not the shift is over. ramps says that vicinity-proxy
	// still gives some of them less than their share.
	left  int
	ramps bool
	// ignored says which program ignores the stored hints of a Service, empty without a known one.
	ignored string
	// homeless are nodes without a zone, and windows nodes whose kube-proxy ignores hints.
	homeless, windows int
}

// survey reads how far a shift is in force. Before it is accepted, it surveys the effect that the shift would have.
func (r shiftReconciler) survey(ctx context.Context, zs *v1alpha1.ZoneShift, others []*v1alpha1.ZoneShift, now time.Time) (*shiftSurvey, error) {
	cluster, err := r.nodes.current(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading Nodes: %w", err)
	}
	services, err := r.servicesIn(ctx, zs)
	if err != nil {
		return nil, err
	}
	s := shift.Begun(zs)
	if current, _ := shift.Of(zs, now); current != nil {
		s = *current
	}
	survey := &shiftSurvey{cluster: cluster, homeless: len(cluster.Names()), windows: len(cluster.Proxies().Windows), ramps: s.Returning, proxied: map[string][]handover.GroupVersion{}}
	for _, nodes := range cluster.Domains(corev1.LabelTopologyZone) {
		survey.homeless -= len(nodes)
	}
	for _, key := range slices.SortedFunc(maps.Keys(services), func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }) {
		var service corev1.Service
		if err := r.client.Get(ctx, key, &service); err != nil {
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("reading Service %s: %w", key, err)
			}
			continue
		}
		namespace, err := shell.ReadNamespace(ctx, r.client, service.Namespace)
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		in, err := read(ctx, r.client, &service)
		if err != nil {
			return nil, err
		}
		followed, _ := shift.For(others, service.Labels, namespace.Labels, now)
		in.Cluster, in.Settings, in.Shifts = cluster, r.options.Settings, append([]shift.Shift{s}, followed...)
		if service.DeletionTimestamp != nil { // nothing writes its slices any more
			continue
		}
		if !slices.ContainsFunc(followed, func(o shift.Shift) bool { return o.Domain() == s.Domain() }) {
			survey.left += routing.KeptOut(&s, &in)
		}
		if shift.Selects(zs, service.Labels, namespace.Labels) {
			survey.add(&in, r.options.Exclusion.Reason(key.Namespace, key.Name), r.ignored(&in))
		}
	}
	if len(survey.proxied) == 0 {
		return survey, nil
	}
	proxies, err := r.proxies.nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading which proxies are ready: %w", err)
	}
	survey.countNodes(proxies, now)
	return survey, nil
}

// ignored says which program serves a hinted Service and ignores hints, empty without a known one.
func (r *reconciler) ignored(in *routing.Input) string {
	settings := r.cilium.settings.Load()
	if settings == nil || in.Service.Labels[v1alpha1.LabelRouted] != "true" {
		return ""
	}
	kinds := hints.Kinds{Zones: true, Homeless: slices.ContainsFunc(in.Slices, func(slice *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return in.Cluster.ZoneOf(&e) == "" })
	})}
	for _, c := range settings.Consumers() {
		if why, remedy := c.Ignores(in.Service, kinds); why != "" {
			return fmt.Sprintf("%s ignores the hints of Service %s/%s, and perhaps of others: %s; %s", c.Name, in.Service.Namespace, in.Service.Name, why, remedy)
		}
	}
	return ""
}

// countNodes counts the nodes whose proxy has programmed the groups of all Services.
func (s *shiftSurvey) countNodes(proxies []handover.NodeProxy, now time.Time) {
	newest := map[string]handover.GroupVersion{} // by the zones that do not see them
	for _, groups := range s.proxied {
		for _, group := range groups {
			hidden := strings.Join(group.NotFor, ",")
			if order, err := resourceversion.CompareResourceVersion(group.Version, newest[hidden].Version); newest[hidden].Version == "" || err == nil && order > 0 {
				newest[hidden] = group
			}
		}
	}
	all := slices.Collect(maps.Values(newest))
	for _, p := range proxies {
		if p.Down(now) {
			continue
		}
		programmed := p.Ready("", all, now)
		if p.Except != "" {
			for service, groups := range s.proxied {
				programmed = programmed && p.Ready(service, groups, now)
			}
		}
		s.nodes.count(programmed)
	}
}

// stored counts objects, and how many of them are as wanted.
type stored struct{ all, done int }

func (s *stored) count(done bool) {
	if s.all++; done {
		s.done++
	}
}

func (s *shiftSurvey) add(in *routing.Input, excluded, ignored string) {
	named := func(reason string) v1alpha1.StayingService {
		return v1alpha1.StayingService{Namespace: in.Service.Namespace, Name: in.Service.Name, Reason: reason}
	}
	shifting := routing.ShiftingOf(*in)
	if stays := cmp.Or(excluded, shifting.Stays); stays != "" {
		s.staying = append(s.staying, named(stays))
	}
	switch {
	case excluded != "" || !shifting.Yields && !shifting.Moves:
		return
	case shifting.Yields:
		counts := fmt.Sprintf("it has %d ready endpoints in the domain and %d outside", shifting.Inside, shifting.Outside)
		s.yielding = append(s.yielding, named("yields: "+cmp.Or(shifting.Near, counts)))
	default:
		if shifting.Inside > 0 {
			s.moving++
		}
		s.countStored(in, ignored)
	}
	s.inside, s.outside = s.inside+shifting.Inside, s.outside+shifting.Outside
}

// countStored counts the slices or groups of a Service that keep its endpoints out.
func (s *shiftSurvey) countStored(in *routing.Input, ignored string) {
	headless, own := intent.IsHeadless(in.Service), &in.Shifts[0]
	byGroups := routing.FollowsGroups(*in) && (headless || intent.IsHandedOver(in.Service)) // until then kube-proxy serves it
	if headless && len(in.Groups) == 0 {
		s.names.count(false)
	}
	weight := int32(1000*own.Weight + 0.5)
	for _, group := range in.Groups {
		switch inside, kept := routing.GroupShare(own, group, in.Cluster); {
		case !byGroups || !inside:
		case headless:
			s.names.count(kept == 0)
		default:
			s.groups.count(kept <= weight)
		}
	}
	if byGroups {
		if !headless {
			s.proxied[client.ObjectKeyFromObject(in.Service).String()] = handover.VersionsOf(in.Groups)
		}
		return
	}
	if s.ignored == "" {
		s.ignored = ignored
	}
	for _, slice := range in.Slices {
		if inside, out := routing.SliceShare(own, slice, in.Cluster); inside > 0 {
			s.slices.count(inside == out)
		}
	}
}

func (s *shiftSurvey) isStored() bool {
	for _, kind := range []stored{s.slices, s.groups, s.names, s.nodes} {
		if kind.done < kind.all {
			return false
		}
	}
	return true
}

func (s *shiftSurvey) text() string {
	parts := []string{fmt.Sprintf("hints: stored on %d of %d slices", s.slices.done, s.slices.all)}
	if s.groups.all > 0 {
		parts = append(parts, fmt.Sprintf("groups: stored in %d of %d, programmed on %d of %d nodes", s.groups.done, s.groups.all, s.nodes.done, s.nodes.all))
	}
	if s.names.all > 0 {
		parts = append(parts, fmt.Sprintf("names: stored in %d of %d groups, which vicinity-dns follows without a report", s.names.done, s.names.all))
	}
	if s.homeless > 0 {
		parts = append(parts, fmt.Sprintf("clients on %s without the label %s follow neither", plaintext.Plural(s.homeless, "node"), corev1.LabelTopologyZone))
	}
	if s.windows > 0 {
		parts = append(parts, fmt.Sprintf("kube-proxy ignores hints on %s of Windows", plaintext.Plural(s.windows, "node")))
	}
	return strings.Join(parts, "; ")
}

func (s *shiftSurvey) yields(zs *v1alpha1.ZoneShift) string {
	return fmt.Sprintf("%s: endpoints outside would get more than %d %% load on top; add replicas where status.stays says, or raise spec.maxOverload",
		plaintext.PluralVerb(len(s.yielding), "Service", "yields", "yield"), zs.Spec.MaxOverload)
}
