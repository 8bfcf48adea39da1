package reservation

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/shell"
)

// selectors finds the budgets that may cover a pod by its labels.
type selectors struct {
	mu sync.RWMutex
	// namespaces has, for each namespace, its budgets by name.
	namespaces map[string]map[string]*knownBudget
	learnt     int // counts changes of the specs of budgets
}

// knownBudget has the known spec of a budget.
type knownBudget struct {
	selector labels.Selector
	pairs    []labelPair // required of each of its pods
	asked    asked
	learnt   int // the value of selectors.learnt at its last change
}

type labelPair struct{ key, value string }

// asked identifies the spec of a budget. The version also changes with the status.
type asked struct {
	version, glass string
	uid            types.UID
	generation     int64
}

func askedBy(budget client.Object) asked {
	return asked{budget.GetResourceVersion(), budget.GetAnnotations()[v1alpha1.AnnotationBreakGlass], budget.GetUID(), budget.GetGeneration()}
}

// isSame ignores versions.
func (a asked) isSame(b asked) bool {
	return a.uid == b.uid && a.generation == b.generation && a.glass == b.glass
}

func newSelectors() *selectors {
	return &selectors{namespaces: map[string]map[string]*knownBudget{}}
}

// set adds or replaces a budget.
func (s *selectors) set(budget *v1alpha1.TopologyDisruptionBudget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learnt++
	if s.namespaces[budget.Namespace] == nil {
		s.namespaces[budget.Namespace] = map[string]*knownBudget{}
	}
	s.namespaces[budget.Namespace][budget.Name] = &knownBudget{
		selector: coverage.Selector(budget), pairs: pairsOf(budget.Spec.Selector), asked: askedBy(budget), learnt: s.learnt,
	}
}

// mark is the point in time that hasLearnt compares with.
func (s *selectors) mark() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.learnt
}

// hasLearnt reports whether any of the budgets was learnt after a mark. It fails if the current version of one is still unknown.
func (s *selectors) hasLearnt(namespace string, since int, budgets map[string]asked) (later bool, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for name, needs := range budgets {
		known := s.namespaces[namespace][name]
		if known == nil {
			known = &knownBudget{}
		}
		if !known.asked.isSame(needs) && !shell.AtLeast(known.asked.version, needs.version) {
			return false, &behindError{what: "TopologyDisruptionBudget " + name, has: known.asked.version, needs: needs.version}
		}
		later = later || known.learnt > since
	}
	return later, nil
}

// pairsOf returns the labels that a pod must have to match a selector.
func pairsOf(selector *metav1.LabelSelector) (pairs []labelPair) {
	if _, err := metav1.LabelSelectorAsSelector(selector); err != nil || selector == nil {
		return nil
	}
	for key, value := range selector.MatchLabels {
		pairs = append(pairs, labelPair{key, value})
	}
	for _, expression := range selector.MatchExpressions {
		if expression.Operator == metav1.LabelSelectorOpIn && len(expression.Values) == 1 {
			pairs = append(pairs, labelPair{expression.Key, expression.Values[0]})
		}
	}
	return pairs
}

// pair returns an indexed label that all pods of a budget have, if one exists: the one that the fewest budgets of the namespace require.
func (s *selectors) pair(budget *v1alpha1.TopologyDisruptionBudget) (rarest labelPair, found bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	fewest := 0
	for _, pair := range pairsOf(budget.Spec.Selector) {
		if isUnindexed(pair.key) {
			continue
		}
		asking := 0
		for _, other := range s.namespaces[budget.Namespace] {
			if slices.Contains(other.pairs, pair) {
				asking++
			}
		}
		if !found || asking < fewest {
			rarest, found, fewest = pair, true, asking
		}
	}
	return rarest, found
}

// forget removes a budget.
func (s *selectors) forget(namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.namespaces[namespace], name); len(s.namespaces[namespace]) == 0 {
		delete(s.namespaces, namespace)
	}
}

// has reports whether a namespace has a budget.
func (s *selectors) has(namespace string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.namespaces[namespace] != nil
}

// matching lists, by name, the budgets whose selectors match the labels of a pod.
func (s *selectors) matching(namespace string, pod map[string]string) []types.NamespacedName {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var found []types.NamespacedName
	for name, known := range s.namespaces[namespace] {
		if known.selector.Matches(labels.Set(pod)) {
			found = append(found, types.NamespacedName{Namespace: namespace, Name: name})
		}
	}
	slices.SortFunc(found, func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) })
	return found
}

// lists reads the budgets of a namespace live. Requests that arrive during a read share the next read, because the running one may miss
// what they need. Package singleflight would share the running one.
type lists struct {
	client client.Reader

	mu            sync.Mutex
	reading, next map[string]*list
}

type list struct {
	done    chan struct{}
	budgets map[string]asked
	err     error
}

// of returns the budgets of a namespace by name, as stored after the start of the call.
func (l *lists) of(ctx context.Context, namespace string) (map[string]asked, error) {
	l.mu.Lock()
	shared := l.next[namespace]
	if shared == nil {
		shared = &list{done: make(chan struct{})}
		if l.next == nil {
			l.reading, l.next = map[string]*list{}, map[string]*list{}
		}
		l.next[namespace] = shared
		go l.read(namespace, shared, l.reading[namespace])
	}
	l.mu.Unlock()
	select {
	case <-shared.done:
		return shared.budgets, shared.err
	case <-ctx.Done():
		return nil, fmt.Errorf("listing the budgets of namespace %s took too long: %w", namespace, context.Cause(ctx))
	}
}

// read waits for the previous read first.
func (l *lists) read(namespace string, this, before *list) {
	if before != nil {
		<-before.done
	}
	l.mu.Lock()
	delete(l.next, namespace)
	l.reading[namespace] = this
	l.mu.Unlock()
	this.budgets, this.err = l.list(namespace)
	l.mu.Lock()
	if l.reading[namespace] == this {
		delete(l.reading, namespace)
	}
	l.mu.Unlock()
	close(this.done)
}

func (l *lists) list(namespace string) (map[string]asked, error) {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	var found metav1.PartialObjectMetadataList
	found.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("TopologyDisruptionBudgetList"))
	if err := l.client.List(ctx, &found, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing the budgets of namespace %s: %w", namespace, err)
	}
	budgets := make(map[string]asked, len(found.Items))
	for i := range found.Items {
		budgets[found.Items[i].Name] = askedBy(&found.Items[i])
	}
	return budgets, nil
}

// specsChanged waits until the selectors have the current budgets of a namespace, and reports whether any was learnt
// after a mark.
func (l *Ledger) specsChanged(ctx context.Context, namespace string, mark int) (later bool, err error) {
	budgets, err := l.lists.of(ctx, namespace)
	if err != nil {
		return false, err
	}
	err = await(ctx, func() (err error) {
		later, err = l.world.selectors.hasLearnt(namespace, mark, budgets)
		return err
	})
	return later, err
}
