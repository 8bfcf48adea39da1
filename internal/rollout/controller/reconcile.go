package controller

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/rollout"
)

// Reconcile makes the next step of a DomainRollout.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer r.options.Syncs.Begin("DomainRollout " + request.String())()
	after, err := r.sync(ctx, request)
	result, outcome, err := shell.Finish(after, err)
	r.metrics.synced(outcome)
	return result, err
}

// sync returns after how long to look again, zero for never.
func (r *reconciler) sync(ctx context.Context, request reconcile.Request) (after time.Duration, err error) {
	d := &v1alpha1.DomainRollout{}
	switch err := r.client.Get(ctx, request.NamespacedName, d); {
	case apierrors.IsNotFound(err) || err == nil && d.DeletionTimestamp != nil:
		return r.end(ctx, request, d)
	case err != nil:
		return 0, fmt.Errorf("reading DomainRollout %s: %w", request, err)
	}
	if rollout.IsCustom(d.Spec.TargetRef) { // no watch notices its changes
		defer func() { after = shell.Sooner(after, customTime) }()
	}
	n := r.notes.Of(request.NamespacedName, newNotes)
	if n.written.Pending(d, r.clock.Now()) {
		return shell.BehindWait, nil
	}
	t, p, err := r.target(ctx, d)
	if err != nil {
		return 0, err
	}
	if p != nil {
		return r.refuse(ctx, n, d, t, p)
	}
	if t.revision == "" { // an event follows when the controller of the workload has observed its last change
		return r.behind(ctx, n, d, t)
	}
	n.behindSince = time.Time{}
	if seen, err := r.isSeen(ctx, d); err != nil || !seen {
		return shell.ConflictWait, err
	}
	v, err := r.read(ctx, d, t)
	if err != nil {
		return 0, err
	}
	if p := v.outdatedPod(d); p != nil {
		return r.refuse(ctx, n, d, t, p)
	}
	return r.step(ctx, n, d, v)
}

// refuse reports why a target cannot be updated, and withdraws requests. A Deployment still gets the pods that it lacks.
func (r *reconciler) refuse(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, t *target, p *problem) (time.Duration, error) {
	standing := standingOf(&d.Status)
	if err := r.store(ctx, n, d, invalid(d, p, r.clock.Now()), false); err != nil {
		return 0, err
	}
	after, err := r.callOff(ctx, n, d.Namespace, standing)
	if err != nil || t == nil || p.reason == reasonTaken {
		return after, err
	}
	again, err := r.fillOnly(ctx, n, d, t)
	return shell.Sooner(after, again), err
}

// end withdraws the known requests of a deleted DomainRollout, and forgets it.
func (r *reconciler) end(ctx context.Context, request reconcile.Request, d *v1alpha1.DomainRollout) (time.Duration, error) {
	n := r.notes.Of(request.NamespacedName, newNotes)
	r.metrics.report(n, "")
	standing := standingOf(&d.Status)
	maps.Copy(standing, n.standing)
	if _, err := r.callOff(ctx, n, request.Namespace, standing); err != nil {
		return 0, err
	}
	r.notes.Forget(request.NamespacedName)
	return 0, nil
}

// standingOf returns, by UID, the names of pods that may have an EvictionRequest.
func standingOf(s *v1alpha1.DomainRolloutStatus) map[string]string {
	names := map[string]string{}
	for _, e := range s.Replacements {
		if e.Stage == rollout.Evicting {
			names[string(e.UID)] = e.Pod
		}
	}
	return names
}

// target reads the workload and checks it. If the revision differs from the stored one, the cache may be behind, so it reads the
// workload live.
func (r *reconciler) target(ctx context.Context, d *v1alpha1.DomainRollout) (*target, *problem, error) {
	t, err := r.readTarget(ctx, r.client, d)
	if err == nil && t != nil && !t.isCustom && d.Status.Revision != "" && t.revision != d.Status.Revision {
		t, err = r.readTarget(ctx, r.live, d)
	}
	if err != nil {
		return nil, nil, err
	}
	p, err := r.check(ctx, d, t)
	return t, p, err
}

