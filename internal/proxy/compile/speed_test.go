package compile

import (
	"fmt"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// worldOf has so many endpoints, a third of them in each of three zones, ten on a node,
// in slices of a hundred and in groups of each zone's own.
func worldOf(n int, tiers string, weighted bool) Input {
	in := Input{Service: testService(ours, nodePort)}
	zones := []string{"a", "b", "c"}
	groups := map[string]*v1alpha1.EndpointGroup{}
	var slice *discoveryv1.EndpointSlice
	for i := range n {
		if i%100 == 0 {
			slice = sliceOf(fmt.Sprintf("s%05d", i), "")
			in.Slices = append(in.Slices, slice)
		}
		// In the order in which addresses come, which is none.
		place := i * 7919 % n
		word := fmt.Sprintf("%d@%s%d", place, zones[i%3], i/30+1)
		slice.Endpoints = append(slice.Endpoints, sliceEndpoint(word+"="+zones[i%3]))
		text := " -> a tiers " + tiers
		if weighted && i%10 == 0 {
			text = " -> a*370 b*630 tiers " + tiers
		}
		if g := groups[text]; g == nil || len(g.Spec.Endpoints) == 100 {
			groups[text] = groupOf(fmt.Sprintf("g%05d", i), text)
			in.Groups = append(in.Groups, groups[text])
		}
		groups[text].Spec.Endpoints = append(groups[text].Spec.Endpoints, groupEndpoint(word))
	}
	return in
}

func BenchmarkService(b *testing.B) {
	for _, n := range []int{10, 1000, 100000} {
		for _, source := range []string{"slices", "groups", "tiers", "weights"} {
			tiers := "*"
			if source == "tiers" {
				tiers = "kubernetes.io/hostname,topology.kubernetes.io/zone,*"
			}
			in := worldOf(n, tiers, source == "weights")
			options := Options{Node: testNodeA(), AllServices: source == "slices"}
			if source == "slices" {
				in.Groups = nil
			}
			b.Run(fmt.Sprintf("%s/%d", source, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if r := Service(in, options); len(r.Families[0].Ports[0].Cluster) == 0 {
						b.Fatal("no endpoints")
					}
				}
			})
		}
	}
}
