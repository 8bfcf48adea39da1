package main

import (
	"fmt"
	"strings"
	"time"

	"vicinity.dev/vicinity/lab/test/bench/meter"
	"vicinity.dev/vicinity/lab/test/evictions"
)

type figures struct {
	*bench
	many, one evictions.BudgetsFigures
	// The same under PodDisruptionBudgets.
	manyNative, oneNative evictions.Figures
	byZone, native        evictions.RecycleFigures
	retry                 evictions.RetryFigures
	updates               []evictions.UpdateFigures
}

// overBudget is the number of evictions that were wrongly admitted.
func (f *figures) overBudget() int {
	return f.many.OverBudget + f.many.Unreserved + f.one.OverBudget + f.one.Unreserved
}

// nativeWhole is the time for all pods under a PodDisruptionBudget, at the measured pace.
func (f *figures) nativeWhole() time.Duration {
	return f.native.Took * time.Duration(pods) / time.Duration(max(1, f.native.Moved))
}

// String returns a table and a RESULT line.
func (f *figures) String() string {
	rows := [][]string{{"figure", "measured", "aim"}}
	row := func(what, measured, aim string) { rows = append(rows, []string{what, measured, aim}) }
	for _, part := range []struct {
		name string
		of   *evictions.BudgetsFigures
		than *evictions.Figures
	}{{fmt.Sprintf("over %d budgets", crowd), &f.many, &f.manyNative}, {"over one budget", &f.one, &f.oneNative}} {
		g := part.of
		row(fmt.Sprintf("evictions %s, %d at a time", part.name, f.inFlight), fmt.Sprintf("%d, %d refused", g.Admitted, g.Refused), "")
		row("  admitted beyond the budget", fmt.Sprint(g.OverBudget+g.Unreserved), "0")
		row("  admitted in a second", fmt.Sprintf("%.0f", g.PerSecond()), "as natively")
		row("  answered in a second", fmt.Sprintf("%.0f", float64(len(g.Times))/g.Took.Seconds()), "")
		row("  until answered: p50, p99", meter.FormatMilliseconds(meter.Quantile(g.Times, 0.5))+", "+meter.FormatMilliseconds(meter.Quantile(g.Times, 0.99)), "")
		row("  of that in the webhook, at most: p50, p99", meter.FormatMilliseconds(g.Webhook.Quantile(0.5))+", "+meter.FormatMilliseconds(g.Webhook.Quantile(0.99)), "under 100.0 ms")
		row("  under PodDisruptionBudgets: admitted, answered in a second; p99", fmt.Sprintf("%.0f, %.0f; %s",
			part.than.PerSecond(), float64(len(part.than.Times))/max(part.than.Took.Seconds(), 1e-9), meter.FormatMilliseconds(meter.Quantile(part.than.Times, 0.99))), "")
		row("  API calls for each pod, for each answer", fmt.Sprintf("%.2f, %.2f", g.Calls/float64(max(1, g.Admitted)), g.Calls/float64(max(1, g.Admitted+g.Refused))), "at most 2.5")
		row("  reservations in one write", fmt.Sprintf("%.2f", float64(g.Reservations)/float64(max(1, g.Writes))), "")
		row("  a death was not known for, at most", fmt.Sprintf("%.0f s", g.Unseen.Seconds()), "")
		row("  pods that died, not answered while a replica was killed", fmt.Sprintf("%d, %d", g.Deaths, g.Failed), "")
	}
	if !f.storm {
		f.others(row)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s", f.Machine, meter.Table(rows))
	all, native := f.many.Add(f.one.Figures), f.manyNative.Add(f.oneNative)
	refusals, perRefusal := f.refusals()
	fmt.Fprintf(&b, "RESULT evictions=%d over_budget=%d p99_ms=%.1f per_second=%.1f api_calls_per_pod=%.2f api_calls_per_answer=%.2f recycle_native_s=%.0f recycle_zones_s=%.0f zones_down=%d refusals_per_second=%.0f api_calls_per_refusal=%.2f native_p99_ms=%.1f native_per_second=%.1f\n",
		all.Admitted, f.overBudget(), meter.Milliseconds(meter.Quantile(all.Times, 0.99)), all.PerSecond(), (f.many.Calls+f.one.Calls)/float64(max(1, all.Admitted)), (f.many.Calls+f.one.Calls)/float64(max(1, all.Admitted+all.Refused)),
		f.nativeWhole().Seconds(), f.byZone.Took.Seconds(), f.byZone.Report.Disturbed, refusals, perRefusal, meter.Milliseconds(meter.Quantile(native.Times, 0.99)), native.PerSecond())
	for i := range f.updates {
		fmt.Fprintln(&b, f.updates[i].Result())
	}
	return b.String()
}

// refusals returns the refusals per second, and the requests for each.
func (f *figures) refusals() (perSecond, requests float64) {
	return float64(f.retry.Refused) / max(f.retry.Took.Seconds(), 1e-9), f.retry.Calls / float64(max(1, f.retry.Refused))
}

func (f *figures) others(row func(what, measured, aim string)) {
	row(fmt.Sprintf("%d pods move, each starts in %s", pods, startTime), "", "least")
	row("  under maxUnavailable: 1", fmt.Sprintf("%.0f s (%d pods in %.0f s)", f.nativeWhole().Seconds(), f.native.Moved, f.native.Took.Seconds()),
		fmt.Sprintf("%.0f s", (time.Duration(pods)*startTime).Seconds()))
	row("  a zone at a time", fmt.Sprintf("%.0f s", f.byZone.Took.Seconds()), fmt.Sprintf("%.0f s", (zones*startTime).Seconds()))
	row("  kubectl drain gave up, a zone at a time", fmt.Sprint(f.byZone.GaveUp), "0")
	row("  zones down at the same time, at most", fmt.Sprint(f.byZone.Report.Disturbed), "1")
	refusals, perRefusal := f.refusals()
	row(fmt.Sprintf("drainers of %d nodes ask every second and are refused", nodes), fmt.Sprintf("%.0f refusals a second", refusals), "")
	row("  until refused: p50, p99", meter.FormatMilliseconds(meter.Quantile(f.retry.Times, 0.5))+", "+meter.FormatMilliseconds(meter.Quantile(f.retry.Times, 0.99)), "")
	row("  not answered in time", fmt.Sprint(f.retry.Failed), "0")
	row("  API calls for each, writes in all", fmt.Sprintf("%.2f, %d", perRefusal, f.retry.Writes), "")
	row(fmt.Sprintf("a StatefulSet of %d pods is updated, each starts in %s: time, zones down at a time, API calls per pod", pods, startTime), "", "")
	for i := range f.updates {
		u := &f.updates[i]
		early := ""
		if u.Updated < u.Pods {
			early = fmt.Sprintf(" (from %d pods in %.0f s)", u.Updated, u.Took.Seconds())
		}
		row("  "+updaterNames[u.By], fmt.Sprintf("%.0f s%s, %d, %.1f", u.Whole().Seconds(), early, u.Waves.MostDomains, u.CallsPerPod()), "")
	}
}

var updaterNames = map[evictions.Updater]string{
	evictions.ByRollout: "a DomainRollout, zone by zone", evictions.ByEvictor: "a controller that evicts what it is let",
	evictions.ByNativeMax: "its own rolling update, as many pods at a time as a zone has", evictions.ByNative: "its own rolling update, a pod at a time",
}
