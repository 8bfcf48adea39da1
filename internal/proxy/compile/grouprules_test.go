package compile

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/test/nearest"
)

// groupReader is a node that reads groups as the API documents them.
type groupReader struct {
	Node
	groups []*v1alpha1.EndpointGroup // in the order of names
}

// groupEntry is an endpoint as a group describes it.
type groupEntry struct {
	group *v1alpha1.EndpointGroup
	v1alpha1.GroupEndpoint
}

// leaves reports whether the endpoint terminates but serves.
func (s groupEntry) leaves() bool { return s.NotReady && s.Terminating && !s.NotServing }

// endpoints returns the groups' descriptions of all endpoints, by address and port. If two pods have an address one
// after the other, it has only the pod that stays.
func (r groupReader) endpoints() map[string][]groupEntry {
	all := map[string][]groupEntry{}
	for _, g := range r.groups {
		for _, e := range g.Spec.Endpoints {
			at := netip.AddrPortFrom(netip.MustParseAddr(e.Address), uint16(g.Spec.Ports[0].Port)).String()
			all[at] = append(all[at], groupEntry{g, e})
		}
	}
	for at, list := range all {
		worse := func(s groupEntry) string { return fmt.Sprint(s.Terminating, s.NotReady, s.NotServing) }
		slices.SortStableFunc(list, func(a, b groupEntry) int { return strings.Compare(worse(a), worse(b)) })
		counts := list[0]
		all[at] = slices.DeleteFunc(list, func(s groupEntry) bool { return s.Node != counts.Node })
		for i := range all[at] { // all have the state of the first
			s := &all[at][i]
			s.NotReady, s.NotServing, s.Terminating = counts.NotReady, counts.NotServing, counts.Terminating
		}
	}
	return all
}

// visible reports whether the node watches a group.
func (r groupReader) visible(g *v1alpha1.EndpointGroup) bool {
	return r.Zone == "" || g.Labels[v1alpha1.LabelNotForPrefix+r.Zone] == ""
}

// uses reports whether the node uses a group, and the weight of its endpoints.
func (r groupReader) uses(g *v1alpha1.EndpointGroup) (weight float64, used bool) {
	if !r.visible(g) {
		return 0, false
	}
	for _, c := range g.Spec.Consumers {
		if c.Zone == r.Zone && r.Zone != "" {
			return float64(c.Weight), true
		}
	}
	home := r.Zone != "" && slices.ContainsFunc(g.Spec.Endpoints, func(e v1alpha1.GroupEndpoint) bool { return e.Zone == r.Zone })
	return 1000, !g.Spec.LocalOnly || !home
}

// labels returns the labels of an endpoint's node, as far as they matter. An endpoint on the own node has the node's
// labels.
func (r groupReader) labels(s groupEntry) topology.Labels {
	if s.Node == r.Name {
		return r.own()
	}
	labels := topology.Labels{topology.Hostname: s.Node, topology.Zone: s.Zone}
	for key, value := range s.Domains {
		if key != topology.Zone {
			labels[key] = value
		}
	}
	return labels
}

func (r groupReader) own() topology.Labels {
	return topology.Labels{topology.Hostname: r.Labels[topology.Hostname], topology.Zone: r.Zone, "rack": r.Labels["rack"]}
}

// cluster returns the endpoints for traffic that may go anywhere, with their weights, and whether hard tiers exclude all
// existing endpoints.
func (r groupReader) cluster() (weights map[string]float64, beyond bool) {
	all := r.endpoints()
	exists, hard := false, false
	for _, list := range all {
		exists = exists || !list[0].NotReady || list[0].leaves()
	}
	for _, g := range r.groups {
		if r.visible(g) {
			exists = exists || g.Spec.AnyReady
			hard = hard || topology.Tiers(g.Spec.Tiers).Hard()
		}
	}
	weights = r.taken(all, func(s groupEntry) bool { return !s.NotReady })
	if len(weights) == 0 {
		weights = r.taken(all, groupEntry.leaves)
	}
	return weights, hard && exists && len(weights) == 0
}

// taken returns the endpoints that meet a condition and that the node uses, with their weights.
func (r groupReader) taken(all map[string][]groupEntry, takes func(groupEntry) bool) map[string]float64 {
	byTiers := map[string][]groupEntry{}
	ats := map[string][]string{}
	for at, list := range all {
		for _, s := range list {
			if _, used := r.uses(s.group); used && takes(s) {
				tiers := strings.Join(s.group.Spec.Tiers, ",")
				byTiers[tiers], ats[tiers] = append(byTiers[tiers], s), append(ats[tiers], at)
			}
		}
	}
	weights := map[string]float64{}
	for text, list := range byTiers {
		var tiers topology.Tiers
		if text != "" {
			tiers = strings.Split(text, ",")
		}
		var nodes []topology.Labels
		for _, s := range list {
			nodes = append(nodes, r.labels(s))
		}
		for _, i := range nearest.Select(tiers, r.own(), nodes) {
			weight, _ := r.uses(list[i].group)
			weights[ats[text][i]] = max(weights[ats[text][i]], weight)
		}
	}
	return weights
}

