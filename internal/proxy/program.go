package proxy

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/internal/proxy/accounting"
	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/events"
	"vicinity.dev/vicinity/internal/proxy/health"
	"vicinity.dev/vicinity/internal/proxy/lease"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// programmer programs the Services of the catalogue. The goroutine of run owns its state. Methods that any goroutine
// may call say so.
type programmer struct {
	// settings include the current ranges of cluster IPs.
	settings    view.Settings
	catalogue   *cluster.Catalogue
	clock       clock.WithDelayedExecution
	metrics     *metrics
	log         logr.Logger
	health      *health.State
	healthPorts *healthPorts
	warnings    *events.Warnings
	index       *index // nil without accounting
	// unannounced are staged Services that the kernel does not have yet. They enter the index and the health checks with the
	// kernel's rules.
	unannounced map[types.NamespacedName][]compile.Family
	flows       flows
	// onProgrammed gets the acknowledgement after each sync and probe.
	onProgrammed func(lease.Acknowledgement)
	// isLoaded means that all that was listed at the start is programmed, except for refused ports. loaded is called
	// then. It may be nil.
	isLoaded bool
	loaded   func()

	writer    *writer
	scheduler *scheduler
	checks    checks
	families  []*family
	apiNames  []corev1.IPFamily // of families
	options   compile.Options
	node      *corev1.Node
	book      *compile.AddressBook
	records   map[types.NamespacedName]*record
	totals    totals
	bounds    *bounds
	// onNode counts, for each endpoint on this node, the Services that have it.
	onNode        map[netip.Addr]int
	onNodeChanged bool
	answers       map[types.NamespacedName]health.Service
	versions      *lease.Acknowledgements
	// proving is nil if the node is not probed.
	proving *proving
	// orphans are the names of Services that have groups and do not exist.
	orphans map[types.NamespacedName]bool
	// underway has the changes that the kernel does not have yet.
	underway map[types.NamespacedName]*cluster.Change
	started  time.Time

	wake       chan struct{}
	mu         sync.Mutex
	local      []netip.Addr
	knowsLocal bool
	// forgotten records, for each affinity map, when the last deletion of clients began.
	forgotten map[remembered]time.Time
}

// record describes a Service that the rules serve.
type record struct {
	// service is the version that was compiled or restricted last.
	service     *corev1.Service
	ports       perFamily[[]string]
	endpoints   perFamily[int]
	elements    perFamily[int]
	onNode      []netip.Addr
	unreachable []string
	refused     compile.Refusals
	health      *health.Service
	notes       []string
}

type totals struct {
	services, unreachable int
	endpoints, elements   perFamily[int]
	refused               map[compile.Reason]int
}

func (t *totals) add(r *record, by int) {
	if len(r.ports[0])+len(r.ports[1]) > 0 {
		t.services += by
	}
	t.unreachable += by * len(r.unreachable)
	for i, n := range r.endpoints {
		t.endpoints[i] += by * n
		t.elements[i] += by * r.elements[i]
	}
	for reason, n := range r.refused.Counts {
		t.refused[reason] += by * n
	}
}

func (p *programmer) begin() {
	p.book, p.totals.refused = compile.NewAddressBook(), map[compile.Reason]int{}
	for _, number := range p.settings.Families() {
		f := newFamily(p.settings.Config(number, nil))
		p.families = append(p.families, f)
		p.apiNames = append(p.apiNames, corev1.IPFamily(f.String()))
	}
	p.records, p.onNode, p.answers = map[types.NamespacedName]*record{}, map[netip.Addr]int{}, map[types.NamespacedName]health.Service{}
	p.unannounced = map[types.NamespacedName][]compile.Family{}
	p.orphans, p.underway = map[types.NamespacedName]bool{}, map[types.NamespacedName]*cluster.Change{}
	p.versions = lease.NewAcknowledgements()
	p.checks.ends = make(chan []reading, 1)
	// The first read of the rules is a comparison already.
	p.checks.compare = p.clock.Now().Add(p.checks.period)
}

