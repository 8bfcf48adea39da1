package main

import (
	"fmt"
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
	updates               []evictions.UpdateFigures
}

// nativeWhole is the time for all pods under a PodDisruptionBudget, at the measured pace.
func (f *figures) nativeWhole() time.Duration {
	return f.native.Took * time.Duration(pods) / time.Duration(max(1, f.native.Moved))
}

// String returns a table.
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
		row("  until answered: p99", meter.FormatMilliseconds(meter.Quantile(g.Times, 0.99)), "")
		row("  under PodDisruptionBudgets: admitted in a second; p99", fmt.Sprintf("%.0f; %s", part.than.PerSecond(), meter.FormatMilliseconds(meter.Quantile(part.than.Times, 0.99))), "")
		row("  pods that died, not answered while a replica was killed", fmt.Sprintf("%d, %d", g.Deaths, g.Failed), "")
	}
	if !f.storm {
		f.others(row)
	}
	return f.Machine + "\n" + meter.Table(rows)
}

func (f *figures) others(row func(what, measured, aim string)) {
	row(fmt.Sprintf("%d pods move, each starts in %s", pods, startTime), "", "least")
	row("  under maxUnavailable: 1", fmt.Sprintf("%.0f s (%d pods in %.0f s)", f.nativeWhole().Seconds(), f.native.Moved, f.native.Took.Seconds()),
		fmt.Sprintf("%.0f s", (time.Duration(pods)*startTime).Seconds()))
	row("  a zone at a time", fmt.Sprintf("%.0f s", f.byZone.Took.Seconds()), fmt.Sprintf("%.0f s", (zones*startTime).Seconds()))
	row("  zones down at the same time, at most", fmt.Sprint(f.byZone.Report.Disturbed), "1")
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
