package reservation

import (
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/coverage"
)

// selectors finds the budgets that may cover a pod by its labels, also among a thousand of a
// namespace: most selectors ask for one value of one label, and are looked up by it.
type selectors struct {
	mu         sync.RWMutex
	namespaces map[string]*namespaceSelectors
	learnt     int // how often what a budget asks for was learnt
}

type namespaceSelectors struct {
	byName map[string]*indexedSelector
	// byPair are those that match no pod without a label of this value, and others the rest.
	byPair map[labelPair]map[string]*indexedSelector
	others map[string]*indexedSelector
}

type labelPair struct{ key, value string }

type indexedSelector struct {
	name     string
	selector labels.Selector
	pairs    []labelPair // of which a pod has one, none for any pod
	asked    asked
	learnt   int // which time of selectors.learnt
}

// asked tells what a budget asks for from what it asked for before. Its version changes with the status, too.
type asked struct {
	version, glass string
	uid            types.UID
	generation     int64
}

func askedBy(budget client.Object) asked {
	return asked{budget.GetResourceVersion(), budget.GetAnnotations()[v1alpha1.AnnotationBreakGlass], budget.GetUID(), budget.GetGeneration()}
}

// isSame reports whether the same is asked for at another version.
func (a asked) isSame(b asked) bool {
	return a.uid == b.uid && a.generation == b.generation && a.glass == b.glass
}

func newSelectors() *selectors {
	return &selectors{namespaces: map[string]*namespaceSelectors{}}
}

// set adds a budget, or replaces what is known of it.
func (s *selectors) set(budget *v1alpha1.TopologyDisruptionBudget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(budget.Namespace, budget.Name)
	s.learnt++
	n := s.namespaces[budget.Namespace]
	if n == nil {
		n = &namespaceSelectors{
			byName: map[string]*indexedSelector{}, others: map[string]*indexedSelector{},
			byPair: map[labelPair]map[string]*indexedSelector{},
		}
		s.namespaces[budget.Namespace] = n
	}
	added := &indexedSelector{
		name: budget.Name, selector: coverage.Selector(budget), pairs: n.rarest(budget.Spec.Selector), asked: askedBy(budget), learnt: s.learnt,
	}
	n.byName[added.name] = added
	for _, pair := range added.pairs {
		if n.byPair[pair] == nil {
			n.byPair[pair] = map[string]*indexedSelector{}
		}
		n.byPair[pair][added.name] = added
	}
	if len(added.pairs) == 0 {
		n.others[added.name] = added
	}
}

// mark is what hasLearnt is given later.
func (s *selectors) mark() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.learnt
}

// hasLearnt reports whether what some budgets of a namespace ask for was learnt after a mark. An error says that it is not known yet.
func (s *selectors) hasLearnt(namespace string, since int, budgets map[string]asked) (later bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, needs := range budgets {
		known := &indexedSelector{}
		if n := s.namespaces[namespace]; n != nil && n.byName[name] != nil {
			known = n.byName[name]
		}
		if !known.asked.isSame(needs) && !isAtLeast(known.asked.version, needs.version) {
			return false, &behindError{what: "TopologyDisruptionBudget " + name, has: known.asked.version, needs: needs.version}
		}
		later = later || known.learnt > since
	}
	return later, nil
}

// rarest are the values of one label of which a pod must have one, those that the fewest
// other selectors ask for.
func (n *namespaceSelectors) rarest(selector *metav1.LabelSelector) (pairs []labelPair) {
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil || selector == nil {
		return nil
	}
	var choices [][]labelPair
	for key, value := range selector.MatchLabels {
		choices = append(choices, []labelPair{{key, value}})
	}
	for _, expression := range selector.MatchExpressions {
		if expression.Operator == metav1.LabelSelectorOpIn {
			choice := make([]labelPair, len(expression.Values))
			for i, value := range expression.Values {
				choice[i] = labelPair{expression.Key, value}
			}
			choices = append(choices, choice)
		}
	}
	fewest := 0
	for _, choice := range choices {
		others := 0
		for _, pair := range choice {
			others += len(n.byPair[pair])
		}
		if pairs == nil || others < fewest {
			pairs, fewest = choice, others
		}
	}
	return pairs
}

// pair is a value of a label that all pods have which a budget's selector matches, if there is
// one that pods are indexed by.
func (s *selectors) pair(budget *v1alpha1.TopologyDisruptionBudget) (labelPair, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := s.namespaces[budget.Namespace]
	if n == nil {
		n = &namespaceSelectors{}
	}
	pairs := n.rarest(budget.Spec.Selector)
	if len(pairs) != 1 || isUnindexed(pairs[0].key) {
		return labelPair{}, false
	}
	return pairs[0], true
}

// forget removes a budget.
func (s *selectors) forget(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(namespace, name)
}

func (s *selectors) drop(namespace, name string) {
	n := s.namespaces[namespace]
	if n == nil || n.byName[name] == nil {
		return
	}
	for _, pair := range n.byName[name].pairs {
		if delete(n.byPair[pair], name); len(n.byPair[pair]) == 0 {
			delete(n.byPair, pair)
		}
	}
	delete(n.others, name)
	if delete(n.byName, name); len(n.byName) == 0 {
		delete(s.namespaces, namespace)
	}
}

// has reports whether a namespace has a budget.
func (s *selectors) has(namespace string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.namespaces[namespace] != nil
}

// matching are the budgets whose selectors match a pod with some labels, in the order of
// their names.
func (s *selectors) matching(namespace string, pod map[string]string) []types.NamespacedName {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := s.namespaces[namespace]
	if n == nil {
		return nil
	}
	var found []types.NamespacedName
	add := func(of map[string]*indexedSelector) {
		for _, indexed := range of {
			if indexed.selector.Matches(labels.Set(pod)) {
				found = append(found, types.NamespacedName{Namespace: namespace, Name: indexed.name})
			}
		}
	}
	for key, value := range pod {
		add(n.byPair[labelPair{key, value}])
	}
	add(n.others)
	slices.SortFunc(found, func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) })
	return found
}