// step makes a step, stores its memory, and carries it out.
func (r *reconciler) step(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, v *view) (time.Duration, error) {
	now := r.clock.Now()
	n.keep(v.pods)
	if err := r.refusals(ctx, n, v, now); err != nil {
		return 0, err
	}
	pending := false
	if v.state.Spec.HasQuery && isAsked(v.state) {
		pending = n.gate.ask(ctx, r.http, *d.Spec.HealthGate.Prometheus, now)
		v.state.Query = n.gate.truth
	}
	step, err := r.next(ctx, d, v, now)
	if err != nil {
		return 0, err
	}
	status := report(d, &step, unknownDomains(&d.Spec, v.domains), r.waitDetails(ctx, n, v, &step.Wait), now)
	status.PodsObserved = v.version
	todo := r.due(n, v, &step, now)
	if err := r.store(ctx, n, d, status, todo.any()); err != nil {
		return 0, err
	}
	r.announce(d, &step)
	wait, err := r.act(ctx, n, d, v, todo)
	switch step.Wait.For {
	case rollout.WaitPlan, rollout.WaitOverload:
		wait = shell.Sooner(wait, planTime)
	}
	if v.fleet != nil {
		again, failed := r.keepFull(ctx, n, d, v)
		wait, err = shell.Sooner(wait, again), errors.Join(err, failed)
	}
	if _, isDaemon := v.object.(*appsv1.DaemonSet); isDaemon && slices.ContainsFunc(step.Memory.Replacements, func(e v1alpha1.RolloutReplacement) bool { return e.Stage == rollout.Gone }) {
		wait = shell.Sooner(wait, overdueTime)
	}
	if !step.Again.IsZero() {
		wait = shell.Sooner(wait, max(step.Again.Sub(r.clock.Now()), time.Millisecond))
	}
	if v.state.Spec.HasQuery && isAsked(v.state) {
		wait = shell.Sooner(wait, queryTime)
	}
	if pending {
		wait = shell.Sooner(wait, pendingTime)
	}
	return wait, err
}

// next computes the next step. It asks routing plans only if a wave depends on them.
func (r *reconciler) next(ctx context.Context, d *v1alpha1.DomainRollout, v *view, now time.Time) (rollout.Step, error) {
	step := rollout.Next(v.state, now)
	if step.Wait.For != rollout.WaitPlan || r.options.Plans == nil {
		return step, nil
	}
	pods := make(map[string][]string, len(step.Foresee))
	for i := range v.state.Pods {
		if domain := v.state.Pods[i].Domain; slices.Contains(step.Foresee, domain) {
			pods[domain] = append(pods[domain], v.state.Pods[i].Name)
		}
	}
	var err error
	if v.state.Overload, err = r.options.Plans.Overload(ctx, d.Namespace, pods); err != nil {
		return step, fmt.Errorf("finding out what routing plans expect: %w", err)
	}
	return rollout.Next(v.state, now), nil
}

// isAsked reports whether the answer to the query can matter. It cannot while only a person or a new revision can continue the rollout.
// It decides by causes, not by the stored phase: after a person resumes a failed or stopped revision, the very next step needs the
// answer.
func isAsked(s *rollout.State) bool {
	m, approved := &s.Memory, &s.Spec.Approved
	switch {
	case s.Spec.Paused:
		return false
	case m.Revision != s.Revision:
		return true
	case s.Spec.Stop.Revision == m.Revision && m.Revision != "", m.RollingBack:
		return false
	case m.Failure != nil:
		return approved.Revision == m.Revision && !approved.FailuresBefore.Before(m.Failure.Time.Time)
	}
	return m.Phase != v1alpha1.PhaseComplete
}

// store writes a changed status, and always writes before a step is carried out: the write fails if another controller has written
// meanwhile.
func (r *reconciler) store(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, status v1alpha1.DomainRolloutStatus, always bool) error {
	r.metrics.report(n, status.Phase)
	if !always && sameStatus(&d.Status, &status) {
		return nil
	}
	d.Status = status
	if err := r.client.Status().Update(ctx, d); err != nil {
		if err = shell.Changed(err); shell.IsChanged(err) {
			return err
		}
		return fmt.Errorf("writing the status of DomainRollout %s/%s: %w", d.Namespace, d.Name, err)
	}
	n.written.Note(d, r.clock.Now())
	return nil
}

// announce writes the events of a step.
func (r *reconciler) announce(d *v1alpha1.DomainRollout, step *rollout.Step) {
	words := rollout.Words{Namespace: d.Namespace, Name: d.Name, Key: d.Spec.TopologyKey}
	for _, e := range step.Events {
		kind := corev1.EventTypeNormal
		if e.Type == rollout.RolloutFailed || e.Type == rollout.RolloutAborted {
			kind = corev1.EventTypeWarning
		}
		r.recorder.Eventf(d, nil, kind, string(e.Type), "Rollout", "%s", words.Event(e, step.Memory.Revision))
		r.metrics.happened(e.Type)
	}
}

func logOf(ctx context.Context, t rollout.Target) (info func(string, ...any)) {
	l := log.FromContext(ctx).WithValues("pod", t.Pod, "domain", t.Domain, "revision", t.Revision)
	return l.Info
}
