package disruption

import (
	"cmp"
	"fmt"
	"strings"

	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/topology"
)

// A refusal is read in a terminal and in events, so it is short.
const (
	maxBrief       = 1000 // bytes
	maxDomainNames = 5
)

// Brief explains a decision in a few sentences: the numbers, and what must happen before the eviction is admitted.
func (d Decision) Brief() string {
	return plaintext.Cut(fmt.Sprintf("budget %s: %s", d.Budget, disruptionReason(d)), maxBrief)
}

func disruptionReason(d Decision) string {
	switch d.Rule {
	case RuleNotCovered:
		return "it does not cover the pod."
	case RuleGone:
		return "evicting the pod costs nothing: it is pending, finished, terminating or on a deleted node."
	case RuleReserved:
		return "this eviction is already admitted."
	case RuleExpiring:
		return fmt.Sprintf("the eviction was admitted before, but something else prevents it. Try again after %s.", plaintext.Clock(d.RetryAt))
	case RuleBreakGlass:
		return fmt.Sprintf("break-glass admits every eviction until %s: %s", plaintext.Clock(d.RetryAt), plaintext.Of(d.Reason))
	case RuleUnhealthy:
		return "the pod is not ready, and the budget holds without it."
	case RuleWithin:
		return domainNumbers(d) + "."
	case RuleInvalid:
		return fmt.Sprintf("it admits no eviction, because its spec is invalid: %s", plaintext.Of(d.Reason))
	case RuleUnhealthyNo:
		return fmt.Sprintf("%s is not ready, and the budget is exceeded: %s With unhealthyPodEvictionPolicy AlwaysAllow it could still be evicted.", d.Pod, refusal(d, d.Exceeded, 0))
	}
	return refusal(d, d.Rule, 1)
}

// refusal names the limit that the given number of further pods would exceed.
func refusal(d Decision, limit Rule, more int) string {
	switch limit {
	case RuleTotal:
		m := d.Total
		return fmt.Sprintf("%s and must keep %d%s", totalNumbers(d), m.Desired, because(d, m.Missing, 0, m.Surplus)) +
			continueWhen(d, "Evictions continue", m.Down, m.Down+more-d.MaxTotal)
	case RuleDomains:
		return domainsRefusal(d)
	}
	m := d.Domain
	return domainNumbers(d) + because(d, m.Missing, m.Anywhere, m.Surplus) +
		continueWhen(d, "Evictions there continue", m.Down+m.Anywhere, m.Desired+more-m.Healthy)
}

func domainsRefusal(d Decision) string {
	noun := d.Limits.noun()
	text := disturbedDomains(d)
	if d.MaxDomains == 0 {
		return fmt.Sprintf("%s, and maxUnavailableDomains 0 admits no eviction. Raise it.", text)
	}
	text = fmt.Sprintf("%s, and at most %s may be%s", text, plaintext.Plural(d.MaxDomains, noun), because(d, d.Total.Missing, 0, 0))
	others := fmt.Sprintf("the other %ss", noun)
	if d.MaxDomains > 1 {
		others = "one more " + noun
	}
	until := fmt.Sprintf("all pods of %s are ready", others)
	if settle := d.Limits.Settle; settle > 0 {
		until = fmt.Sprintf("all pods of %s have been ready for %s", others, plaintext.Span(settle))
	}
	if !d.RetryAt.IsZero() {
		until += ", at " + plaintext.Clock(d.RetryAt)
	} else if len(d.Shifts) > 0 {
		until += fmt.Sprintf(" and no ZoneShift takes %s out of service", others)
	}
	return fmt.Sprintf("%s Evictions in %s continue when %s.", text, domainName(d), until)
}

