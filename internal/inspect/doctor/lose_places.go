package doctor

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/kit/scheduling"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// requestsOf returns what the scheduler reserves for a pod, which includes its place among the node's pods.
func requestsOf(pod *corev1.Pod) corev1.ResourceList {
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return requests
}

// change adds amounts to a list, or subtracts them.
func change(list, amounts corev1.ResourceList, by func(*resource.Quantity, resource.Quantity)) {
	for name, amount := range amounts {
		quantity := list[name]
		by(&quantity, amount)
		list[name] = quantity
	}
}

func fit(requests, room corev1.ResourceList) bool {
	for name, request := range requests {
		if !request.IsZero() && request.Cmp(room[name]) > 0 {
			return false
		}
	}
	return true
}

// amount writes resources as in "1.5 CPUs and 2 GiB".
func amount(list corev1.ResourceList) string {
	return plaintext.Decimal(list.Cpu().AsApproximateFloat64(), 1) + " CPUs and " + plaintext.Decimal(list.Memory().AsApproximateFloat64()/(1<<30), 1) + " GiB"
}

// placement places lost pods on the other nodes as the scheduler does: each pod on the first node that passes all filters.
// Priorities, preemption, pod affinity, and the anti-affinity of other pods do not count.
type placement struct {
	*rehearsal
	claims  map[types.NamespacedName]*corev1.PersistentVolumeClaim
	volumes map[types.NamespacedName]*corev1.PersistentVolume
	nodes   map[Object][]*corev1.Node // that take the pods of a ReplicaSet
	limits  map[Object][]*limit       // of the pods of a controller
}

// refusal says why a pod stays pending. For a lack of room it has the check alone.
type refusal struct {
	check check
	why   string
}

// templateFields select the cause of a refusal in the object of a workload.
var templateFields = map[check]string{
	losePinned:       "{.spec.template.spec.nodeSelector}{.spec.template.spec.affinity.nodeAffinity}",
	loseAntiAffinity: "{.spec.template.spec.affinity.podAntiAffinity}",
	loseSpread:       "{.spec.template.spec.topologySpreadConstraints}",
}

