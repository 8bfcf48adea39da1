package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/internal/proxy/accounting"
	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/events"
	"vicinity.dev/vicinity/internal/proxy/health"
	"vicinity.dev/vicinity/internal/proxy/lease"
	"vicinity.dev/vicinity/internal/proxy/probe"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
	"vicinity.dev/vicinity/internal/topology/netset"
)

// Defaults of Options.
const (
	// DefaultMinSyncPeriod keeps the latency of one change below a few milliseconds, and of thousands below a
	// tenth of a second.
	DefaultMinSyncPeriod = 20 * time.Millisecond
	DefaultSyncPeriod    = 10 * time.Minute
)

// Options configure a proxy.
type Options struct {
	NodeName string
	API      *rest.Config

	// Settings decide the rules. The address of the API server is taken from API.
	view.Settings
	// MinSyncPeriod is the minimum time between two syncs.
	MinSyncPeriod time.Duration
	// SyncPeriod is how often all rules are compared with the kernel's without a suspicion.
	SyncPeriod time.Duration
	// LeaseNamespace has the proxy's Lease and the node addresses that vicinity-controller publishes.
	LeaseNamespace string
	// ProbeService is the probed Service in LeaseNamespace, empty for none. The proxy answers at ProbePort, 0 for any
	// port.
	ProbeService string
	ProbePort    uint16
	// StartupTaint means that the proxy removes v1alpha1.TaintProxyNotReady from its node.
	StartupTaint bool
	// AccountingInterval is the minimum time between two counts of connections, 0 for no accounting.
	AccountingInterval time.Duration

	Kernel   kernel
	Tracker  tracker
	Registry prometheus.Registerer
	Log      logr.Logger
	// Programmed is called once, when all objects listed at the start are programmed, except for refused ports. It may
	// be nil.
	Programmed func()
}

// Proxy serves Services on a node.
type Proxy struct {
	options    Options
	client     *cluster.Client
	metrics    *metrics
	catalogue  *cluster.Catalogue
	watches    *cluster.Watches
	programmer *programmer
	cleaner    *cleaner
	keeper     *lease.Keeper
	taint      *taintRemover // nil without Options.StartupTaint
	health     *health.State
	events     *events.Writer
	accountant *accounting.Accountant
}

// New makes a proxy that does nothing until it runs.
func New(o Options) (*Proxy, error) { return newProxy(o, clock.RealClock{}) }

func newProxy(o Options, healthClock clock.PassiveClock) (*Proxy, error) {
	p := &Proxy{options: o, health: health.NewState(healthClock)}
	wake := make(chan struct{}, 1)
	p.catalogue = cluster.NewCatalogue(clock.RealClock{}, func() {
		// Nothing is programmed before all objects are listed. A restart of an unhealthy proxy would not help.
		if p.watches.AreReady() {
			p.health.Queued(p.programmer.apiNames...)
		}
		signal(wake)
	})
	p.metrics = newMetrics(o.Registry, p.catalogue.Count)
	var err error
	if p.client, err = cluster.NewClient(cluster.Counted(o.API, p.metrics.received)); err != nil {
		return nil, err
	}
	p.events = events.NewWriter(p.client.CreateEvent, o.NodeName, func() { p.metrics.failed(stepEvent) }, o.Log)
	p.cleaner = newCleaner(o.Tracker, o.Kernel, p.metrics, o.Log)
	p.keeper = lease.NewKeeper(lease.Options{
		Leases: p.client.Leases(o.LeaseNamespace), Node: o.NodeName, Owner: p.owner, Alive: p.health.Healthy,
		Written: p.acknowledged, Failed: func() { p.metrics.failed(stepLease) }, Log: o.Log,
	})
	if o.StartupTaint {
		p.taint = newTaintRemover(p.node, p.client.PatchNode, func() { p.metrics.failed(stepTaint) }, o.Log)
	}
	p.programmer = p.newProgrammer(wake)
	if o.ProbeService != "" {
		p.programmer.proving = p.newProving()
	}
	if o.AccountingInterval > 0 {
		if err := p.account(); err != nil {
			return nil, err
		}
	}
	p.watches = cluster.NewWatches(p.client, p.catalogue, o.scope(), o.Log)
	p.watches.NodeChanged = p.health.SetNode
	return p, nil
}

// acknowledged is called after each write of the Lease.
func (p *Proxy) acknowledged(programmed lease.Acknowledgement) {
	if p.taint != nil && programmed.Ready {
		signal(p.taint.ready)
	}
}

// node returns the own Node, nil if it is unknown.
func (p *Proxy) node() *corev1.Node {
	node, _ := p.catalogue.Position()
	return node
}

// owner returns the Node as the owner of the Lease, so that both are deleted together.
func (p *Proxy) owner() *metav1.OwnerReference {
	node := p.node()
	if node == nil {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: node.Name, UID: node.UID}
}

