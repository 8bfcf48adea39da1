package routing

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// planned returns plans for the hints in the texts.
func planned(texts ...string) hints.Plans {
	eps := slicesOf(texts...)
	cluster := intent.NewCluster(nil)
	plan, _ := hints.ForZones(hints.Input{
		Family: corev1.IPv4Protocol, Slices: eps, Cluster: cluster,
		Plan:      allocate.Plan{Zones: []string{"a", "b"}, Groups: []allocate.Group{{}}},
		Outcome:   allocate.Outcome{State: allocate.Allocated},
		Endpoints: intent.SliceEndpoints(eps, cluster)[corev1.IPv4Protocol],
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
			if again := plans.Next(applyStep(eps, step), true); len(again.Writes) > 0 || again.Held != test.held {
				t.Errorf("done, and held: %d writes and %d held", len(again.Writes), again.Held)
			}
			if !slices.Equal(got, test.want) || step.Held != test.held {
				t.Errorf("got %q and %d held, want %q and %d", got, step.Held, test.want, test.held)
			}
		})
	}
}

// Two steps lead from any hints to any others. Each write is valid, and after each one a zone has at least as many
// endpoints as before the step or as in the plan, whichever is less.
func TestStepsAreSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var now, target []string
		for range rapid.IntRange(1, 3).Draw(t, "slices") {
			from := rapid.SampledFrom([][]string{{"=a", "=b", "=c", "=a+b"}, {"=a", "=b"}, {"=a", ""}}).Draw(t, "from")
			var is, gets string
			for range rapid.IntRange(0, 5).Draw(t, "endpoints") {
				word := " " + rapid.SampledFrom([]string{"a", "b", "c", "a!"}).Draw(t, "zone")
				is += word + rapid.SampledFrom(from).Draw(t, "is hinted to")
				gets += word + rapid.SampledFrom([]string{"=a", "=b", "=c", "=b+c"}).Draw(t, "gets")
			}
			now, target = append(now, is), append(target, gets)
		}
		eps, plans := slicesOf(now...), planned(target...)
		for _, slice := range eps {
			slice.Ports = nil
			for _, name := range rapid.SampledFrom([][]string{{"http"}, {"admin"}, {"http", "admin"}}).Draw(t, "ports") {
				slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: &name})
			}
		}
		for range 2 {
			step := plans.Next(eps, false)
			before, planned := servedBy(eps), servedBy(applyPlans(plans, eps))
			for i := range step.Writes {
				eps = applyStep(eps, hints.Step{Writes: step.Writes[i : i+1]})
				between := servedBy(eps)
				for at := range before {
					if between[portZone{at.port, ""}] > 0 && between[at] < min(before[at], planned[at]) {
						t.Fatalf("after write %d of %d %+v has %d endpoints, had %d and gets %d", i+1, len(step.Writes), at, between[at], before[at], planned[at])
					}
				}
				for _, slice := range eps {
					checkValid(t, slice)
				}
			}
		}
		if step := plans.Next(eps, false); len(step.Writes) > 0 {
			t.Fatalf("a third step of %d writes", len(step.Writes))
		}
	})
}

// applyPlans returns copies of slices with all hints of the plans.
func applyPlans(plans hints.Plans, eps []*discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var applied []*discoveryv1.EndpointSlice
	for _, slice := range eps {
		slice = slice.DeepCopy()
		slice.Endpoints, _ = plans.Apply(slice)
		applied = append(applied, slice)
	}
	return applied
}

// portZone is a port of a Service to the clients of a zone.
type portZone struct{ port, zone string }

// servedBy counts the ready endpoints that a proxy uses for each port and zone by hints. The empty zone has the number of
// slices of such a port.
func servedBy(eps []*discoveryv1.EndpointSlice) map[portZone]int {
	counts := map[portZone]int{}
	for _, port := range []string{"http", "admin"} {
		maps.Copy(counts, servedOn(eps, port))
	}
	return counts
}

func servedOn(eps []*discoveryv1.EndpointSlice, port string) map[portZone]int {
	counts := map[portZone]int{}
	for _, slice := range eps {
		if !slices.ContainsFunc(slice.Ports, func(p discoveryv1.EndpointPort) bool { return *p.Name == port }) {
			continue
		}
		counts[portZone{port, ""}]++
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if !*e.Conditions.Ready {
				continue
			}
			zones := hints.Zones(e)
			if len(zones) == 0 {
				return nil // proxies use all endpoints
			}
			for _, zone := range zones {
				counts[portZone{port, zone}]++
			}
		}
	}
	return counts
}

// checkValid applies the rules of the API server to the hints of a slice.
func checkValid(t *rapid.T, slice *discoveryv1.EndpointSlice) {
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
