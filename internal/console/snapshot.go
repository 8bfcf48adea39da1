package console

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/capacity"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/routing/routingflags"
)

// snapshot is the state of the cluster at one time. It is immutable.
type snapshot struct {
	at time.Time // of the newest change of an object
	reachability

	nodes    []*corev1.Node // sorted by name
	cluster  *intent.Cluster
	services []*corev1.Service // sorted by namespace and name
	slices   map[types.NamespacedName][]*discoveryv1.EndpointSlice
	groups   map[types.NamespacedName][]*v1alpha1.EndpointGroup
	policies map[string][]*v1alpha1.RoutingPolicy
	wide     inspect.ClusterSettings
	spaces   map[string]*corev1.Namespace
	running  routingflags.Running
	// home is the namespace of vicinity-controller, or empty.
	home string
	// statuses are in the order of services, with one or two families each.
	statuses map[types.NamespacedName][]inspect.ServiceStatus
	budgets  []inspect.BudgetStatus
	rollouts []inspect.RolloutStatus
}

func emptySnapshot(o Options, now time.Time) *snapshot {
	s := &snapshot{at: now, cluster: capacity.NewCluster(nil), running: routingflags.Defaults()}
	for _, k := range kinds(o) {
		s.waiting = append(s.waiting, k.name)
	}
	return s
}

// objects returns the valid objects of a kind, sorted by namespace and name, and the names of invalid
// ones.
func objects[T metav1.Object](w *watcher, kind string) (list []T, wrong []string) {
	w.mu.Lock()
	store := w.stores[kind]
	w.mu.Unlock()
	if store == nil {
		return nil, nil
	}
	for _, object := range store.List() {
		switch found := object.(type) {
		case *broken:
			wrong = append(wrong, fmt.Sprintf("%s %s is invalid and left out: %v", strings.TrimSuffix(kind, "s"), title(found.Namespace, found.Name), found.err))
		case T:
			list = append(list, found)
		}
	}
	slices.SortFunc(list, func(a, b T) int {
		return cmp.Or(strings.Compare(a.GetNamespace(), b.GetNamespace()), strings.Compare(a.GetName(), b.GetName()))
	})
	slices.Sort(wrong)
	return list, wrong
}

