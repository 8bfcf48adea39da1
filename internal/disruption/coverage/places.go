package coverage

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// places knows where the pods of a budget are and where they can be.
type places struct {
	term  *Term
	nodes map[string]*corev1.Node
	// covered are the covered nodes by domain, uncovered all others.
	covered   map[string][]*corev1.Node
	uncovered []*corev1.Node
	// used are the domains that have or can have a pod. pods says whether use was called.
	used map[string]bool
	pods bool
	// reaches caches reach by the result of asked.
	reaches map[string]reach
}

// reach lists where a pod fits.
type reach struct {
	domains   []string
	uncovered bool
}

func newPlaces(term *Term, nodes map[string]*corev1.Node) *places {
	p := &places{term: term, nodes: nodes, covered: map[string][]*corev1.Node{}, used: map[string]bool{}, reaches: map[string]reach{}}
	if term.All() {
		return p // nodes do not matter
	}
	for _, node := range nodes {
		if domain, covered := term.Domain(node.Labels); covered {
			p.covered[domain] = append(p.covered[domain], node)
		} else {
			p.uncovered = append(p.uncovered, node)
		}
	}
	return p
}

// domains lists the domains that have or can have a pod. Without pods it lists all.
func (p *places) domains() []string {
	if len(p.term.keys) == 0 {
		return []string{""}
	}
	if !p.pods {
		p.use(&corev1.PodSpec{})
	}
	return slices.Sorted(maps.Keys(p.used))
}

// use marks the domains where a pod fits.
func (p *places) use(spec *corev1.PodSpec) {
	if p.term.All() {
		return
	}
	p.pods = true
	for _, domain := range p.reach(spec).domains {
		p.used[domain] = true
	}
}

// place sets the place of a pod. A pod without a node has a domain if it fits no other.
func (p *places) place(pod *corev1.Pod, read *disruption.Pod) {
	if !read.Finished {
		p.use(&pod.Spec)
	}
	node := p.nodes[pod.Spec.NodeName]
	switch {
	case p.term.All():
		if pod.Spec.NodeName != "" {
			read.Place = disruption.Covered
		}
	case node != nil:
		p.placeBy(node.Labels, read)
	case pod.Spec.NodeName != "":
		p.placeLost(pod, read)
	case asksOfNodes(&pod.Spec):
		switch can := p.reach(&pod.Spec); {
		case len(can.domains) == 0 && can.uncovered:
			read.Place = disruption.Uncovered
		case len(can.domains) == 1 && !can.uncovered:
			read.Domain = can.domains[0]
		}
	}
}

func (p *places) placeBy(node map[string]string, read *disruption.Pod) {
	domain, covered := p.term.Domain(node)
	if !covered {
		read.Place = disruption.Uncovered
		return
	}
	read.Place, read.Domain = disruption.Covered, domain
	if !read.Finished {
		p.used[domain] = true
	}
}

// LostNodes lists the nodes of the budget's pods that the world lacks, if nodes matter. They were deleted, or are newer
// than the cache. The caller reads each and adds the existing ones to Nodes. If one cannot be read, the state of the
// budget is unknown.
func LostNodes(w World) []string {
	selector := Selector(w.Budget)
	names := map[string]bool{}
	for _, pod := range w.Pods {
		name := pod.Spec.NodeName
		if name != "" && w.Nodes[name] == nil && !isFinished(pod) && selector.Matches(labels.Set(pod.Labels)) {
			names[name] = true
		}
	}
	if len(names) == 0 {
		return nil
	}
	if _, term := BudgetOf(w.Budget); term.All() {
		return nil
	}
	return slices.Sorted(maps.Keys(names))
}