// setLocal stores the addresses of the node's interfaces. Any goroutine may call it.
func (p *programmer) setLocal(addresses []netip.Addr) {
	p.mu.Lock()
	same := p.knowsLocal && slices.Equal(addresses, p.local)
	p.local, p.knowsLocal = addresses, true
	p.mu.Unlock()
	if !same {
		p.catalogue.TouchNode()
	}
}

// setForgotten notes that clients of a map were deleted, from a time on. Any goroutine may call it.
func (p *programmer) setForgotten(number ruleset.Family, set string, began time.Time) {
	p.mu.Lock()
	if p.forgotten == nil {
		p.forgotten = map[remembered]time.Time{}
	}
	p.forgotten[remembered{number, set}] = began
	p.mu.Unlock()
	signal(p.wake)
}

// signal wakes the reader of a channel with room for one signal.
func signal(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func (p *programmer) applyForgotten() {
	p.mu.Lock()
	forgotten := p.forgotten
	p.forgotten = nil
	p.mu.Unlock()
	for of, began := range forgotten {
		for _, f := range p.families {
			if f.number == of.family {
				f.table.Forgotten(of.set, began)
			}
		}
	}
}

// stillStale removes, in place, connections whose endpoints serve again. Any goroutine may call it.
func (p *programmer) stillStale(all []ruleset.Stale) []ruleset.Stale {
	for _, f := range p.families {
		all = f.stillStale(all)
	}
	return all
}

// resolve returns the destination of a connection to a front, for accounting. Any goroutine may call it.
func (p *programmer) resolve(front ruleset.Front, target netip.Addr) (accounting.Flow, bool) {
	for _, f := range p.families {
		if owner := f.owner(front); owner != "" {
			return p.index.resolve(events.ServiceOf(owner), target)
		}
	}
	return accounting.Flow{}, false
}

// run programs until the context ends. The rules stay.
func (p *programmer) run(ctx context.Context) {
	p.started = p.clock.Now()
	if p.catalogue.Changed() {
		p.health.Queued(p.apiNames...)
	}
	wait := p.step(ctx)
	for ; ctx.Err() == nil; wait = p.step(ctx) {
		timer := p.clock.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-p.wake:
		case all := <-p.checks.ends:
			p.compared(all)
		case <-p.probeResults():
			p.reportProbes()
		case <-timer.C():
		}
		timer.Stop()
	}
	p.healthPorts.answerer.Close()
}

// step does the due work, and returns the time until the next step.
func (p *programmer) step(ctx context.Context) time.Duration {
	p.applyForgotten()
	now := p.clock.Now()
	if at := p.nextSync(now); !at.IsZero() && !at.After(now) {
		changed, before, knowsNode := p.catalogue.Changed(), p.countWrites(), p.knowsNodePortAddresses()
		failure := p.sync(ctx, now)
		if !p.isLoaded && knowsNode && failure == nil && len(p.scheduler.postponed) == 0 {
			p.markLoaded()
		}
		ended := p.clock.Now()
		p.scheduler.synced(now, ended, !changed && p.countWrites() == before)
		now = ended
	}
	if !p.checks.next.After(now) {
		p.check(now)
		p.healthPorts.retry(ctx)
		p.reconcile()
		p.reportProbes()
		now = p.clock.Now()
		p.warn(now)
	}
	return max(0, earlier(p.nextSync(now), p.checks.next).Sub(now))
}

func (p *programmer) markLoaded() {
	p.isLoaded = true
	if p.loaded != nil {
		p.loaded()
	}
	p.onProgrammed(p.acknowledged())
}

// warn writes the due events about Services that do not work.
func (p *programmer) warn(now time.Time) {
	p.warnings.HealthPortsTaken(p.healthPorts.notes(p.warnings.Node), now)
	refused := map[string]error{}
	for _, f := range p.families {
		for name, one := range f.refused {
			refused[name] = one.cause
		}
	}
	p.warnings.PortsRefused(refused, now)
	if notes, changed := p.bounds.notes(p.warnings.Node); changed {
		p.warnings.TooManyElements(notes, now)
	}
	p.warnings.WriteDue(now)
}

