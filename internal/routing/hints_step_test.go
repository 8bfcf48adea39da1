package routing

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/translate"
)

// planned are the hints of the texts, made as of a plan.
func planned(texts ...string) hints.Plans {
	eps := slicesOf(texts...)
	cluster := translate.NewCluster(nil)
	plan, _ := hints.ForZones(hints.Input{
		Family: corev1.IPv4Protocol, Slices: eps, Cluster: cluster,
		Plan:      allocate.Plan{Zones: []string{"a", "b"}, Groups: []allocate.Group{{}}},
		Outcome:   allocate.Outcome{State: allocate.Allocated},
		Endpoints: translate.SliceEndpoints(eps, cluster)[corev1.IPv4Protocol],
		Assigned:  hints.Assigned(eps, corev1.IPv4Protocol),
	})
	return hints.Plans{corev1.IPv4Protocol: &plan}
}

func TestNext(t *testing.T) {
	for _, test := range []struct {
		name        string
		now, target []string
		hold        bool
		// want has the writes in their order, "name: hints held".
		want []string
		held int
	}{
		{
			name: "one slice is one write", now: []string{"a=a a=b b=b"}, target: []string{"a=b a=a b=a"},
			want: []string{"web-00: b a a"},
		},
		{
			name: "what is there already", now: []string{"a=a", "b=b"}, target: []string{"a=a", "b=b"},
		},
		{
			name: "the slice that gives comes first", now: []string{"a=a", "b=b b=b"}, target: []string{"a=b", "b=a+b b=b"},
			want: []string{"web-01: a+b b", "web-00: b"},
		},
		{
			name: "first hints, in any order", now: []string{"a", "b"}, target: []string{"a=a", "b=b"},
			want: []string{"web-00: a", "web-01: b"},
		},
		{
			name: "two slices that wait for each other", now: []string{"a=a", "b=b"}, target: []string{"a=b", "b=a"},
			want: []string{`web-00: a+b {"a":["10.1.0.1"]}`, `web-01: a+b {"b":["10.1.0.2"]}`}, held: 2,
		},
		{
			name: "and then", now: []string{"a=a+b", "b=a+b"}, target: []string{"a=b", "b=a"},
			want: []string{"web-00: b", "web-01: a"},
		},
		{
			name: "and before the time has come, which slices that do not say so come to say", now: []string{"a=a+b", "b=a+b"}, target: []string{"a=b", "b=a"}, hold: true,
			want: []string{`web-00: a+b {"a":["10.1.0.1"]}`, `web-01: a+b {"b":["10.1.0.2"]}`}, held: 2,
		},
		{
			name: "what gives goes on before the time has come", now: []string{"a=a+b", "b=b c=c"}, target: []string{"a=a", "b=b+c c=c"}, hold: true,
			want: []string{`web-00: a+b {"b":["10.1.0.1"]}`, "web-01: b+c c"}, held: 1,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			eps, plans := slicesOf(test.now...), planned(test.target...)
			step := plans.Next(eps, test.hold)
			var got []string
			for _, write := range step.Writes {
				got = append(got, strings.TrimSpace(write.Slice.Name+": "+strings.Join(hintWords(write.Endpoints), " ")+" "+write.Held))
			}
			if again := plans.Next(carriedOut(eps, step), true); len(again.Writes) > 0 || again.Held != test.held {
				t.Errorf("done, and held: %d writes and %d held", len(again.Writes), again.Held)
			}
			if !slices.Equal(got, test.want) || step.Held != test.held {
				t.Errorf("got %q and %d held, want %q and %d", got, step.Held, test.want, test.held)
			}
		})
	}
}

// world is a Service that lives through changes of its endpoints and of the nodes.
type world struct {
	zones  []string
	nodes  map[string]int
	slices []*discoveryv1.EndpointSlice
	state  *metav1.Condition
	last   *Decision
	next   int // address
}

func newWorld(t *rapid.T) *world {
	w := &world{zones: []string{"a", "b", "c", "d"}[:rapid.IntRange(1, 4).Draw(t, "zones")], nodes: map[string]int{}}
	for _, zone := range w.zones {
		w.nodes[zone] = rapid.IntRange(0, 4).Draw(t, "nodes")
	}
	w.slices = slicesOf("", "", "")[:rapid.IntRange(1, 3).Draw(t, "slices")]
	for _, slice := range w.slices {
		slice.Ports = nil
		for _, name := range rapid.SampledFrom([][]string{{"http"}, {"http"}, {"admin"}, {"http", "admin"}}).Draw(t, "ports") {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name})
		}
	}
	return w
}

