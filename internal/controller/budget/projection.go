package budget

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
)

// Reasons of the condition Projected, beside those of other conditions.
const (
	reasonProjected         = "Projected"
	reasonSpreadConstraints = "SpreadConstraints"
	reasonNotSimple         = "NotSimple"
	reasonPodsLackZone      = "PodsLackZone"
	reasonOverlap           = "Overlap"
	reasonOff               = "Off"
)

// verdict is what became of the projection of a budget.
type verdict struct{ reason, message string }

func (v verdict) isProjected() bool {
	return v.reason == reasonProjected || v.reason == reasonSpreadConstraints
}

func (v verdict) condition() metav1.Condition {
	status := metav1.ConditionFalse
	if v.isProjected() {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: v1alpha1.ConditionProjected, Status: status, Reason: v.reason, Message: v.message}
}

// projection keeps PodDisruptionBudgets for budgets that these can express: one for each zone,
// which selects pods by the label of their zone. It is for those who look at PodDisruptionBudgets
// alone, as autoscalers do; what is decided stays with the TopologyDisruptionBudget, and an
// eviction needs the consent of both.
//
// Kubernetes refuses to evict a pod that two PodDisruptionBudgets select. So there is none where
// that of somebody else, or of another budget, could select one of the pods.
type projection struct {
	base
	memory *memory
	// seen is woken for a namespace of which a budget was looked at, changed for one of which
	// something else is to be said.
	seen, changed *wakes

	mu       sync.Mutex
	verdicts map[types.NamespacedName]verdict
	overlays map[string]*shell.Overlay[*policyv1.PodDisruptionBudget]
}

func newProjection(b base, m *memory) *projection {
	return &projection{
		base: b, memory: m, seen: newWakes(gatherTime), changed: newWakes(0),
		verdicts: map[types.NamespacedName]verdict{}, overlays: map[string]*shell.Overlay[*policyv1.PodDisruptionBudget]{},
	}
}

// verdict is what became of the projection of a budget, nil if that is not known.
func (p *projection) verdict(key types.NamespacedName) *verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if v, known := p.verdicts[key]; known {
		return &v
	}
	return nil
}

// notice has the PodDisruptionBudgets of a namespace looked at, since a budget of it was.
func (p *projection) notice(namespace string) {
	if p.options.ProjectPDBs {
		p.seen.wake(namespace)
	}
}

// Reconcile has the PodDisruptionBudgets of a namespace be what its budgets ask for.
func (p *projection) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer p.syncs.Begin("PodDisruptionBudgets of " + request.Name)()
	after, err := p.sync(ctx, request.Name)
	result, _, err := shell.Finish(after, err)
	return result, err
}

func (p *projection) sync(ctx context.Context, namespace string) (time.Duration, error) {
	budgets, err := budgetsOf(ctx, p.client, namespace)
	if err != nil {
		return 0, err
	}
	var list policyv1.PodDisruptionBudgetList
	if err := p.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return 0, fmt.Errorf("reading PodDisruptionBudgets: %w", err)
	}
	cached := make([]*policyv1.PodDisruptionBudget, len(list.Items))
	for i := range list.Items {
		cached[i] = &list.Items[i]
	}
	overlay := p.overlay(namespace)
	now := p.clock.Now()
	s := &projecting{projection: p, overlay: overlay, namespace: namespace, there: overlay.Current(cached, now), verdicts: map[types.NamespacedName]verdict{}}
	// An older budget keeps its PodDisruptionBudgets when a younger one asks for the same pods.
	slices.SortFunc(budgets, func(a, b v1alpha1.TopologyDisruptionBudget) int {
		if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
			return order
		}
		return strings.Compare(a.Name, b.Name)
	})
	err = s.run(ctx, budgets)
	p.keep(namespace, s.verdicts)
	if len(budgets) == 0 && !overlay.Pending() {
		p.forget(namespace)
	}
	return overlay.Left(now), err
}

func (p *projection) overlay(namespace string) *shell.Overlay[*policyv1.PodDisruptionBudget] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.overlays[namespace] == nil {
		p.overlays[namespace] = new(shell.Overlay[*policyv1.PodDisruptionBudget])
	}
	return p.overlays[namespace]
}

func (p *projection) forget(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.overlays, namespace)
}

