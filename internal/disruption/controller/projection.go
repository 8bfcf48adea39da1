package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/keymutex"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/kit/shell"
)

// Further reasons of the condition Projected.
const (
	reasonProjected         = "Projected"
	reasonSpreadConstraints = "SpreadConstraints"
	reasonNotSimple         = "NotSimple"
	reasonPodsLackZone      = "PodsLackZone"
	reasonOverlap           = "Overlap"
	reasonOff               = "Off"
)

func (v verdict) isProjected() bool {
	return v.reason == reasonProjected || v.reason == reasonSpreadConstraints
}

// projection keeps PodDisruptionBudgets for budgets that they can express: one for each zone,
// which selects pods by their zone label. It is for programs that read only PodDisruptionBudgets, as autoscalers do. The
// TopologyDisruptionBudget still decides, and an eviction needs the consent of both.
//
// Kubernetes evicts no pod that two PodDisruptionBudgets select. So a budget is not projected if a PodDisruptionBudget of another owner
// could select one of its pods.
type projection struct {
	base
	// creating locks a namespace, so that PodDisruptionBudgets are created for one budget at a time.
	creating keymutex.KeyMutex
}

func newProjection(b base) *projection {
	return &projection{base: b, creating: keymutex.NewHashed(b.options.Workers)}
}

// sync writes the PodDisruptionBudgets of a budget and deletes superfluous ones. The verdict is that of the condition Projected. It is
// nil if projection is off and the budget never had any.
func (p *projection) sync(ctx context.Context, r *reservation.Report) (*verdict, error) {
	b := r.Budget
	there, err := pdbsIn(ctx, p.client, b.Namespace)
	if err != nil {
		return nil, err
	}
	decision, err := p.judge(ctx, r, there)
	if err != nil {
		return nil, err
	}
	if decision.isProjected() && lacksPDB(r, there) {
		// The cache may lack PodDisruptionBudgets that another sync has just created for the same pods.
		p.creating.LockKey(b.Namespace)
		defer func() { _ = p.creating.UnlockKey(b.Namespace) }()
		if there, err = pdbsIn(ctx, p.live, b.Namespace); err != nil {
			return nil, err
		}
		if decision, err = p.judge(ctx, r, there); err != nil {
			return nil, err
		}
	}
	want := map[string]bool{}
	if decision.isProjected() {
		for _, zone := range r.Measures.Domains {
			name := pdbName(b.Name, zone.Domain)
			want[name] = true
			if err := p.write(ctx, b, name, zone, there); err != nil {
				return nil, err
			}
		}
	}
	err = p.delete(ctx, there, b.Name, func(pdb *policyv1.PodDisruptionBudget) bool { return ownerOf(pdb).UID == b.UID && want[pdb.Name] })
	if err != nil || decision.reason == reasonOff && meta.FindStatusCondition(b.Status.Conditions, v1alpha1.ConditionProjected) == nil {
		return nil, err
	}
	return &decision, nil
}

// remove deletes the PodDisruptionBudgets of a deleted budget.
func (p *projection) remove(ctx context.Context, budget client.ObjectKey) error {
	there, err := pdbsIn(ctx, p.client, budget.Namespace)
	if err != nil {
		return err
	}
	return p.delete(ctx, there, budget.Name, func(*policyv1.PodDisruptionBudget) bool { return false })
}

// lacksPDB reports whether a zone of a budget has no PodDisruptionBudget.
func lacksPDB(r *reservation.Report, there []policyv1.PodDisruptionBudget) bool {
	return slices.ContainsFunc(r.Measures.Domains, func(zone disruption.DomainMeasure) bool {
		return find(there, pdbName(r.Budget.Name, zone.Domain)) == nil
	})
}

func find(there []policyv1.PodDisruptionBudget, name string) *policyv1.PodDisruptionBudget {
	i := slices.IndexFunc(there, func(pdb policyv1.PodDisruptionBudget) bool { return pdb.Name == name })
	if i < 0 {
		return nil
	}
	return &there[i]
}

func pdbsIn(ctx context.Context, c client.Reader, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	var list policyv1.PodDisruptionBudgetList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("reading PodDisruptionBudgets: %w", err)
	}
	return list.Items, nil
}

