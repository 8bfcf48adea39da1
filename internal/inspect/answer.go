package inspect

import (
	"fmt"
	"slices"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/explain"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/routing/kubeproxy"
)

// PermissionsDocument lists the rights that commands need to read a cluster.
const PermissionsDocument = "docs/reference/permissions.md"

// Runbooks of the next steps.
const (
	runbookController = "docs/runbooks/controller-down.md"
	runbookHints      = "docs/runbooks/hints-do-not-survive.md"
	runbookRefused    = "docs/runbooks/write-refused.md"
	runbookProxy      = "docs/runbooks/proxy.md"
)

// Served says which endpoints serve some clients now.
type Served struct {
	Clients []string `json:"clients"` // zones, or as in "1 node of zone-a" where the nodes of a zone differ
	By      string   `json:"by"`      // as in "3 own + 1 of zone-b"
}

// Served returns the present service of a family: by the stored hints where stock proxies serve the Service, and by the
// plan where vicinity-proxy does. It is empty for another proxy, or if the plan is unknown.
func (e *Explanation) Served(f *Family) []Served {
	var uses []explain.Use
	switch {
	case len(f.Stock) > 0:
		uses = stockUses(&f.Stock[0])
	case e.Delivery == allocate.DeliveryGroups && !e.LacksNodes:
		uses = explain.PlanUses(f.Question.Region, f.Asked().Plan)
		for i := range uses {
			uses[i].Zone = explain.ZoneName(uses[i].Zone)
		}
	}
	var served []Served
	for _, use := range uses {
		same := slices.IndexFunc(served, func(s Served) bool { return s.By == use.Uses })
		if same < 0 {
			same = len(served)
			served = append(served, Served{By: use.Uses})
		}
		served[same].Clients = append(served[same].Clients, use.Zone)
	}
	return served
}

// stockUses returns the uses of stock proxies' clients: by zone, or by number of nodes where the nodes of a zone
// differ.
func stockUses(s *Stock) []explain.Use {
	type part struct {
		zone, uses string
		nodes      int
	}
	var parts []part
	ofZone := map[string]int{} // parts
	for _, row := range s.Zones {
		text := explain.Uses(row.Uses, row.Zone, s.Ready)
		if row.Mode == kubeproxy.SameNode {
			text += ", of their node"
		}
		same := slices.IndexFunc(parts, func(p part) bool { return p.zone == row.Zone && p.uses == text })
		if same < 0 {
			same = len(parts)
			parts = append(parts, part{zone: row.Zone, uses: text})
			ofZone[row.Zone]++
		}
		parts[same].nodes += row.Nodes
	}
	var uses []explain.Use
	for _, p := range parts {
		clients := explain.ZoneName(p.zone)
		if ofZone[p.zone] > 1 {
			clients = plaintext.Plural(p.nodes, "node") + " of " + clients
		}
		uses = append(uses, explain.Use{Zone: clients, Uses: p.uses})
	}
	return uses
}

// Advise sets Next: the steps to take, most important first. Most Services need none. It plans for many changes of
// pods, which takes long in a large region.
func (e *Explanation) Advise() error {
	in, d := &e.reading, &e.decision
	var next []string
	add := func(format string, args ...any) { next = append(next, fmt.Sprintf(format, args...)) }
	if in.Stopped != "" {
		add("start vicinity-controller: %s (%s)", in.Stopped, runbookController)
	}
	for _, kind := range []string{KindNodes, KindSlices} {
		if slices.Contains(in.Unread, kind) {
			add("get the right to read %s (%s)", kind, PermissionsDocument)
		}
	}
	if e.LacksNodes || slices.Contains(in.Unread, KindSlices) {
		e.Next = next
		return nil
	}
	ready := slices.ContainsFunc(e.Families, func(f Family) bool { return f.Question.Region.Endpoints() > 0 })
	switch {
	case e.NoPlan != "":
	case !ready:
		add("run ready pods that the Service selects")
	case !e.Undelivered:
	case in.Settings.WithoutGroups:
		add("switch delivery by groups on (--groups of vicinity-controller) if vicinity-proxy runs on every node, or ask for Prefer instead of Require")
	default:
		add("annotate the Service with %s: \"true\" if vicinity-proxy runs on every node", v1alpha1.AnnotationProxy)
	}
	if ready && e.AwaitsProxy {
		add("look at the nodes that the condition names, with --node NODE (%s)", runbookProxy)
	}
	if sentence := e.writes(); sentence != "" {
		next = append(next, sentence)
	}
	for i := range e.Families {
		if !ready {
			break // without pods no zone is better
		}
		sentence, err := e.improvement(&e.Families[i], d)
		if err != nil {
			return err
		}
		if sentence != "" && !slices.Contains(next, sentence) {
			next = append(next, sentence)
		}
	}
	e.Next = next
	return nil
}

// writes returns the next step for decisions that are not written.
func (e *Explanation) writes() string {
	in := &e.reading
	switch {
	case in.Stopped != "" || len(e.Pending) == 0:
		return ""
	case routing.TroubleHintsLost.IsOn(in.Service):
		return "find what removes the hints (" + runbookHints + ")"
	case routing.TroubleNotWritten.IsOn(in.Service):
		return "find out what refuses the writes of the controller (" + runbookRefused + ")"
	case len(e.Held) > 0:
		return "wait some seconds until zones have released their endpoints"
	}
	return "wait some seconds; if it is still not written, look at the controller (" + runbookController + ")"
}

// improvement returns a small change that would keep more of the traffic near: an annotation, or other zones for a few
// pods.
func (e *Explanation) improvement(f *Family, d *routing.Decision) (string, error) {
	asked := f.Asked()
	switch request := &d.Request; {
	case d.Shifting.Moves:
		return "", nil // the plan is for a while
	case d.Delivery != allocate.DeliveryNone:
		advice, err := explain.Advise(f.Question, *asked)
		if err != nil || len(advice) == 0 {
			return "", err
		}
		return advice[0].String(), nil
	case request.Source != "" || request.Upstream || e.LeftAlone != "" || len(d.Notes) > 0:
		return "", nil // it is as asked
	}
	usual := intent.DefaultAlgorithm(f.Question.Delivery == allocate.DeliveryGroups)
	for i := range f.Comparison.Options {
		o := &f.Comparison.Options[i]
		if o.Algorithm == usual && !o.Outcome.IsBalanced() && o.Figures.InZone > asked.Figures.InZone+leastGain {
			return fmt.Sprintf("annotate the Service with %s: %s: in-zone %s -> %s", v1alpha1.AnnotationSameZone, v1alpha1.Prefer,
				plaintext.Percent(asked.Figures.InZone), plaintext.Percent(o.Figures.InZone)), nil
		}
	}
	return "", nil
}

// leastGain is the least share of all traffic that is worth a change.
const leastGain = 0.01