// change is what happens to endpoints, as Kubernetes writes it with the webhook in
// place: a new endpoint is hinted to its zone where others have hints.
func (w *world) change(t *rapid.T) {
	slice := w.slices[rapid.IntRange(0, len(w.slices)-1).Draw(t, "slice")].DeepCopy()
	hinted := slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Hints != nil })
	switch n := len(slice.Endpoints); {
	case n == 0 || rapid.IntRange(0, 2).Draw(t, "what") == 0:
		for range rapid.IntRange(1, 5).Draw(t, "new") {
			zone := rapid.SampledFrom(w.zones).Draw(t, "zone")
			word := zone
			if rapid.IntRange(0, 4).Draw(t, "unready") == 0 {
				word += "!"
			}
			if hinted {
				word += "=" + zone
			}
			slice.Endpoints = append(slice.Endpoints, endpointsIn(w.next, word)...)
			w.next++
		}
	case rapid.Bool().Draw(t, "gone"):
		slice.Endpoints = slices.Delete(slice.Endpoints, rapid.IntRange(0, n-1).Draw(t, "which"), n)
	default:
		e := &slice.Endpoints[rapid.IntRange(0, n-1).Draw(t, "which")]
		ready := !*e.Conditions.Ready
		e.Conditions.Ready = &ready
	}
	w.replace(slice)
}

func (w *world) replace(slice *discoveryv1.EndpointSlice) {
	for i := range w.slices {
		if w.slices[i].Name == slice.Name {
			w.slices = slices.Clone(w.slices)
			w.slices[i] = slice
		}
	}
}

func (w *world) input(annotations ...string) Input {
	service := routedService(annotations...)
	if w.state != nil {
		service.Status.Conditions = []metav1.Condition{*w.state}
	}
	in := inputOf(service, nodesIn(w.nodes), w.slices)
	in.Last = w.last
	return in
}

// portZone is a port of a Service to the clients of a zone.
type portZone struct{ port, zone string }

// served counts the ready endpoints that a proxy has for each port and zone, where it
// goes by hints. In no zone at all it counts the slices of such a port.
func (w *world) served() map[portZone]int {
	counts := map[portZone]int{}
	for _, port := range []string{"http", "admin"} {
		of := map[portZone]int{}
		for _, slice := range w.slices {
			if !slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return *p.Name == port }) {
				continue
			}
			ready := slices.DeleteFunc(slices.Clone(slice.Endpoints), func(e discoveryv1.Endpoint) bool { return !*e.Conditions.Ready })
			if slices.ContainsFunc(ready, func(e discoveryv1.Endpoint) bool { return len(hints.Zones(&e)) == 0 }) {
				of = nil
				break
			}
			for zone, n := range hintedTo(ready) {
				of[portZone{port, zone}] += n
			}
			of[portZone{port, ""}]++
		}
		maps.Copy(counts, of)
	}
	return counts
}

// hintedTo counts endpoints by the zones that they are hinted to.
func hintedTo(endpoints []discoveryv1.Endpoint) map[string]int {
	zones := map[string]int{}
	for i := range endpoints {
		for _, zone := range hints.Zones(&endpoints[i]) {
			zones[zone]++
		}
	}
	return zones
}

// Whatever happens to endpoints and nodes, what is written is valid, no zone that has
// endpoints and keeps some is without any between two writes, in the end the slices
// say what the decision says, and whoever decides then moves nothing.
func TestStepsAreSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		asked := rapid.SampledFrom([][]string{
			{sameZone, "Prefer"},
			{keys, "topology.kubernetes.io/zone,*"},
			{keys, "kubernetes.io/hostname,topology.kubernetes.io/zone,topology.kubernetes.io/region,*"},
		}).Draw(t, "asked")
		for range rapid.IntRange(1, 12).Draw(t, "changes") {
			if rapid.IntRange(0, 3).Draw(t, "nodes change") == 0 {
				w.nodes[rapid.SampledFrom(w.zones).Draw(t, "zone")] = rapid.IntRange(0, 4).Draw(t, "nodes")
			}
			w.change(t)
			if rapid.IntRange(0, 4).Draw(t, "restart") == 0 {
				w.last = nil
			}
			d := decided(t, w.input(asked...))
			w.last = d.Essence()
			condition := d.Condition()
			w.state = &condition
			w.carryOut(t, d, asked)
			w.restartMovesNothing(t, asked)
		}
	})
}

