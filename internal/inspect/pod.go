package inspect

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// PodReading is the input for the answer to a pod's eviction, as it was read of a cluster.
type PodReading struct {
	Pod *corev1.Pod
	// Budgets are the TopologyDisruptionBudgets of the pod's namespace, with the objects that they cover.
	Budgets []BudgetReading
	// PDBs are the PodDisruptionBudgets of the namespace.
	PDBs []*policyv1.PodDisruptionBudget
	// Unenforced is why TopologyDisruptionBudgets are not enforced in the namespace, empty if they are.
	Unenforced string
	// Down is why the webhook of evictions cannot answer, empty for most.
	Down string
	// Unread are the kinds of objects that may not be read.
	Unread []string
	Now    time.Time
}

// BudgetReading is a budget with the objects that it covers.
type BudgetReading struct {
	World coverage.World
	// Unknown is why its state is unknown, empty for most.
	Unknown string
}

// Verdict is the answer to an eviction.
type Verdict string

// The verdicts.
const (
	VerdictAllowed Verdict = "allowed"
	// VerdictRefused is the answer 429, after which clients try again.
	VerdictRefused Verdict = "refused"
	// VerdictFails is an error, after which most clients give up.
	VerdictFails   Verdict = "fails"
	VerdictUnknown Verdict = "unknown"
)

// PodExplanation says whether a pod may be evicted now, and why.
type PodExplanation struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Node      string `json:"node,omitempty"`
	// State describes the pod.
	State   string  `json:"state"`
	Verdict Verdict `json:"verdict"`
	// Why is the reason for the verdict, in one sentence.
	Why string `json:"why"`
	// Since is when refusals began, if that is known.
	Since *metav1.Time `json:"since,omitempty"`
	// Until is when time alone changes the answer.
	Until *metav1.Time `json:"until,omitempty"`
	// Unenforced is why TopologyDisruptionBudgets are not enforced.
	Unenforced string              `json:"unenforced,omitempty"`
	Budgets    []BudgetExplanation `json:"budgets,omitempty"`
	PDBs       []PDBExplanation    `json:"podDisruptionBudgets,omitempty"`
	NotKnown   []string            `json:"notKnown,omitempty"`
	Next       []string            `json:"next,omitempty"`
}

// BudgetExplanation is the answer of a TopologyDisruptionBudget.
type BudgetExplanation struct {
	Name    string  `json:"name"`
	Verdict Verdict `json:"verdict"`
	// Rule is the rule that decides.
	Rule disruption.Rule `json:"rule,omitempty"`
	// Why has the arithmetic, in sentences.
	Why    []string           `json:"why"`
	Domain *BudgetMeasure     `json:"domain,omitempty"`
	Total  *BudgetMeasure     `json:"total,omitempty"`
	Down   []DownPod          `json:"down,omitempty"`
	Since  *metav1.Time       `json:"since,omitempty"`
	Until  *metav1.Time       `json:"until,omitempty"`
	Wrong  []metav1.Condition `json:"wrong,omitempty"` // conditions that say that something is wrong with it
}

// BudgetMeasure has the numbers of one domain, or of all together.
type BudgetMeasure struct {
	Group    string `json:"group,omitempty"`
	Name     string `json:"name,omitempty"`
	Expected int    `json:"expected"`
	Healthy  int    `json:"healthy"`
	Missing  int    `json:"missing"`
	// Desired and Allowed are nil without a limit: for all domains together without maxUnavailableTotal.
	Desired *int `json:"desired,omitempty"`
	Allowed *int `json:"allowed,omitempty"`
}

// DownPod is a pod that counts as down.
type DownPod struct {
	Name  string         `json:"name"`
	Why   disruption.Why `json:"why"`
	Since *metav1.Time   `json:"since,omitempty"`
}

// PDBExplanation is the answer of a PodDisruptionBudget.
type PDBExplanation struct {
	Name    string       `json:"name"`
	Verdict Verdict      `json:"verdict"`
	Why     string       `json:"why"`
	Since   *metav1.Time `json:"since,omitempty"`
}