// judge decides whether a budget may be projected.
func (p *projection) judge(ctx context.Context, r *reservation.Report, there []policyv1.PodDisruptionBudget) (verdict, error) {
	if !p.options.ProjectPDBs {
		return verdict{reasonOff, "vicinity-controller runs without --project-pdbs."}, nil
	}
	if unfit := p.unfit(r); unfit != nil {
		return *unfit, nil
	}
	b := r.Budget
	budgets, err := budgetsOf(ctx, p.client, b.Namespace)
	if err != nil {
		return verdict{}, err
	}
	for i := range budgets {
		if other := &budgets[i]; isOlder(other, b) && complexity(&other.Spec) == "" && mayOverlap(b.Spec.Selector, other.Spec.Selector) {
			return verdict{reasonOverlap, fmt.Sprintf("TopologyDisruptionBudget %s is older and could select the same pods. Kubernetes evicts no pod that two PodDisruptionBudgets select.", other.Name)}, nil
		}
	}
	for i := range there {
		pdb := &there[i]
		if owner := ownerOf(pdb); owner != nil && owner.UID == b.UID {
			continue
		}
		if mayOverlap(b.Spec.Selector, pdb.Spec.Selector) {
			return verdict{reasonOverlap, fmt.Sprintf("PodDisruptionBudget %s could select the same pods. Kubernetes evicts no pod that two PodDisruptionBudgets select. Delete it, or let the selectors require different values of a label.", pdb.Name)}, nil
		}
	}
	if spread := spreadBy(r); len(spread) > 0 {
		return verdict{reasonSpreadConstraints, fmt.Sprintf("Each zone has a PodDisruptionBudget. The topologySpreadConstraints of %s (DoNotSchedule) may keep an evicted pod pending, and an autoscaler then cannot remove nodes. Use ScheduleAnyway, or keep room in each zone.", strings.Join(spread, ", "))}, nil
	}
	return verdict{reasonProjected, "Each zone has a PodDisruptionBudget."}, nil
}

// isOlder reports whether a budget takes precedence over another one for the same pods.
func isOlder(a, b *v1alpha1.TopologyDisruptionBudget) bool {
	order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	return order < 0 || order == 0 && a.Name < b.Name
}

// unfit says why PodDisruptionBudgets cannot express a budget. It is nil if they can.
func (p *projection) unfit(r *reservation.Report) *verdict {
	if not := complexity(&r.Budget.Spec); not != "" {
		return &verdict{reasonNotSimple, fmt.Sprintf("PodDisruptionBudgets cannot express this budget: %s.", not)}
	}
	switch b := &r.State.Budget; {
	case b.Invalid != "":
		return &verdict{reasonInvalid, "The spec is invalid. The condition Valid says what to correct."}
	case p.clock.Now().Before(b.BreakGlass.Until):
		return &verdict{reasonGlassBroken, "A PodDisruptionBudget would refuse what break-glass admits."}
	}
	if without, first := withoutZone(r); without > 0 {
		return &verdict{reasonPodsLackZone, fmt.Sprintf("%s the label %s with the zone of the node, for example %s. Kubernetes 1.35 and later set it when they bind a pod. Replace older pods.", plaintext.PluralVerb(without, "pod", "lacks", "lack"), corev1.LabelTopologyZone, first)}
	}
	return nil
}

// complexity names the part of a spec that PodDisruptionBudgets for zones cannot express. It is empty without one.
func complexity(spec *v1alpha1.TopologyDisruptionBudgetSpec) string {
	term := spec.NodeSelectorTerm
	switch {
	case spec.Selector == nil:
		return "spec.selector is missing"
	case term == nil || len(term.MatchFields) > 0 || len(term.MatchExpressions) != 1 ||
		term.MatchExpressions[0].Key != corev1.LabelTopologyZone || term.MatchExpressions[0].Operator != corev1.NodeSelectorOpExists:
		return "spec.nodeSelectorTerm is not the one expression " + corev1.LabelTopologyZone + " Exists"
	case spec.GroupBy != "":
		return "spec.groupBy is set"
	case spec.MaxUnavailableDomains != nil:
		return "spec.maxUnavailableDomains is set"
	case spec.MaxUnavailableTotal != nil:
		return "spec.maxUnavailableTotal is set"
	}
	return ""
}

// withoutZone counts covered pods whose label is not the zone of their node.
func withoutZone(r *reservation.Report) (count int, first string) {
	labelled := map[string]string{}
	for _, pod := range r.World.Pods {
		labelled[string(pod.UID)] = pod.Labels[corev1.LabelTopologyZone]
	}
	for i := range r.State.Pods {
		pod := &r.State.Pods[i]
		if pod.Place != disruption.Covered || pod.Finished || labelled[pod.UID] == pod.Domain {
			continue
		}
		if count++; first == "" {
			first = pod.Name
		}
	}
	return count, first
}

