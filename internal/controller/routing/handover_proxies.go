package routing

import (
	"context"
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
	"vicinity.dev/vicinity/internal/routing/handover"
	"vicinity.dev/vicinity/internal/topology"
)

// leaseCache is what a manager's cache holds of Leases: those of proxies, in
// Vicinity's own namespace.
func leaseCache(namespace string) cache.ByObject {
	shared := true
	return cache.ByObject{
		Namespaces:            map[string]cache.Config{namespace: {}},
		Label:                 labels.SelectorFromSet(labels.Set{v1alpha1.LabelProxyLease: "true"}),
		UnsafeDisableDeepCopy: &shared,
	}
}

// proxyTable knows from Leases which nodes have a proxy and what it has programmed.
// Thousands of proxies renew their Leases every few seconds, and thousands of Services may
// wait for all of them. So a Service watches one node that it misses, then the next one, and
// is woken when all are ready. Nodes that come or go and proxies that fall silent make no
// such event: the table is checked for them periodically, so that what Services say of nodes
// stays true.
type proxyTable struct {
	client client.Client
	clock  clock.PassiveClock
	// runs says which nodes run a proxy by the administrator's rule.
	runs NodeRule

	mu      sync.Mutex
	proxies map[string]proxyLease // by node
	waiting map[types.NamespacedName]*waitingService
	// watched are the waiting Services by the node that they watch.
	watched map[string]map[types.NamespacedName]*waitingService
	// served are the Services that were handed over.
	served map[types.NamespacedName]servedService
	// silent are the ready nodes that had no proxy at the last look.
	silent []string
	// list is shared by Services that are synced within listFor.
	list   []handover.NodeProxy
	listed time.Time
}

// proxyLease is what a Lease says, and when it was renewed by our own clock: the clocks of
// nodes differ.
type proxyLease struct {
	renewed    time.Time
	seen       time.Time
	programmed string
	except     string
}

// nodeNames are names of nodes, joined by commas. They are unique handles because thousands of
// Services can miss the same thousands of nodes.
type nodeNames = unique.Handle[string]

func namesOf(nodes []string) nodeNames { return unique.Make(strings.Join(nodes, ",")) }

func listOf(names nodeNames) []string {
	if names.Value() == "" {
		return nil
	}
	return strings.Split(names.Value(), ",")
}

// waitingService is a Service that is being handed over.
type waitingService struct {
	name  string // as groups and Leases have it
	begun []handover.GroupVersion
	// Its condition names the nodes that it waits for, missing, and those that it does not
	// wait for, down.
	missing, down nodeNames
	// rest are the nodes of missing that were not ready yet. The first one is watched.
	rest string
}

// servedService is a Service that was handed over. Its condition names the nodes without a
// proxy, missing, and those that are down.
type servedService struct{ missing, down nodeNames }

// watches is the node that the Service watches, empty if it waits for none.
func (w *waitingService) watches() string {
	node, _, _ := strings.Cut(w.rest, ",")
	return node
}

// lookEvery is how often the table is checked.
const lookEvery = v1alpha1.LeaseFresh / 3

const listFor = time.Second

func newProxyTable(c client.Client, now clock.PassiveClock, runs NodeRule) *proxyTable {
	return &proxyTable{
		client: c, clock: now, runs: runs, proxies: map[string]proxyLease{},
		waiting: map[types.NamespacedName]*waitingService{}, watched: map[string]map[types.NamespacedName]*waitingService{},
		served: map[types.NamespacedName]servedService{},
	}
}

func (t *proxyTable) handler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { t.observe(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { t.observe(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) {
			if lease, ok := e.Object.(*coordinationv1.Lease); ok && handover.LeaseNode(lease) != "" {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.proxies, handover.LeaseNode(lease))
				t.listed = time.Time{}
			}
		},
	}
}

