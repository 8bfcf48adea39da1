package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing/handover"
)

// leaseCache limits a manager's cache of Leases to the Leases of proxies in Vicinity's own namespace.
func leaseCache(namespace string) cache.ByObject {
	shared := true
	return cache.ByObject{
		Namespaces:            map[string]cache.Config{namespace: {}},
		Label:                 labels.SelectorFromSet(labels.Set{v1alpha1.LabelProxyLease: "true"}),
		UnsafeDisableDeepCopy: &shared,
	}
}

// proxyTable has the nodes with a proxy and what it has programmed, from Leases. Thousands of proxies renew their
// Leases every few seconds, and thousands of Services may wait for all of them. So a Lease with news wakes only
// Services that wait for no other node. A periodic check finds Services whose conditions name the wrong nodes.
type proxyTable struct {
	client client.Client
	clock  clock.PassiveClock
	runs   NodeRule
	news   *shell.Gatherer

	mu       sync.Mutex
	proxies  map[string]proxyLease // by node
	services map[types.NamespacedName]*proxiedService
	// list is shared by Services that are synced within listFor.
	list   []handover.NodeProxy
	listed time.Time
}

// proxyLease is the content of a Lease, and when it was renewed by our own clock: the clocks of nodes differ.
type proxyLease struct {
	renewed    time.Time
	seen       time.Time
	programmed string
	except     string
}

// nodeNames are names of nodes, joined by commas. They are unique handles because thousands of Services can miss the
// same thousands of nodes.
type nodeNames = unique.Handle[string]

func namesOf(nodes []string) nodeNames { return unique.Make(strings.Join(nodes, ",")) }

func listOf(names nodeNames) []string {
	if names.Value() == "" {
		return nil
	}
	return strings.Split(names.Value(), ",")
}

// proxiedService is a Service that is or was handed over. Its condition names the missing nodes, which it waits for or
// which cannot serve it, and the down ones, which it does not wait for. Only rest changes.
type proxiedService struct {
	name          string // as groups and Leases have it
	begun         []handover.GroupVersion
	served        bool
	missing, down nodeNames
	// rest are the missing nodes, without the first ones that have become ready. See skipReady.
	rest string
}

const (
	// checkEvery is how often the conditions of Services are checked.
	checkEvery = v1alpha1.LeaseFresh / 3
	// newsFor is how long news of Leases are gathered.
	newsFor = 200 * time.Millisecond
	listFor = time.Second
)

func newProxyTable(c client.Client, now clock.PassiveClock, runs NodeRule) *proxyTable {
	return &proxyTable{
		client: c, clock: now, runs: runs, news: shell.NewGatherer(newsFor),
		proxies: map[string]proxyLease{}, services: map[types.NamespacedName]*proxiedService{},
	}
}

func (t *proxyTable) handler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ queue) { t.observe(e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ queue) { t.observe(e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) {
			if lease, ok := e.Object.(*coordinationv1.Lease); ok && handover.LeaseNode(lease) != "" {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.proxies, handover.LeaseNode(lease))
			}
		},
	}
}

func (t *proxyTable) observe(object client.Object) {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok || handover.LeaseNode(lease) == "" || lease.Spec.RenewTime == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	node, now := handover.LeaseNode(lease), t.clock.Now()
	before, known := t.proxies[node]
	p := proxyLease{
		renewed: lease.Spec.RenewTime.Time, seen: before.seen,
		programmed: lease.Annotations[v1alpha1.AnnotationProgrammed], except: lease.Annotations[v1alpha1.AnnotationExcept],
	}
	switch {
	case !known:
		// It may be the Lease of a node that is gone.
		p.seen = p.renewed
		if p.seen.After(now) {
			p.seen = now
		}
	case !p.renewed.Equal(before.renewed):
		p.seen = now
	}
	t.proxies[node] = p
	if p.programmed != before.programmed || p.except != before.except || now.Sub(before.seen) >= v1alpha1.LeaseFresh {
		t.news.Notice()
	}
}

// wakeReady wakes the Services that no longer wait for any node.
func (t *proxyTable) wakeReady(_ context.Context, q queue) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, s := range t.services {
		if s.rest != "" && t.skipReady(s) {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	return nil
}

// skipReady drops ready nodes from the beginning of rest, and reports whether none is left.
func (t *proxyTable) skipReady(s *proxiedService) bool {
	now := t.clock.Now()
	for s.rest != "" {
		node, rest, _ := strings.Cut(s.rest, ",")
		if !t.proxy(node).Ready(s.name, s.begun, now) {
			return false
		}
		s.rest = rest
	}
	return true
}

// proxy returns the state of a node's proxy. Its zone may be unknown: then the Service also waits for groups that the
// node does not see, until the next check at worst.
func (t *proxyTable) proxy(node string) handover.NodeProxy {
	p := t.proxies[node]
	known := handover.NodeProxy{Node: node, Seen: p.seen, Programmed: p.programmed, Except: p.except}
	if i, found := slices.BinarySearchFunc(t.list, node, byNode); found {
		known.Zone = t.list[i].Zone
	}
	return known
}

// trackService notes which proxies a Service waits for or lacks. It reports whether all proxies that it waits for have
// become ready meanwhile: then no event wakes it.
func (t *proxyTable) trackService(key types.NamespacedName, step handover.Step) (ready bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.services, key)
	s := &proxiedService{name: key.String(), missing: namesOf(step.Missing), down: namesOf(step.Down)}
	switch {
	case step.Phase == handover.PhaseServed:
		s.served = true
		t.services[key] = s
	case step.Phase == handover.PhaseTaking && !step.Take:
		s.begun, s.rest = step.Memory.Begun, s.missing.Value()
		t.services[key] = s
		return len(step.Missing) > 0 && t.skipReady(s)
	}
	return false
}