// keep keeps the verdicts of a namespace, and has its budgets synced if they say something else.
func (p *projection) keep(namespace string, verdicts map[types.NamespacedName]verdict) {
	p.mu.Lock()
	changed := false
	for key, v := range verdicts {
		changed = changed || p.verdicts[key] != v
	}
	maps.DeleteFunc(p.verdicts, func(key types.NamespacedName, _ verdict) bool { return key.Namespace == namespace })
	maps.Copy(p.verdicts, verdicts)
	p.mu.Unlock()
	if changed {
		p.changed.wake(namespace)
	}
}

// projecting is a sync of the PodDisruptionBudgets of a namespace.
type projecting struct {
	*projection
	overlay   *shell.Overlay[*policyv1.PodDisruptionBudget]
	namespace string
	there     []*policyv1.PodDisruptionBudget
	verdicts  map[types.NamespacedName]verdict
}

func (s *projecting) run(ctx context.Context, budgets []v1alpha1.TopologyDisruptionBudget) error {
	exists := map[types.UID]bool{}
	var older []*v1alpha1.TopologyDisruptionBudget
	for i := range budgets {
		b := &budgets[i]
		exists[b.UID] = true
		key := client.ObjectKeyFromObject(b)
		v := s.memory.get(key)
		if v == nil || v.budget.UID != b.UID {
			if known := s.verdict(key); known != nil {
				s.verdicts[key] = *known
			}
			older = append(older, b)
			continue // what it has stays until it was looked at
		}
		said, err := s.project(ctx, b, &v.plan, older)
		if err != nil {
			return err
		}
		older = append(older, b)
		if said.reason != reasonOff || s.hadCondition(b) {
			s.verdicts[key] = said
		}
	}
	for _, pdb := range s.there {
		if owner := ownerOf(pdb); owner != nil && !exists[owner.UID] {
			if err := s.delete(ctx, pdb); err != nil {
				return err
			}
		}
	}
	return nil
}

// hadCondition reports whether a budget says something about a projection that is off now.
func (s *projecting) hadCondition(b *v1alpha1.TopologyDisruptionBudget) bool {
	return slices.ContainsFunc(b.Status.Conditions, func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionProjected })
}

// project has the PodDisruptionBudgets of a budget be what they should.
func (s *projecting) project(ctx context.Context, b *v1alpha1.TopologyDisruptionBudget, p *plan, older []*v1alpha1.TopologyDisruptionBudget) (verdict, error) {
	said := s.judge(b, p, older)
	want := map[string]bool{}
	if said.isProjected() {
		for _, zone := range p.zones {
			name := pdbName(b.Name, zone.zone)
			want[name] = true
			if err := s.write(ctx, b, name, zone); err != nil {
				return said, err
			}
		}
	}
	for _, pdb := range s.there {
		if owner := ownerOf(pdb); owner != nil && owner.UID == b.UID && !want[pdb.Name] {
			if err := s.delete(ctx, pdb); err != nil {
				return said, err
			}
		}
	}
	return said, nil
}

// judge says whether a budget may be projected, and else why not.
func (s *projecting) judge(b *v1alpha1.TopologyDisruptionBudget, p *plan, older []*v1alpha1.TopologyDisruptionBudget) verdict {
	switch {
	case !s.options.ProjectPDBs:
		return verdict{reasonOff, "vicinity-controller runs without --project-pdbs."}
	case p.unfit.reason != "":
		return p.unfit
	}
	for _, other := range older {
		if complexity(&other.Spec) == "" && mayOverlap(b.Spec.Selector, other.Spec.Selector) {
			return verdict{reasonOverlap, fmt.Sprintf("TopologyDisruptionBudget %s is older, and could select the same pods: Kubernetes refuses to evict a pod that two PodDisruptionBudgets select.", other.Name)}
		}
	}
	for _, pdb := range s.there {
		if owner := ownerOf(pdb); owner != nil && owner.UID == b.UID {
			continue
		}
		if mayOverlap(b.Spec.Selector, pdb.Spec.Selector) {
			return verdict{reasonOverlap, fmt.Sprintf("PodDisruptionBudget %s could select the same pods: Kubernetes refuses to evict a pod that two PodDisruptionBudgets select. Delete it, or give the two selectors different values of a label.", pdb.Name)}
		}
	}
	if len(p.spread) > 0 {
		return verdict{reasonSpreadConstraints, fmt.Sprintf("There is a PodDisruptionBudget for each zone. The topologySpreadConstraints of %s (DoNotSchedule) may leave an evicted pod without a place, and then these keep an autoscaler from removing nodes: use ScheduleAnyway, or leave room in each zone.", strings.Join(p.spread, ", "))}
	}
	return verdict{reasonProjected, "There is a PodDisruptionBudget for each zone."}
}

