package coverage

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

var began = time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)

// builder makes a World step by step.
type builder struct{ World }

// in is a world with two nodes in each zone: a-1, a-2, b-1, …
func in(zones ...string) *builder {
	w := &builder{World{Budget: budget(), Nodes: map[string]*corev1.Node{}}}
	for _, name := range zones {
		w.node(name+"-1", map[string]string{zone: name})
		w.node(name+"-2", map[string]string{zone: name})
	}
	return w
}

func (b *builder) budget(change func(*v1alpha1.TopologyDisruptionBudgetSpec)) *builder {
	change(&b.Budget.Spec)
	return b
}

func (b *builder) node(name string, labels map[string]string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	for key, value := range labels {
		node.Labels[key] = value
	}
	b.Nodes[name] = node
	return node
}

// pod adds a ready pod; without a node it is pending.
func (b *builder) pod(name, node string, change ...func(*corev1.Pod)) *builder {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(began)}},
		},
	}
	if node == "" {
		pod.Status = corev1.PodStatus{Phase: corev1.PodPending}
	}
	for _, c := range change {
		c(pod)
	}
	b.Pods = append(b.Pods, pod)
	return b
}

// pods adds ready pods on nodes.
func (b *builder) pods(owner *Ref, nodes ...string) *builder {
	for _, node := range nodes {
		b.pod(fmt.Sprintf("pod-%02d", len(b.Pods)), node, of(owner))
	}
	return b
}

func of(owner *Ref) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.OwnerReferences = controlledBy(owner) }
}

func controlledBy(owner *Ref) []metav1.OwnerReference {
	if owner == nil {
		return nil
	}
	yes := true
	return []metav1.OwnerReference{{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID, Controller: &yes}}
}

func labeled(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels[key] = value }
}

func selecting(key, value string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeSelector = map[string]string{key: value} }
}

func bound(to string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{to}}}}},
		}}}
	}
}

func meta(name string, owner *Ref) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), OwnerReferences: controlledBy(owner)}
}

func template(labels ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		t.Labels[key] = value
	}
	return t
}

func (b *builder) add(w Workload) *Ref {
	b.Workloads = append(b.Workloads, w)
	return &w.Ref
}

func (b *builder) deployment(replicas int32, labels ...string) *Ref {
	return b.add(OfDeployment(&appsv1.Deployment{ObjectMeta: meta("web", nil), Spec: appsv1.DeploymentSpec{Replicas: &replicas, Template: template(labels...)}}))
}

func (b *builder) replicaSet(name string, replicas int32, owner *Ref, labels ...string) *Ref {
	return b.add(OfReplicaSet(&appsv1.ReplicaSet{ObjectMeta: meta(name, owner), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Template: template(labels...)}}))
}

func (b *builder) statefulSet(name string, replicas int32, labels ...string) *Ref {
	return b.add(OfStatefulSet(&appsv1.StatefulSet{ObjectMeta: meta(name, nil), Spec: appsv1.StatefulSetSpec{Replicas: &replicas, Template: template(labels...)}}))
}

func custom(name string) *Ref {
	return &Ref{APIVersion: "example.com/v1", Kind: "Database", Name: name, UID: types.UID("uid-" + name)}
}

// summary formats a state: a line for the domains, each owner and each pod.
func summary(s *disruption.State) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%q\n", s.Domains)
	for _, o := range s.Owners {
		fmt.Fprintf(&out, "%s %d", o.ID, o.Replicas)
		if o.ManyGroups {
			out.WriteString(" of many groups")
		} else if o.Group != "" {
			out.WriteString(" of " + o.Group)
		}
		out.WriteString("\n")
	}
	for _, p := range s.Pods {
		out.WriteString(p.Name)
		for _, text := range []string{p.Owner, p.Group, [...]string{"unplaced", "in", "uncovered"}[p.Place], p.Domain} {
			if text != "" {
				out.WriteString(" " + text)
			}
		}
		for _, is := range []struct {
			is   bool
			word string
		}{{p.Pending, "pending"}, {p.Finished, "finished"}, {p.Terminating, "terminating"}, {!p.Ready, "unready"}} {
			if is.is {
				out.WriteString(" " + is.word)
			}
		}
		out.WriteString("\n")
	}
	return out.String()
}
