package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/rollout"
)

type rolloutStatusFlags struct {
	cluster clusterFlags
	all     bool
	watch   bool
	timeout time.Duration
	output  outputFlag
}

func newRolloutStatusCommand(s command.Streams, reach connector) *cobra.Command {
	var f rolloutStatusFlags
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Show the progress of a rollout",
		Long: `Status shows a DomainRollout: its phase and revision, what it waits for, how far each domain
is, why it failed, and recent events. It says if the status is older than the spec or the
workload's template. Without NAME it lists the DomainRollouts of the namespace.

--watch prints a line for each change until the rollout ends. The exit code is 0 if it is
complete, also for a rollback that was requested before. It is 1 if the rollout failed, was
aborted, is invalid or was rolled back, if the DomainRollout is deleted or may not be read, or
after --timeout. A paused rollout has not ended.

docs/reference/permissions.md lists the permissions.`,
		Example: `  vicinity rollout status
  vicinity rollout status db -n shop
  kubectl apply -f db.yaml && vicinity rollout status db --watch --timeout 30m`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return err
			}
			if len(args) == 0 {
				return f.list(cmd.Context(), s, reach)
			}
			return f.one(cmd.Context(), s, reach, args[0])
		},
	}
	flags := cmd.Flags()
	f.cluster.add(flags, "`NAMESPACE` of the DomainRollouts (default the context's)")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "list all namespaces")
	flags.BoolVarP(&f.watch, "watch", "w", false, "print a line for each change until the rollout ends")
	flags.DurationVar(&f.timeout, "timeout", 0, "with --watch, how long to wait for the end (default no limit)")
	f.output.add(flags, "text", "json", "yaml")
	return cmd
}

func (f *rolloutStatusFlags) check(args []string) error {
	switch {
	case f.all && len(args) > 0:
		return command.UsageErrorf("--all-namespaces is for lists; give -n for the namespace of %s", args[0])
	case f.watch && len(args) == 0:
		return command.UsageErrorf("--watch needs the NAME of a DomainRollout")
	case f.watch && f.output.form != "text":
		return command.UsageErrorf("--watch writes text only, not --output %s", f.output.form)
	case f.timeout < 0:
		return command.UsageErrorf("--timeout %s is not allowed; it must not be negative; 0 means no limit", f.timeout)
	case f.timeout > 0 && !f.watch:
		return command.UsageErrorf("--timeout is for --watch; --request-timeout limits one response")
	}
	return nil
}

func (f *rolloutStatusFlags) list(ctx context.Context, s command.Streams, reach connector) error {
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	namespace := r.namespace
	if f.all {
		namespace = metav1.NamespaceAll
	}
	list, err := r.listRollouts(ctx, namespace)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		if namespace != metav1.NamespaceAll {
			if err := r.expectNamespace(ctx, namespace); err != nil {
				return err
			}
		}
		fmt.Fprintf(s.Err, "no DomainRollout is in %s\n", where(namespace))
	}
	all := rolloutPage{Rollouts: []rolloutReport{}}
	for _, d := range list {
		all.Rollouts = append(all.Rollouts, r.report(d, workloadAhead{}))
	}
	return f.output.write(s.Out, all, func(p *page) { writeRollouts(p, all.Rollouts) })
}

func (f *rolloutStatusFlags) one(ctx context.Context, s command.Streams, reach connector, arg string) error {
	name, err := rolloutName(arg)
	if err != nil {
		return err
	}
	if f.watch {
		return f.watchRollout(ctx, s, reach, name)
	}
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	d, err := r.rollout(ctx, name)
	if err != nil {
		return err
	}
	ahead, err := r.workloadAhead(ctx, d)
	if err != nil {
		return err
	}
	report := r.report(d, ahead)
	return f.output.write(s.Out, &report, func(p *page) { writeRollout(p, &report) })
}

// workloadAhead has the changes of a workload that the status of its rollout does not show yet. The
// notices are sentences, or empty.
type workloadAhead struct {
	notice       string
	revision     string // of new pods, if the status has another
	missingPods  string // set if the rollout is complete and the workload lacks healthy pods
	pausedNotice string // for a paused Deployment
}