func (p *programmer) countWrites() int {
	n := 0
	for _, f := range p.families {
		n += f.writes
	}
	return n
}

// nextSync returns when the next sync is due, zero if only a change makes one due.
func (p *programmer) nextSync(now time.Time) time.Time {
	var at time.Time
	if p.knowsNodePortAddresses() {
		if p.catalogue.Changed() {
			at = now
		}
		at = earlier(at, p.scheduler.nextDue())
	}
	for _, f := range p.families {
		at = earlier(at, f.nextDue())
	}
	if at.IsZero() {
		return at
	}
	return p.scheduler.ready(at)
}

// knowsNodePortAddresses reports whether the addresses for NodePorts are known. Rules without them would remove the
// NodePorts of an earlier process.
func (p *programmer) knowsNodePortAddresses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.knowsLocal || !p.settings.NodePorts.ByPrefix()
}

// sync programs the changes. The error does not include refused ports.
func (p *programmer) sync(ctx context.Context, now time.Time) error {
	taken := p.catalogue.Take()
	if !taken.Empty() {
		p.health.Queued(p.apiNames...)
	}
	if taken.VersionsReset {
		p.versions = lease.NewAcknowledgements()
	}
	for name, one := range taken.Services {
		p.versions.Wait(name, one.HandOver)
		// Changes before the start do not count for the latency of this process.
		one.Triggered = slices.DeleteFunc(one.Triggered, func(at time.Time) bool { return !at.After(p.started) })
		p.underway[name] = one.Before(p.underway[name])
	}
	changed, claimed := p.affectedServices(taken)
	p.compileAll(p.scheduler.due(changed, p.candidate, now), now)
	for name := range changed {
		if _, compiled := p.scheduler.efforts[name]; !compiled {
			p.restrict(name, claimed[name])
		}
	}
	p.stageHairpin()

	wrote, failure := p.write(ctx, now)
	p.scheduler.charge(wrote, p.clock.Now())
	if ctx.Err() == nil {
		p.finish(ctx, now, failure)
	}
	return failure
}

// write writes the staged changes of all families. The result leaves out repairs and searches: no Service is charged
// for them.
func (p *programmer) write(ctx context.Context, now time.Time) (wrote writing, failure error) {
	for _, f := range p.families {
		if f.retry.After(now) {
			failure = errWaiting
			continue
		}
		began := p.clock.Now()
		f.wrote = 0
		if err := p.writer.write(ctx, f, now); err != nil {
			failure = err
			if ctx.Err() == nil {
				p.log.Error(err, "Cannot program the rules", "family", f.String(), "failures", f.failures)
			}
			continue
		}
		if !f.adopted {
			wrote.elements, wrote.time = wrote.elements+f.wrote, wrote.time+p.clock.Since(began)
		}
		f.adopted = false
		p.health.Updated(corev1.IPFamily(f.String()))
	}
	return wrote, failure
}

// compileAll compiles Services, and those whose bounds change with them, as far as this sync has room.
func (p *programmer) compileAll(names []types.NamespacedName, now time.Time) {
	p.bounds.begin()
	p.scheduler.begin(p.bounds.maxPerSync())
	each := func(names []types.NamespacedName) {
		for _, name := range names {
			p.compile(name, now)
		}
	}
	each(names)
	each(p.bounds.withdrawGrants(func(name types.NamespacedName) time.Time { return createdAt(p.catalogue.Entry(name).Service) }))
	each(p.bounds.fittingServices())
	each(p.bounds.grantMinimum())
}

func (p *programmer) candidate(name types.NamespacedName) candidate {
	return candidate{bypassesQueue: p.bypassesQueue(name), elements: p.elements(name), created: createdAt(p.catalogue.Service(name))}
}

func (p *programmer) elements(name types.NamespacedName) int {
	if known := p.records[name]; known != nil {
		return sum(known.elements)
	}
	return 0
}

// createdAt is zero without a Service.
func createdAt(service *corev1.Service) time.Time {
	if service == nil {
		return time.Time{}
	}
	return service.CreationTimestamp.Time
}

