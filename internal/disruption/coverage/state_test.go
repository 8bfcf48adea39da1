package coverage

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

type spec = v1alpha1.TopologyDisruptionBudgetSpec

func TestStateOf(t *testing.T) {
	for _, test := range []struct {
		name  string
		world func() *builder
		want  string
	}{
		{
			name: "a Deployment in two zones", world: func() *builder {
				w := in("b", "a")
				d := w.deployment(3)
				return w.pods(w.replicaSet("web-1", 3, d), "a-1", "b-1", "b-2")
			},
			want: `["a" "b"]
Deployment/web 3
pod-00 Deployment/web in a
pod-01 Deployment/web in b
pod-02 Deployment/web in b
`,
		},
		{
			name: "a Deployment that rolls out is one owner", world: func() *builder {
				w := in("a")
				d := w.deployment(2)
				w.pods(w.replicaSet("web-1", 1, d), "a-1")
				return w.pods(w.replicaSet("web-2", 2, d), "a-1", "a-2")
			},
			want: `["a"]
Deployment/web 2
pod-00 Deployment/web in a
pod-01 Deployment/web in a
pod-02 Deployment/web in a
`,
		},
		{
			name: "two generations of an operator's StatefulSets are summed", world: func() *builder {
				w := in("a")
				w.pods(w.statefulSet("old", 1), "a-1")
				return w.pods(w.statefulSet("new", 2), "a-1", "a-2")
			},
			want: `["a"]
StatefulSet/new 2
StatefulSet/old 1
pod-00 StatefulSet/old in a
pod-01 StatefulSet/new in a
pod-02 StatefulSet/new in a
`,
		},
		{
			name: "an owner whose only pod does not exist", world: func() *builder {
				w := in("a", "b")
				w.pods(w.statefulSet("web-a", 1), "a-1")
				w.statefulSet("web-b", 1)
				return w
			},
			want: `["a" "b"]
StatefulSet/web-a 1
StatefulSet/web-b 1
pod-00 StatefulSet/web-a in a
`,
		},
		{
			name: "owners of other pods and of none do not count", world: func() *builder {
				w := in("a")
				w.statefulSet("none", 0)
				w.statefulSet("other", 3, "app=other")
				return w.pods(nil, "a-1")
			},
			want: `["a"]
pod-00 in a
`,
		},
		{
			name: "a ReplicaSet of a kind of its own", world: func() *builder {
				w := in("a")
				w.add(OfScale(*custom("rollout"), 5))
				w.pods(w.replicaSet("web-1", 3, custom("rollout")), "a-1")
				return w.pods(w.replicaSet("web-2", 4, custom("rollout")), "a-2")
			},
			want: `["a"]
Database.example.com/rollout 5
pod-00 Database.example.com/rollout in a
pod-01 Database.example.com/rollout in a
`,
		},
		{
			name: "a ReplicaSet of a kind without a scale", world: func() *builder {
				w := in("a")
				w.add(WithoutScale(*custom("rollout")))
				return w.pods(w.replicaSet("web-1", 3, custom("rollout")), "a-1")
			},
			want: `["a"]
ReplicaSet/web-1 3
pod-00 ReplicaSet/web-1 in a
`,
		},
		{
			name: "pods without an owner that says a number", world: func() *builder {
				w := in("a")
				w.add(WithoutScale(*custom("db")))
				w.pods(custom("db"), "a-1")
				w.pods(&Ref{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "j"}, "a-1")
				return w.pods(custom("unknown"), "a-1")
			},
			want: `["a"]
pod-00 in a
pod-01 in a
pod-02 in a
`,
		},
		{
			name: "an owner with pods that the selector does not match", world: func() *builder {
				w := in("a")
				s := w.statefulSet("web", 4)
				w.pods(s, "a-1", "a-2")
				w.pod("other", "a-1", of(s), labeled("app", "other"))
				return w.pod("leaves", "a-1", of(s), labeled("app", "other"), func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: began} })
			},
			want: `["a"]
StatefulSet/web 3
pod-00 StatefulSet/web in a
pod-01 StatefulSet/web in a
`,
		},
		{
			name: "what pods do", world: func() *builder {
				w := in("a")
				w.pod("done", "a-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
				w.pod("failed", "a-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed })
				w.pod("leaves", "a-1", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: began} })
				w.pod("sick", "a-1", func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse })
				w.pod("starts", "a-1", func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} })
				return w.pod("waits", "")
			},
			want: `["a"]
done in a finished
failed in a finished
leaves in a terminating
sick in a unready
starts in a pending unready
waits unplaced pending unready
`,
		},
		{
			name: "nodes without the key, and left out", world: func() *builder {
				w := in("a", "b")
				w.node("lost", nil)
				w.budget(func(s *spec) { s.NodeSelectorTerm = expressions(zone + " Exists; " + zone + " NotIn b") })
				return w.pods(nil, "a-1", "b-1", "lost")
			},
			want: `["a"]
pod-00 in a
pod-01 uncovered
pod-02 uncovered
`,
		},
		{
			name: "one domain", world: func() *builder {
				w := in("a", "b").budget(func(s *spec) { s.NodeSelectorTerm = nil })
				return w.pods(nil, "a-1", "b-1", "gone", "")
			},
			want: `[""]
pod-00 in
pod-01 in
pod-02 in
pod-03 unplaced pending unready
`,
		},
		{
			name: "a node that is not known, and its domain by the pod's labels", world: func() *builder {
				w := in("a")
				w.pod("labeled", "gone", labeled(zone, "z"))
				return w.pod("plain", "gone")
			},
			want: `["a" "z"]
labeled in z unready
plain unplaced unready
`,
		},
		{
			name: "a domain for each node", world: func() *builder {
				w := in("a").budget(func(s *spec) { s.NodeSelectorTerm = expressions(corev1.LabelHostname + " Exists") })
				return w.pods(nil, "a-1", "gone")
			},
			want: `["a-1" "a-2" "gone"]
pod-00 in a-1
pod-01 in gone unready
`,
		},
		{
			name: "domains that the pods cannot be in are none", world: func() *builder {
				w := in("a", "b", "c")
				w.Nodes["a-1"].Labels["pool"], w.Nodes["b-2"].Labels["pool"] = "web", "web"
				return w.pod("pod", "a-1", selecting("pool", "web"))
			},
			want: `["a" "b"]
pod in a
`,
		},
		{
			name: "unless there is a pod", world: func() *builder {
				w := in("a", "b", "c")
				w.Nodes["a-1"].Labels["pool"] = "web"
				w.pod("pod", "a-1", selecting("pool", "web"))
				return w.pod("stray", "c-1", selecting("pool", "web"))
			},
			want: `["a" "c"]
pod in a
stray in c
`,
		},
		{
			name: "a finished pod holds no domain", world: func() *builder {
				w := in("a", "b")
				w.Nodes["a-1"].Labels["pool"] = "web"
				w.pod("pod", "a-1", selecting("pool", "web"))
				return w.pod("pod-done", "b-1", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
			},
			want: `["a"]
pod in a
pod-done in b finished
`,
		},
		{
			name: "nodes of the control plane are no domain for pods that fit elsewhere", world: func() *builder {
				w := in("a")
				w.node("control", map[string]string{zone: "control", v1alpha1.LabelControlPlane: ""}).Spec.Taints = []corev1.Taint{{Key: v1alpha1.LabelControlPlane, Effect: corev1.TaintEffectNoSchedule}}
				w.node("etcd", map[string]string{zone: "etcd", "node-role.kubernetes.io/etcd": ""}).Spec.Taints = []corev1.Taint{{Key: "CriticalAddonsOnly", Effect: corev1.TaintEffectNoExecute}}
				w.node("drained", map[string]string{zone: "drained"}).Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
				return w.pod("pod", "a-1")
			},
			want: `["a" "drained"]
pod in a
`,
		},
		{
			name: "a pod that fits only a node of the control plane", world: func() *builder {
				w := in("a")
				w.node("control", map[string]string{zone: "control", "main": "", v1alpha1.LabelControlPlane: ""}).Spec.Taints = []corev1.Taint{{Key: v1alpha1.LabelControlPlane, Effect: corev1.TaintEffectNoSchedule}}
				return w.pod("pod", "", selecting("main", ""))
			},
			want: `["control"]
pod unplaced control pending unready
`,
		},
		{
			name: "pods without a node that can be in one domain, outside or anywhere", world: func() *builder {
				w := in("a", "b")
				w.node("lost", map[string]string{"pool": "lost"})
				w.pod("anywhere", "")
				w.pod("daemon", "", bound("b-1"))
				w.pod("in-a", "", selecting(zone, "a"))
				w.pod("nowhere", "", selecting(zone, "z"))
				return w.pod("outside", "", selecting("pool", "lost"))
			},
			want: `["a" "b"]
anywhere unplaced pending unready
daemon unplaced b pending unready
in-a unplaced a pending unready
nowhere unplaced pending unready
outside uncovered pending unready
`,
		},
		{
			name: "where a template can be without any pod", world: func() *builder {
				w := in("a", "b")
				w.statefulSet("web", 1)
				w.Workloads[0].Template.Spec.NodeSelector = map[string]string{zone: "b"}
				return w
			},
			want: `["b"]
StatefulSet/web 1
`,
		},
		{
			name: "groups", world: func() *builder {
				w := in("a").budget(func(s *spec) { s.GroupBy = "shard" })
				w.statefulSet("empty", 1, "shard=2")
				w.pod("p1", "a-1", of(w.statefulSet("one", 2, "shard=1")), labeled("shard", "1"))
				many := w.statefulSet("many", 2)
				w.pod("p2", "a-1", of(many), labeled("shard", "1"))
				w.pod("p3", "a-1", of(custom("db")), labeled("shard", "3"))
				w.pod("p4", "a-1", of(custom("sharded")), labeled("shard", "3"))
				w.pod("p5", "a-1", of(custom("sharded")), labeled("shard", "4"))
				w.add(OfScale(*custom("db"), 1))
				w.add(OfScale(*custom("sharded"), 3))
				return w.pod("p6", "a-1")
			},
			want: `["a"]
Database.example.com/db 1 of 3
Database.example.com/sharded 3 of many groups
StatefulSet/empty 1 of 2
StatefulSet/many 2 of many groups
StatefulSet/one 2 of 1
p1 StatefulSet/one 1 in a
p2 StatefulSet/many 1 in a
p3 Database.example.com/db 3 in a
p4 Database.example.com/sharded 3 in a
p5 Database.example.com/sharded 4 in a
p6 in a
`,
		},
		{
			name: "a Deployment whose new template has another group", world: func() *builder {
				w := in("a").budget(func(s *spec) { s.GroupBy = "shard" })
				d := w.deployment(2, "shard=2")
				w.replicaSet("web-2", 1, d, "shard=2")
				return w.pod("p1", "a-1", of(w.replicaSet("web-1", 1, d, "shard=1")), labeled("shard", "1"))
			},
			want: `["a"]
Deployment/web 2 of many groups
p1 Deployment/web 1 in a
`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := StateOf(test.world().World)
			if got := summary(&s); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestStateHasWhatIsStored(t *testing.T) {
	w := in("a").pods(nil, "a-1")
	w.Budget.Status = v1alpha1.TopologyDisruptionBudgetStatus{
		Domains:      []v1alpha1.DomainStatus{{Domain: "a", Group: "g", Disturbed: true}, {Domain: "b"}},
		Reservations: []v1alpha1.Reservation{{UID: "u", Pod: "p", Expires: metav1.NewTime(began), Holder: "h"}},
	}
	s := StateOf(w.World)
	if want := (disruption.Reservation{UID: "u", Pod: "p", Expires: began, Holder: "h"}); len(s.Reservations) != 1 || s.Reservations[0] != want {
		t.Errorf("reservations %+v", s.Reservations)
	}
	if want := (disruption.DomainKey{Group: "g", Domain: "a"}); len(s.Disturbed) != 1 || s.Disturbed[0] != want {
		t.Errorf("disturbed %+v", s.Disturbed)
	}
	if !s.Pods[0].ReadySince.Equal(began) || s.Pods[0].UID != "uid-pod-00" {
		t.Errorf("pod %+v", s.Pods[0])
	}
}

// A ZoneShift of any node label is one of the pods on these nodes. Of several it is the one that lasts longest.
func TestStateHasShifts(t *testing.T) {
	w := in("a", "b").pods(nil, "a-1", "a-2", "b-1", "")
	w.Nodes["a-2"].Labels["rack"], w.Nodes["b-1"].Labels["rack"] = "r", "r"
	add := func(name, key, value string, lasts time.Duration, is metav1.ConditionStatus) {
		zs := &v1alpha1.ZoneShift{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(began)}}
		zs.Spec = v1alpha1.ZoneShiftSpec{From: v1alpha1.ShiftedDomain{Key: key, Value: value}, For: metav1.Duration{Duration: lasts}}
		zs.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Accepted, Status: is}}
		w.Shifts = append(w.Shifts, zs)
	}
	add("zone", zone, "a", time.Hour, metav1.ConditionTrue)
	add("rack", "rack", "r", 2*time.Hour, metav1.ConditionTrue)
	add("refused", zone, "b", 3*time.Hour, metav1.ConditionFalse)
	s := StateOf(w.World)
	for i, want := range []disruption.Shift{{Name: "zone", Until: began.Add(time.Hour)}, {Name: "rack", Until: began.Add(2 * time.Hour)}, {Name: "rack", Until: began.Add(2 * time.Hour)}, {}} {
		if got := s.Pods[i].Shift; got != want {
			t.Errorf("%s: %+v, want %+v", s.Pods[i].Name, got, want)
		}
	}
}