// ExplainPod says whether a pod may be evicted now, as the API would answer.
func ExplainPod(in *PodReading) *PodExplanation {
	e := &PodExplanation{
		Namespace: in.Pod.Namespace, Pod: in.Pod.Name, Node: in.Pod.Spec.NodeName, State: stateOfPod(in.Pod), Unenforced: in.Unenforced,
	}
	for _, b := range in.Budgets {
		if coverage.Selector(b.World.Budget).Matches(labels.Set(in.Pod.Labels)) {
			e.Budgets = append(e.Budgets, in.explainBudget(&b))
		}
	}
	for _, pdb := range in.PDBs {
		selector, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err == nil && selector.Matches(labels.Set(in.Pod.Labels)) {
			e.PDBs = append(e.PDBs, in.explainPDB(pdb))
		}
	}
	in.conclude(e)
	return e
}

func stateOfPod(pod *corev1.Pod) string {
	switch phase := pod.Status.Phase; {
	case pod.DeletionTimestamp != nil:
		return "terminating since " + clock(deletedAt(pod))
	case phase == corev1.PodSucceeded || phase == corev1.PodFailed:
		return "finished: " + string(phase)
	case phase == corev1.PodPending || phase == "":
		return "pending"
	}
	ready, since := readySince(pod)
	text := "running, not ready"
	if ready {
		text = "running, ready"
	}
	if !since.IsZero() {
		text += " since " + clock(since)
	}
	return text
}

func clock(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }

// deletedAt returns when the deletion of a pod was requested. The pod's timestamp is when it ends.
func deletedAt(pod *corev1.Pod) metav1.Time {
	at := *pod.DeletionTimestamp
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		at = metav1.NewTime(at.Add(-time.Duration(*grace) * time.Second))
	}
	return at
}

func readySince(pod *corev1.Pod) (ready bool, since metav1.Time) {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue, c.LastTransitionTime
		}
	}
	return false, metav1.Time{}
}

// isLost reports whether the pod is lost anyway, so that the API asks no PodDisruptionBudget.
func isLost(pod *corev1.Pod) bool {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return true
	}
	return pod.DeletionTimestamp != nil
}

func (in *PodReading) explainBudget(b *BudgetReading) BudgetExplanation {
	tdb := b.World.Budget
	e := BudgetExplanation{Name: tdb.Name, Verdict: VerdictUnknown}
	for _, c := range tdb.Status.Conditions {
		switch c.Type {
		case v1alpha1.ConditionValid, v1alpha1.ConditionSatisfiable:
			if c.Status == metav1.ConditionFalse {
				e.Wrong = append(e.Wrong, c)
			}
		}
	}
	if b.Unknown != "" {
		e.Why = []string{b.Unknown}
		return e
	}
	state := coverage.StateOf(b.World)
	d := disruption.Decide(&state, string(in.Pod.UID), in.Now)
	e.Rule, e.Why = d.Rule, d.Lines()
	e.Verdict = VerdictRefused
	if d.Allowed {
		e.Verdict = VerdictAllowed
	}
	if d.Rule == disruption.RuleNotCovered {
		e.Why = []string{in.notCovered(b)}
	} else if d.Rule != disruption.RuleInvalid {
		e.Domain, e.Total = measured(d.Domain), measured(d.Total)
		if d.MaxTotal < 0 {
			e.Total.Desired, e.Total.Allowed = nil, nil
		}
	}
	if !d.RetryAt.IsZero() {
		e.Until = &metav1.Time{Time: d.RetryAt}
	}
	if d.Allowed {
		return e
	}
	e.Why = slices.DeleteFunc(e.Why, func(line string) bool { // these are told below, with their times
		return slices.ContainsFunc(d.Down, func(down disruption.DownPod) bool { return line == down.Name+" is "+string(down.Why) })
	})
	for _, down := range d.Down {
		e.Down = append(e.Down, DownPod{Name: down.Name, Why: down.Why, Since: in.downSince(b, down)})
	}
	e.Since = refusedSince(tdb, e.Down)
	return e
}

// notCovered says why the budget does not cover the pod, though its selector matches it.
func (in *PodReading) notCovered(b *BudgetReading) string {
	name := in.Pod.Spec.NodeName
	node := b.World.Nodes[name]
	if node == nil {
		return "spec.nodeSelectorTerm leaves out all nodes where the pod can be"
	}
	_, term := coverage.BudgetOf(b.World.Budget)
	if missing := term.Missing(node.Labels); len(missing) > 0 {
		return fmt.Sprintf("node %s has no label %s", name, strings.Join(missing, ", "))
	}
	return fmt.Sprintf("spec.nodeSelectorTerm leaves out node %s", name)
}

func measured(m disruption.DomainMeasure) *BudgetMeasure {
	return &BudgetMeasure{Group: m.Group, Name: m.Domain, Expected: m.Expected, Healthy: m.Healthy, Missing: m.Missing + m.Anywhere, Desired: &m.Desired, Allowed: &m.Allowed}
}

