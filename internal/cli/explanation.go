package cli

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/simulate"
	"vicinity.dev/vicinity/internal/translate"
)

// explanation is all that there is to say about a Service.
type explanation struct {
	input    reading
	decision routing.Decision
	families []familyExplanation
	// pending says what of the decision is not written yet; it is empty if all is.
	pending []string
	// noProxy is why stock proxies leave the Service alone; it is empty if they serve it.
	noProxy     string
	autoscalers []string
	missing     []string
	// unread are the kinds of objects that may not be read.
	unread []string
}

// blind reports whether the nodes are not known. Then no plan is, and what is stored
// is all that there is to show.
func (e *explanation) blind() bool { return slices.Contains(e.unread, kindNodes) }

// familyExplanation is the part of an explanation that is about an address family.
type familyExplanation struct {
	// planSection has the plan that is decided, among those of other algorithms. Its
	// family is empty if the Service has one only.
	planSection
	// ipFamily is the family, also if there is only one.
	ipFamily corev1.IPFamily
	// decided says that Vicinity made the plan. If not it is what Kubernetes is
	// expected to do, or what happens when nobody does anything.
	decided bool
	// undelivered says that the plan cannot be expressed, so that it is not in force.
	undelivered bool
	// awaited says that the plan is for vicinity-proxy and stock proxies still serve
	// the Service, so that it is not in force either.
	awaited bool
	// assigned has the zones that use each endpoint, by address.
	assigned map[string]allocate.ConsumerSet
	limits   []explain.Limit
	stock    []stockView
}

// stockView is what stock proxies do for some ports, alike for each.
type stockView struct {
	ports   []stockPort
	ready   int
	rows    []routing.StockRow
	figures allocate.Figures
}

type stockPort struct {
	name     string
	protocol corev1.Protocol
}

// newExplanation decides about a Service, of which all that there is was read,
// and compares.
func newExplanation(in reading, r *clusterReader) (*explanation, error) {
	e := &explanation{input: in, noProxy: stockLeaves(in.Service), missing: r.missing, unread: r.unread}
	var err error
	if e.decision, err = in.decide(); err != nil {
		return nil, err
	}
	e.pending = pending(in.Input, e.decision, r)
	if e.decision.Request.NoPlan != "" {
		return e, nil
	}
	endpoints := translate.SliceEndpoints(in.Slices, in.Cluster)
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		ready, found := endpoints[family]
		if !found {
			continue
		}
		f, err := e.family(family, ready)
		if err != nil {
			return nil, err
		}
		if e.noProxy == "" {
			f.stock = stockViews(portsOf(in.Slices, family, ready), func(port *routing.StockPort) []routing.StockClient {
				if e.blind() {
					return port.ZoneClients()
				}
				return routing.StockClients(e.input.Cluster, e.decision.Request.Capacity)
			})
		}
		if len(endpoints) > 1 {
			f.family = family
		}
		e.families = append(e.families, f)
	}
	return e, nil
}

// family explains one family.
func (e *explanation) family(family corev1.IPFamily, ready []translate.Endpoint) (familyExplanation, error) {
	service, request := e.input.Service, e.decision.Request
	f := familyExplanation{
		ipFamily: family, undelivered: e.decision.Undelivered, awaited: awaitsProxy(service, e.decision.Delivery),
		planSection: planSection{
			namespace: service.Namespace, name: service.Name, request: request, capacity: request.Capacity,
		},
	}
	f.question = e.question(ready)
	decided := slices.IndexFunc(e.decision.Families, func(d routing.FamilyDecision) bool { return d.Family == family })
	if decided >= 0 {
		f.question.Region = e.decision.Families[decided].Region
	}
	var err error
	if f.comparison, err = explain.Compare(f.question); err != nil {
		return f, err
	}
	if decided >= 0 {
		d := &e.decision.Families[decided]
		f.decided, f.assigned = true, d.Assigned
		f.comparison.Decide(f.question, d.Plan, d.Outcome, d.Nodes, d.Placed())
	}
	// What is in force is shown, also where nothing is asked for.
	f.comparison.Shown = f.comparison.Asked
	f.limits = explain.Limits(f.question.Region)
	if e.blind() {
		f.limits = slices.DeleteFunc(f.limits, func(l explain.Limit) bool { return l.Name == explain.LimitZonesWithoutNodes })
	}
	if limit, found := f.fromOneZone(); found {
		f.limits = append(f.limits, limit)
	}
	return f, nil
}