// observe notes a Lease, and wakes the Services that now wait for no node.
func (t *proxyTable) observe(object client.Object, q queue) {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok || handover.LeaseNode(lease) == "" || lease.Spec.RenewTime == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	node, now := handover.LeaseNode(lease), t.clock.Now()
	p, known := t.proxies[node]
	renewed := lease.Spec.RenewTime.Time
	switch {
	case !known:
		// It may be left of a node that is gone.
		p.seen = renewed
		if p.seen.After(now) {
			p.seen = now
		}
	case !renewed.Equal(p.renewed):
		p.seen = now
	}
	p.renewed, p.programmed = renewed, lease.Annotations[v1alpha1.AnnotationProgrammed]
	p.except = lease.Annotations[v1alpha1.AnnotationExcept]
	t.proxies[node] = p
	for key, waiting := range t.watched[node] {
		if !t.proxy(node).Ready(waiting.name, waiting.begun, now) {
			continue
		}
		t.unwatch(key, waiting)
		t.watch(key, waiting, now)
		if waiting.rest == "" {
			t.listed = time.Time{}
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
}

// watch has a Service watch the first node that it still waits for.
func (t *proxyTable) watch(key types.NamespacedName, w *waitingService, now time.Time) {
	for w.rest != "" && t.proxy(w.watches()).Ready(w.name, w.begun, now) {
		_, w.rest, _ = strings.Cut(w.rest, ",")
	}
	if node := w.watches(); node != "" {
		if t.watched[node] == nil {
			t.watched[node] = map[types.NamespacedName]*waitingService{}
		}
		t.watched[node][key] = w
	}
}

func (t *proxyTable) unwatch(key types.NamespacedName, w *waitingService) {
	node := w.watches()
	delete(t.watched[node], key)
	if len(t.watched[node]) == 0 {
		delete(t.watched, node)
	}
}

// proxy is what is known of a node's proxy. Its zone may be missing; then the Service waits
// for groups that the node does not see, until the next check at worst.
func (t *proxyTable) proxy(node string) handover.NodeProxy {
	p := t.proxies[node]
	known := handover.NodeProxy{Node: node, Seen: p.seen, Programmed: p.programmed, Except: p.except}
	if i, found := slices.BinarySearchFunc(t.list, node, byNode); found {
		known.Zone = t.list[i].Zone
	}
	return known
}

// wait notes which proxies a Service waits for, or is without, and reports whether it waits
// for none any more.
func (t *proxyTable) wait(key types.NamespacedName, step handover.Step) (over bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(key)
	switch {
	case step.Phase == handover.PhaseServed:
		t.served[key] = servedService{missing: namesOf(step.Missing), down: namesOf(step.Down)}
	case step.Phase == handover.PhaseTaking && !step.Take:
		missing := namesOf(step.Missing)
		w := &waitingService{name: key.String(), begun: step.Memory.Begun, missing: missing, down: namesOf(step.Down), rest: missing.Value()}
		t.waiting[key] = w
		t.watch(key, w, t.clock.Now())
		if len(step.Missing) > 0 && w.rest == "" {
			t.listed = time.Time{}
			return true
		}
	}
	return false
}

func (t *proxyTable) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(key)
}

func (t *proxyTable) remove(key types.NamespacedName) {
	if w := t.waiting[key]; w != nil {
		t.unwatch(key, w)
	}
	delete(t.waiting, key)
	delete(t.served, key)
}

// run checks the table periodically until the context ends.
func (t *proxyTable) run(ctx context.Context, q queue) error {
	go func() {
		ticks := time.NewTicker(lookEvery)
		defer ticks.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticks.C:
			}
			if err := t.look(ctx, q); err != nil {
				log.FromContext(ctx).Error(err, "looking for nodes without a proxy")
			}
		}
	}()
	return nil
}

