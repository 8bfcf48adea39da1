package convert

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// grafana reads a ZoneAwarePodDisruptionBudget of Grafana's rollout-operator. Its zones are
// StatefulSets: so many pods of one may be down while no other has one that is. With a
// regular expression that finds a partition in the names of pods, so many pods of each
// partition may be down, wherever they are.
func (o *object) grafana() error {
	if err := o.grafanaSelector(); err != nil {
		return err
	}
	amount, err := o.grafanaAmount()
	if err != nil {
		return err
	}
	delay, err := o.grafanaDelay()
	if err != nil {
		return err
	}
	partition, err := o.grafanaPartition()
	if err != nil {
		return err
	}
	o.budget.MaxUnavailable = &amount
	if partition == "" {
		o.byZone()
		one := int32(1)
		o.budget.MaxUnavailableDomains = &one
		if delay != nil {
			o.note(RefusesMore, "the rollout-operator goes by crossZoneEvictionDelay only beside podNamePartitionRegex; here it holds between zones")
		}
	} else {
		if amount.Type == intstr.String {
			return errors.New("spec.maxUnavailablePercentage is not allowed beside podNamePartitionRegex; give maxUnavailable")
		}
		o.budget.GroupBy = partition
		if delay != nil {
			// Only domains settle: a partition has one pod in each zone, so that as many
			// disturbed zones are as many pods.
			o.byZone()
			o.budget.MaxUnavailableDomains = &amount.IntVal
			o.budget.MaxUnavailableTotal = &amount
		}
	}
	o.budget.SettleTime = delay
	if o.budget.NodeSelectorTerm != nil {
		o.note(Assumes, "each StatefulSet runs in one zone, as the label %s of nodes has it: there a zone is a StatefulSet, here it is the value of the label", o.zoneKey())
	}
	if amount.Type == intstr.String && amount.StrVal != "0%" {
		o.note(AllowsMore, "percentages are rounded up here, and down to at least 1 there: that is at most one pod more in a zone")
	}
	if partition != "" {
		o.note(RefusesMore, "while a pod of a StatefulSet does not exist or has no node, it may be one of any partition, so it counts in each")
	}
	o.note(Remark, "rollouts of the rollout-operator ask the ZoneAwarePodDisruptionBudget and not this budget: keep it while they do; an eviction then needs both")
	return nil
}

func (o *object) grafanaSelector() error {
	const allowed = "a selector with matchLabels"
	var selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	}
	raw := o.spec.values["selector"]
	given, err := o.spec.take("selector", &selector, allowed)
	switch {
	case err != nil:
		return err
	case !given || selector.MatchLabels == nil:
		return errors.New("spec.selector.matchLabels is missing; it must have labels of pods")
	}
	if err := onlyKnown(raw, &selector); err != nil {
		return fmt.Errorf("%w: %w", o.spec.refused("selector", raw, allowed), err)
	}
	o.budget.Selector = &metav1.LabelSelector{MatchLabels: selector.MatchLabels}
	if _, err := metav1.LabelSelectorAsSelector(o.budget.Selector); err != nil {
		return fmt.Errorf("%w: %w", o.spec.refused("selector", raw, allowed+" that are valid"), err)
	}
	return nil
}

// grafanaAmount is how many pods may be down in a zone or a partition, 1 if nothing says it.
func (o *object) grafanaAmount() (intstr.IntOrString, error) {
	number, percent := int32(1), 0
	rawNumber, rawPercent := o.spec.values["maxUnavailable"], o.spec.values["maxUnavailablePercentage"]
	const numberAllowed, percentAllowed = "a number from 0", "a number from 0 to 100"
	byNumber, err := o.spec.take("maxUnavailable", &number, numberAllowed)
	if err != nil {
		return intstr.IntOrString{}, err
	}
	byPercent, err := o.spec.take("maxUnavailablePercentage", &percent, percentAllowed)
	switch {
	case err != nil:
		return intstr.IntOrString{}, err
	case number < 0:
		return intstr.IntOrString{}, o.spec.refused("maxUnavailable", rawNumber, numberAllowed)
	case percent < 0 || percent > 100:
		return intstr.IntOrString{}, o.spec.refused("maxUnavailablePercentage", rawPercent, percentAllowed)
	case byNumber && byPercent:
		return intstr.IntOrString{}, o.spec.refused("maxUnavailablePercentage", rawPercent, "left out beside maxUnavailable")
	case byPercent:
		return intstr.FromString(strconv.Itoa(percent) + "%"), nil
	}
	return intstr.FromInt32(number), nil
}