// carryOut makes all steps, the second after the grace. Whoever starts between them
// finds the plan that was decided.
func (w *world) carryOut(t *rapid.T, d Decision, asked []string) {
	t.Helper()
	for round := 0; ; round++ {
		step := d.Hints().Next(w.slices, false)
		if len(step.Writes) == 0 {
			break
		}
		if round > 1 {
			t.Fatalf("a third step:\n%s", hintText(w.slices, d))
		}
		final := (&world{slices: carriedOut(w.slices, step)}).served()
		before := w.served()
		for i := range step.Writes {
			w.slices = carriedOut(w.slices, hints.Step{Writes: step.Writes[i : i+1]})
			between := w.served()
			for zone := range before {
				if between[portZone{zone.port, ""}] > 0 && final[zone] > 0 && between[zone] < min(before[zone], final[zone]) {
					t.Fatalf("after write %d of %d zone %s has %d endpoints, had %d and gets %d", i+1, len(step.Writes), zone, between[zone], before[zone], final[zone])
				}
			}
			for _, slice := range w.slices {
				validHints(t, slice)
			}
		}
		w.readBack(t, d, asked)
	}
	for _, slice := range w.slices {
		if _, changed := d.Hints().Apply(slice); changed > 0 {
			t.Fatalf("%d endpoints of %s are not as decided", changed, slice.Name)
		}
	}
}

func (w *world) restartMovesNothing(t *rapid.T, asked []string) {
	t.Helper()
	last := w.last
	w.last = nil
	again := decided(t, w.input(asked...))
	w.last = last
	if step := again.Hints().Next(w.slices, false); len(step.Writes) > 0 {
		t.Fatalf("a restart writes %d slices:\nis   %s\nwant %s", len(step.Writes), hintText(w.slices, Decision{}), hintText(w.slices, again))
	}
	for _, f := range again.Families {
		if f.Moved > 0 && !f.Outcome.IsBalanced() {
			t.Fatalf("a restart moves %d endpoints", f.Moved)
		}
	}
}

// readBack decides as after a restart, and compares that with what was decided.
func (w *world) readBack(t *rapid.T, d Decision, asked []string) {
	t.Helper()
	restarted := *w
	restarted.last = nil
	again := decided(t, restarted.input(asked...))
	for i := range d.Families {
		before, after := &d.Families[i], &again.Families[i]
		if !before.Outcome.IsBalanced() && before.hints.Wanted && !maps.Equal(before.Assigned, after.Assigned) {
			t.Fatalf("the plan is read back otherwise from %s:\nis  %v\nwas %v", hintText(w.slices, Decision{}), after.Assigned, before.Assigned)
		}
	}
}

// validHints applies the rules of the API server to the hints of a slice.
func validHints(t *rapid.T, slice *discoveryv1.EndpointSlice) {
	t.Helper()
	for i := range slice.Endpoints {
		hints := slice.Endpoints[i].Hints
		if hints == nil {
			continue
		}
		zones, nodes := map[string]bool{}, map[string]bool{}
		for _, zone := range hints.ForZones {
			if errs := validation.IsValidLabelValue(zone.Name); len(errs) > 0 || zone.Name == "" {
				t.Fatalf("zone %q: %v", zone.Name, errs)
			}
			zones[zone.Name] = true
		}
		for _, node := range hints.ForNodes {
			if errs := validation.IsDNS1123Subdomain(node.Name); len(errs) > 0 {
				t.Fatalf("node %q: %v", node.Name, errs)
			}
			nodes[node.Name] = true
		}
		if len(zones) != len(hints.ForZones) || len(nodes) != len(hints.ForNodes) || len(zones) > 8 || len(nodes) > 8 || len(zones)+len(nodes) == 0 {
			t.Fatalf("hints %+v", hints)
		}
	}
}