// checkPlaces checks whether the lost pods that move find a node. The largest come first.
func (r *rehearsal) checkPlaces() {
	requests, lacking := map[*corev1.Pod]corev1.ResourceList{}, corev1.ResourceList{}
	for _, pod := range r.moving {
		requests[pod] = requestsOf(pod)
		change(r.summary.Requested, requests[pod], (*resource.Quantity).Add)
	}
	for _, node := range r.rest {
		if takesPods(node) && len(intent.ControlPlaneTaints(node)) == 0 {
			change(r.summary.Free, r.room[node.Name], func(sum *resource.Quantity, free resource.Quantity) {
				if free.Sign() > 0 {
					sum.Add(free)
				}
			})
		}
	}
	r.summary.MovingPods = len(r.moving)
	slices.SortFunc(r.moving, func(a, b *corev1.Pod) int {
		ofA, ofB := requests[a], requests[b]
		return cmp.Or(ofB.Cpu().Cmp(*ofA.Cpu()), ofB.Memory().Cmp(*ofA.Memory()), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	p := placement{rehearsal: r, claims: byName(r.Claims), volumes: byName(r.Volumes), nodes: map[Object][]*corev1.Node{}, limits: map[Object][]*limit{}}
	type group struct {
		*workload
		refusal
	}
	pending := map[group]int{}
	var homeless []string
	for _, pod := range r.moving {
		switch refused := p.place(pod, requests[pod]); {
		case refused == refusal{}:
		case refused.why == "":
			homeless = append(homeless, pod.Namespace+"/"+pod.Name)
			change(lacking, requests[pod], (*resource.Quantity).Add)
		default:
			pending[group{r.workloads[workloadOf(pod)], refused}]++
		}
	}
	for of, n := range pending {
		of.explained = true
		command := "kubectl get " + strings.ToLower(of.object.Kind) + "/" + of.object.Name + of.object.at() + " -o jsonpath='" + templateFields[of.check] + "'"
		if of.check == loseVolume {
			command = "kubectl get pvc" + of.object.at()
		}
		pods := plaintext.PluralVerb(n, "lost pod", "of "+of.object.String()+" stays", "of "+of.object.String()+" stay")
		r.add(of.check, of.object, pods+" pending: "+of.why+".", command)
	}
	if len(homeless) > 0 {
		r.add(loseNoRoom, Object{Kind: "Zone", Name: r.Zone}, fmt.Sprintf("%s no room on the other nodes (%s), with requests of %s.",
			plaintext.PluralVerb(len(homeless), "lost pod", "finds", "find"), firstOf(homeless), amount(lacking)),
			"kubectl describe nodes -l '"+corev1.LabelTopologyZone+"!="+r.Zone+"' | grep -A 9 -e ^Name: -e ^Allocated")
	}
}

// takesPods reports whether a node takes any new pod.
func takesPods(node *corev1.Node) bool { return intent.IsReady(node) && !node.Spec.Unschedulable }

// place puts a pod on a node, or says why no node takes it.
func (p *placement) place(pod *corev1.Pod, requests corev1.ResourceList) refusal {
	nodes, refused := p.nodesFor(pod)
	for _, l := range p.limitsOf(pod) {
		if len(nodes) == 0 {
			break
		}
		if nodes = l.allowed(nodes); len(nodes) == 0 {
			return l.refusal()
		}
	}
	fitting := slices.IndexFunc(nodes, func(node *corev1.Node) bool { return fit(requests, p.room[node.Name]) })
	if fitting < 0 {
		return cmp.Or(refused, refusal{check: loseNoRoom})
	}
	node := nodes[fitting]
	change(p.room[node.Name], requests, (*resource.Quantity).Sub)
	p.on[node.Name] = append(p.on[node.Name], pod)
	for _, limits := range p.limits {
		for _, l := range limits {
			if _, counted := l.counts[node.Labels[l.key]]; counted && l.matches(pod) {
				l.counts[node.Labels[l.key]]++
			}
		}
	}
	return refusal{}
}

func keep(nodes []*corev1.Node, suits func(*corev1.Node) (bool, error)) []*corev1.Node {
	var kept []*corev1.Node
	for _, node := range nodes {
		if is, err := suits(node); is && err == nil {
			kept = append(kept, node)
		}
	}
	return kept
}

// nodesFor returns the nodes that take a pod by its node affinity, its volumes and its tolerations.
func (p *placement) nodesFor(pod *corev1.Pod) ([]*corev1.Node, refusal) {
	controller := controllerOf(pod)
	if nodes, known := p.nodes[controller]; known {
		return nodes, refusal{}
	}
	nodes := keep(p.rest, nodeaffinity.GetRequiredNodeAffinity(pod).Match)
	if len(nodes) == 0 {
		return nil, refusal{losePinned, "its node selector and node affinity match no node outside the zone"}
	}
	for i := range pod.Spec.Volumes {
		source := pod.Spec.Volumes[i].PersistentVolumeClaim
		if source == nil {
			continue
		}
		claim := cmp.Or(p.claims[types.NamespacedName{Namespace: pod.Namespace, Name: source.ClaimName}], new(corev1.PersistentVolumeClaim))
		volume := p.volumes[types.NamespacedName{Name: claim.Spec.VolumeName}]
		if volume == nil || volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
			continue
		}
		if nodes = keep(nodes, nodeaffinity.NewLazyErrorNodeSelector(volume.Spec.NodeAffinity.Required).Match); len(nodes) == 0 {
			return nil, refusal{loseVolume, "no node outside the zone reaches PersistentVolume " + volume.Name + " of its claim " + source.ClaimName}
		}
	}
	nodes = keep(nodes, func(node *corev1.Node) (bool, error) {
		return takesPods(node) && !scheduling.IsKeptOff(&pod.Spec, node, nil), nil
	})
	if controller.Kind == "ReplicaSet" { // all its pods have the same volumes
		p.nodes[controller] = nodes
	}
	return nodes, refusal{}
}

// limit is a topology spread constraint or a term of anti-affinity that is required of the pods of a controller.
type limit struct {
	check   check
	key     string
	counts  map[string]int // matching pods by domain
	matches func(*corev1.Pod) bool
	// A domain may have most more matching pods than the least, with self for the new pod. With fewer than domains, the
	// least is 0.
	most, self, domains int
}

// least returns the domain with the fewest matching pods, and the number that counts as the least.
func (l *limit) least() (domain string, pods int) {
	for name, n := range l.counts {
		if domain == "" || n < pods || n == pods && name < domain {
			domain, pods = name, n
		}
	}
	if len(l.counts) < l.domains {
		pods = 0
	}
	return domain, pods
}

// allowed returns the nodes where another pod of the controller may be.
func (l *limit) allowed(nodes []*corev1.Node) []*corev1.Node {
	_, least := l.least()
	return keep(nodes, func(node *corev1.Node) (bool, error) {
		domain, labelled := node.Labels[l.key]
		return (labelled || l.check == loseAntiAffinity) && l.counts[domain]+l.self-least <= l.most, nil
	})
}

func (l *limit) refusal() refusal {
	if l.check == loseAntiAffinity {
		return refusal{l.check, "its required pod anti-affinity by " + l.key + " excludes each node outside the zone"}
	}
	domain, least := l.least()
	because := fmt.Sprintf("since %s has %d", domain, least)
	if len(l.counts) < l.domains {
		because = fmt.Sprintf("since minDomains is %d and %s left", l.domains, plaintext.PluralVerb(len(l.counts), "domain", "is", "are"))
	}
	return refusal{l.check, fmt.Sprintf("its topologySpreadConstraints allow at most %s in a domain of %s, %s", plaintext.Plural(least+l.most, "pod"), l.key, because)}
}

// limitsOf returns the limits of a pod, anti-affinity first. All pods of its controller share them.
func (p *placement) limitsOf(pod *corev1.Pod) []*limit {
	controller := controllerOf(pod)
	if limits, known := p.limits[controller]; known {
		return limits
	}
	var limits []*limit
	if affinity := pod.Spec.Affinity; affinity != nil && affinity.PodAntiAffinity != nil {
		for i := range affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
			limits = append(limits, p.antiAffinity(pod, &affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[i]))
		}
	}
	required := slices.DeleteFunc(slices.Clone(pod.Spec.TopologySpreadConstraints), func(c corev1.TopologySpreadConstraint) bool {
		return c.WhenUnsatisfiable != corev1.DoNotSchedule
	})
	for i := range required {
		limits = append(limits, p.spread(pod, &required[i], required))
	}
	p.limits[controller] = limits
	return limits
}

func (p *placement) antiAffinity(pod *corev1.Pod, term *corev1.PodAffinityTerm) *limit {
	selects, spaces := selectorOf(term.LabelSelector), term.NamespaceSelector
	everywhere := spaces != nil && len(spaces.MatchLabels)+len(spaces.MatchExpressions) == 0
	l := &limit{check: loseAntiAffinity, key: term.TopologyKey, domains: math.MaxInt, matches: func(other *corev1.Pod) bool {
		isOwn := len(term.Namespaces) == 0 && spaces == nil && other.Namespace == pod.Namespace
		return (everywhere || isOwn || slices.Contains(term.Namespaces, other.Namespace)) && selects(other)
	}}
	return l.count(p.rest, p.on)
}

// spread counts as the scheduler does: each node with the keys of all required constraints makes a domain, also an empty
// one of the lost zone, unless a policy of the constraint leaves the node out.
func (p *placement) spread(pod *corev1.Pod, c *corev1.TopologySpreadConstraint, required []corev1.TopologySpreadConstraint) *limit {
	selects, affinity := selectorOf(c.LabelSelector), nodeaffinity.GetRequiredNodeAffinity(pod)
	l := &limit{check: loseSpread, key: c.TopologyKey, most: int(c.MaxSkew), domains: int(*cmp.Or(c.MinDomains, new(int32(1)))), matches: func(other *corev1.Pod) bool {
		return other.Namespace == pod.Namespace && selects(other) && !slices.ContainsFunc(c.MatchLabelKeys, func(key string) bool {
			value, labelled := pod.Labels[key]
			return labelled && other.Labels[key] != value
		})
	}}
	if l.matches(pod) {
		l.self = 1
	}
	is := func(policy *corev1.NodeInclusionPolicy, value corev1.NodeInclusionPolicy) bool {
		return policy != nil && *policy == value
	}
	return l.count(keep(p.Nodes, func(node *corev1.Node) (bool, error) {
		for i := range required {
			if _, labelled := node.Labels[required[i].TopologyKey]; !labelled {
				return false, nil
			}
		}
		tainted := *node
		if p.inZone[node.Name] {
			tainted.Spec.Taints = append(slices.Clip(node.Spec.Taints), corev1.Taint{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoSchedule})
		}
		if is(c.NodeTaintsPolicy, corev1.NodeInclusionPolicyHonor) && scheduling.IsKeptOff(&pod.Spec, &tainted, nil) {
			return false, nil
		}
		matches, err := affinity.Match(node)
		return matches || is(c.NodeAffinityPolicy, corev1.NodeInclusionPolicyIgnore), err
	}), p.on)
}

// count counts the matching pods of each domain of some nodes.
func (l *limit) count(nodes []*corev1.Node, on map[string][]*corev1.Pod) *limit {
	l.counts = map[string]int{}
	for _, node := range nodes {
		if domain, labelled := node.Labels[l.key]; labelled {
			l.counts[domain] += len(only(on[node.Name], l.matches))
		}
	}
	return l
}