func TestOwnerRefs(t *testing.T) {
	w := in("a")
	known := w.statefulSet("known", 1)
	gone := &Ref{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "gone", UID: "g"}
	w.pods(known, "a-1")
	w.pods(w.replicaSet("of-rollout", 1, custom("rollout")), "a-1")
	w.replicaSet("of-empty", 1, custom("empty"))
	w.replicaSet("old", 0, custom("old"))
	w.replicaSet("other", 1, custom("other"), "app=other")
	w.pods(custom("db"), "a-1", "a-2")
	w.pods(gone, "a-1")
	w.pods(&Ref{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "j"}, "a-1")
	w.pods(&Ref{APIVersion: "v1", Kind: "Node", Name: "a-1", UID: "n"}, "a-1")
	w.pods(nil, "a-1")
	w.pod("other", "a-1", of(custom("unseen")), labeled("app", "other"))
	var got []string
	for _, ref := range OwnerRefs(w.World) {
		got = append(got, ref.ID())
	}
	const want = "Database.example.com/db Database.example.com/empty Database.example.com/rollout StatefulSet/gone"
	if strings.Join(got, " ") != want {
		t.Errorf("got %s\nwant %s", strings.Join(got, " "), want)
	}
	w.Workloads = append(w.Workloads, WithoutScale(*gone), OfScale(*custom("db"), 2), OfScale(*custom("rollout"), 1), WithoutScale(*custom("empty")))
	if left := OwnerRefs(w.World); len(left) > 0 {
		t.Errorf("%v are asked for again", left)
	}
}