func (r *clusterReader) workloadAhead(ctx context.Context, d *v1alpha1.DomainRollout) (workloadAhead, error) {
	valid := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionValid)
	isMissing := d.Status.Phase == v1alpha1.PhaseInvalid && valid != nil && valid.Reason == v1alpha1.ReasonTargetNotFound
	if !isMissing && (d.Status.Phase == v1alpha1.PhaseInvalid || d.Status.Revision == "") {
		return workloadAhead{}, nil
	}
	ref := d.Spec.TargetRef
	w, err := r.workload(ctx, d.Namespace, ref)
	switch {
	case apierrors.IsNotFound(err): // the condition Valid says so
		return workloadAhead{}, nil
	case err != nil:
		return workloadAhead{}, r.optional(ref.Kind+"s or their revisions", "a new template is known only once the controller has seen it", err)
	}
	var ahead workloadAhead
	target, resume := ref.Kind+" "+ref.Name, fmt.Sprintf("\"kubectl rollout resume deployment/%s -n %s\"", ref.Name, d.Namespace)
	if w.isPaused {
		ahead.pausedNotice = fmt.Sprintf("%s is paused: it updates no pods before %s", target, resume)
	}
	if healthy := inspect.RolloutStatusOf(d).Healthy; d.Status.Phase == v1alpha1.PhaseComplete && healthy < w.pods {
		ahead.missingPods = fmt.Sprintf("%s wants %s and has %d healthy", target, count(int64(w.pods), "pod", "pods"), healthy)
	}
	switch {
	case isMissing:
		ahead.notice = target + " exists now, but the rollout controller has not seen it yet"
	case !w.isSeen:
		ahead.notice = fmt.Sprintf("Kubernetes has not seen the last change of %s yet, so there may be a new revision", target)
	case w.isPaused && w.hasNewTemplate:
		ahead.pausedNotice = ""
		ahead.notice = fmt.Sprintf("%s is paused: its new template is not rolled out before %s", target, resume)
	case w.revision != "" && w.revision != d.Status.Revision:
		ahead.revision = w.revision
		ahead.notice = fmt.Sprintf("%s has the revision %s, but the rollout controller has not seen it yet", target, w.revision)
	}
	return ahead, nil
}

type workload struct {
	isSeen   bool   // the workload's own controller has observed its last change
	revision string // of new pods, in the form of status.revision
	pods     int32  // desired
	// isPaused is for Deployments. hasNewTemplate means that no revision has the template yet.
	isPaused, hasNewTemplate bool
}

func (r *clusterReader) workload(ctx context.Context, namespace string, ref v1alpha1.RolloutTarget) (workload, error) {
	if rollout.IsCustom(ref) {
		return r.customWorkload(ctx, namespace, ref)
	}
	switch ref.Kind {
	case v1alpha1.KindStatefulSet:
		w, err := r.typed.AppsV1().StatefulSets(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return workload{}, err
		}
		return workload{isSeen: w.Status.ObservedGeneration == w.Generation, revision: w.Status.UpdateRevision, pods: ptr.Deref(w.Spec.Replicas, 1)}, nil
	case v1alpha1.KindDaemonSet:
		return r.daemonSet(ctx, namespace, ref.Name)
	case v1alpha1.KindDeployment:
		return r.deployment(ctx, namespace, ref.Name)
	}
	return workload{isSeen: true}, nil
}

func (r *clusterReader) customWorkload(ctx context.Context, namespace string, ref v1alpha1.RolloutTarget) (workload, error) {
	version, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return workload{}, err
	}
	plural, _, err := r.resourceOf(ref.APIVersion, ref.Kind)
	if err != nil || plural == "" {
		return workload{isSeen: true}, err
	}
	w, err := r.dynamic.Resource(version.WithResource(plural)).Namespace(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	if err != nil {
		return workload{}, err
	}
	observed, _, _ := unstructured.NestedInt64(w.Object, "status", "observedGeneration")
	revision, _, _ := unstructured.NestedString(w.Object, "status", "updateRevision")
	return workload{isSeen: observed == w.GetGeneration(), revision: revision}, nil
}

func (r *clusterReader) daemonSet(ctx context.Context, namespace, name string) (workload, error) {
	w, err := r.typed.AppsV1().DaemonSets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || w.Status.ObservedGeneration != w.Generation {
		return workload{}, err
	}
	found := workload{isSeen: true, pods: w.Status.DesiredNumberScheduled}
	list, err := r.typed.AppsV1().ControllerRevisions(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(w.Spec.Selector)})
	if err != nil {
		return workload{}, err
	}
	var newest int64
	for i := range list.Items {
		if c := &list.Items[i]; c.Revision > newest && metav1.IsControlledBy(c, w) {
			newest, found.revision = c.Revision, c.Labels[appsv1.ControllerRevisionHashLabelKey]
		}
	}
	return found, nil
}

func (r *clusterReader) deployment(ctx context.Context, namespace, name string) (workload, error) {
	w, err := r.typed.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil || w.Status.ObservedGeneration != w.Generation {
		return workload{}, err
	}
	found := workload{isSeen: true, pods: ptr.Deref(w.Spec.Replicas, 1), isPaused: w.Spec.Paused}
	list, err := r.typed.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(w.Spec.Selector)})
	if err != nil {
		return workload{}, err
	}
	const number = v1alpha1.AnnotationDeploymentRevision
	for i := range list.Items {
		s := &list.Items[i]
		if !metav1.IsControlledBy(s, w) || s.Annotations[number] != w.Annotations[number] {
			continue
		}
		found.revision = s.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		template := s.Spec.Template.DeepCopy()
		delete(template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		found.hasNewTemplate = !equality.Semantic.DeepEqual(template, &w.Spec.Template)
	}
	return found, nil
}
