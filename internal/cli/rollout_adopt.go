package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
	rollouts "vicinity.dev/vicinity/internal/rollout"
	"vicinity.dev/vicinity/internal/rollout/adopt"
)

type adoptFlags struct {
	cluster     clusterFlags
	key         string
	undo, apply bool
}

func newRolloutAdoptCommand(s command.Streams, reach connector) *cobra.Command {
	var f adoptFlags
	cmd := &cobra.Command{
		Use:   "adopt [WORKLOAD...]",
		Short: "Have workloads updated by failure domain",
		Long: `Adopt has StatefulSets, DaemonSets and Deployments updated by failure domain: all of the
namespace, or those named as NAME or statefulset/NAME. It says which ones it skips.

It prints DomainRollouts, and strategic merge patches for "kubectl patch" or kustomize, which
--apply writes. --undo gives back the fields that the annotation vicinity.dev/adopted has,
unless they were changed since, and deletes DomainRollouts that adopt made.`,
		Example: `  vicinity rollout adopt db -n shop
  vicinity rollout adopt -n shop --undo --apply`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), s, reach, args) },
	}
	flags := cmd.Flags()
	f.cluster.add(flags, "`NAMESPACE` of the workloads (default the context's)")
	flags.StringVar(&f.key, "topology-key", corev1.LabelTopologyZone, "`KEY` of the node label for the domains")
	flags.BoolVar(&f.undo, "undo", false, "restore the old fields")
	flags.BoolVar(&f.apply, "apply", false, "write the changes")
	return cmd
}

func (f *adoptFlags) run(ctx context.Context, s command.Streams, reach connector, args []string) error {
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	a := &adopter{clusterReader: r, adoptFlags: f, page: &page{w: s.Out}}
	if a.existing, err = r.listRollouts(ctx, r.namespace); err != nil && (!f.undo || !errors.Is(err, errNoRollouts)) {
		return err
	}
	workloads, err := a.workloads(ctx, args)
	if err != nil {
		return err
	}
	if len(workloads) == 0 {
		fmt.Fprintf(s.Err, "no StatefulSet, DaemonSet or Deployment is in %s\n", where(r.namespace))
	}
	exists := map[v1alpha1.RolloutTarget]bool{}
	for _, w := range workloads {
		exists[v1alpha1.RolloutTarget{Kind: w.GetKind(), Name: w.GetName()}] = true
	}
	for _, d := range a.existing {
		// A killed run leaves a probe. A younger one may be that of a run elsewhere.
		isLeft := isProbe(d) && r.now.Sub(d.CreationTimestamp.Time) > 2*adoptReads*readInterval
		target := rollouts.Normal(d.Spec.TargetRef)
		isOrphan := f.undo && len(args) == 0 && isMade(d) && !isProbe(d) && !rollouts.IsCustom(target) && !exists[target]
		if isLeft || isOrphan {
			if err := a.takeAll(ctx, a.deletion(d.Name)); err != nil {
				return err
			}
		}
	}
	a.existing = slices.DeleteFunc(a.existing, isProbe)
	for _, w := range workloads {
		steps, refusal := a.plan(w, len(args) > 0)
		if refusal != "" {
			fmt.Fprintf(printable{s.Err}, "skipped: %s: %s\n", objectTitle(w), refusal)
		}
		if err := a.takeAll(ctx, steps...); err != nil {
			return err
		}
	}
	return errors.Join(append(a.failures, a.page.err)...)
}

type adopter struct {
	*clusterReader
	*adoptFlags
	page     *page
	existing []*v1alpha1.DomainRollout // and planned ones
	// hasController says that a controller has read a new DomainRollout.
	hasController bool
	failures      []error // of workloads
}

// adoptStep is a write. The order of steps lets a workload need a DomainRollout only while it has one.
type adoptStep struct {
	verb, title string
	object      map[string]any // to print, nil for a deletion
	notes       []string
	write       func(context.Context) error
}

// takeAll takes the steps for a workload up to one that the cluster refuses, and keeps that failure. It returns errors that end
// the command.
func (a *adopter) takeAll(ctx context.Context, steps ...adoptStep) error {
	for i, step := range steps {
		switch err := a.take(ctx, step); {
		case err == nil:
		case !a.apply || !a.undo && !a.hasController || ctx.Err() != nil || a.page.err != nil:
			return errors.Join(append(a.failures, err)...)
		case step.verb != "change" || !apierrors.IsNotFound(err):
			a.failures = append(a.failures, err)
			return nil
		default:
			a.page.printf("%s: skipped, because it was deleted\n", step.title)
			if i > 0 { // its DomainRollout is new
				return a.takeAll(ctx, a.deletion(a.existing[len(a.existing)-1].Name))
			}
		}
	}
	return nil
}