// random draws a world with every kind of object.
func random(t *rapid.T) World {
	w := in("a", "b", "c")
	w.node("lost", nil)
	w.Budget.Spec.NodeSelectorTerm = randomTerm(t, []string{zone, corev1.LabelHostname, "pool"})
	w.Budget.Spec.GroupBy = rapid.SampledFrom([]string{"", "shard"}).Draw(t, "groupBy")
	for _, name := range slices.Sorted(maps.Keys(w.Nodes)) {
		if rapid.Bool().Draw(t, "pool") {
			w.Nodes[name].Labels["pool"] = "web"
		}
	}
	d := w.deployment(int32(rapid.IntRange(0, 4).Draw(t, "replicas")), "shard=1")
	refs := []*Ref{nil, w.replicaSet("web-1", 2, d), w.replicaSet("web-2", 1, d, "shard=1"), w.statefulSet("db", 3), custom("kind"), custom("unknown")}
	w.add(OfScale(*custom("kind"), 2))
	nodes := []string{"", "a-1", "a-2", "b-1", "c-1", "lost", "gone"}
	for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
		w.pod(fmt.Sprintf("pod-%02d", i), rapid.SampledFrom(nodes).Draw(t, "node"), of(rapid.SampledFrom(refs).Draw(t, "owner")), func(p *corev1.Pod) {
			p.Labels["app"] = rapid.SampledFrom([]string{"web", "web", "other"}).Draw(t, "app")
			p.Labels["shard"] = rapid.SampledFrom([]string{"1", "2"}).Draw(t, "shard")
			switch rapid.IntRange(0, 5).Draw(t, "asks") {
			case 0:
				selecting("pool", "web")(p)
			case 1:
				bound(rapid.SampledFrom(nodes[1:]).Draw(t, "bound"))(p)
			}
		})
	}
	return w.World
}