// continueWhen says what must happen: the given number of the pods that are down must become healthy.
func continueWhen(d Decision, subject string, down, needed int) string {
	if needed > down {
		return " " + cmp.Or(d.Limits.OnlyFree(), "This admits no eviction even when all pods are healthy. Change the budget or add pods.")
	}
	when := fmt.Sprintf("when %s healthy", plaintext.PluralVerb(needed, "more pod", "is", "are"))
	if down == 1 {
		when = "when it exists and is ready"
		if len(d.Down) == 1 {
			when = "when it is replaced"
			if d.Down[0].Why == WhyNotReady {
				when = "when it is ready again"
			}
		}
	}
	if !d.RetryAt.IsZero() {
		when += fmt.Sprintf(", or at %s if the pods are not evicted by then", plaintext.Clock(d.RetryAt))
	}
	return fmt.Sprintf(" %s %s.", subject, when)
}

// because lists the pods that are down, after a colon, and ends the sentence.
func because(d Decision, missing, anywhere, surplus int) string {
	var reasons []string
	for _, why := range []Why{WhyNotReady, WhyTerminating, WhyReserved, WhySettling} {
		if names := downBy(d, why); len(names) > 0 {
			verb := "are"
			if len(names) == 1 {
				verb = "is"
			}
			reasons = append(reasons, fmt.Sprintf("%s %s %s", plaintext.List(names), verb, why))
		}
	}
	if d.DownMore > 0 {
		reasons = append(reasons, fmt.Sprintf("and %s", plaintext.Plural(d.DownMore, "more pod")))
	}
	if missing > 0 {
		reasons = append(reasons, plaintext.PluralVerb(missing, "pod", "is", "are")+" missing")
	}
	if anywhere > 0 {
		reasons = append(reasons, fmt.Sprintf("%s missing and may belong to any %s", plaintext.PluralVerb(anywhere, "pod", "is", "are"), d.Limits.noun()))
	}
	if surplus > 0 {
		reasons = append(reasons, fmt.Sprintf("%d of them not counted, because there are more pods than expected", surplus))
	}
	if len(reasons) == 0 {
		return "."
	}
	return ": " + strings.Join(reasons, ", ") + "."
}

func downBy(d Decision, why Why) (names []string) {
	for _, pod := range d.Down {
		if pod.Why == why {
			names = append(names, pod.Name)
		}
	}
	return names
}

// Lines explains a decision, with a line for each limit and each pod that is down.
func (d Decision) Lines() []string {
	lines := []string{disruptionReason(d)}
	if d.Domains == 0 || d.Limits == nil || d.Limits.Invalid != "" || d.Domain == (DomainMeasure{}) {
		return lines
	}
	m, noun := d.Domain, d.Limits.noun()
	expected := plaintext.Plural(d.Total.Expected, "pod") + " expected"
	if d.Domains > 1 {
		expected += fmt.Sprintf(" in %s, %s in each", plaintext.Plural(d.Domains, noun), plaintext.Decimal(float64(d.Total.Expected)/float64(d.Domains), 2))
	}
	lines = append(lines, expected)

	here := ""
	if domainName(d) != "it" {
		here = domainName(d) + ": "
	}
	if limit := d.Limits.MinAvailable; limit != nil {
		lines = append(lines, fmt.Sprintf("%sminAvailable %s is %d, %d healthy, so %d may be evicted", here, amount(limit), m.Desired, m.Healthy, max(0, m.Healthy-m.Desired)))
	} else {
		down := m.Down + m.Anywhere
		lines = append(lines, fmt.Sprintf("%smaxUnavailable %s is %d, %d down, so %d may be evicted", here, amount(d.Limits.MaxUnavailable), d.MaxDown, down, max(0, d.MaxDown-down)))
	}
	if m.Missing > 0 {
		lines = append(lines, fmt.Sprintf("%s%s missing", here, plaintext.PluralVerb(m.Missing, "pod", "is", "are")))
	}
	if m.Anywhere > 0 {
		lines = append(lines, fmt.Sprintf("%s missing and may belong to any %s", plaintext.PluralVerb(m.Anywhere, "pod", "is", "are"), noun))
	}
	if m.Surplus > 0 {
		lines = append(lines, fmt.Sprintf("%s%s not count as down, because there are more pods than expected", here, plaintext.PluralVerb(m.Surplus, "pod", "does", "do")))
	}
	if d.MaxTotal >= 0 {
		lines = append(lines, fmt.Sprintf("all: maxUnavailableTotal %s is %d, %d down, so %d may be evicted", amount(d.Limits.MaxTotal), d.MaxTotal, d.Total.Down, d.Total.Allowed))
	}
	if d.MaxDomains >= 0 {
		lines = append(lines, fmt.Sprintf("%s; maxUnavailableDomains is %d", disturbedDomains(d), d.MaxDomains))
	}
	for _, pod := range d.Down {
		lines = append(lines, fmt.Sprintf("%s is %s", pod.Name, pod.Why))
	}
	if d.DownMore > 0 {
		lines = append(lines, fmt.Sprintf("and %s", plaintext.Plural(d.DownMore, "more pod")))
	}
	return lines
}