// grafanaDelay is how long a pod has to be ready again, nil if that does not matter.
func (o *object) grafanaDelay() (*metav1.Duration, error) {
	const name, allowed = "crossZoneEvictionDelay", "a duration from 0s, such as \"20m\""
	raw := o.spec.values[name]
	text := ""
	if _, err := o.spec.take(name, &text, allowed); err != nil || text == "" {
		return nil, err
	}
	delay, err := time.ParseDuration(text)
	switch {
	case err != nil || delay < 0:
		return nil, o.spec.refused(name, raw, allowed)
	case delay == 0:
		return nil, nil
	}
	return &metav1.Duration{Duration: delay}, nil
}

// grafanaPartition is the label of pods that has their partition, empty if the budget knows
// no partitions.
func (o *object) grafanaPartition() (string, error) {
	const regexName, groupName = "podNamePartitionRegex", "podNameRegexGroup"
	text, group := "", 1
	rawRegex, rawGroup := o.spec.values[regexName], o.spec.values[groupName]
	if _, err := o.spec.take(regexName, &text, "a regular expression"); err != nil {
		return "", err
	}
	groupGiven, err := o.spec.take(groupName, &group, "a number from 1")
	if err != nil || text == "" {
		return "", err
	}
	compiled, err := regexp.Compile("^" + text + "$")
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: %w", o.spec.refused(regexName, rawRegex, "a regular expression as Go reads it"), err)
	case compiled.NumSubexp() == 0:
		return "", o.spec.refused(regexName, rawRegex, "a regular expression with a group in parentheses, which is the partition")
	case group < 1 || group > compiled.NumSubexp():
		return "", o.spec.refused(groupName, rawGroup, fmt.Sprintf("a number from 1 to %d, as many groups as podNamePartitionRegex has", compiled.NumSubexp()))
	case !groupGiven && compiled.NumSubexp() > 1:
		return "", fmt.Errorf("spec.%s is missing; it must say which of the %d groups of podNamePartitionRegex is the partition", groupName, compiled.NumSubexp())
	case o.options.GroupBy != "":
		return o.options.GroupBy, nil
	case !isOrdinal(text, group):
		return "", fmt.Errorf("spec.%s: %s takes a part of the names of pods that no label of Kubernetes has. "+
			"Give the pods a label with that part, and convert with --group-by and the key of that label", regexName, rawRegex)
	}
	return appsv1.PodIndexLabel, nil
}

// isOrdinal reports whether a group of a regular expression is the ordinal of a pod of a
// StatefulSet: the digits after the last hyphen of its name. Kubernetes has it as a label.
func isOrdinal(text string, group int) bool {
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil || parsed.Op != syntax.OpConcat || len(parsed.Sub) < 2 {
		return false
	}
	last, before := parsed.Sub[len(parsed.Sub)-1], parsed.Sub[len(parsed.Sub)-2]
	return last.Op == syntax.OpCapture && last.Cap == group && isNumber(last.Sub[0]) &&
		before.Op == syntax.OpLiteral && before.Rune[len(before.Rune)-1] == '-'
}

// isNumber reports whether a regular expression is one for one or more digits.
func isNumber(r *syntax.Regexp) bool {
	if r.Op != syntax.OpPlus {
		return false
	}
	digits := r.Sub[0]
	return digits.Op == syntax.OpCharClass && len(digits.Rune) == 2 && digits.Rune[0] == '0' && digits.Rune[1] == '9'
}