// No result depends on the order of a cache, and nothing in a cache is changed.
func TestStateDependsOnNoOrderAndChangesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := random(t)
		before, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		find := func(w World) string {
			s := StateOf(w)
			m := disruption.Measure(&s, began.Add(time.Hour))
			text, err := json.MarshalIndent([]any{s, OwnerRefs(w), Findings(w, s, m), Problems(w, s, m), DirectDeleters(w)}, "", " ")
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
		first := find(w)
		if after, err := json.Marshal(w); err != nil || string(after) != string(before) {
			t.Fatalf("%s\nbecame\n%s, %v", before, after, err)
		}
		w.Pods, w.Workloads = rapid.Permutation(w.Pods).Draw(t, "order of pods"), rapid.Permutation(w.Workloads).Draw(t, "order of workloads")
		if again := find(w); again != first {
			t.Fatalf("got\n%s\nthen\n%s", first, again)
		}
	})
}

// A label that differs for each pod would make a group of each, with numbers for every domain.
func TestTooManyGroupsAreInvalid(t *testing.T) {
	world := func(groups, finished int) *builder {
		w := in().budget(func(s *spec) {
			s.NodeSelectorTerm, s.GroupBy = expressions(corev1.LabelHostname+" Exists"), "id"
		})
		for i := range 300 {
			w.node(fmt.Sprintf("node-%d", i), nil)
		}
		for i := range groups {
			w.pod(fmt.Sprintf("pod-%d", i), fmt.Sprintf("node-%d", i%300), labeled("id", fmt.Sprint(i)))
		}
		for i := range finished {
			w.pod(fmt.Sprintf("done-%d", i), "node-0", labeled("id", fmt.Sprint("done-", i)), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
		}
		return w
	}
	for _, test := range []struct {
		groups, finished int
		want             string
	}{
		{166, 1000, ""},
		{600, 0, "spec.groupBy: the label id puts the pods in 600 groups, each with 300 domains; groups x domains is 180000, and at most 50000 are allowed"},
	} {
		s := StateOf(world(test.groups, test.finished).World)
		if s.Budget.Invalid != test.want {
			t.Errorf("%d groups and %d finished pods: %q, want %q", test.groups, test.finished, s.Budget.Invalid, test.want)
		}
		if m := disruption.Measure(&s, began); len(m.Domains) > MostCells {
			t.Errorf("%d domains have numbers", len(m.Domains))
		}
	}
}

func TestStatus(t *testing.T) {
	status := v1alpha1.TopologyDisruptionBudgetStatus{
		Reservations: []v1alpha1.Reservation{{UID: "u"}}, PodsObserved: "5", Conditions: []metav1.Condition{{Type: "Valid"}},
		Domains: []v1alpha1.DomainStatus{{Domain: "gone"}},
	}
	Status(&status, 7, disruption.Measures{
		Expected: 12, Healthy: 11, Desired: 9, Allowed: 2, Disturbed: 1,
		Domains: []disruption.DomainMeasure{
			{Group: "1", Domain: "b", Expected: 4, Healthy: 3, Desired: 3, Disturbed: true},
			{Group: "1", Domain: "a", Expected: 4, Healthy: 4, Desired: 3, Allowed: 1},
			{Group: "0", Domain: "z", Expected: 4, Healthy: 4, Desired: 3, Allowed: 1},
		},
	})
	want := []v1alpha1.DomainStatus{
		{Group: "0", Domain: "z", Expected: 4, Healthy: 4, Desired: 3, Allowed: 1},
		{Group: "1", Domain: "a", Expected: 4, Healthy: 4, Desired: 3, Allowed: 1},
		{Group: "1", Domain: "b", Expected: 4, Healthy: 3, Desired: 3, Disturbed: true},
	}
	if !slices.Equal(status.Domains, want) || status.ObservedGeneration != 7 || status.ExpectedPods != 12 || status.CurrentHealthy != 11 ||
		status.DesiredHealthy != 9 || status.DisruptionsAllowed != 2 || status.DisturbedDomains != 1 {
		t.Errorf("%+v", status)
	}
	if len(status.Reservations) != 1 || status.PodsObserved != "5" || len(status.Conditions) != 1 {
		t.Errorf("fields of other writers changed: %+v", status)
	}
}

// Of too many domains, the status lists the ones with the least allowance.
func TestStatusListsTheDomainsThatAllowLeast(t *testing.T) {
	var measures disruption.Measures
	for i := range MaxDomains + 2 {
		measures.Domains = append(measures.Domains, disruption.DomainMeasure{Domain: fmt.Sprintf("%04d", i), Allowed: 3})
	}
	measures.Domains[MaxDomains].Allowed, measures.Domains[MaxDomains+1].Disturbed = 0, true
	var status v1alpha1.TopologyDisruptionBudgetStatus
	Status(&status, 1, measures)
	if len(status.Domains) != MaxDomains {
		t.Fatalf("%d domains", len(status.Domains))
	}
	if last := status.Domains[MaxDomains-2:]; last[0].Domain != "0500" || last[1].Domain != "0501" {
		t.Errorf("the last are %+v", last)
	}
}