func amount(a *Amount) string {
	if a == nil {
		return ""
	}
	if a.Percent {
		return fmt.Sprintf("%d%%", a.Value)
	}
	return fmt.Sprint(a.Value)
}

func domainNumbers(d Decision) string {
	m := d.Domain
	return fmt.Sprintf("%s has %d of %d healthy and must keep %d", domainName(d), m.Healthy, m.Healthy+m.Down+m.Anywhere, m.Desired)
}

func totalNumbers(d Decision) string {
	m := d.Total
	of := "it has"
	if d.Domains > 1 {
		of = fmt.Sprintf("all %ss together have", d.Limits.noun())
	}
	if m.Group != "" {
		of = fmt.Sprintf("group %q has", m.Group)
	}
	return fmt.Sprintf("%s %d of %d healthy", of, m.Healthy, m.Healthy+m.Down)
}

func disturbedDomains(d Decision) string {
	noun, n := d.Limits.noun(), len(d.Disturbed)
	switch {
	case n == 0 && d.DisturbedAnywhere > 0:
		return fmt.Sprintf("a %s is disturbed", noun)
	case n == 0:
		return fmt.Sprintf("no %s is disturbed", noun)
	}
	text := d.Limits.nameAll(d.Disturbed, d.Shifts) + " is disturbed"
	if n > 1 {
		text = d.Limits.nameAll(d.Disturbed, d.Shifts) + " are disturbed"
	}
	if d.DisturbedAnywhere > 0 {
		text += ", and others may be"
	}
	return text
}

// domainName names the pod's domain, and its group if it has one.
func domainName(d Decision) string {
	name := "it"
	if d.Domain.Domain != "" {
		name = fmt.Sprintf("%s %q", d.Limits.noun(), d.Domain.Domain)
	}
	if d.Domain.Group == "" {
		return name
	}
	if d.Domain.Domain == "" {
		return fmt.Sprintf("group %q", d.Domain.Group)
	}
	return fmt.Sprintf("%s of group %q", name, d.Domain.Group)
}

func (b *Budget) noun() string {
	if b != nil && len(b.Keys) == 1 {
		return topology.Noun(b.Keys[0])
	}
	return "domain"
}

// nameAll names domains and their ZoneShifts, as in zones "a" (ZoneShift out), "b".
func (b *Budget) nameAll(domains []string, shifts map[string]string) string {
	names := make([]string, len(domains))
	for i, name := range domains {
		names[i] = fmt.Sprintf("%q", name)
		if shift := shifts[name]; shift != "" {
			names[i] += fmt.Sprintf(" (ZoneShift %s)", shift)
		}
	}
	noun := b.noun()
	if len(names) > 1 {
		noun += "s"
	}
	return noun + " " + plaintext.FirstOf(names, maxDomainNames)
}

// OnlyFree says which domains are free, and how to free another one. It is empty without Free.
func (b *Budget) OnlyFree() string {
	if b == nil || len(b.Free) == 0 {
		return ""
	}
	text := fmt.Sprintf("Only pods of %s may be evicted now.", b.nameAll(b.Free, nil))
	if b.Advances {
		namespace, name, _ := strings.Cut(b.Name, "/")
		text += fmt.Sprintf(" To free another %s: \"vicinity budget advance %s -n %s --to %s\".", b.noun(), name, namespace, strings.ToUpper(b.noun()))
	}
	return text
}
