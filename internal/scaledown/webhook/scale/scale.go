// Package scale is the admission webhook that enforces TopologyDisruptionBudgets for scale-downs, in namespaces with the label
// v1alpha1.PaceScaleDown. Package pacing decides how far a workload may be scaled down now. The API server asks about writes of
// workloads and of their subresource scale.
//
// With PaceDeny, a scale-down that budgets allow only in part is refused with the code 429 and the number that is
// allowed now. With PaceClamp, the number is raised to that, and the requested one is kept in
// v1alpha1.AnnotationWantedReplicas. The controller in internal/scaledown/controller continues the scale-down by writes that change
// nothing. The webhook turns each into the next step. So all steps are reserved in one place, and the field manager of
// the number stays the same: a server-side apply of the same manifest does not conflict.
//
// A write of the subresource has no annotations. Its wanted number is stored in a ConfigMap before the answer. The leader
// writes the annotations a moment later. Earlier, they would make the write conflict if it carries the version of the workload, as
// those of a HorizontalPodAutoscaler do. A write of the already wanted number changes nothing.
//
// Of workloads of other kinds only writes of the subresource are known. With PaceClamp each is reduced, and its author repeats it.
//
// # How it is installed
//
//	rules:             UPDATE of deployments, statefulsets, replicasets and their scale, apps/v1, a path for each kind,
//	                   and of the scale of all other kinds
//	namespaceSelector: vicinity.dev/pace-scale-down exists
//	matchConditions:   the number becomes smaller, or of the subresource stays the same; or it is the controller
//	                   that writes; and no Deployment controls the ReplicaSet
//	failurePolicy:     Fail
//	timeoutSeconds:    5
//	sideEffects:       NoneOnDryRun
package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/scaledown/pacing"
)

// Path is where the webhook of a kind is served.
func Path(kind pacing.Kind) string { return "/pace-" + strings.ToLower(string(kind)) }

// timeout bounds a review. The API server waits 5 s, and its own message does not name the cause.
const timeout = 4 * time.Second

// pacer is the part of pacing.Pacer that the webhook asks.
type pacer interface {
	Ask(context.Context, pacing.Question) (pacing.Answer, error)
}

// Options are what the webhook depends on.
type Options struct {
	Pacer *pacing.Pacer
	// User is the controller's user name, and Namespace that of v1alpha1.ConfigMapScaleDowns.
	User, Namespace string
	// Metrics are those of all webhooks of the process.
	Metrics *admission.Metrics
}

// Register has a manager serve the webhooks. Its cache must have the metadata of namespaces.
func Register(mgr manager.Manager, o Options) error {
	kept := newRecords(mgr.GetAPIReader(), mgr.GetClient(), o.Namespace, mgr.GetLogger().WithName("webhook").WithName("scale"))
	if err := mgr.Add(kept); err != nil {
		return fmt.Errorf("adding the follower of records: %w", err)
	}
	for _, kind := range append(pacing.Kinds(), pacing.Scale) {
		j := judge{kind: kind, user: o.User, pacer: o.Pacer, namespaces: mgr.GetClient(), live: mgr.GetAPIReader(), keep: kept.store}
		admission.Register(mgr, Path(kind), admission.OfRequests(j.judge), options(o.Metrics))
	}
	return nil
}

func options(m *admission.Metrics) admission.Options {
	return admission.Options{
		Webhook: "scale", OnFailure: admission.FailClosed, Unjudged: admission.Failed, Metrics: m,
		Complaint: "Scale-down is refused, because it cannot be judged",
		Advice:    "Try again. If it lasts, see the log of vicinity-controller. To let scale-downs through, remove the label " + v1alpha1.PaceScaleDown + " of the namespace",
	}
}

// judge judges writes of one kind of workload.
type judge struct {
	kind       pacing.Kind
	user       string
	pacer      pacer
	namespaces client.Reader
	live       client.Reader
	// keep stores a record. It counts once the workload has the replicas of the record.
	keep func(context.Context, record) error
}