// downSince returns when a pod went down, nil if that is unknown.
func (in *PodReading) downSince(b *BudgetReading, down disruption.DownPod) *metav1.Time {
	at := slices.IndexFunc(b.World.Pods, func(p *corev1.Pod) bool { return p.Name == down.Name })
	if at < 0 {
		return nil
	}
	pod := b.World.Pods[at]
	var since metav1.Time
	switch {
	case down.Why == disruption.WhyTerminating && pod.DeletionTimestamp != nil:
		since = deletedAt(pod)
	case down.Why == disruption.WhyReserved:
		for _, r := range b.World.Budget.Status.Reservations {
			if r.UID == pod.UID {
				since = metav1.NewTime(r.Expires.Add(-disruption.ReservationTime))
			}
		}
	default:
		_, since = readySince(pod)
	}
	if since.IsZero() {
		return nil
	}
	return &since
}

// refusedSince returns when a budget began to refuse: when it allowed nothing at all, or else when the last of its pods
// went down.
func refusedSince(tdb *v1alpha1.TopologyDisruptionBudget, down []DownPod) *metav1.Time {
	for _, c := range tdb.Status.Conditions {
		if c.Type == v1alpha1.ConditionDisruptionAllowed && c.Status == metav1.ConditionFalse && c.ObservedGeneration == tdb.Generation {
			return &c.LastTransitionTime
		}
	}
	var last *metav1.Time
	for _, pod := range down {
		if pod.Since != nil && (last == nil || last.Before(pod.Since)) {
			last = pod.Since
		}
	}
	return last
}

// explainPDB returns the API's answer for a PodDisruptionBudget.
func (in *PodReading) explainPDB(pdb *policyv1.PodDisruptionBudget) PDBExplanation {
	s := &pdb.Status
	e := PDBExplanation{Name: pdb.Name, Verdict: VerdictAllowed}
	numbers := fmt.Sprintf("%d healthy, %d desired, %d expected", s.CurrentHealthy, s.DesiredHealthy, s.ExpectedPods)
	ready, _ := readySince(in.Pod)
	policy := pdb.Spec.UnhealthyPodEvictionPolicy
	switch {
	case isLost(in.Pod):
		e.Why = "it is not asked: " + in.lost()
	case !ready && policy != nil && *policy == policyv1.AlwaysAllow:
		e.Why = "the pod is not ready, and unhealthyPodEvictionPolicy is AlwaysAllow"
	case !ready && s.CurrentHealthy >= s.DesiredHealthy && s.DesiredHealthy > 0:
		e.Why = "the pod is not ready, and enough others are: " + numbers
	case s.ObservedGeneration < pdb.Generation:
		e.Verdict = VerdictRefused
		e.Why = "Kubernetes has not looked at its newest version yet"
	case s.DisruptionsAllowed <= 0:
		e.Verdict = VerdictRefused
		e.Why = "no disruption is allowed: " + numbers
		for _, c := range s.Conditions {
			if c.Type == policyv1.DisruptionAllowedCondition && c.Status == metav1.ConditionFalse {
				e.Since = &c.LastTransitionTime
				if c.Reason == policyv1.SyncFailedReason {
					e.Why = "Kubernetes cannot count its pods: " + c.Message
				}
			}
		}
	default:
		e.Why = fmt.Sprintf("%s: %s", plaintext.Count(int64(s.DisruptionsAllowed), "disruption is allowed", "disruptions are allowed"), numbers)
	}
	return e
}

func (in *PodReading) lost() string {
	switch {
	case in.Pod.DeletionTimestamp != nil:
		return "the pod is terminating already"
	case in.Pod.Status.Phase == corev1.PodPending:
		return "the pod does not run yet"
	}
	return "the pod has finished"
}

// conclude combines the answers of the budgets, and adds the next steps.
func (in *PodReading) conclude(e *PodExplanation) {
	switch {
	case in.Down != "" && in.Unenforced == "": // webhooks are asked before the pod is looked at
		e.Verdict, e.Why = VerdictFails, in.Down+", so the API answers evictions in this namespace with an error"
		e.Next = append(e.Next, "make a pod of vicinity-controller ready: docs/runbooks/evictions-fail.md")
		return
	case len(e.PDBs) > 1 && !isLost(in.Pod):
		var names []string
		for _, pdb := range e.PDBs {
			names = append(names, pdb.Name)
		}
		e.Verdict = VerdictFails
		e.Why = fmt.Sprintf("%d PodDisruptionBudgets cover the pod (%s), for which Kubernetes answers every eviction with error 500", len(names), strings.Join(names, ", "))
		e.Next = append(e.Next, "delete all of these PodDisruptionBudgets but one, or narrow their selectors")
		return
	}
	in.weigh(e)
	in.advise(e)
}