// take prints a step, and writes it with --apply.
func (a *adopter) take(ctx context.Context, step adoptStep) error {
	if !a.apply {
		a.page.printf("---\n# %s %s\n", step.verb, step.title)
		for _, note := range step.notes {
			a.page.printf("# %s\n", note)
		}
		if step.object == nil || a.page.err != nil {
			return a.page.err
		}
		return encodeYAML(a.page.w, step.object)
	}
	if err := a.expectController(ctx); err != nil {
		return err
	}
	for _, note := range step.notes {
		a.page.printf("%s: %s\n", step.title, note)
	}
	if err := step.write(ctx); err != nil {
		return a.explained(step.verb+" "+step.title, err)
	}
	a.page.printf("%s: %sd\n", step.title, step.verb)
	return a.page.err
}

func (a *adopter) api(kind string) dynamic.ResourceInterface {
	return a.dynamic.Resource(appsv1.SchemeGroupVersion.WithResource(strings.ToLower(kind) + "s")).Namespace(a.namespace)
}

// workloads returns the workloads with the given names, or else all of the namespace.
func (a *adopter) workloads(ctx context.Context, args []string) (chosen []*unstructured.Unstructured, err error) {
	var names []string
	unknown := slices.Clone(args)
	for _, kind := range []string{v1alpha1.KindDaemonSet, v1alpha1.KindDeployment, v1alpha1.KindStatefulSet} {
		list, err := listAll[unstructured.Unstructured](ctx, a.api(kind), metav1.ListOptions{})
		if err != nil {
			return nil, a.explained("reading "+kind+"s", err)
		}
		slices.SortFunc(list, func(x, y *unstructured.Unstructured) int { return strings.Compare(x.GetName(), y.GetName()) })
		for _, w := range list {
			name := strings.ToLower(kind) + "/" + w.GetName()
			isNamed := func(arg string) bool { return arg == name || arg == w.GetName() }
			if len(args) == 0 || slices.ContainsFunc(args, isNamed) {
				chosen = append(chosen, w)
			}
			names, unknown = append(names, name), slices.DeleteFunc(unknown, isNamed)
		}
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("no workload %q is in namespace %q; %s", unknown[0], a.namespace, listed(names))
	}
	return chosen, nil
}

// plan returns the steps for a workload, or the reason to skip it.
func (a *adopter) plan(w *unstructured.Unstructured, named bool) (steps []adoptStep, refusal string) {
	ref, name := v1alpha1.RolloutTarget{Kind: w.GetKind(), Name: w.GetName()}, w.GetName()
	var rollout v1alpha1.DomainRollout
	for _, d := range a.existing {
		if rollouts.Normal(d.Spec.TargetRef) == ref {
			rollout = *d
		} else if d.Name == name {
			name += "-" + strings.ToLower(ref.Kind)
		}
	}
	if a.undo {
		return a.planUndo(w, &rollout)
	}
	change, err := adopt.Apply(w)
	label, value, _ := strings.Cut(inspect.PartSelector, "=")
	switch {
	case err != nil:
		return nil, err.Error()
	case ref.Kind == v1alpha1.KindDeployment && w.GetLabels()[label] == value:
		return nil, "it is a part of Vicinity, and its pods must start while no vicinity-controller runs"
	}
	if refusal = change.Refusal(w, rollout.Name, named); refusal != "" {
		return nil, refusal
	}
	if rollout.Name == "" {
		rollout.Name, rollout.Spec.TargetRef = name, ref
		a.existing = append(a.existing, &rollout)
		steps = append(steps, a.creation(&rollout))
	}
	return append(steps, a.patch(w, change)...), ""
}

func (a *adopter) planUndo(w *unstructured.Unstructured, rollout *v1alpha1.DomainRollout) (steps []adoptStep, refusal string) {
	change, err := adopt.Undo(w)
	if err != nil {
		return nil, err.Error()
	}
	steps = a.patch(w, change)
	if isMade(rollout) {
		steps = append(steps, a.deletion(rollout.Name))
	}
	if len(steps) == 0 {
		refusal = "it is not adopted"
	}
	return steps, refusal
}