// fromOneZone says what traffic from one zone does, unless the plan is only a wish.
func (f *familyExplanation) fromOneZone() (limit explain.Limit, found bool) {
	if f.undelivered {
		return explain.Limit{}, false
	}
	return explain.TrafficFromOneZone(f.question.Region, f.asked().Plan)
}

// question is what to compare for the ready endpoints of a family.
func (e *explanation) question(ready []translate.Endpoint) explain.Question {
	request, cluster := e.decision.Request, e.input.Cluster
	auto := translate.AutoCapacity()
	auto.NodeSelector = request.Capacity.NodeSelector
	q := explain.Question{
		Region:   cluster.Region(request.Capacity, ready),
		CPU:      cluster.Region(auto, ready),
		Asked:    request.Intent,
		Delivery: simulate.Hints,
		Pods:     examples(ready),
	}
	if bound := q.Asked.Bound; bound != nil && bound.Algorithm != allocate.Auto {
		q.Thresholds = allocate.ThresholdsOf(*bound)
	}
	if e.decision.Delivery == routing.DeliveryGroups {
		q.Delivery = simulate.Groups
	}
	q.Algorithms, _ = everyAlgorithm(q.Delivery, nil)
	q.Nodes, _ = routing.NodeTiers(cluster, request, e.decision.Delivery, ready)
	return q
}

// divided reports whether zones use different endpoints.
func (e *explanation) divided() bool {
	return slices.ContainsFunc(e.families, func(f familyExplanation) bool {
		_, found := f.fromOneZone()
		return found
	})
}

// limits are those of all families, each once.
func (e *explanation) limits() []explain.Limit {
	var limits []explain.Limit
	for i := range e.families {
		for _, limit := range e.families[i].limits {
			if !slices.Contains(limits, limit) {
				limits = append(limits, limit)
			}
		}
	}
	if len(e.autoscalers) > 0 {
		limits = append(limits, explain.Autoscaled(e.autoscalers))
	}
	return limits
}

// warnings are what is wrong with what is written or with the nodes, and what cannot
// be delivered.
func (e *explanation) warnings() []string {
	var warnings []string
	if sentence := e.input.abandoned(); sentence != "" {
		warnings = append(warnings, sentence)
	}
	warnings = slices.Concat(warnings, e.decision.Request.Warnings, e.decision.Notes)
	if !e.blind() {
		if names := e.decision.Hinted().IgnoredBy; len(names) > 0 {
			warnings = append(warnings, "kube-proxy does not go by all of the hints on "+some(names))
		}
		warnings = append(warnings, e.input.Cluster.Warnings()...)
	}
	if fault := e.input.Cluster.Fault(e.decision.Request.Capacity); fault != "" {
		warnings = append(warnings, fmt.Sprintf("%s: spec.%s", e.decision.Request.FromPolicy(), fault))
	}
	var once []string
	for _, warning := range warnings {
		if !slices.Contains(once, warning) {
			once = append(once, warning)
		}
	}
	return once
}

// stockLeaves is why stock proxies do not serve a Service.
func stockLeaves(service *corev1.Service) string {
	if name, found := service.Labels[v1alpha1.LabelServiceProxyName]; found {
		return fmt.Sprintf("the label %s leaves the Service to %s", v1alpha1.LabelServiceProxyName, cmp.Or(name, "another proxy"))
	}
	return ""
}

// portsOf are the ports of a family as stock proxies know them, with endpoints in the
// zones of their nodes: their slices need not say any, or those that they were in once.
func portsOf(eps []*discoveryv1.EndpointSlice, family corev1.IPFamily, ready []translate.Endpoint) []routing.StockPort {
	zones := make(map[string]string, len(ready))
	for i := range ready {
		zones[ready[i].Address] = ready[i].Zone
	}
	ports := slices.DeleteFunc(routing.StockPorts(eps), func(port routing.StockPort) bool { return port.Family != family })
	for _, port := range ports {
		for i := range port.Endpoints {
			e := &port.Endpoints[i]
			if zone, found := zones[e.Address]; found {
				e.Zone = zone
			}
		}
	}
	return ports
}

// stockViews is what stock proxies do with the slices as they are stored.
func stockViews(ports []routing.StockPort, clients func(*routing.StockPort) []routing.StockClient) []stockView {
	var views []stockView
	for _, port := range ports {
		index := port.Index()
		view := stockView{ports: []stockPort{{port.Name, port.Protocol}}, ready: index.Ready()}
		view.rows, view.figures = index.View(clients(&port))
		same := slices.IndexFunc(views, func(other stockView) bool {
			return other.ready == view.ready && other.figures == view.figures && reflect.DeepEqual(other.rows, view.rows)
		})
		if same >= 0 {
			views[same].ports = append(views[same].ports, view.ports...)
			continue
		}
		views = append(views, view)
	}
	return views
}