func (in *PodReading) weigh(e *PodExplanation) {
	var refusing, unknown []string
	covering := 0
	refuse := func(name string, since, until *metav1.Time) {
		if len(refusing) == 0 {
			e.Since, e.Until = since, until
		} else if e.Until != nil && (until == nil || e.Until.Before(until)) {
			e.Until = until
		}
		refusing = append(refusing, name)
	}
	for i := range e.Budgets {
		b := &e.Budgets[i]
		if b.Rule != disruption.RuleNotCovered {
			covering++
		}
		switch name := "TopologyDisruptionBudget " + b.Name; {
		case in.Unenforced != "":
		case b.Verdict == VerdictRefused:
			refuse(name, b.Since, b.Until)
		case b.Verdict == VerdictUnknown:
			unknown = append(unknown, name+" is not known: "+b.Why[0])
		}
	}
	for i := range e.PDBs {
		covering++
		if p := &e.PDBs[i]; p.Verdict == VerdictRefused {
			refuse("PodDisruptionBudget "+p.Name, p.Since, nil)
		}
	}
	for _, kind := range []string{KindBudgets, KindPDBs} {
		if slices.Contains(in.Unread, kind) && !isLost(in.Pod) {
			unknown = append(unknown, kind+" may not be read")
		}
	}
	e.Verdict = VerdictAllowed
	switch {
	case len(refusing) > 0:
		e.Verdict, e.Why = VerdictRefused, "refused by "+strings.Join(refusing, " and ")
	case len(unknown) > 0:
		e.Verdict, e.Why = VerdictUnknown, strings.Join(unknown, "; ")
	case isLost(in.Pod):
		e.Why = "nothing is lost: " + in.lost()
	case covering == 0:
		e.Why = "no budget covers it"
	case in.Unenforced != "" && len(e.PDBs) == 0:
		e.Why = "no budget is asked"
	default:
		e.Why = "all budgets that are asked allow it"
	}
}

// advise adds the next steps for a refusal, most important first.
func (in *PodReading) advise(e *PodExplanation) {
	add := func(format string, args ...any) {
		if text := fmt.Sprintf(format, args...); !slices.Contains(e.Next, text) {
			e.Next = append(e.Next, text)
		}
	}
	enforced := in.Unenforced == ""
	if !enforced && len(e.Budgets) > 0 {
		add("see the condition Enforced, which says what to do: kubectl describe tdb -n %s", e.Namespace)
	}
	breakable := false
	for i := range e.Budgets {
		b := &e.Budgets[i]
		for _, wrong := range b.Wrong {
			add("correct TopologyDisruptionBudget %s: %s", b.Name, strings.TrimSuffix(wrong.Message, "."))
		}
		if b.Verdict != VerdictRefused || !enforced {
			continue
		}
		breakable = true
		switch name := in.firstDown(b); {
		case b.Rule == disruption.RuleInvalid && len(b.Wrong) == 0:
			add("correct the spec of TopologyDisruptionBudget %s", b.Name)
		case name != "":
			add("see why pod %s is not ready: kubectl describe pod %s -n %s", name, name, e.Namespace)
		case b.Total != nil && b.Total.Missing > 0:
			add("see which pods are missing, and why: kubectl get pods,events -n %s", e.Namespace)
		}
	}
	for _, p := range e.PDBs {
		if p.Verdict == VerdictRefused {
			add("see which pods PodDisruptionBudget %s counts: kubectl describe pdb %s -n %s", p.Name, p.Name, e.Namespace)
		}
	}
	if e.Verdict == VerdictRefused && e.Until != nil {
		add("wait until %s", clock(*e.Until))
	}
	if breakable {
		add("if it cannot wait, admit every eviction for a while: docs/disruption.md#break-glass")
	}
}

// firstDown returns a down pod that is worth a look, other than the explained one.
func (in *PodReading) firstDown(b *BudgetExplanation) string {
	for _, pod := range b.Down {
		if pod.Why == disruption.WhyNotReady && pod.Name != in.Pod.Name {
			return pod.Name
		}
	}
	return ""
}
