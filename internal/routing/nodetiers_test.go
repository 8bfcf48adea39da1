package routing

import (
	"fmt"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/stock"
)

// busyNode has two endpoints on a-1. The node has a quarter of the traffic, so each would get twice the even share.
const busyNode = "a@a-1 a@a-1 a@a-2 a@a-2 a@a-2 a@a-2 a@a-2 a@a-2 b@b-1 b@b-1 b@b-1 b@b-1 b@b-2 b@b-2 b@b-2 b@b-2"

var twoByTwo = map[string]int{"a": 2, "b": 2}

func preferOwnNode(service *corev1.Service) *corev1.Service {
	service.Annotations[v1alpha1.AnnotationSameNode] = v1alpha1.Prefer
	return service
}

// loadsByHints returns the loads of endpoints if stock proxies follow the hints of a decision, by address.
func loadsByHints(t *testing.T, in Input, d Decision) (map[string]float64, allocate.Figures) {
	t.Helper()
	eps := applyStep(in.Slices, d.Hints().Next(in.Slices, false))
	clients := stock.Clients(in.Cluster, d.Request.Capacity)
	index := stock.Ports(eps)[0].Index()
	loads := map[string]float64{}
	for _, client := range clients {
		chosen := index.Choose(client.Node, client.Zone).Endpoints
		for _, e := range chosen {
			loads[e.Address] += client.Share / float64(len(chosen)) * float64(index.Ready())
		}
	}
	_, figures := index.View(clients)
	return loads, figures
}

func TestNodeTierHints(t *testing.T) {
	const no = "/" + hints.NoNode
	evenB := strings.Repeat(" b@b-1", 4) + strings.Repeat(" b@b-2", 4)
	hintedB := strings.Repeat(" b/b-1", 4) + strings.Repeat(" b/b-2", 4)
	for _, test := range []struct {
		name, slices, want, skipped string
		nodes                       map[string]int
	}{
		{
			name: "all nodes may use their own", nodes: twoByTwo,
			slices: "a@a-1 a@a-1 a@a-1 a@a-1 a@a-2 a@a-2 a@a-2 a@a-2" + evenB,
			want:   "a/a-1 a/a-1 a/a-1 a/a-1 a/a-2 a/a-2 a/a-2 a/a-2" + hintedB,
		},
		{
			name: "one would overload its own", nodes: twoByTwo, slices: busyNode,
			want: "a" + no + " a" + no + strings.Repeat(" a/a-2", 6) + hintedB, skipped: "a-1",
		},
		{
			name: "what is not ready yet there does not make it use its own", nodes: twoByTwo, slices: busyNode + " a@a-1! a@a-2!",
			want: "a" + no + " a" + no + strings.Repeat(" a/a-2", 6) + hintedB + " a" + no + " a/a-2", skipped: "a-1",
		},
		{
			name: "what others add counts", nodes: map[string]int{"a": 4, "b": 4},
			// a-1 alone loads its 3 endpoints to 1.04. a-3 and a-4 have no endpoints, so they add 0.36.
			slices: "a@a-1 a@a-1 a@a-1 a@a-2 a@a-2 a@a-2 a@a-2 a@a-2 a@a-2 a@a-2 a@a-2 a@a-2 a@a-2" + strings.Repeat(" b@b-1 b@b-2 b@b-3 b@b-4", 3),
			want:   "a" + no + " a" + no + " a" + no + strings.Repeat(" a/a-2", 10) + strings.Repeat(" b/b-1 b/b-2 b/b-3 b/b-4", 3), skipped: "a-1",
		},
		{
			name: "an endpoint that its zone gives away is nothing for its node", nodes: map[string]int{"a": 1, "b": 1, "c": 1},
			slices: "a a a a a a b b b b c c",
			want:   "a/a-1 a/a-1 a/a-1 a/a-1 c" + no + " c" + no + " b/b-1 b/b-1 b/b-1 b/b-1 c" + no + " c" + no, skipped: "c-1",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := inputOf(preferOwnNode(routedService(v1alpha1.AnnotationSameZone, v1alpha1.Prefer)), nodesIn(test.nodes), slicesOf(test.slices))
			d := mustDecide(t, in)
			if got := hintText(in.Slices, d); got != test.want {
				t.Errorf("got\n%s, want\n%s", got, test.want)
			}
			if got := skippedText(d); got != test.skipped {
				t.Errorf("skipped %q, want %q", got, test.skipped)
			}
			loads, figures := loadsByHints(t, in, d)
			if got := d.Families[0].Outcome.Figures; math.Abs(got.Overload-figures.Overload) > 1e-9 || math.Abs(got.InZone-figures.InZone) > 1e-9 {
				t.Errorf("predicted %+v, stock proxies make %+v: %v", got, figures, loads)
			}
		})
	}
}