func (p *Proxy) account() error {
	p.programmer.index = newIndex(clock.RealClock{})
	p.accountant = accounting.New(accounting.Options{
		SourceZone: func() string {
			_, zone := p.catalogue.Position()
			return zone
		},
		Resolve: p.programmer.resolve, Interval: p.options.AccountingInterval, Log: p.options.Log.WithName("accounting"),
	})
	if err := p.options.Registry.Register(p.accountant); err != nil {
		return fmt.Errorf("registering metrics of accounting: %w", err)
	}
	return nil
}

func (p *Proxy) newProgrammer(wake chan struct{}) *programmer {
	o := &p.options
	ports := &healthPorts{answerer: health.NewServices(p.health), metrics: p.metrics, log: o.Log}
	made := &programmer{
		settings:     o.settings(),
		loaded:       o.Programmed,
		bounds:       newBounds(o.Elements),
		catalogue:    p.catalogue,
		clock:        clock.RealClock{},
		metrics:      p.metrics,
		log:          o.Log,
		health:       p.health,
		warnings:     events.NewWarnings(events.Options{Node: o.NodeName, Record: ports.countWarnings(p.events.Record), Reference: p.objectReference}),
		flows:        p.cleaner,
		onProgrammed: p.keeper.Acknowledge,
		scheduler:    newScheduler(o.MinSyncPeriod),
		checks:       checks{period: o.SyncPeriod, background: func(do func()) { go do() }},
		wake:         wake,
		healthPorts:  ports,
		writer: &writer{
			kernel: o.Kernel, clock: clock.RealClock{}, metrics: p.metrics, log: o.Log,
			stale: p.cleaner.disconnect, forget: p.cleaner.forget,
		},
	}
	made.begin()
	p.cleaner.forgotten, p.cleaner.stillStale = made.setForgotten, made.stillStale
	return made
}

func (p *Proxy) newProving() *proving {
	v := &proving{
		service: types.NamespacedName{Namespace: p.options.LeaseNamespace, Name: p.options.ProbeService},
		results: make(chan struct{}, 1), reported: map[ruleset.Family]probe.State{},
	}
	v.prober = probe.New(probe.Options{
		Node: p.options.NodeName, Port: p.options.ProbePort, Pace: probe.DefaultPace, Tried: p.metrics.probed,
		Changed:  func() { signal(v.results) },
		Unserved: func() { p.catalogue.TouchService(v.service) },
	})
	return v
}

func (o *Options) scope() cluster.Scope {
	return cluster.Scope{Node: o.NodeName, Namespace: o.LeaseNamespace, Slices: o.AllServices}
}

func (o *Options) settings() view.Settings {
	settings := o.Settings
	settings.APIServer = apiServer(o.API)
	return settings
}

// apiServer returns the API server's address, empty if it is configured by a name.
func apiServer(api *rest.Config) netset.Set {
	if api == nil {
		return netset.Set{}
	}
	url, _, err := rest.DefaultServerUrlFor(api)
	if err != nil {
		return netset.Set{} // the clients report the error
	}
	address, err := netip.ParseAddr(url.Hostname())
	if err != nil {
		return netset.Set{}
	}
	return netset.Of(address)
}

func (p *Proxy) objectReference(name types.NamespacedName) *corev1.ObjectReference {
	service := p.catalogue.Entry(name).Service
	if service == nil {
		return nil
	}
	return &corev1.ObjectReference{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Service", Namespace: name.Namespace, Name: name.Name, UID: service.UID}
}

// Health answers /healthz, /livez and /readyz.
func (p *Proxy) Health() http.Handler { return p.health.Handler() }

// Run serves Services until the context ends. The rules stay.
func (p *Proxy) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	running.Go(func() { p.events.Run(ctx) })
	running.Go(func() { p.watches.Run(ctx) })
	cleaned := make(chan struct{})
	running.Go(func() {
		defer close(cleaned)
		p.cleaner.run(ctx)
	})
	running.Go(func() { p.keeper.Run(ctx) })
	if p.taint != nil {
		running.Go(func() { p.taint.run(ctx) })
	}
	if v := p.programmer.proving; v != nil {
		running.Go(func() { v.prober.Run(ctx) })
	}
	if p.options.NodePorts.ByPrefix() {
		running.Go(func() { followInterfaces(ctx, p.options.Log, p.programmer.setLocal) })
	}
	if p.accountant != nil {
		running.Go(func() { p.runAccountant(ctx) })
	}
	select {
	case <-ctx.Done():
		return nil
	case <-p.watches.Ready():
	}
	p.options.Log.Info("All objects are listed: starting to program", "node", p.options.NodeName)
	p.programmer.run(ctx)
	<-cleaned
	p.cleaner.finish(ctx) // includes the requests of the last sync
	return nil
}

const accountAgain = 30 * time.Second

func (p *Proxy) runAccountant(ctx context.Context) {
	for {
		if err := p.accountant.Run(ctx); err != nil && !errors.Is(err, context.Canceled) && ctx.Err() == nil {
			p.options.Log.Error(err, "Cannot count connections")
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(accountAgain):
		}
	}
}
