package convert

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// grafanaSpec is the spec of a ZoneAwarePodDisruptionBudget.
type grafanaSpec struct {
	Selector *struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	MaxUnavailable           *int32 `json:"maxUnavailable"`
	MaxUnavailablePercentage *int32 `json:"maxUnavailablePercentage"`
	CrossZoneEvictionDelay   string `json:"crossZoneEvictionDelay"`
	PodNamePartitionRegex    string `json:"podNamePartitionRegex"`
	PodNameRegexGroup        *int   `json:"podNameRegexGroup"`
}

// grafana converts a ZoneAwarePodDisruptionBudget of Grafana's rollout-operator. Its zones are StatefulSets: a number of pods of one zone
// may be down while the other zones have none down. A regular expression can group pods into partitions by name. Then that number of
// pods of each partition may be down, in any zone.
func (o *object) grafana() error {
	spec, err := specOf[grafanaSpec](o)
	if err != nil {
		return err
	}
	if spec.Selector == nil || spec.Selector.MatchLabels == nil {
		return errors.New("spec.selector.matchLabels is missing; it must have labels of pods")
	}
	o.budget.Selector = &metav1.LabelSelector{MatchLabels: spec.Selector.MatchLabels}
	amount, err := spec.amount()
	if err != nil {
		return err
	}
	delay, err := spec.delay()
	if err != nil {
		return err
	}
	partition, err := spec.partition(o.options.GroupBy)
	if err != nil {
		return err
	}
	o.budget.MaxUnavailable = &amount
	if partition == "" {
		o.byZone()
		o.budget.MaxUnavailableDomains = new(int32(1))
		if delay != nil {
			o.note(RefusesMore, "the rollout-operator ignores crossZoneEvictionDelay without podNamePartitionRegex; here it holds between zones")
		}
	} else {
		if amount.Type == intstr.String {
			return errors.New("spec.maxUnavailablePercentage is not allowed with podNamePartitionRegex; set maxUnavailable instead")
		}
		o.budget.GroupBy = partition
		if delay != nil {
			// settleTime needs domains. A partition has one pod in each zone, so the limit of zones is the limit of pods.
			o.byZone()
			o.budget.MaxUnavailableDomains = &amount.IntVal
			o.budget.MaxUnavailableTotal = &amount
		}
	}
	o.budget.SettleTime = delay
	if o.budget.NodeSelectorTerm != nil {
		o.note(Assumes, "each StatefulSet runs in one zone. This budget counts by the node label %s; the original counts by StatefulSet", o.zoneKey())
	}
	if amount.Type == intstr.String && amount.StrVal != "0%" {
		o.note(AllowsMore, "this budget rounds percentages up; the original rounds them down to at least 1. So one more pod of a zone may be down")
	}
	if partition != "" {
		o.note(RefusesMore, "a pod of a StatefulSet that does not exist or has no node counts in each partition, because its own is unknown")
	}
	o.note(Remark, "rollouts of the rollout-operator ask only the ZoneAwarePodDisruptionBudget. Keep it while you use them; an eviction then needs both budgets")
	return nil
}

// amount returns how many pods of a zone or a partition may be down. The default is 1.
func (s *grafanaSpec) amount() (intstr.IntOrString, error) {
	percent := s.MaxUnavailablePercentage
	switch {
	case percent == nil && s.MaxUnavailable == nil:
		return intstr.FromInt32(1), nil
	case percent == nil:
		return intstr.FromInt32(*s.MaxUnavailable), nil
	case s.MaxUnavailable != nil:
		return intstr.IntOrString{}, notAllowed("maxUnavailablePercentage", *percent, "omitted if maxUnavailable is set")
	case *percent < 0 || *percent > 100:
		return intstr.IntOrString{}, notAllowed("maxUnavailablePercentage", *percent, "a number from 0 to 100")
	}
	return intstr.FromString(fmt.Sprintf("%d%%", *percent)), nil
}

// delay returns how long a pod must be ready again before other zones may be disturbed, nil for no time.
func (s *grafanaSpec) delay() (*metav1.Duration, error) {
	if s.CrossZoneEvictionDelay == "" {
		return nil, nil
	}
	delay, err := time.ParseDuration(s.CrossZoneEvictionDelay)
	switch {
	case err != nil || delay < 0 || delay > coverage.MaxSettle:
		return nil, notAllowed("crossZoneEvictionDelay", s.CrossZoneEvictionDelay, "a duration from 0s to 24h, such as \"20m\"")
	case delay == 0:
		return nil, nil
	}
	return &metav1.Duration{Duration: delay}, nil
}

// partition returns the pod label of the partition, empty if the budget has no partitions. The label that the user names comes first.
func (s *grafanaSpec) partition(named string) (string, error) {
	const field = "podNamePartitionRegex"
	text, group := s.PodNamePartitionRegex, 1
	if text == "" {
		return "", nil
	}
	if s.PodNameRegexGroup != nil {
		group = *s.PodNameRegexGroup
	}
	compiled, err := regexp.Compile("^" + text + "$")
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %s", notAllowed(field, text, "a regular expression in the syntax of Go"), plaintext.Line(err.Error()))
	case compiled.NumSubexp() == 0:
		return "", notAllowed(field, text, "a regular expression with a group in parentheses for the partition")
	case group < 1 || group > compiled.NumSubexp():
		return "", notAllowed("podNameRegexGroup", group, fmt.Sprintf("a number from 1 to %d, the number of groups in podNamePartitionRegex", compiled.NumSubexp()))
	case s.PodNameRegexGroup == nil && compiled.NumSubexp() > 1:
		return "", fmt.Errorf("spec.podNameRegexGroup is missing; it must say which of the %d groups of podNamePartitionRegex is the partition", compiled.NumSubexp())
	case named != "":
		return named, nil
	case !isOrdinal(text, group):
		return "", fmt.Errorf("spec.%s: %q matches a part of pod names that no label of Kubernetes has. "+
			"Give the pods a label with that part. Then convert with --group-by and the key of the label", field, plaintext.Of(text))
	}
	return appsv1.PodIndexLabel, nil
}

// isOrdinal reports whether a group of a regular expression matches the ordinal of a StatefulSet pod: the digits after the last hyphen
// of the name. Kubernetes sets it as a label.
func isOrdinal(text string, group int) bool {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil || parsed.Op != syntax.OpConcat || len(parsed.Sub) < 2 {
		return false
	}
	last, before := parsed.Sub[len(parsed.Sub)-1], parsed.Sub[len(parsed.Sub)-2]
	return last.Op == syntax.OpCapture && last.Cap == group && isNumber(last.Sub[0]) &&
		before.Op == syntax.OpLiteral && before.Rune[len(before.Rune)-1] == '-'
}

// isNumber reports whether a regular expression matches exactly one or more digits.
func isNumber(r *syntax.Regexp) bool {
	if r.Op != syntax.OpPlus {
		return false
	}
	digits := r.Sub[0]
	return digits.Op == syntax.OpCharClass && len(digits.Rune) == 2 && digits.Rune[0] == '0' && digits.Rune[1] == '9'
}