func skippedText(d Decision) string {
	var skipped []string
	for _, skip := range d.Families[0].Nodes.Skips {
		skipped = append(skipped, skip.Domain)
	}
	return strings.Join(skipped, " ")
}

// A skipped domain is used again only when its load would be well below the threshold. The last decision, the hints and
// the groups all remember the skip.
func TestSkippedNodesDoNotFlap(t *testing.T) {
	// a-1 has a quarter of the traffic. Each of its endpoints gets the even share if it has 4 of 16, 4/3 of it with 3, twice
	// with 2, and 1.42 times with 3 of 17.
	on := func(a1, others int) string {
		return strings.Repeat("a@a-1 ", a1) + strings.Repeat("a@a-2 ", 16-8-a1) + strings.Repeat("b@b-1 b@b-2 ", 4) + strings.Repeat("b@b-1 ", others)
	}
	for _, groups := range []bool{false, true} {
		for _, remembered := range []bool{false, true} {
			t.Run(fmt.Sprintf("groups %t, remembered %t", groups, remembered), func(t *testing.T) {
				service := preferOwnNode(routedService(v1alpha1.AnnotationSameZone, v1alpha1.Prefer))
				if groups {
					service.Annotations[v1alpha1.AnnotationProxy] = "true"
					service.Labels = map[string]string{v1alpha1.LabelServiceProxyName: v1alpha1.ServiceProxyName}
				}
				w := newGroupWorld(t, inputOf(service, nodesIn(twoByTwo), nil))
				for _, step := range []struct{ slices, want string }{
					{on(3, 1), ""}, {on(2, 0), "a-1"}, {on(3, 1), "a-1"}, {on(2, 0), "a-1"}, {on(3, 1), "a-1"}, {on(3, 0), ""}, {on(3, 1), ""},
				} {
					kept := map[string]*discoveryv1.EndpointHints{}
					for _, slice := range w.in.Slices {
						for _, e := range slice.Endpoints {
							kept[*e.NodeName] = e.Hints
						}
					}
					w.in.Slices = slicesOf(step.slices)
					for i := range w.in.Slices[0].Endpoints {
						e := &w.in.Slices[0].Endpoints[i]
						e.Hints = kept[*e.NodeName]
					}
					if !remembered {
						w.in.Last = nil
					}
					d := mustDecide(t, w.input())
					if got := skippedText(d); got != step.want {
						t.Fatalf("%s: skipped %q, want %q", step.slices, got, step.want)
					}
					if w.in.Last = d.Essence(); groups {
						w.settle(d, GroupState{})
					} else {
						w.in.Slices = applyStep(w.in.Slices, d.Hints().Next(w.in.Slices, false))
					}
				}
			})
		}
	}
}

// Groups give the endpoints of a skipped domain an empty domain, and remove it when the domain is no longer skipped.
func TestGroupsOfSkippedNodes(t *testing.T) {
	service := routedService(v1alpha1.AnnotationSameZone, v1alpha1.Prefer, v1alpha1.AnnotationProxy, "true")
	w := newGroupWorld(t, inputOf(preferOwnNode(service), nodesIn(twoByTwo), slicesOf(busyNode)))
	w.settle(w.decide(), GroupState{})
	domains := func() string {
		var words []string
		for _, g := range w.groups {
			for i := range g.Spec.Endpoints {
				if e := &g.Spec.Endpoints[i]; e.Domains != nil {
					words = append(words, fmt.Sprintf("%s%v", e.Node, e.Domains))
				}
			}
		}
		return strings.Join(words, " ")
	}
	if got, want := domains(), "a-1map[kubernetes.io/hostname:] a-1map[kubernetes.io/hostname:]"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	w.in.Slices = slicesOf(strings.ReplaceAll(busyNode, "a@a-2 a@a-2", "a@a-1 a@a-2"))
	w.settle(w.decide(), GroupState{})
	if got := domains(); got != "" {
		t.Errorf("with as many endpoints on a-1 as elsewhere: %q", got)
	}
}