func (t *proxyTable) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.services, key)
}

func (t *proxyTable) run(ctx context.Context, q queue) error {
	go func() {
		ticks := time.NewTicker(checkEvery)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			if err := t.checkMissing(ctx, q); err != nil {
				log.FromContext(ctx).Error(err, "looking for nodes without a proxy")
			}
		}
	}()
	return nil
}

// checkMissing wakes the Services whose conditions name the wrong nodes. New, deleted and silent nodes cause no event
// that would wake them.
func (t *proxyTable) checkMissing(ctx context.Context, q queue) error {
	proxies, err := t.nodes(ctx)
	if err != nil {
		return err
	}
	now := t.clock.Now()
	unserved, down := handover.Unserved(proxies, now), namesOf(handover.Down(proxies, now))
	// Thousands of Services can wait for thousands of nodes. Leases and syncs must not wait until all are checked.
	t.mu.Lock()
	services := maps.Clone(t.services)
	t.mu.Unlock()
	named := map[nodeNames][]string{}
	maps.DeleteFunc(services, func(_ types.NamespacedName, s *proxiedService) bool {
		if _, known := named[s.missing]; !known {
			named[s.missing] = listOf(s.missing)
		}
		missing := unserved
		if !s.served {
			missing = handover.Missing(s.name, proxies, s.begun, now)
		}
		return s.down == down && slices.Equal(named[s.missing], missing)
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, s := range services {
		if t.services[key] == s { // not synced meanwhile
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	return nil
}

// nodes returns the nodes that run a proxy by the administrator's rule. Nodes that are cordoned, not ready or about to
// be deleted count, because they have pods.
func (t *proxyTable) nodes(ctx context.Context) ([]handover.NodeProxy, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if t.listed.IsZero() || now.Sub(t.listed) >= listFor {
		var list corev1.NodeList
		if err := t.client.List(ctx, &list); err != nil {
			return nil, err
		}
		t.list, t.listed = nil, now
		for i := range list.Items {
			node := &list.Items[i]
			if t.runs.Matches(node.Labels) {
				t.list = append(t.list, handover.OfNode(node))
			}
		}
		slices.SortFunc(t.list, func(a, b handover.NodeProxy) int { return byNode(a, b.Node) })
	}
	proxies := slices.Clone(t.list)
	for i := range proxies {
		p := t.proxies[proxies[i].Node]
		proxies[i].Seen, proxies[i].Programmed, proxies[i].Except = p.seen, p.programmed, p.except
	}
	return proxies, nil
}

func byNode(p handover.NodeProxy, node string) int { return strings.Compare(p.Node, node) }

// DefaultProxyNodes returns the rule of the chart's DaemonSet by default.
func DefaultProxyNodes() NodeRule {
	return NodeRule{selectors: []labels.Selector{labels.SelectorFromSet(labels.Set{corev1.LabelOSStable: "linux"})}}
}

// NodeRule selects the nodes that run vicinity-proxy. A node has to match one of the selectors; without selectors all
// nodes match. It is the value of a flag that can be given several times; the first one replaces the default.
type NodeRule struct {
	selectors []labels.Selector
	given     bool // by a flag, which replaces the default
}

// Matches reports whether a node with these labels runs the proxy.
func (r *NodeRule) Matches(node map[string]string) bool {
	return len(r.selectors) == 0 || slices.ContainsFunc(r.selectors, func(s labels.Selector) bool { return s.Matches(labels.Set(node)) })
}

// String returns the rule as a flag.
func (r *NodeRule) String() string {
	texts := make([]string, len(r.selectors))
	for i, selector := range r.selectors {
		texts[i] = selector.String()
	}
	return strings.Join(texts, " or ")
}

// Set adds a selector.
func (r *NodeRule) Set(selector string) error {
	parsed, err := labels.Parse(selector)
	if err != nil {
		return fmt.Errorf("it must be a selector of labels, such as %s=linux: %w", corev1.LabelOSStable, err)
	}
	if !r.given {
		r.selectors = nil
	}
	r.selectors, r.given = append(r.selectors, parsed), true
	return nil
}

// Type returns the name of the flag's value in the help.
func (*NodeRule) Type() string { return "selector" }