// pending says what of a decision is not in the cluster yet, as far as that is known.
func pending(in routing.Input, d routing.Decision, r *clusterReader) []string {
	if slices.Contains(r.unread, kindNodes) {
		return nil
	}
	sentences := heldText(routing.Held(in.Slices))
	endpoints, written := 0, 0
	hinted := d.Hinted()
	for _, slice := range in.Slices {
		var changed int
		switch {
		case hinted.Delivery == routing.DeliveryHints:
			changed = routing.Unwritten(slice, *hinted)
		case in.Service.Labels[v1alpha1.LabelRouted] == "true":
			_, changed = routing.Bare(slice)
		}
		if changed > 0 {
			endpoints += changed
			written++
		}
	}
	if endpoints > 0 {
		state := "not written yet"
		if routing.DroppedHints(in.Service) {
			state = "written and not stored"
		}
		sentences = append(sentences, fmt.Sprintf("%s: the hints of %s in %s differ from the plan", state,
			count(int64(endpoints), "endpoint", "endpoints"), count(int64(written), "slice", "slices")))
	}
	switch {
	case d.Delivery == routing.DeliveryGroups && !slices.Contains(r.unread, kindSlices) && !slices.Contains(r.unread, kindGroups):
		return append(sentences, pendingGroups(in, d, r.now)...)
	case d.Delivery != routing.DeliveryGroups && len(in.Groups) > 0:
		sentences = append(sentences, "not removed yet: "+count(int64(len(in.Groups)), "group", "groups"))
	}
	return sentences
}

// heldText says which endpoints zones keep although the plan takes them from there.
func heldText(held map[string][]string) []string {
	addresses := map[string][]string{}
	for _, address := range slices.Sorted(maps.Keys(held)) {
		zones := strings.Join(held[address], " and ")
		addresses[zones] = append(addresses[zones], address)
	}
	const most = 3
	var sentences []string
	for _, zones := range slices.Sorted(maps.Keys(addresses)) {
		list := addresses[zones]
		text := strings.Join(list[:min(most, len(list))], ", ")
		if more := len(list) - most; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		sentences = append(sentences, fmt.Sprintf("the plan takes from %s what it keeps for a moment: %s", zones, text))
	}
	return sentences
}

// meanwhile says what hints say of a Service that is for vicinity-proxy until it is
// handed over, in sentences; there is nothing to say of most.
func (e *explanation) meanwhile() []string {
	m := e.decision.Meanwhile
	switch {
	case m == nil:
		return nil
	case m.Delivery == routing.DeliveryNone:
		return []string{translate.HintsAreOff + ", so that all zones use all endpoints"}
	case m.Undelivered:
		return []string{"there are no hints, which cannot express it, so that all zones use all endpoints"}
	}
	var sentences []string
	for i := range m.Families {
		f := &m.Families[i]
		sentence := "hints for them; " + f.Outcome.State.String() + "; " + explain.Outcome(f.Outcome)
		if i > 0 && sentences[0] == sentence {
			break
		}
		sentences = append(sentences, sentence)
	}
	if len(sentences) > 1 {
		for i := range sentences {
			sentences[i] = string(m.Families[i].Family) + ": " + sentences[i]
		}
	}
	return append(sentences, m.Notes...)
}

func pendingGroups(in routing.Input, d routing.Decision, now time.Time) []string {
	var sentences []string
	changes := routing.Groups(in, d, routing.GroupState{
		Now: now, HandOver: awaitsProxy(in.Service, d.Delivery),
	})
	if n := changes.Writes(); n > 0 {
		sentences = append(sentences, "not written yet: "+count(int64(n), "group differs from the plan", "groups differ from the plan"))
	}
	if changes.After > 0 {
		sentences = append(sentences, "zones keep for a moment what the plan takes from them")
	}
	return sentences
}

// written says whether all of the plan is in the cluster. There may be none, or none
// that is known.
func (e *explanation) written() (all, known bool) {
	d := &e.decision
	planned := d.Delivery != routing.DeliveryNone && !d.Undelivered && len(e.families) > 0
	readable := !e.blind() && (d.Delivery != routing.DeliveryGroups || !slices.Contains(e.unread, kindGroups))
	return len(e.pending) == 0, planned && readable
}