func isMade(d *v1alpha1.DomainRollout) bool {
	_, made := d.Annotations[v1alpha1.AnnotationAdopted]
	return made
}

// isProbe reports whether expectController made a DomainRollout.
func isProbe(d *v1alpha1.DomainRollout) bool { return d.GenerateName == adoptProbe+"-" && isMade(d) }

func (a *adopter) title(rollout string) string { return "DomainRollout " + a.namespace + "/" + rollout }

func (a *adopter) creation(d *v1alpha1.DomainRollout) adoptStep {
	object := a.made(map[string]any{"name": d.Name}, d.Spec.TargetRef)
	return adoptStep{verb: "create", title: a.title(d.Name), object: object.Object, write: func(ctx context.Context) error {
		_, err := a.rollouts().Create(ctx, object, metav1.CreateOptions{})
		return err
	}}
}

func (a *adopter) deletion(rollout string) adoptStep {
	return adoptStep{verb: "delete", title: a.title(rollout), write: func(ctx context.Context) error {
		return ignoreNotFound(a.rollouts().Delete(ctx, rollout, metav1.DeleteOptions{}))
	}}
}

// made returns a DomainRollout to create.
func (a *adopter) made(metadata map[string]any, target v1alpha1.RolloutTarget) *unstructured.Unstructured {
	metadata["namespace"], metadata["annotations"] = a.namespace, map[string]any{v1alpha1.AnnotationAdopted: "true"}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "DomainRollout", "metadata": metadata,
		"spec": map[string]any{"targetRef": map[string]any{"kind": target.Kind, "name": target.Name}, "topologyKey": a.key},
	}}
}

// patch returns the step that changes a workload, if it changes. Strategic merge patches can remove fields that others own, and
// server-side apply cannot.
func (a *adopter) patch(w *unstructured.Unstructured, change adopt.Change) []adoptStep {
	if change.Patch == nil {
		return nil
	}
	return []adoptStep{{verb: "change", title: objectTitle(w), object: change.Patch, notes: change.Notes, write: func(ctx context.Context) error {
		return retry.RetryOnConflict(retry.DefaultRetry, func() error { return a.write(ctx, w) })
	}}}
}

// write changes a workload as it is now. The list may be minutes old, and a record of an old state would undo to that.
func (a *adopter) write(ctx context.Context, w *unstructured.Unstructured) error {
	now, err := a.api(w.GetKind()).Get(ctx, w.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	decide := adopt.Apply
	if a.undo {
		decide = adopt.Undo
	}
	change, err := decide(now)
	if err != nil || change.Patch == nil {
		return err
	}
	if err := unstructured.SetNestedField(change.Patch, now.GetResourceVersion(), "metadata", "resourceVersion"); err != nil {
		return err
	}
	body, err := json.Marshal(change.Patch)
	if err == nil {
		_, err = a.api(w.GetKind()).Patch(ctx, w.GetName(), types.StrategicMergePatchType, body, metav1.PatchOptions{})
	}
	return err
}

const (
	// adoptProbe is the StatefulSet, which does not exist, of a DomainRollout that shows whether a controller runs.
	adoptProbe = "vicinity-adopt"
	// adoptReads limits the reads of a DomainRollout that the controller has not read.
	adoptReads = 30
)

// expectController fails unless a controller reads a new DomainRollout. Without one, adopted workloads are not updated, and gated pods
// are never scheduled. The status of an older DomainRollout may come from a controller that is gone.
func (a *adopter) expectController(ctx context.Context) (err error) {
	if a.undo || a.hasController {
		return nil
	}
	probe, err := a.rollouts().Create(ctx, a.made(map[string]any{"generateName": adoptProbe + "-"},
		v1alpha1.RolloutTarget{Kind: v1alpha1.KindStatefulSet, Name: adoptProbe}), metav1.CreateOptions{})
	if err != nil {
		return a.explained("creating a DomainRollout", err)
	}
	remove := a.deletion(probe.GetName())
	defer func() {
		err = errors.Join(err, a.explained("deleting "+remove.title, remove.write(context.WithoutCancel(ctx))))
	}()
	for range adoptReads {
		d, err := a.rollout(ctx, probe.GetName())
		if err != nil {
			return err
		}
		if a.hasController = d.Status.Phase != ""; a.hasController {
			return nil
		}
		if err := command.Pause(ctx, readInterval); err != nil {
			return err
		}
	}
	return fmt.Errorf("no controller reads a new DomainRollout, so nothing is changed: %s, and run the command again", runController)
}
