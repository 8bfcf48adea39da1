package coverage

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// MaxSettle is the longest settleTime.
const MaxSettle = 24 * time.Hour

// BudgetOf reads a budget. If its spec is invalid, Budget.Invalid says why.
func BudgetOf(tdb *v1alpha1.TopologyDisruptionBudget) (disruption.Budget, *Term) {
	budget, term, faults := readSpec(&tdb.Spec)
	budget.Name, budget.Keys = tdb.Namespace+"/"+tdb.Name, term.Keys()
	if len(faults) > 0 {
		messages := make([]string, len(faults))
		for i, fault := range faults {
			messages[i] = fault.Error()
		}
		budget.Invalid = plaintext.Line(strings.Join(messages, "; ")) // it contains keys from the spec
	}
	// An unreadable annotation has no effect. The condition BreakGlass and the webhook report it.
	budget.BreakGlass, _ = BreakGlassOf(tdb.Annotations)
	return budget, term
}

// Faults lists the errors of a spec.
func Faults(spec *v1alpha1.TopologyDisruptionBudgetSpec) field.ErrorList {
	_, _, faults := readSpec(spec)
	return faults
}

// Selector selects the pods of a budget in its namespace. It selects none without spec.selector, and all if spec.selector is invalid:
// evictions of all pods are refused until it is corrected.
func Selector(tdb *v1alpha1.TopologyDisruptionBudget) labels.Selector {
	selector, err := metav1.LabelSelectorAsSelector(tdb.Spec.Selector)
	if err != nil {
		return labels.Everything()
	}
	return selector
}

func readSpec(spec *v1alpha1.TopologyDisruptionBudgetSpec) (disruption.Budget, *Term, field.ErrorList) {
	path := field.NewPath("spec")
	r := specReader{path: path}
	term, faults := readTerm(spec.NodeSelectorTerm, path.Child("nodeSelectorTerm"))
	r.faults = append(validation.ValidateLabelSelector(spec.Selector, validation.LabelSelectorValidationOptions{}, path.Child("selector")), faults...)
	budget := disruption.Budget{
		MinAvailable:   r.amount("minAvailable", spec.MinAvailable),
		MaxUnavailable: r.amount("maxUnavailable", spec.MaxUnavailable),
		MaxTotal:       r.amount("maxUnavailableTotal", spec.MaxUnavailableTotal),
	}
	switch {
	case spec.MinAvailable == nil && spec.MaxUnavailable == nil:
		r.fault(field.Required(path.Child("maxUnavailable"), "either minAvailable or maxUnavailable must be given"))
	case spec.MinAvailable != nil && spec.MaxUnavailable != nil:
		r.fault(field.Forbidden(path.Child("maxUnavailable"), "minAvailable and maxUnavailable cannot be given together"))
	}
	if given := spec.MaxUnavailableDomains; given != nil {
		domains := int(*given)
		budget.MaxDomains = &domains
		if domains < 0 {
			r.fault(field.Invalid(path.Child("maxUnavailableDomains"), domains, "must be 0 or more"))
		}
	}
	if given := spec.SettleTime; given != nil {
		budget.Settle = given.Duration
		if given.Duration < 0 || given.Duration > MaxSettle {
			r.fault(field.Invalid(path.Child("settleTime"), given.Duration.String(), "must be from 0s to 24h"))
		}
	}
	if spec.GroupBy != "" {
		for _, reason := range content.IsLabelKey(spec.GroupBy) {
			r.fault(field.Invalid(path.Child("groupBy"), spec.GroupBy, reason))
		}
	}
	if given := spec.UnhealthyPodEvictionPolicy; given != nil {
		switch *given {
		case policyv1.AlwaysAllow:
			budget.AlwaysAllowUnhealthy = true
		case policyv1.IfHealthyBudget:
		default:
			r.fault(field.NotSupported(path.Child("unhealthyPodEvictionPolicy"), *given,
				[]policyv1.UnhealthyPodEvictionPolicyType{policyv1.IfHealthyBudget, policyv1.AlwaysAllow}))
		}
	}
	return budget, term, r.faults
}

type specReader struct {
	path   *field.Path
	faults field.ErrorList
}

func (r *specReader) fault(fault *field.Error) { r.faults = append(r.faults, fault) }

func (r *specReader) amount(name string, given *intstr.IntOrString) *disruption.Amount {
	if given == nil {
		return nil
	}
	amount, err := readAmount(*given)
	if err != nil {
		r.fault(field.Invalid(r.path.Child(name), given.String(), err.Error()))
	}
	return &amount
}

func readAmount(given intstr.IntOrString) (disruption.Amount, error) {
	if given.Type == intstr.Int {
		if given.IntVal < 0 {
			return disruption.Amount{}, errors.New("must be 0 or more")
		}
		return disruption.Amount{Value: int(given.IntVal)}, nil
	}
	digits, percent := strings.CutSuffix(given.StrVal, "%")
	value, err := strconv.ParseUint(digits, 10, 8)
	if !percent || err != nil || value > 100 {
		return disruption.Amount{}, errors.New("must be a number without quotes, or a percentage from 0% to 100%")
	}
	return disruption.Amount{Value: int(value), Percent: true}, nil
}

// BreakGlassOf reads the annotation of break-glass. Without the annotation it returns a zero value.
func BreakGlassOf(annotations map[string]string) (disruption.BreakGlass, error) {
	written, found := annotations[v1alpha1.AnnotationBreakGlass]
	if !found {
		return disruption.BreakGlass{}, nil
	}
	ends, reason, _ := strings.Cut(strings.TrimSpace(written), " ")
	until, err := time.Parse(time.RFC3339, ends)
	if err != nil {
		return disruption.BreakGlass{}, fmt.Errorf("%.100q is not a time; write a time such as 2026-01-02T15:04:05Z, a space and the reason", ends)
	}
	reason = strings.TrimSpace(reason)
	if reason == "" {
		return disruption.BreakGlass{}, errors.New("the reason is missing; write a time such as 2026-01-02T15:04:05Z, a space and the reason")
	}
	return disruption.BreakGlass{Until: until, Reason: reason}, nil
}