// write has the PodDisruptionBudget of a zone say what the budget allows there.
//
// minAvailable is a number, since Kubernetes takes maxUnavailable and percentages of all that the
// owner of the pods asks for, in all zones. How many must stay healthy does not change while pods
// go and come back in their zone, so that a rollout does not write it for every pod.
func (s *projecting) write(ctx context.Context, b *v1alpha1.TopologyDisruptionBudget, name string, zone zonePlan) error {
	want := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: name,
			Labels:          map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController},
			OwnerReferences: []metav1.OwnerReference{reference(b)},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector: b.Spec.Selector.DeepCopy(), UnhealthyPodEvictionPolicy: b.Spec.UnhealthyPodEvictionPolicy,
		},
	}
	want.Spec.Selector.MatchExpressions = append(want.Spec.Selector.MatchExpressions, metav1.LabelSelectorRequirement{
		Key: corev1.LabelTopologyZone, Operator: metav1.LabelSelectorOpIn, Values: []string{zone.zone},
	})
	least := intstr.FromInt32(int32(zone.desired))
	want.Spec.MinAvailable = &least
	i := slices.IndexFunc(s.there, func(pdb *policyv1.PodDisruptionBudget) bool { return pdb.Name == name })
	if i < 0 {
		return s.create(ctx, want)
	}
	has := s.there[i]
	if owner := ownerOf(has); owner == nil || owner.UID != b.UID {
		return nil // somebody else's, or of an earlier budget of the name, which goes
	}
	if equality.Semantic.DeepEqual(has.Spec, want.Spec) && has.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByController {
		return nil
	}
	updated := has.DeepCopy()
	if updated.Labels == nil {
		updated.Labels = map[string]string{}
	}
	updated.Labels[v1alpha1.LabelManagedBy] = v1alpha1.ManagedByController
	updated.Spec = want.Spec
	if err := s.client.Update(ctx, updated); err != nil {
		s.overlay.Forget(has)
		return fmt.Errorf("updating PodDisruptionBudget %s: %w", name, shell.Changed(err))
	}
	s.overlay.Wrote(updated, s.clock.Now())
	return nil
}

func (s *projecting) create(ctx context.Context, pdb *policyv1.PodDisruptionBudget) error {
	if err := s.client.Create(ctx, pdb); err != nil {
		if apierrors.IsAlreadyExists(err) {
			err = shell.ErrChanged
		}
		return fmt.Errorf("creating PodDisruptionBudget %s: %w", pdb.Name, err)
	}
	s.overlay.Wrote(pdb, s.clock.Now())
	s.there = append(s.there, pdb)
	return nil
}

func (s *projecting) delete(ctx context.Context, pdb *policyv1.PodDisruptionBudget) error {
	if pdb.DeletionTimestamp != nil {
		return nil
	}
	if err := shell.Delete(ctx, s.client, pdb.DeepCopy()); err != nil {
		s.overlay.Forget(pdb)
		return fmt.Errorf("deleting PodDisruptionBudget %s: %w", pdb.Name, err)
	}
	s.overlay.Deleted(pdb, s.clock.Now())
	return nil
}

func reference(b *v1alpha1.TopologyDisruptionBudget) metav1.OwnerReference {
	return metav1.OwnerReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: "TopologyDisruptionBudget", Name: b.Name, UID: b.UID, Controller: new(true),
	}
}

// ownerOf is the budget that a PodDisruptionBudget was made for, nil for those of others.
func ownerOf(pdb *policyv1.PodDisruptionBudget) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(pdb)
	if pdb.Labels[v1alpha1.LabelManagedBy] != v1alpha1.ManagedByController || owner == nil ||
		owner.Kind != "TopologyDisruptionBudget" || owner.APIVersion != v1alpha1.GroupVersion.String() {
		return nil
	}
	return owner
}

// pdbName is the name of the PodDisruptionBudget of a zone. A zone may have letters that names
// may not, and the two together may be too long, so that a hash tells them apart.
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