func (j judge) judge(ctx context.Context, request *admission.Request, object, stored []byte) (admission.Verdict, error) {
	if request.Operation != "UPDATE" {
		return admission.Verdict{Result: admission.Skipped}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	w, err := j.read(ctx, request, object, stored)
	if err != nil || w == nil || w.after.Replicas < 0 { // the API server refuses a negative number
		return admission.Verdict{Result: admission.Skipped}, err
	}
	mode, err := pacing.ReadMode(ctx, j.namespaces, w.after)
	if err != nil {
		return admission.Verdict{}, err
	}
	switch mode {
	case v1alpha1.PaceDeny:
		return j.deny(ctx, w)
	case v1alpha1.PaceClamp:
		return j.clamp(ctx, w)
	}
	return admission.Verdict{Result: admission.Skipped}, nil
}

// write is a write of a workload or of its scale.
type write struct {
	// before is the stored workload, and after the written one. A write of the scale changes only the replicas.
	before, after pacing.Workload
	ofScale       bool
	dryRun        bool
	// next says that the controller requests the next step.
	next    bool
	request types.UID
	holder  string
}

// record makes the record of a write.
func (w *write) record(kind pacing.Kind, replicas int32, wanted *int32) record {
	o := w.before.Object
	return record{Request: w.request, Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), Replicas: replicas, Wanted: wanted}
}

