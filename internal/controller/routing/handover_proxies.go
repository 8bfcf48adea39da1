package routing

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

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

	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/topology"
)

// leaseCache is what a manager's cache holds of Leases: those of proxies, in
// Vicinity's own namespace.
func leaseCache(namespace string) cache.ByObject {
	shared := true
	return cache.ByObject{
		Namespaces:            map[string]cache.Config{namespace: {}},
		Label:                 labels.SelectorFromSet(labels.Set{routing.LabelProxyLease: "true"}),
		UnsafeDisableDeepCopy: &shared,
	}
}

// proxyTable knows from Leases which nodes have a proxy and what it has programmed.
// Each of thousands of proxies renews its Lease every few seconds: an event costs a
// look at the Services that are being handed over, and wakes one of them only when
// the last proxy that it waits for is there. Of a proxy that falls silent there is no
// event: for the Services that were handed over the table is looked at from time to
// time.
type proxyTable struct {
	client client.Client
	clock  clock.PassiveClock

	mu      sync.Mutex
	proxies map[string]proxyLease // by node
	waiting map[types.NamespacedName]*waitingService
	// served are the Services that were handed over, with the nodes that were named to
	// be without a proxy then.
	served map[types.NamespacedName][]string
	// silent are the nodes that had no proxy at the last look.
	silent []string
	// list is shared by the Services that are synced at about the same time.
	list   []routing.NodeProxy
	listed time.Time
}

// proxyLease is what a Lease says, and when it last said something new by our clock:
// clocks of nodes differ.
type proxyLease struct {
	renewed    time.Time
	seen       time.Time
	programmed string
	except     string
}

// waitingService is a Service that is being handed over.
type waitingService struct {
	begun   []routing.GroupVersion
	missing map[string]bool
}

// lookEvery is how often silence is looked for.
const lookEvery = routing.LeaseFresh / 3

// listFor is how long a list of nodes is shared.
const listFor = time.Second

func newProxyTable(c client.Client, now clock.PassiveClock) *proxyTable {
	return &proxyTable{
		client: c, clock: now, proxies: map[string]proxyLease{},
		waiting: map[types.NamespacedName]*waitingService{}, served: map[types.NamespacedName][]string{},
	}
}

// handler follows the Leases.
func (t *proxyTable) handler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { t.observe(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { t.observe(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) {
			if lease, ok := e.Object.(*coordinationv1.Lease); ok {
				t.mu.Lock()
				defer t.mu.Unlock()
				delete(t.proxies, holder(lease))
				t.listed = time.Time{}
			}
		},
	}
}

// holder is the node whose proxy holds the Lease.
func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// observe notes a Lease, and wakes the Services that now wait for nobody any more.
func (t *proxyTable) observe(object client.Object, q queue) {
	lease, ok := object.(*coordinationv1.Lease)
	if !ok || holder(lease) == "" || lease.Spec.RenewTime == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	node, now := holder(lease), t.clock.Now()
	p, known := t.proxies[node]
	renewed := lease.Spec.RenewTime.Time
	switch {
	case !known:
		// It may be an old one of a node that is no more.
		p.seen = renewed
		if p.seen.After(now) {
			p.seen = now
		}
	case !renewed.Equal(p.renewed):
		p.seen = now
	}
	p.renewed, p.programmed = renewed, lease.Annotations[routing.AnnotationProgrammed]
	p.except = lease.Annotations[routing.AnnotationExcept]
	t.proxies[node] = p
	for key, waiting := range t.waiting {
		if waiting.missing[node] && t.proxy(node).Ready(key.String(), waiting.begun, now) {
			delete(waiting.missing, node)
			if len(waiting.missing) == 0 {
				t.listed = time.Time{}
				q.Add(reconcile.Request{NamespacedName: key})
			}
		}
	}
}

// proxy is what is known of a node's proxy, but for its zone: a group that the node
// does not see is one more to wait for then, and a wake-up too few at worst.
func (t *proxyTable) proxy(node string) routing.NodeProxy {
	p := t.proxies[node]
	known := routing.NodeProxy{Node: node, Seen: p.seen, Programmed: p.programmed, Except: p.except}
	if i, found := slices.BinarySearchFunc(t.list, node, byNode); found {
		known.Zone = t.list[i].Zone
	}
	return known
}

// wait notes which proxies a Service waits for, or was told to be without.
func (t *proxyTable) wait(key types.NamespacedName, step routing.HandOverStep) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, key)
	delete(t.served, key)
	switch {
	case step.Phase == routing.PhaseServed:
		t.served[key] = step.Missing
	case step.Phase == routing.PhaseTaking && len(step.Missing) > 0:
		missing := make(map[string]bool, len(step.Missing))
		for _, node := range step.Missing {
			missing[node] = true
		}
		t.waiting[key] = &waitingService{begun: step.Memory.Begun, missing: missing}
	}
}

func (t *proxyTable) forget(key types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.waiting, key)
	delete(t.served, key)
}

// run looks for silence until the context ends.
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

// look wakes the Services that were handed over if other nodes are without a proxy
// than those that they name. A node may be new and its proxy about to come, so that
// only what was so at the look before counts.
func (t *proxyTable) look(ctx context.Context, q queue) error {
	t.mu.Lock()
	nobody := len(t.served) == 0
	t.mu.Unlock()
	if nobody {
		return nil
	}
	proxies, err := t.nodes(ctx)
	if err != nil {
		return err
	}
	now := t.clock.Now()
	var silent []string
	for _, proxy := range proxies {
		if !proxy.Ready("", nil, now) {
			silent = append(silent, proxy.Node)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	lasting := slices.Equal(silent, t.silent)
	t.silent = silent
	for key, named := range t.served {
		if lasting && !slices.Equal(silent, named) {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	return nil
}

// nodes are those that have to be ready to serve: schedulable and ready ones.
func (t *proxyTable) nodes(ctx context.Context) ([]routing.NodeProxy, error) {
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
		if node.DeletionTimestamp == nil && !node.Spec.Unschedulable && readiness(node) == corev1.ConditionTrue {
			t.list = append(t.list, routing.NodeProxy{Node: node.Name, Zone: node.Labels[topology.Zone]})
		}
	}
	slices.SortFunc(t.list, func(a, b routing.NodeProxy) int { return byNode(a, b.Node) })
	return t.current(), nil
}

func byNode(p routing.NodeProxy, node string) int { return strings.Compare(p.Node, node) }

// current joins the nodes of the list with what Leases say now.
func (t *proxyTable) current() []routing.NodeProxy {
	proxies := slices.Clone(t.list)
	for i := range proxies {
		p := t.proxies[proxies[i].Node]
		proxies[i].Seen, proxies[i].Programmed, proxies[i].Except = p.seen, p.programmed, p.except
	}
	return proxies
}