// title returns the name, with the namespace if there is one.
func title(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// next returns the snapshot after a change, and the changed parts of pages. It reuses the values that
// do not depend on the change.
func (s *snapshot) next(w *watcher, c change) (*snapshot, []part) {
	n := &snapshot{at: s.at, reachability: w.reachability()}
	if c.hasObjects() {
		n.at = w.now()
	}
	var changed []part
	if c.isReachable {
		// All pages name what may not be read, and most show a consequence.
		changed = append(changed, partCluster, partServices, partDisruption, partAnyService)
	}
	if !slices.Equal(n.unread, s.unread) {
		c.everything = true
	}
	n.readPlaces(w, s, c)
	n.readServices(w)
	deployments, _ := objects[*appsv1.Deployment](w, kindDeployments)
	mutating, _ := objects[*admissionregistrationv1.MutatingWebhookConfiguration](w, kindMutating)
	validating, _ := objects[*admissionregistrationv1.ValidatingWebhookConfiguration](w, kindValidating)
	controller, several := routingflags.ControllerOf(deployments, inspect.WebhookNamespace(inspect.WebhooksOf(mutating, validating)))
	n.home = inspect.Home(controller, nil)
	if slices.Contains(n.unread, kindDeployments) || slices.Contains(n.waiting, kindDeployments) {
		n.running = routingflags.Defaults()
	} else {
		var notes []string
		n.running, notes = routingflags.RunningOf(controller)
		if several != "" {
			notes = append(notes, several)
		}
		n.notKnown = append(n.notKnown, notes...)
	}
	n.decide(s, c)
	n.readDisruption(w, s, c)
	if c.nodes {
		changed = append(changed, partCluster)
	}
	if c.everything {
		changed = append(changed, partServices, partAnyService)
	}
	if len(c.services)+len(c.namespaces) > 0 {
		changed = append(changed, partServices)
	}
	for name := range c.services {
		changed = append(changed, partService(name.Namespace, name.Name))
	}
	if len(c.namespaces) > 0 {
		changed = append(changed, partAnyService)
	}
	if c.disruption {
		changed = append(changed, partDisruption)
	}
	return n, changed
}

func (s *snapshot) readPlaces(w *watcher, before *snapshot, c change) {
	s.nodes, s.cluster = before.nodes, before.cluster
	if c.nodes || c.isReachable {
		s.nodes, _ = objects[*corev1.Node](w, inspect.KindNodes)
		s.cluster = capacity.NewCluster(s.nodes)
	}
	spaces, _ := objects[*corev1.Namespace](w, kindNamespaces)
	s.spaces = make(map[string]*corev1.Namespace, len(spaces))
	for _, space := range spaces {
		s.spaces[space.Name] = space
	}
	policies, wrong := objects[*v1alpha1.RoutingPolicy](w, kindPolicies)
	s.notKnown = append(s.notKnown, wrong...)
	s.policies = map[string][]*v1alpha1.RoutingPolicy{}
	for _, policy := range policies {
		s.policies[policy.Namespace] = append(s.policies[policy.Namespace], policy)
	}
	s.wide.Defaults, wrong = objects[*v1alpha1.ClusterRoutingPolicy](w, kindClusterPolicies)
	s.notKnown = append(s.notKnown, wrong...)
	s.wide.Shifts, wrong = objects[*v1alpha1.ZoneShift](w, inspect.KindShifts)
	s.notKnown = append(s.notKnown, wrong...)
}

func (s *snapshot) readServices(w *watcher) {
	s.services, _ = objects[*corev1.Service](w, kindServices)
	all, _ := objects[*discoveryv1.EndpointSlice](w, inspect.KindSlices)
	s.slices = make(map[types.NamespacedName][]*discoveryv1.EndpointSlice, len(s.services))
	for _, slice := range all {
		key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		s.slices[key] = append(s.slices[key], slice)
	}
	groups, wrong := objects[*v1alpha1.EndpointGroup](w, inspect.KindGroups)
	s.notKnown = append(s.notKnown, wrong...)
	s.groups = map[types.NamespacedName][]*v1alpha1.EndpointGroup{}
	for _, group := range groups {
		key := types.NamespacedName{Namespace: group.Namespace, Name: group.Labels[v1alpha1.LabelService]}
		s.groups[key] = append(s.groups[key], group)
	}
}

func (s *snapshot) decide(before *snapshot, c change) {
	s.statuses = make(map[types.NamespacedName][]inspect.ServiceStatus, len(s.services))
	planner := new(allocate.Planner)
	for _, service := range s.services {
		name := keyOf(service)
		if known, found := before.statuses[name]; found && !c.has(name) {
			s.statuses[name] = known
			continue
		}
		reading := s.reading(service)
		reading.Planner = planner
		statuses, err := inspect.StatusOf(reading)
		if err != nil {
			statuses = []inspect.ServiceStatus{{
				Namespace: service.Namespace, Service: service.Name, State: "unknown", Delivery: allocate.DeliveryNone,
				Notes: []string{fmt.Sprintf("it cannot be explained: %v", err)},
			}}
		}
		s.statuses[name] = statuses
	}
}

func keyOf(service *corev1.Service) types.NamespacedName {
	return types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
}

func (s *snapshot) reading(service *corev1.Service) inspect.Reading {
	name := keyOf(service)
	in := routing.Input{
		Service: service, Slices: s.slices[name], Groups: s.groups[name], Cluster: s.cluster, Policies: s.policies[name.Namespace], Settings: s.running.Settings,
	}
	s.wide.SelectFor(&in, s.spaces[name.Namespace], s.at)
	return inspect.Reading{
		Input: in, LeftAlone: s.running.Exclusion.Reason(name.Namespace, name.Name), Stopped: s.running.Stopped, Unread: s.unread, Now: s.at,
	}
}

// service returns a Service, or nil.
func (s *snapshot) service(namespace, name string) *corev1.Service {
	at, found := slices.BinarySearchFunc(s.services, types.NamespacedName{Namespace: namespace, Name: name}, func(a *corev1.Service, b types.NamespacedName) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	if !found {
		return nil
	}
	return s.services[at]
}

func (s *snapshot) readDisruption(w *watcher, before *snapshot, c change) {
	budgets, wrong := objects[*v1alpha1.TopologyDisruptionBudget](w, inspect.KindBudgets)
	rollouts, wrongToo := objects[*v1alpha1.DomainRollout](w, kindRollouts)
	s.notKnown = slices.Concat(s.notKnown, wrong, wrongToo)
	if !c.disruption {
		s.budgets, s.rollouts = before.budgets, before.rollouts
		return
	}
	for _, budget := range budgets {
		s.budgets = append(s.budgets, inspect.BudgetStatusOf(budget))
	}
	slices.SortFunc(s.budgets, inspect.CompareBudgets)
	for _, rollout := range rollouts {
		s.rollouts = append(s.rollouts, inspect.RolloutStatusOf(rollout))
	}
	slices.SortFunc(s.rollouts, inspect.CompareRollouts)
}
