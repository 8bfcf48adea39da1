package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/command"
)

type rolloutStatusFlags struct {
	cluster clusterFlags
	all     bool
	watch   bool
	timeout time.Duration
	output  string
}

func newRolloutStatusCommand(s command.Streams, reach connector) *cobra.Command {
	var f rolloutStatusFlags
	cmd := &cobra.Command{
		Use:   "status [NAME]",
		Short: "Say how far a rollout is and what it waits for",
		Long: `Status shows a DomainRollout: its phase and revision, what it waits for, how far each domain
is, why it failed, and what happened last. It says if the status is older than the spec or
than the template of the workload. Without NAME it lists those of the namespace.

With --watch it shows each change until the rollout ends: on a terminal in place, else on
a line of its own. It ends with the exit code 0 if the rollout is complete, and with 1 if it
has failed, was aborted or cannot be done, if a revision was rolled back meanwhile, if the
DomainRollout is deleted, or after --timeout. A rollout that is paused has not ended.

It reads only. It must be allowed to get, list and watch DomainRollouts, and to get their
StatefulSets, DaemonSets and Deployments and list ControllerRevisions and ReplicaSets,
without which it does not know about a new template before the controller does.`,
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
	flags.SortFlags = false
	f.cluster.add(flags, "the `NAMESPACE` of the DomainRollouts (default that of the context)")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "list those of all namespaces")
	flags.BoolVarP(&f.watch, "watch", "w", false, "show each change until the rollout ends")
	flags.DurationVar(&f.timeout, "timeout", 0, "with --watch, how long to wait for the end (default without end)")
	flags.StringVarP(&f.output, "output", "o", "text", "`FORMAT` of the output: text, json or yaml")
	return cmd
}

func (f *rolloutStatusFlags) check(args []string) error {
	switch {
	case f.all && len(args) > 0:
		return command.UsageErrorf("--all-namespaces is for lists; give -n for the namespace of %s", args[0])
	case f.watch && len(args) == 0:
		return command.UsageErrorf("--watch needs the NAME of a DomainRollout")
	case f.watch && f.output != "text":
		return command.UsageErrorf("--watch writes text only, not --output %s", f.output)
	case f.timeout < 0:
		return command.UsageErrorf("--timeout %s is not allowed; it must not be negative, and 0 waits without end", f.timeout)
	case f.timeout > 0 && !f.watch:
		return command.UsageErrorf("--timeout is for --watch; --request-timeout is how long one answer may take")
	}
	return nil
}

func (f *rolloutStatusFlags) list(ctx context.Context, s command.Streams, reach connector) error {
	write, err := rolloutListFormat(f.output)
	if err != nil {
		return err
	}
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
	page := rolloutPage{Rollouts: []rolloutReport{}}
	for _, d := range list {
		page.Rollouts = append(page.Rollouts, r.report(d, ""))
	}
	return write(s.Out, &page)
}

func (f *rolloutStatusFlags) one(ctx context.Context, s command.Streams, reach connector, arg string) error {
	name, err := rolloutName(arg)
	if err != nil {
		return err
	}
	write, err := rolloutFormat(f.output)
	if err != nil {
		return err
	}
	if f.watch {
		return f.follow(ctx, s, reach, name)
	}
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	d, err := r.rollout(ctx, name)
	if err != nil {
		return err
	}
	unseen, err := r.unseenTemplate(ctx, d)
	if err != nil {
		return err
	}
	report := r.report(d, unseen)
	return write(s.Out, &report)
}

// unseenTemplate says that the workload has a template which the status is not about yet. It is empty
// if there is none, or if that cannot be known.
func (r *clusterReader) unseenTemplate(ctx context.Context, d *v1alpha1.DomainRollout) (string, error) {
	if d.Status.Revision == "" {
		return "", nil
	}
	ref := d.Spec.TargetRef
	revision, seen, err := r.templateRevision(ctx, d.Namespace, ref)
	switch {
	case apierrors.IsNotFound(err): // the condition Valid says so
		return "", nil
	case err != nil:
		return "", r.optional(ref.Kind+"s or their revisions", "a template is known only when the controller has seen it", err)
	case !seen:
		return fmt.Sprintf("Kubernetes has not seen the last change of %s %s yet, so there may be a new revision", ref.Kind, ref.Name), nil
	case revision != "" && revision != d.Status.Revision:
		return fmt.Sprintf("%s %s has the revision %s, which the controller of rollouts has not seen yet", ref.Kind, ref.Name, revision), nil
	}
	return "", nil
}

// templateRevision is the one that new pods of a workload get, as status.revision has it, if its
// controller has seen the last change.
func (r *clusterReader) templateRevision(ctx context.Context, namespace string, ref v1alpha1.RolloutTarget) (revision string, seen bool, err error) {
	switch ref.Kind {
	case v1alpha1.KindStatefulSet:
		w, err := r.typed.AppsV1().StatefulSets(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil {
			return "", false, err
		}
		return w.Status.UpdateRevision, w.Status.ObservedGeneration == w.Generation, nil
	case v1alpha1.KindDaemonSet:
		w, err := r.typed.AppsV1().DaemonSets(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil || w.Status.ObservedGeneration != w.Generation {
			return "", false, err
		}
		list, err := r.typed.AppsV1().ControllerRevisions(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", false, err
		}
		var newest int64
		for i := range list.Items {
			if c := &list.Items[i]; c.Revision > newest && metav1.IsControlledBy(c, w) {
				newest, revision = c.Revision, c.Labels[appsv1.ControllerRevisionHashLabelKey]
			}
		}
	case v1alpha1.KindDeployment:
		w, err := r.typed.AppsV1().Deployments(namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		if err != nil || w.Status.ObservedGeneration != w.Generation {
			return "", false, err
		}
		list, err := r.typed.AppsV1().ReplicaSets(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return "", false, err
		}
		const number = v1alpha1.AnnotationDeploymentRevision
		for i := range list.Items {
			if s := &list.Items[i]; metav1.IsControlledBy(s, w) && s.Annotations[number] == w.Annotations[number] {
				revision = s.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
			}
		}
	}
	return revision, true, nil
}