// placeLost places a pod whose node was deleted, so that it counts as not ready. Its domain follows from the zone and
// region labels that Kubernetes copies from nodes to pods. Without them it counts as a pod without a node.
func (p *places) placeLost(pod *corev1.Pod, read *disruption.Pod) {
	read.Ready = false
	node := map[string]string{corev1.LabelHostname: pod.Spec.NodeName}
	for _, key := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
		if value, found := pod.Labels[key]; found {
			node[key] = value
		}
	}
	if _, covered := p.term.Domain(node); covered {
		p.placeBy(node, read)
	}
}

// reach returns where a pod fits by its node selector and its required node affinity. Taints do not count, because drainers
// set them for a while. Only those of the control plane do: such a node is only for pods that fit no other node.
func (p *places) reach(spec *corev1.PodSpec) reach {
	affinity := nodeaffinity.NewRequiredNodeAffinity(spec.NodeSelector, spec.Affinity)
	suits := func(node *corev1.Node) bool {
		matches, err := affinity.Match(node)
		return matches && err == nil
	}
	if names := namedNodes(spec); names != nil {
		return p.reachOf(names, suits)
	}
	key := asked(spec)
	known, found := p.reaches[key]
	if !found {
		known = p.search(func(node *corev1.Node) bool { return !isControlPlane(node) && suits(node) })
		if len(known.domains) == 0 && !known.uncovered {
			known = p.search(suits)
		}
		p.reaches[key] = known
	}
	return known
}

func (p *places) search(suits func(*corev1.Node) bool) reach {
	found := reach{uncovered: slices.ContainsFunc(p.uncovered, suits)}
	for domain, nodes := range p.covered {
		if slices.ContainsFunc(nodes, suits) {
			found.domains = append(found.domains, domain)
		}
	}
	return found
}

// reachOf returns the reach of a pod that names its nodes.
func (p *places) reachOf(names []string, suits func(*corev1.Node) bool) reach {
	var found reach
	for _, name := range names {
		node := p.nodes[name]
		if node == nil || !suits(node) {
			continue
		}
		domain, covered := p.term.Domain(node.Labels)
		if !covered {
			found.uncovered = true
		} else if !slices.Contains(found.domains, domain) {
			found.domains = append(found.domains, domain)
		}
	}
	return found
}

// SameNode reports whether two versions of a node are the same for budgets.
func SameNode(a, b *corev1.Node) bool {
	return maps.Equal(a.Labels, b.Labels) && isControlPlane(a) == isControlPlane(b)
}

func isControlPlane(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return intent.IsControlPlaneTaint(node, &taint) })
}

func requiredTerms(spec *corev1.PodSpec) []corev1.NodeSelectorTerm {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
}

func asksOfNodes(spec *corev1.PodSpec) bool {
	return len(spec.NodeSelector) > 0 || len(requiredTerms(spec)) > 0
}

// namedNodes lists the nodes that a pod names, as each pod of a DaemonSet names one; nil if it names none.
func namedNodes(spec *corev1.PodSpec) []string {
	var names []string
	for _, term := range requiredTerms(spec) {
		named := false
		for _, field := range term.MatchFields {
			if field.Key == "metadata.name" && field.Operator == corev1.NodeSelectorOpIn {
				names, named = append(names, field.Values...), true
			}
		}
		if !named {
			return nil
		}
	}
	return names
}

// asked returns a text that is equal for pods with the same requirements of nodes.
func asked(spec *corev1.PodSpec) string {
	if !asksOfNodes(spec) {
		return ""
	}
	var text strings.Builder
	text.WriteString(labels.Set(spec.NodeSelector).String())
	write := func(requirements []corev1.NodeSelectorRequirement) {
		for i := range requirements {
			r := &requirements[i]
			text.WriteString(strconv.Quote(r.Key) + string(r.Operator))
			for _, value := range r.Values {
				text.WriteString(strconv.Quote(value))
			}
		}
	}
	for _, term := range requiredTerms(spec) {
		text.WriteString("|")
		write(term.MatchExpressions)
		text.WriteString("&")
		write(term.MatchFields)
	}
	return text.String()
}
