package inspect

import (
	"fmt"
	"slices"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/kubeproxy"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/translate"
)

// PermissionsDocument says what the commands that read a cluster must be allowed.
const PermissionsDocument = "docs/reference/permissions.md"

// The runbooks that say more.
const (
	runbookController = "docs/runbooks/controller-down.md"
	runbookHints      = "docs/runbooks/hints-do-not-survive.md"
	runbookRefused    = "docs/runbooks/write-refused.md"
	runbookProxy      = "docs/runbooks/proxy.md"
)

// Served says which endpoints serve the clients of some zones, as it is in force.
type Served struct {
	Zones []string
	By    string // as in "3 own + 1 of zone-b"
}

// Served is who is served from where in a family: by the hints as they are stored where
// stock proxies serve the Service, and by the plan where vicinity-proxy does. It is empty
// where another proxy does, or the plan is not known.
func (e *Explanation) Served(f *Family) []Served {
	var uses []explain.Use
	switch {
	case len(f.Stock) > 0:
		for _, row := range f.Stock[0].Zones {
			by := explain.Uses(row.Uses, row.Zone, f.Stock[0].Ready)
			if row.Mode == kubeproxy.SameNode {
				by += ", of their node"
			}
			uses = append(uses, explain.Use{Zone: row.Zone, Uses: by})
		}
	case e.Delivery == allocate.DeliveryGroups && !e.Blind:
		uses = explain.PlanUses(f.Question.Region, f.Asked().Plan)
	}
	var served []Served
	for _, use := range uses {
		same := slices.IndexFunc(served, func(s Served) bool { return s.By == use.Uses })
		if same < 0 {
			same = len(served)
			served = append(served, Served{By: use.Uses})
		}
		served[same].Zones = append(served[same].Zones, explain.ZoneName(use.Zone))
	}
	return served
}

// next is what to do, what matters most first. There is nothing to do about most Services.
func (e *Explanation) next(in *Reading, d *routing.Decision) ([]string, error) {
	var next []string
	add := func(format string, args ...any) { next = append(next, fmt.Sprintf(format, args...)) }
	if in.Stopped != "" {
		add("have vicinity-controller run: %s (%s)", in.Stopped, runbookController)
	}
	for _, kind := range []string{KindNodes, KindSlices} {
		if slices.Contains(in.Unread, kind) {
			add("get the right to read %s (%s)", kind, PermissionsDocument)
		}
	}
	if e.Blind || e.NoPlan != "" || slices.Contains(in.Unread, KindSlices) {
		return next, nil
	}
	if !slices.ContainsFunc(e.Families, func(f Family) bool { return f.Question.Region.Endpoints() > 0 }) {
		add("run ready pods that the Service selects")
		return next, nil
	}
	if e.Undelivered && !in.Settings.WithoutGroups {
		add("annotate the Service with %s: \"true\", where vicinity-proxy runs on every node", v1alpha1.AnnotationProxy)
	}
	if e.AwaitsProxy {
		add("look at the nodes that the condition names, with --node NODE (%s)", runbookProxy)
	}
	switch held := len(e.Held) > 0; {
	case in.Stopped != "" || len(e.Pending) == 0:
	case routing.DroppedHints(in.Service) || routing.LostHints(in.Service):
		add("find out what takes the hints away (%s)", runbookHints)
	case routing.NotWritten(in.Service):
		add("find out what refuses the writes of the controller (%s)", runbookRefused)
	case held:
		add("wait some seconds, until zones let go of endpoints")
	default:
		add("wait some seconds; if it is not written then, look at the controller (%s)", runbookController)
	}
	for i := range e.Families {
		sentence, err := e.improvement(&e.Families[i], d)
		if err != nil {
			return nil, err
		}
		if sentence != "" && !slices.Contains(next, sentence) {
			next = append(next, sentence)
		}
	}
	return next, nil
}

// improvement is what would keep more of the traffic near, if something small does: to ask
// for it, or another place for a few pods.
func (e *Explanation) improvement(f *Family, d *routing.Decision) (string, error) {
	asked := f.Asked()
	switch request := &d.Request; {
	case d.Delivery != allocate.DeliveryNone:
		advice, err := explain.Advise(f.Question, *asked)
		if err != nil || len(advice) == 0 {
			return "", err
		}
		return advice[0].String(), nil
	case request.Source != "" || request.Upstream || e.LeftAlone != "" || len(d.Notes) > 0:
		return "", nil // it is as someone wants it
	}
	usual := translate.DefaultAlgorithm(f.Question.Delivery == allocate.DeliveryGroups)
	for i := range f.Comparison.Options {
		o := &f.Comparison.Options[i]
		if o.Algorithm == usual && !o.Outcome.IsBalanced() && o.Figures.InZone > asked.Figures.InZone+leastGain {
			return fmt.Sprintf("annotate the Service with %s: %s: in-zone %s -> %s", v1alpha1.AnnotationSameZone, v1alpha1.Prefer,
				explain.Percent(asked.Figures.InZone), explain.Percent(o.Figures.InZone)), nil
		}
	}
	return "", nil
}

// leastGain is the least part of all traffic that is worth a change.
const leastGain = 0.01