// look wakes the Services whose conditions are not true any more. Those that were handed over
// name the nodes without a proxy; the proxy of a new node may be about to come, so only nodes
// count that had none at the check before. Those that wait name the nodes that they wait for,
// which must exist, and all that have no proxy.
func (t *proxyTable) look(ctx context.Context, q queue) error {
	t.mu.Lock()
	nobody := len(t.served)+len(t.waiting) == 0
	if nobody {
		t.silent = nil
	}
	t.mu.Unlock()
	if nobody {
		return nil
	}
	proxies, err := t.nodes(ctx)
	if err != nil {
		return err
	}
	now := t.clock.Now()
	var nodes []string
	for _, proxy := range proxies {
		nodes = append(nodes, proxy.Node)
	}
	silent, awaited, down := handover.Unserved(proxies, now), handover.Awaited(proxies, now), handover.Down(proxies, now)
	downNames := namesOf(down)
	t.mu.Lock()
	defer t.mu.Unlock()
	stays := slices.DeleteFunc(slices.Clone(silent), func(node string) bool { return !covers(t.silent, []string{node}) })
	either := slices.Compact(slices.Sorted(slices.Values(slices.Concat(silent, t.silent))))
	t.silent = silent
	untrue := map[nodeNames]bool{}
	for key, says := range t.served {
		if _, judged := untrue[says.missing]; !judged {
			named := listOf(says.missing)
			untrue[says.missing] = !covers(named, stays) || !covers(either, named)
		}
		if untrue[says.missing] || says.down != downNames {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	clear(untrue)
	for key, w := range t.waiting {
		if _, judged := untrue[w.missing]; !judged {
			missing := listOf(w.missing)
			untrue[w.missing] = len(missing) == 0 && len(down) < len(nodes) || !covers(nodes, missing) || !covers(missing, awaited)
		}
		if untrue[w.missing] || w.down != downNames || t.arrived(w, now) {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	return nil
}

// covers reports whether a sorted list has all of some.
func covers(list, some []string) bool {
	for _, one := range some {
		if _, found := slices.BinarySearch(list, one); !found {
			return false
		}
	}
	return true
}

// arrived reports whether a node is ready that the Service names as missing, or all nodes are
// that it counts without naming them.
func (t *proxyTable) arrived(w *waitingService, now time.Time) bool {
	said := 0
	for node := range strings.SplitSeq(w.missing.Value(), ",") {
		ready := node != "" && t.proxy(node).Ready(w.name, w.begun, now)
		if said++; said > handover.MostNamed && !ready {
			return false
		}
		if said <= handover.MostNamed && ready {
			return true
		}
	}
	return said > handover.MostNamed
}

// nodes are those that run a proxy by the administrator's rule, also cordoned ones, those that
// are not ready or about to be deleted: they have pods.
func (t *proxyTable) nodes(ctx context.Context) ([]handover.NodeProxy, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if !t.listed.IsZero() && now.Sub(t.listed) < listFor {
		return t.current(), nil
	}
	var list corev1.NodeList
	if err := t.client.List(ctx, &list); err != nil {
		return nil, err
	}
	t.list, t.listed = nil, now
	for i := range list.Items {
		node := &list.Items[i]
		if t.runs.Matches(node.Labels) {
			t.list = append(t.list, handover.NodeProxy{Node: node.Name, Zone: node.Labels[topology.Zone], NotReady: handover.NotReadySince(node)})
		}
	}
	slices.SortFunc(t.list, func(a, b handover.NodeProxy) int { return byNode(a, b.Node) })
	return t.current(), nil
}

func byNode(p handover.NodeProxy, node string) int { return strings.Compare(p.Node, node) }

// current joins the nodes of the list with what Leases say now.
func (t *proxyTable) current() []handover.NodeProxy {
	proxies := slices.Clone(t.list)
	for i := range proxies {
		p := t.proxies[proxies[i].Node]
		proxies[i].Seen, proxies[i].Programmed, proxies[i].Except = p.seen, p.programmed, p.except
	}
	return proxies
}