// bypassesQueue reports whether a changed Service is compiled at once. That holds for the probed Service, and for a
// Service that the proxy no longer serves: others may have its addresses now.
func (p *programmer) bypassesQueue(name types.NamespacedName) bool {
	return p.isProbeService(name) || !compile.Ours(p.catalogue.Service(name))
}

// restrict removes lost addresses from a changed Service that is compiled later. They may belong to others now.
func (p *programmer) restrict(name types.NamespacedName, claimed bool) {
	known, service := p.records[name], p.catalogue.Service(name)
	if known == nil || known.service == service && !claimed {
		return
	}
	known.service = service
	left := compile.Restrict(service, p.options)
	for i, f := range p.families {
		for _, port := range known.ports[i] {
			f.restrict(port, left)
		}
	}
}

// errWaiting reports that the retry of a failed family is not due.
var errWaiting = errors.New("waiting to try again")

// affectedServices returns the Services to compile again. Those in claimed may have lost or won addresses although they
// did not change.
func (p *programmer) affectedServices(taken *cluster.Changes) (names, claimed map[types.NamespacedName]bool) {
	names, claimed = make(map[types.NamespacedName]bool, len(taken.Services)), map[types.NamespacedName]bool{}
	claim := func(others []types.NamespacedName) {
		for _, other := range others {
			names[other], claimed[other] = true, true
		}
	}
	for name := range taken.Services {
		names[name] = true
		claim(p.book.SetService(name, p.catalogue.Service(name)))
	}
	if taken.Node || taken.Reserved {
		claim(p.updateReserved())
	}
	if taken.Node && p.updateNode() {
		all := p.catalogue.Names()
		for name := range p.records {
			all[name] = true
		}
		return all, all
	}
	return names, claimed
}

// compile stages the rules of a Service, or postpones it if this sync has no room.
func (p *programmer) compile(name types.NamespacedName, now time.Time) {
	one, again := p.scheduler.efforts[name]
	if !again {
		one.had = p.elements(name)
	}
	mayWait := !again && !p.bypassesQueue(name)
	// It usually needs about as many elements as before.
	if mayWait && !p.scheduler.hasRoom(2*one.had) {
		p.scheduler.postpone(name, now)
		return
	}
	began := p.clock.Now()
	e := p.catalogue.Entry(name)
	result := p.compiled(name, e)
	one.has = 0
	for i := range result.Families {
		one.has += result.Families[i].Elements
	}
	if mayWait && !p.scheduler.hasRoom(one.elements()) {
		p.scheduler.postpone(name, now) // it keeps its granted elements
		return
	}
	p.stageService(name, e, &result, now)
	one.time += p.clock.Since(began)
	p.scheduler.compiled(name, one, mayWait)
}

// compiled compiles a Service within its bounds.
func (p *programmer) compiled(name types.NamespacedName, e cluster.Entry) compile.Result {
	if p.isProbeService(name) {
		return p.proving.compiled(e.Service, p.options) // it is small, and acknowledgements depend on it
	}
	return p.bounds.fit(name, createdAt(e.Service), func(within limit) compile.Result {
		return compile.Service(compile.Input{Service: e.Service, Groups: e.Groups, Slices: e.Slices, MaxElements: within.most, NodeBound: within.ofNode}, p.options)
	})
}