// spreadBy lists the workloads with spread constraints of DoNotSchedule.
func spreadBy(r *reservation.Report) []string {
	selector := coverage.Selector(r.Budget)
	found := map[string]bool{}
	for i := range r.World.Workloads {
		w := &r.World.Workloads[i]
		if w.Template == nil || w.Kind == "ReplicaSet" && w.Controller != nil || !selector.Matches(labels.Set(w.Template.Labels)) {
			continue
		}
		if slices.ContainsFunc(w.Template.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
			return c.WhenUnsatisfiable == corev1.DoNotSchedule
		}) {
			found[w.ID()] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// write writes the PodDisruptionBudget of a zone.
//
// minAvailable is a number, because Kubernetes applies maxUnavailable and percentages to the owner's pods in all zones. The number stays
// the same while pods are replaced in their zone, so a rollout does not cause a write for every pod.
func (p *projection) write(
	ctx context.Context, b *v1alpha1.TopologyDisruptionBudget, name string, zone disruption.DomainMeasure, there []policyv1.PodDisruptionBudget,
) error {
	want := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.Namespace, Name: name,
			Labels:          map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController},
			OwnerReferences: []metav1.OwnerReference{reference(b)},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: b.Spec.Selector.DeepCopy(), UnhealthyPodEvictionPolicy: b.Spec.UnhealthyPodEvictionPolicy,
			MinAvailable: new(intstr.FromInt32(int32(zone.Desired))),
		},
	}
	want.Spec.Selector.MatchExpressions = append(want.Spec.Selector.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: corev1.LabelTopologyZone, Operator: metav1.LabelSelectorOpIn, Values: []string{zone.Domain},
	})
	has := find(there, name)
	if has == nil {
		err := p.client.Create(ctx, want)
		if apierrors.IsAlreadyExists(err) {
			err = shell.ErrChanged
		}
		if err != nil {
			return fmt.Errorf("creating PodDisruptionBudget %s: %w", name, err)
		}
		return nil
	}
	if owner := ownerOf(has); owner == nil || owner.UID != b.UID {
		return nil // of another owner, or of an earlier budget of the name, whose PodDisruptionBudgets are deleted
	}
	if equality.Semantic.DeepEqual(has.Spec, want.Spec) {
		return nil
	}
	updated := has.DeepCopy()
	updated.Spec = want.Spec
	if err := p.client.Update(ctx, updated); err != nil {
		return fmt.Errorf("updating PodDisruptionBudget %s: %w", name, shell.Changed(err))
	}
	return nil
}

// delete deletes the PodDisruptionBudgets of budgets of a name, except those to keep.
func (p *projection) delete(
	ctx context.Context, there []policyv1.PodDisruptionBudget, budget string, keep func(*policyv1.PodDisruptionBudget) bool,
) error {
	for i := range there {
		pdb := &there[i]
		if owner := ownerOf(pdb); owner == nil || owner.Name != budget || keep(pdb) || pdb.DeletionTimestamp != nil {
			continue
		}
		if err := shell.Delete(ctx, p.client, pdb.DeepCopy()); err != nil {
			return fmt.Errorf("deleting PodDisruptionBudget %s: %w", pdb.Name, err)
		}
	}
	return nil
}

func reference(b *v1alpha1.TopologyDisruptionBudget) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "TopologyDisruptionBudget", Name: b.Name, UID: b.UID, Controller: new(true),
	}
}

// ownerOf returns the budget of a PodDisruptionBudget, nil if the controller did not create it.
func ownerOf(pdb *policyv1.PodDisruptionBudget) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(pdb)
	if pdb.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedByController || owner == nil ||
		owner.Kind != "TopologyDisruptionBudget" || owner.APIVersion != v1alpha1.GroupVersion.String() {
		return nil
	}
	return owner
}

// pdbName names the PodDisruptionBudget of a zone. A hash makes the name unique: a zone may have letters that names cannot have, and both
// together may be too long.
func pdbName(budget, zone string) string {
	sum := sha256.Sum256([]byte(budget + "/" + zone))
	readable := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(zone))
	const most = 253 - 1 - 63 - 1 - 8
	return fmt.Sprintf("%s-%s-%s", strings.TrimRight(budget[:min(len(budget), most)], "-."), strings.Trim(readable, "-"), hex.EncodeToString(sum[:4]))
}

// mayOverlap reports whether a pod could match two selectors. It is false only if two of their requirements exclude each other: the
// labels of future pods are unknown.
func mayOverlap(a, b *metav1.LabelSelector) bool {
	selectorA, errA := metav1.LabelSelectorAsSelector(a)
	selectorB, errB := metav1.LabelSelectorAsSelector(b)
	if errA != nil || errB != nil {
		return true
	}
	requirementsA, selectableA := selectorA.Requirements()
	requirementsB, selectableB := selectorB.Requirements()
	if !selectableA || !selectableB {
		return false // it selects nothing
	}
	for _, x := range requirementsA {
		if slices.ContainsFunc(requirementsB, func(y labels.Requirement) bool { return excludes(&x, &y) || excludes(&y, &x) }) {
			return false
		}
	}
	return true
}

// excludes reports whether the operator of the first requirement shows that no labels can meet both.
func excludes(a, b *labels.Requirement) bool {
	if a.Key() != b.Key() {
		return false
	}
	switch a.Operator() {
	case selection.DoesNotExist:
		return slices.Contains([]selection.Operator{selection.Exists, selection.In, selection.Equals, selection.DoubleEquals}, b.Operator())
	case selection.In, selection.Equals, selection.DoubleEquals:
		allowed := sets.New(a.ValuesUnsorted()...)
		switch b.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			return !allowed.HasAny(b.ValuesUnsorted()...)
		case selection.NotIn, selection.NotEquals:
			return sets.New(b.ValuesUnsorted()...).IsSuperset(allowed)
		}
	}
	return false
}