// read reads a write. It returns nil if the workload is gone.
func (j judge) read(ctx context.Context, request *admission.Request, object, stored []byte) (*write, error) {
	w := &write{ofScale: request.SubResource == "scale" && j.kind != pacing.Scale, dryRun: request.DryRun, request: types.UID(request.UID), holder: "scale/" + request.UID}
	if !w.ofScale {
		before, after := j.kind.New(), j.kind.New()
		if err := json.Unmarshal(stored, before); err != nil {
			return nil, fmt.Errorf("reading the stored %s: %w", j.kind, err)
		}
		if err := json.Unmarshal(object, after); err != nil {
			return nil, fmt.Errorf("reading the %s: %w", j.kind, err)
		}
		w.before, w.after = pacing.Of(before), pacing.Of(after)
		w.next = request.User == j.user && w.after.Wanted != nil && isSpecSame(stored, object)
		return w, nil
	}
	var scale struct {
		Spec struct {
			Replicas int32 `json:"replicas"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(object, &scale); err != nil {
		return nil, fmt.Errorf("reading the scale: %w", err)
	}
	before, err := pacing.Read(ctx, j.live, j.kind, types.NamespacedName{Namespace: request.Namespace, Name: request.Name})
	if before == nil || err != nil {
		return nil, err
	}
	w.before, w.after = *before, *before
	w.after.Replicas = scale.Spec.Replicas
	return w, nil
}

// isSpecSame compares the specs of workloads as the API server encodes them. The controller also restores templates, for
// DomainRollouts, which requests no step.
func isSpecSame(stored, object []byte) bool {
	var before, after struct{ Spec json.RawMessage }
	return json.Unmarshal(stored, &before) == nil && json.Unmarshal(object, &after) == nil && bytes.Equal(before.Spec, after.Spec)
}

// deny refuses a scale-down that is allowed only in part.
func (j judge) deny(ctx context.Context, w *write) (admission.Verdict, error) {
	if w.after.Replicas >= w.before.Replicas {
		return admission.Verdict{}, nil
	}
	answer, err := j.pacer.Ask(ctx, pacing.Question{Workload: w.before, Wanted: w.after.Replicas, Holder: w.holder, DryRun: w.dryRun, Whole: true})
	if err != nil || answer.Replicas <= w.after.Replicas {
		return admission.Verdict{}, err
	}
	return admission.Verdict{Denial: admission.TryAgain(fmt.Sprintf("%s, asked for %d. %s", may(w.before, answer.Replicas), w.after.Replicas, answer.Denial))}, nil
}

func may(w pacing.Workload, replicas int32) string {
	if replicas >= w.Replicas {
		return fmt.Sprintf("%s may not become smaller than %d now", w, w.Replicas)
	}
	return fmt.Sprintf("%s may become %d now", w, replicas)
}

// clamp reduces a scale-down to the allowed part.
func (j judge) clamp(ctx context.Context, w *write) (admission.Verdict, error) {
	wanted := w.after.Replicas
	switch known := w.before.Wanted; {
	case w.next:
		wanted = *w.after.Wanted
	case wanted >= w.before.Replicas:
		return j.end(ctx, w)
	case known != nil && *known == wanted:
		// The controller continues it.
		return j.grant(ctx, w, wanted, w.before.Replicas, "")
	}
	answer, err := j.pacer.Ask(ctx, pacing.Question{Workload: w.before, Wanted: wanted, Holder: w.holder, DryRun: w.dryRun})
	if err != nil {
		if w.next {
			return admission.Verdict{}, err
		}
		// Nothing is removed now, and the controller tries again.
		answer = pacing.Answer{Replicas: w.before.Replicas, Denial: err.Error()}
	}
	return j.grant(ctx, w, wanted, answer.Replicas, answer.Denial)
}

// end is the verdict about a write without a scale-down. It also ends a scale-down that is not annotated yet.
func (j judge) end(ctx context.Context, w *write) (admission.Verdict, error) {
	if w.ofScale && !w.dryRun {
		return admission.Verdict{}, j.keep(ctx, w.record(j.kind, w.after.Replicas, nil))
	}
	return admission.Verdict{}, nil
}

// grant sets the allowed number of replicas.
func (j judge) grant(ctx context.Context, w *write, wanted, replicas int32, denial string) (admission.Verdict, error) {
	verdict := admission.Verdict{Result: admission.Changed}
	if replicas > wanted && denial != "" && !w.next {
		next := fmt.Sprintf("and continues to %d as budgets allow it", wanted)
		if j.kind == pacing.Scale {
			next = fmt.Sprintf("asked for %d; ask again to continue", wanted)
		}
		verdict.Warnings = []string{fmt.Sprintf("%s, %s. %s", may(w.before, replicas), next, denial)}
	}
	var patch []shell.Operation
	if replicas != w.after.Replicas {
		patch = append(patch, shell.Add("/spec/replicas", replicas))
	}
	switch {
	case j.kind == pacing.Scale: // it has no annotations of the workload
	case w.ofScale:
		if !w.dryRun && (w.before.Wanted == nil && replicas > wanted || w.before.Wanted != nil && *w.before.Wanted != wanted) {
			if err := j.keep(ctx, w.record(j.kind, replicas, &wanted)); err != nil {
				return admission.Verdict{}, err
			}
		}
	default:
		patch = append(patch, marks(w.after.Object, wanted, replicas)...)
	}
	if len(patch) == 0 {
		verdict.Result = admission.Unchanged
		return verdict, nil
	}
	var err error
	verdict.Patch, err = json.Marshal(patch)
	return verdict, err
}

// marks returns the changes of a workload's annotations to the wanted replicas. Correct annotations need none.
func marks(object client.Object, wanted, replicas int32) (patch []shell.Operation) {
	values := map[string]string{}
	if replicas > wanted {
		values = map[string]string{v1alpha1.AnnotationWantedReplicas: strconv.Itoa(int(wanted)), v1alpha1.AnnotationPacedReplicas: strconv.Itoa(int(replicas))}
	}
	there := object.GetAnnotations()
	if there == nil && len(values) > 0 {
		return []shell.Operation{shell.Add("/metadata/annotations", values)}
	}
	for _, name := range []string{v1alpha1.AnnotationWantedReplicas, v1alpha1.AnnotationPacedReplicas} {
		path := shell.Pointer("metadata", "annotations", name)
		has, found := there[name]
		switch value, is := values[name]; {
		case is && value != has:
			patch = append(patch, shell.Add(path, value))
		case !is && found:
			patch = append(patch, shell.Remove(path))
		}
	}
	return patch
}