// stageService stages the rules of a Service and replaces its record.
func (p *programmer) stageService(name types.NamespacedName, e cluster.Entry, result *compile.Result, now time.Time) {
	before := p.records[name]
	if before == nil {
		before = &record{}
	}
	after := &record{service: e.Service, notes: result.Notes, refused: result.Refused}
	for i := range result.Families {
		after.addFamily(&result.Families[i])
	}
	for i, f := range p.families {
		p.stage(f, before.ports[i], result.Families, now)
	}
	if !slices.Equal(before.onNode, after.onNode) {
		p.countOnNode(before.onNode, -1)
		p.countOnNode(after.onNode, 1)
		p.onNodeChanged = true
	}
	p.totals.add(before, -1)
	p.totals.add(after, 1)
	if after.health != nil {
		p.answers[name] = *after.health
	} else {
		delete(p.answers, name)
	}
	if e.Service == nil && len(e.Groups) > 0 {
		p.orphans[name] = true
	} else {
		delete(p.orphans, name)
	}
	if len(after.notes) > 0 && !slices.Equal(before.notes, after.notes) {
		p.log.Info("Left out parts of a Service", "service", name.String(), "notes", after.notes)
	}
	refusals := after.refused.Sentences(namedRefusals)
	if len(refusals) > 0 && !before.refused.Equal(after.refused) {
		p.log.Info("Refused addresses of a Service", "service", name.String(), "addresses", refusals, "count", after.refused.Total())
	}
	p.warnings.Unreachable(name, after.unreachable, now)
	p.warnings.AddressesRefused(name, refusals, now)
	if result.Elements == 0 {
		p.warnings.NotServed(name)
	}
	if !p.isProbeService(name) { // probes are not counted
		p.unannounced[name] = result.Families
	}
	if len(result.Families) > 0 || len(after.notes) > 0 || len(refusals) > 0 {
		p.records[name] = after
	} else {
		delete(p.records, name)
	}
}

func sum(n perFamily[int]) int { return n[0] + n[1] }

// namedRefusals is how many refused addresses of a Service the log and events name.
const namedRefusals = 2

func (r *record) addFamily(c *compile.Family) {
	at := slices.Index(ruleset.Families, c.Family)
	names := make([]string, len(c.Ports))
	for i := range c.Ports {
		names[i] = c.Ports[i].Name
	}
	r.ports[at], r.endpoints[at], r.elements[at] = names, len(c.Endpoints), c.Elements
	for _, e := range c.Endpoints {
		if e.OnNode {
			r.onNode = append(r.onNode, e.Address)
		}
	}
	for _, port := range c.Unreachable {
		if !slices.Contains(r.unreachable, port) {
			r.unreachable = append(r.unreachable, port)
		}
	}
	if c.Health != nil {
		local := c.Health.LocalEndpoints
		if r.health != nil {
			local = max(local, r.health.LocalEndpoints)
		}
		r.health = &health.Service{Port: c.Health.Port, LocalEndpoints: local}
	}
}

func reachOf(families []compile.Family) *health.Reach {
	if len(families) == 0 {
		return nil
	}
	var reach health.Reach
	for i := range families {
		reach.Reachable = max(reach.Reachable, families[i].Reached)
		reach.Known = max(reach.Known, len(families[i].Endpoints))
	}
	return &reach
}

// stage stages the ports of a Service in one family, and the removal of its other ports.
func (p *programmer) stage(f *family, before []string, compiled []compile.Family, now time.Time) {
	wanted := map[string]bool{}
	for i := range compiled {
		if compiled[i].Family != f.number {
			continue
		}
		for j := range compiled[i].Ports {
			port := &compiled[i].Ports[j]
			wanted[port.Name] = true
			if !f.delaysRefused(port, now) {
				f.stage(port.Name, port)
			}
		}
	}
	for _, name := range before {
		if !wanted[name] {
			f.stage(name, nil)
		}
	}
}

func (p *programmer) countOnNode(addresses []netip.Addr, by int) {
	for _, address := range addresses {
		p.onNode[address] += by
		if p.onNode[address] == 0 {
			delete(p.onNode, address)
		}
	}
}

// stageHairpin tells the tables which endpoints may connect to themselves.
func (p *programmer) stageHairpin() {
	if !p.onNodeChanged {
		return
	}
	p.onNodeChanged = false
	addresses := slices.Collect(maps.Keys(p.onNode))
	for _, f := range p.families {
		f.table.SetHairpin(addresses)
	}
}

