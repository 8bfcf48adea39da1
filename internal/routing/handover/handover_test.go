package handover

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// groupAt returns a group with the fields that a hand-over reads.
func groupAt(version string, notFor ...string) *v1alpha1.EndpointGroup {
	g := &v1alpha1.EndpointGroup{ObjectMeta: metav1.ObjectMeta{Name: "web-" + version, ResourceVersion: version, Labels: map[string]string{}}}
	for _, zone := range notFor {
		g.Labels[v1alpha1.LabelNotForPrefix+zone] = "true"
	}
	return g
}

func TestHandOverNext(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	fresh, stale := now.Add(-44*time.Second), now.Add(-45*time.Second)
	groups := []*v1alpha1.EndpointGroup{groupAt("98", "b"), groupAt("101", "a")}
	ready := []NodeProxy{{"a1", "a", fresh, "98", "", time.Time{}, time.Time{}}, {"b1", "b", fresh, "101", "", time.Time{}, time.Time{}}}
	taking := func(others ...NodeProxy) State {
		return State{Wanted: true, Groups: groups, Written: true, Proxies: append(others, ready...)}
	}
	served := func(others ...NodeProxy) State {
		state := taking(others...)
		state.ProxyName = v1alpha1.ServiceProxyName
		return state
	}
	for _, test := range []struct {
		name  string
		state State
		want  string // phase, what to do, when to look again, who is missing
		note  string // part of the notes
	}{
		{name: "nothing", state: State{}, want: "Idle"},
		{name: "headless, and nothing", state: State{Headless: true}, want: "Idle"},
		{name: "headless: no proxy is waited for", state: State{Headless: true, Wanted: true, Groups: groups, Written: true}, want: "Idle"},
		{name: "headless: no grace", state: State{Headless: true, Groups: groups, Written: true, Grace: time.Minute}, want: "Left"},
		{name: "headless, with the label of vicinity-proxy", state: State{Headless: true, Wanted: true, ProxyName: v1alpha1.ServiceProxyName, Groups: groups, Written: true}, want: "Idle release"},
		{name: "not all groups are written", state: State{Wanted: true, Groups: groups, Proxies: ready, Memory: Memory{Begun: VersionsOf(groups)}}, want: "Taking"},
		{name: "all proxies have what they see", state: taking(), want: "Taking take"},
		{name: "a node of no zone has to have all", state: taking(NodeProxy{"x", "", fresh, "100", "", time.Time{}, time.Time{}}), want: "Taking x", note: "node x"},
		{
			name: "a proxy is behind, one has nothing, one is silent, one was never there",
			state: State{Wanted: true, Groups: groups, Written: true, Proxies: []NodeProxy{
				{"b1", "b", fresh, "99", "", time.Time{}, time.Time{}}, {"a2", "a", fresh, "", "", time.Time{}, time.Time{}}, {"a3", "a", stale, "200", "", time.Time{}, time.Time{}}, {"a4", "a", time.Time{}, "200", "", time.Time{}, time.Time{}}, {"a1", "a", fresh, "98", "", time.Time{}, time.Time{}},
			}},
			want: "Taking a2,a3,a4,b1", note: "nodes a2, a3, a4, b1",
		},
		{
			name: "a proxy has all but of this Service, one but of another",
			state: State{Service: "shop/web", Wanted: true, Groups: groups, Written: true, Proxies: []NodeProxy{
				{"a1", "a", fresh, "98", "shop/cart,shop/web", time.Time{}, time.Time{}}, {"b1", "b", fresh, "101", "shop/cart", time.Time{}, time.Time{}},
			}},
			want: "Taking a1", note: "node a1",
		},
		{
			name: "a proxy has all but of this namespace, one but of another with a like name",
			state: State{Service: "shop/web", Wanted: true, Groups: groups, Written: true, Proxies: []NodeProxy{
				{"a1", "a", fresh, "98", "bank/cart,shop/*", time.Time{}, time.Time{}}, {"b1", "b", fresh, "101", "sho/*,shop/web2,shop-2/*", time.Time{}, time.Time{}},
			}},
			want: "Taking a1", note: "node a1",
		},
		{
			name: "what changed meanwhile need not be acknowledged",
			state: State{
				Wanted: true, Groups: []*v1alpha1.EndpointGroup{groupAt("98", "b"), groupAt("300", "a")}, Written: true,
				Proxies: ready, Memory: Memory{Begun: VersionsOf(groups)},
			},
			want: "Taking take",
		},
		{
			name: "none of the groups that it began with is left",
			state: State{
				Wanted: true, Groups: []*v1alpha1.EndpointGroup{groupAt("300")}, Written: true,
				Proxies: ready, Memory: Memory{Begun: VersionsOf(groups)},
			},
			want: "Taking a1,b1", note: "until vicinity-proxy is ready on nodes a1, b1",
		},
		{
			name:  "Kubernetes has not made all slices",
			state: State{Wanted: true, Unsliced: corev1.IPv6Protocol, Groups: groups, Written: true, Proxies: ready},
			want:  "Taking", note: "until Kubernetes has made its EndpointSlices of IPv6",
		},
		{
			name:  "served, and the slices were deleted",
			state: State{Wanted: true, ProxyName: "vicinity", Unsliced: corev1.IPv6Protocol, Groups: groups, Written: true, Proxies: ready},
			want:  "Served",
		},
		{name: "no node", state: State{Wanted: true, Groups: groups, Written: true}, want: "Taking", note: "no node is selected for vicinity-proxy"},
		{
			name:  "a node without a proxy is not ready since a while",
			state: taking(NodeProxy{"c1", "c", time.Time{}, "", "", now.Add(-299 * time.Second), time.Time{}}),
			want:  "Taking c1", note: "until vicinity-proxy is ready on node c1",
		},
		{
			name:  "a node is down, and its Lease is old",
			state: taking(NodeProxy{"c1", "c", stale, "200", "", now.Add(-300 * time.Second), time.Time{}}),
			want:  "Taking take", note: "nothing waits for vicinity-proxy on node c1, down for more than 5 minutes",
		},
		{
			name:  "one node is down, and another has no proxy",
			state: taking(NodeProxy{"c1", "c", time.Time{}, "", "", now.Add(-time.Hour), time.Time{}}, NodeProxy{"c2", "c", time.Time{}, "", "", time.Time{}, time.Time{}}),
			want:  "Taking c2", note: "ready on node c2. nothing waits for vicinity-proxy on node c1",
		},
		{
			name:  "a node is not ready since long, and its proxy lives",
			state: taking(NodeProxy{"c1", "c", fresh, "97", "", now.Add(-time.Hour), time.Time{}}),
			want:  "Taking c1", note: "until vicinity-proxy is ready on node c1",
		},
		{
			name: "all nodes are down",
			state: State{
				Wanted: true, Groups: groups, Written: true,
				Proxies: []NodeProxy{{"c1", "c", time.Time{}, "", "", now.Add(-time.Hour), time.Time{}}},
			},
			want: "Taking", note: "all nodes that are selected for vicinity-proxy are down",
		},
		{name: "served", state: served(), want: "Served"},
		{name: "served, and a node has no proxy", state: served(NodeProxy{"new", "b", time.Time{}, "", "", time.Time{}, time.Time{}}), want: "Served new", note: "vicinity-proxy does not answer on node new"},
		{name: "served, and a node has just become ready", state: served(NodeProxy{"new", "b", time.Time{}, "", "", time.Time{}, now.Add(-44 * time.Second)}), want: "Served"},
		{
			name:  "served, a node is not ready, and another is down",
			state: served(NodeProxy{"c1", "c", stale, "", "", now.Add(-time.Minute), time.Time{}}, NodeProxy{"c2", "c", stale, "", "", now.Add(-time.Hour), time.Time{}}),
			want:  "Served", note: "nothing waits for vicinity-proxy on node c2",
		},
		{name: "not wanted any more", state: State{ProxyName: "vicinity", Groups: groups, Grace: 10 * time.Second}, want: "Returning release 10s"},
		{name: "kube-proxy takes over", state: State{Groups: groups, Grace: 10 * time.Second, Memory: Memory{Returned: now.Add(-4 * time.Second)}}, want: "Returning 6s"},
		{
			name:  "kube-proxy does not see the slices yet",
			state: State{Groups: groups, Hidden: "web-1", Memory: Memory{Returned: now.Add(-time.Hour)}},
			want:  "Returning", note: "EndpointSlice web-1 has the label service.kubernetes.io/service-proxy-name",
		},
		{name: "after a restart", state: State{Groups: groups, Grace: 10 * time.Second}, want: "Returning 10s"},
		{name: "kube-proxy has taken over", state: State{Groups: groups, Grace: 10 * time.Second, Memory: Memory{Returned: now.Add(-10 * time.Second)}}, want: "Left"},
		{name: "another proxy's", state: State{ProxyName: "other"}, want: "Idle"},
		{name: "given to another proxy", state: State{ProxyName: "other", Groups: groups, Grace: time.Second}, want: "Returning 1s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			step := test.state.Next(now)
			words := []string{string(step.Phase)}
			if step.Take {
				words = append(words, "take")
			}
			if step.Release {
				words = append(words, "release")
			}
			if step.After > 0 {
				words = append(words, step.After.String())
			}
			if len(step.Missing) > 0 {
				words = append(words, strings.Join(step.Missing, ","))
			}
			if got := strings.Join(words, " "); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if notes := strings.Join(step.Notes, ". "); !strings.Contains(notes, test.note) || test.note == "" && test.state.Wanted && notes != "" {
				t.Errorf("notes %q, want %q", notes, test.note)
			}
		})
	}
}