// The result matches a second implementation of the API's documentation, for any groups, including contradictory ones.
func TestGroupsMatchTheDocumentation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawReader(t)
		got := compiledSafely(t, Input{Service: testService(ours), Groups: r.groups}, Options{Node: r.Node})
		want, beyond := r.cluster()
		checkFamily(t, got.Families[0])
		checkShares(t, &got.Families[0].Ports[0], want)
		if unreachable := len(got.Families[0].Unreachable) > 0; unreachable != beyond {
			t.Fatalf("unreachable is %t, want %t", unreachable, beyond)
		}
	})
}

// drawReader draws a node and the groups that it reads.
func drawReader(t *rapid.T) groupReader {
	r := groupReader{Node: testNodeA()}
	r.Zone = rapid.SampledFrom([]string{"a", "a", "b", ""}).Draw(t, "zone")
	r.Labels = map[string]string{
		topology.Hostname: rapid.SampledFrom([]string{"a1", "host"}).Draw(t, "hostname"),
		"rack":            rapid.SampledFrom([]string{"r1", ""}).Draw(t, "rack"),
	}
	tiers := []string{"", "", "kubernetes.io/hostname,*", "topology.kubernetes.io/zone", "rack,topology.kubernetes.io/zone,*", "kubernetes.io/hostname"}
	domains := []string{"", "", "%rack=r1", "%rack=r2", "%kubernetes.io/hostname=host", "%kubernetes.io/hostname=a1"}
	few := rapid.IntRange(1, 2).Draw(t, "kinds of tiers")
	for i := range rapid.IntRange(1, 6).Draw(t, "groups") {
		text := ""
		for range rapid.IntRange(0, 5).Draw(t, "endpoints") {
			text += fmt.Sprintf("%d@%s%s%s ", rapid.IntRange(1, 9).Draw(t, "address"),
				rapid.SampledFrom([]string{"a1", "a2", "b1", "c1"}).Draw(t, "node"),
				rapid.SampledFrom([]string{"", "", "!", "-", "~"}).Draw(t, "state"),
				rapid.SampledFrom(domains).Draw(t, "domain"))
		}
		text += "->"
		for _, zone := range anyOf(t, "consumer", "a", "b") {
			text += fmt.Sprintf(" %s*%d", zone, rapid.SampledFrom([]int{1000, 1000, 500, 333, 77}).Draw(t, "weight"))
		}
		for _, zone := range anyOf(t, "not for", "a", "b") {
			text += " not " + zone
		}
		if keys := tiers[rapid.IntRange(0, len(tiers)-1).Draw(t, "tiers")%(few*3)]; keys != "" {
			text += " tiers " + keys
		}
		for _, word := range anyOf(t, "says", "local", "none-ready") {
			text += " " + word
		}
		g := groupOf(fmt.Sprintf("g%d", i), text)
		g.Spec.Ports[0].Port = rapid.SampledFrom([]int32{8080, 8080, 8080, 9090}).Draw(t, "port")
		r.groups = append(r.groups, g)
	}
	return r
}

// The DNS answer for a client on a node, by package endpoint, has the ready endpoints that the node's rules use.
func TestNamesAgreeWithRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawReader(t)
		for _, g := range r.groups {
			g.Spec.Ports[0].Port = 8080
		}
		var ready []netip.Addr
		for at, entries := range r.endpoints() {
			if !entries[0].NotReady {
				ready = append(ready, netip.MustParseAddrPort(at).Addr())
			}
		}
		slices.SortFunc(ready, netip.Addr.Compare)
		chosen := endpoint.NewSet(corev1.IPv4Protocol, r.groups, nil).Choose(endpoint.Client{Node: r.Name, Zone: r.Zone, Labels: r.Labels}, ready)

		var want, got []netip.Addr
		for i, address := range ready {
			if chosen.Takes[i] && !chosen.All {
				want = append(want, address)
			}
		}
		rules := compiledSafely(t, Input{Service: testService(ours), Groups: r.groups}, Options{Node: r.Node})
		for _, target := range rules.Families[0].Ports[0].Cluster {
			// As a last resort the rules use what terminates, which has no record.
			if slices.Contains(ready, target.Addr()) {
				got = append(got, target.Addr())
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("the rules use %v, names give %v", got, want)
		}
		if len(want) == 0 && len(ready) > 0 && chosen.Hard == chosen.All {
			t.Fatalf("nothing is near: hard is %t, all is %t", chosen.Hard, chosen.All)
		}
	})
}

// checkShares compares the shares of targets with what they weigh.
func checkShares(t *rapid.T, port *ruleset.ServicePort, want map[string]float64) {
	sum := 0.0
	for _, weight := range want {
		sum += weight
	}
	shares := port.Shares()
	for i, target := range port.Cluster {
		if right := want[target.String()] / sum; math.Abs(shares[i]-right) > 0.01 {
			t.Fatalf("%s has %.4f of the traffic, it should have %.4f: %v of %v", target, shares[i], right, port.Weights, want)
		}
	}
	if len(port.Cluster) != len(want) {
		t.Fatalf("got %v, want %v", port.Cluster, want)
	}
}