func (p *programmer) finish(ctx context.Context, began time.Time, failure error) {
	now := p.clock.Now()
	p.metrics.synchronised(now.Sub(began), failure)
	for name, one := range p.underway {
		if !p.programmed(name) {
			continue
		}
		delete(p.underway, name)
		if p.records[name] == nil {
			continue // the Service has no rules
		}
		p.metrics.latency.Observe(now.Sub(one.Noticed).Seconds())
		for _, at := range one.Triggered {
			p.metrics.programming.Observe(now.Sub(at).Seconds())
		}
	}
	if len(p.underway) == 0 {
		p.underway = map[types.NamespacedName]*cluster.Change{} // frees the memory of a large map
	}
	for name, families := range p.unannounced {
		if p.written(name) {
			p.index.set(name, families)
			p.health.SetReach(name, reachOf(families))
			delete(p.unannounced, name)
		}
	}
	p.reconcile()
	p.versions.Settle(p.settled)
	p.setProbeTargets()
	p.onProgrammed(p.acknowledged())
	p.healthPorts.set(ctx, p.options.Node.NodePortAddresses, p.answers)
	p.updateGauges()
	if failure == nil {
		p.metrics.synced.Set(float64(now.UnixNano()) / float64(time.Second))
	}
}

// flows are the UDP connections that the kernel tracks.
type flows interface {
	unreconciled(ruleset.Family) bool
	reconcile(ruleset.Family, map[ruleset.Front][]netip.AddrPort)
}

// reconcile moves UDP connections that are older than the first sync to endpoints that serve.
func (p *programmer) reconcile() {
	for _, f := range p.families {
		if f.active && !f.doubtful && f.failures == 0 && p.flows.unreconciled(f.number) {
			p.flows.reconcile(f.number, f.table.Live(ruleset.UDP))
		}
	}
}

// programmed reports whether the kernel has the current rules of a Service.
func (p *programmer) programmed(name types.NamespacedName) bool {
	return !p.scheduler.waits(name) && p.written(name)
}

// written reports whether the kernel has the staged rules of a Service.
func (p *programmer) written(name types.NamespacedName) bool {
	known := p.records[name]
	for i, f := range p.families {
		if len(f.table.Pending()) > 0 && known == nil {
			return false // the removal of the Service may be pending
		}
		if known != nil && slices.ContainsFunc(known.ports[i], f.pending) {
			return false
		}
	}
	return true
}

// settled reports whether all groups of a Service are programmed. Groups whose Service is unknown are not.
func (p *programmer) settled(name types.NamespacedName) bool {
	return !p.orphans[name] && !p.bounds.waits(name) && p.programmed(name)
}

// acknowledged returns the acknowledgement for the controller. It is empty while the rules are for the node's previous
// zone, and while all groups are about to be replaced.
func (p *programmer) acknowledged() lease.Acknowledgement {
	node, _ := p.catalogue.Position()
	if node == nil || node.Labels[corev1.LabelTopologyZone] != p.options.Node.Zone || p.catalogue.HasVersionsReset() {
		return lease.Acknowledgement{}
	}
	made := p.versions.Acknowledgement
	made.Ready = p.isLoaded
	return p.limitToVerified(made)
}

func (p *programmer) updateGauges() {
	p.metrics.services.Set(float64(p.totals.services))
	p.metrics.unreachable.Set(float64(p.totals.unreachable))
	for _, reason := range compile.Reasons() {
		p.metrics.refusedAddresses.WithLabelValues(string(reason)).Set(float64(p.totals.refused[reason]))
	}
	p.metrics.waiting.Set(float64(len(p.bounds.shortages)))
	p.metrics.maxElements.Set(float64(p.bounds.Total))
	for i, f := range p.families {
		p.metrics.ports.WithLabelValues(f.String()).Set(float64(len(f.table.Programmed())))
		p.metrics.refused.WithLabelValues(f.String()).Set(float64(len(f.refused)))
		p.metrics.disputed.WithLabelValues(f.String()).Set(float64(len(f.table.Disputed())))
		p.metrics.endpoints.WithLabelValues(f.String()).Set(float64(p.totals.endpoints[i]))
		p.metrics.elements.WithLabelValues(f.String()).Set(float64(p.totals.elements[i]))
	}
}
