package controller

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	crmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// metrics are those of the controller. The first three have the names in the proposal to Kubernetes.
type metrics struct {
	changes     *prometheus.HistogramVec
	reallocated prometheus.Histogram
	endpoints   prometheus.Histogram
	syncs       *prometheus.CounterVec
	writes      *prometheus.CounterVec
	losses      prometheus.Counter
	replans     prometheus.Counter
	unknown     prometheus.GaugeFunc
	services    *serviceCollector
	shifts      *shiftCollector
}

func newMetrics(m *memory, cilium *ciliumWatch, top int) *metrics {
	return &metrics{
		changes: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "endpoint_slice_controller_changes_endpointslices_per_sync",
			Help:    "EndpointSlices and groups that a sync of a Service writes, with slices that the webhook gave hints before it.",
			Buckets: []float64{0, 1, 2, 5, 10, 20, 50, 100, 200},
		}, []string{"approach"}),
		reallocated: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "endpoint_slice_controller_reallocated_endpoints_per_sync",
			Help:    "Endpoints that serve other zones after a sync of a Service than before.",
			Buckets: append([]float64{0}, prometheus.ExponentialBucketsRange(1, 4096, 13)...),
		}),
		endpoints: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "endpoint_slice_controller_total_endpoints",
			Help:    "Ready endpoints of a Service at a sync of it.",
			Buckets: prometheus.ExponentialBucketsRange(1, 16384, 15),
		}),
		syncs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_routing_syncs_total",
			Help: "Syncs of Services, by result.",
		}, []string{"result"}),
		writes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "vicinity_routing_hint_writes_total",
			Help: "Writes of hints to EndpointSlices, by result.",
		}, []string{"result"}),
		losses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "vicinity_routing_hint_losses_total",
			Help: "Times that hints of a Service were removed, or not stored as written.",
		}),
		replans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "vicinity_routing_replans_total",
			Help: "Plans that were replaced by a better one although they could be kept.",
		}),
		unknown: shell.NewGauge("vicinity_routing_cilium_unknown", "1 if the ConfigMap cilium-config in kube-system could not be read, so that its last answer counts; before the first one, no Service gets a mark.",
			func() int { return int(cilium.failing.Load()) }),
		services: newServiceCollector(m, top),
	}
}

func (m *metrics) register() error {
	for _, c := range m.all() {
		if err := crmetrics.Registry.Register(c); err != nil {
			return err
		}
	}
	return nil
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.changes, m.reallocated, m.endpoints, m.syncs, m.writes, m.losses, m.replans, m.unknown, m.services, m.shifts}
}

func (m *metrics) countSync(outcome shell.Outcome) { m.syncs.WithLabelValues(string(outcome)).Inc() }

func (m *metrics) countWrite(err error) {
	m.writes.WithLabelValues(string(shell.OutcomeOf(err))).Inc()
}

func (m *metrics) observeDelivery(d routing.Decision, written, moved int) {
	m.changes.WithLabelValues(string(d.Request.Approach)).Observe(float64(written))
	m.reallocated.Observe(float64(moved))
	endpoints := 0
	for i := range d.Families {
		endpoints += len(d.Families[i].Endpoints)
	}
	m.endpoints.Observe(float64(endpoints))
}

type report struct {
	mode     string // approach
	delivery allocate.Delivery
	state    string
	families []familyReport
}

type familyReport struct {
	family    corev1.IPFamily
	endpoints int
	figures   allocate.Figures
	loads     []zoneLoad
}

// zoneLoad is the mean load of the endpoints in a zone, relative to the even share of all.
type zoneLoad struct {
	zone string
	load float64
}

// States of a Service besides those of package allocate.
const (
	stateUndelivered = "undelivered"
	stateHintsLost   = "hints-lost"
	stateNotInForce  = "not-in-force"
	stateNotRouted   = "not-routed"
	// stateDelivered is the state of a headless Service whose plan is written. The controller does not see whether
	// clients ask a DNS server that follows it.
	stateDelivered = "delivered"
)

// reportOf reports a decision about a Service. Its state is the worst of its families, unless its hints have no effect.
// Its figures are those of the plan in effect.
func reportOf(d *routing.Decision, service *corev1.Service, ineffective string) report {
	made := report{mode: string(d.Request.Approach), delivery: d.Delivery, state: stateNotRouted}
	if d.Delivery == allocate.DeliveryNone {
		return made
	}
	made.state = allocate.Allocated.String()
	if len(d.Families) == 0 {
		made.state = allocate.Waiting.String()
	}
	force := inForce(d, service, ineffective != "")
	for i := range d.Families {
		f := &d.Families[i]
		figures, loads := figuresOf(f, force)
		made.families = append(made.families, familyReport{f.Family, len(f.Endpoints), figures, loads})
		if f.Outcome.IsBalanced() && made.state != allocate.Downgraded.String() {
			made.state = f.Outcome.State.String()
		}
	}
	switch {
	case d.Request.Headless && made.state == allocate.Allocated.String():
		made.state = stateDelivered
	case ineffective != "":
		made.state = ineffective
	case d.Hinted().Undelivered:
		made.state = stateUndelivered
	}
	return made
}

// inForce returns the decision that proxies follow: the one for hints until vicinity-proxy serves the Service, nil
// without hints. For a headless Service it is the delivered one.
func inForce(d *routing.Decision, service *corev1.Service, ineffective bool) *routing.Decision {
	if isServed(d, service) {
		return d
	}
	if d = d.Hinted(); ineffective || d.Undelivered || d.Delivery != allocate.DeliveryHints {
		return nil
	}
	return d
}

// isServed reports whether groups deliver the plan and hints do not matter: vicinity-proxy serves the Service, or it is
// headless.
func isServed(d *routing.Decision, service *corev1.Service) bool {
	return d.Delivery == allocate.DeliveryGroups && (d.Request.Headless || intent.IsHandedOver(service))
}

// figuresOf returns the figures of a family by the decision in force. Without one, all zones use all endpoints.
func figuresOf(f *routing.FamilyDecision, force *routing.Decision) (allocate.Figures, []zoneLoad) {
	if force != nil {
		for i := range force.Families {
			if in := &force.Families[i]; in.Family == f.Family {
				if in.Nodes != nil {
					return in.Outcome.Figures, nodeLoads(in)
				}
				return in.Outcome.Figures, zoneLoads(in.Region, in.Plan)
			}
		}
	}
	plan, outcome, err := allocate.Allocate(f.Region, allocate.Intent{}, allocate.Previous{})
	if err != nil {
		return allocate.Figures{}, nil // a region that was planned for has no errors
	}
	return outcome.Figures, zoneLoads(f.Region, plan)
}

// zoneLoads returns the loads of the zones with endpoints, in the order of the plan.
func zoneLoads(region allocate.Region, plan allocate.Plan) []zoneLoad {
	sums, endpoints := make([]float64, len(plan.Zones)), make([]int, len(plan.Zones))
	for i, load := range new(allocate.Meter).Loads(plan, region.Shares(plan.Zones)) {
		for _, m := range plan.Groups[i].Members {
			sums[m.Zone] += load * float64(m.Endpoints)
			endpoints[m.Zone] += m.Endpoints
		}
	}
	var loads []zoneLoad
	for z, zone := range plan.Zones {
		if zone != "" && endpoints[z] > 0 {
			loads = append(loads, zoneLoad{zone, sums[z] / float64(endpoints[z])})
		}
	}
	return loads
}

// nodeLoads returns the loads of the zones with endpoints, in the order of names, if nodes prefer their own endpoints.
func nodeLoads(f *routing.FamilyDecision) []zoneLoad {
	sums, endpoints := map[string]float64{}, map[string]int{}
	for i := range f.Endpoints {
		if zone := f.Endpoints[i].Zone; zone != "" {
			sums[zone] += f.Nodes.Loads[i]
			endpoints[zone]++
		}
	}
	var loads []zoneLoad
	for _, zone := range slices.Sorted(maps.Keys(sums)) {
		loads = append(loads, zoneLoad{zone, sums[zone] / float64(endpoints[zone])})
	}
	return loads
}

// serviceCollector counts Services on each scrape. Only the largest Services have their own figures, which bounds the
// number of series.
type serviceCollector struct {
	memory *memory
	top    int

	services, inZone, overload, zoneLoad, totalInZone, totalOverload *prometheus.Desc
}

func newServiceCollector(m *memory, top int) *serviceCollector {
	one := []string{"namespace", "service", "family"}
	return &serviceCollector{
		memory:        m,
		top:           top,
		services:      prometheus.NewDesc("vicinity_routing_services", "Services that ask for routing, by approach, delivery and state.", []string{"approach", "delivery", "state"}, nil),
		inZone:        prometheus.NewDesc("vicinity_routing_service_in_zone_ratio", "Predicted share of the traffic of a Service that stays in its zone.", one, nil),
		overload:      prometheus.NewDesc("vicinity_routing_service_overload_ratio", "Predicted load of the busiest endpoint of a Service above the even share.", one, nil),
		zoneLoad:      prometheus.NewDesc("vicinity_routing_service_zone_load_ratio", "Predicted mean load of the endpoints of a Service in a zone, where 1 is the even share.", append(one, "zone"), nil),
		totalInZone:   prometheus.NewDesc("vicinity_routing_in_zone_ratio", "Predicted share of traffic that stays in its zone, weighted by endpoints.", nil, nil),
		totalOverload: prometheus.NewDesc("vicinity_routing_overload_ratio", "Predicted load of the busiest endpoint of any routed Service above the even share.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (c *serviceCollector) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.services, c.inZone, c.overload, c.zoneLoad, c.totalInZone, c.totalOverload} {
		descriptions <- d
	}
}

type sized struct {
	key      types.NamespacedName
	families []familyReport
}

// endpoints counts the endpoints of the largest family, so that a pod with two addresses counts once.
func (s *sized) endpoints() int {
	most := 0
	for i := range s.families {
		most = max(most, s.families[i].endpoints)
	}
	return most
}

type kind struct{ approach, delivery, state string }

// Collect implements prometheus.Collector.
func (c *serviceCollector) Collect(samples chan<- prometheus.Metric) {
	counts := map[kind]int{}
	var all []sized
	c.memory.each(func(key types.NamespacedName, made *report) {
		if made.mode == "" {
			return // of an excluded namespace
		}
		counts[kind{made.mode, made.delivery.Title(), made.state}]++
		if len(made.families) > 0 {
			all = append(all, sized{key, made.families})
		}
	})
	for k, n := range counts {
		samples <- prometheus.MustNewConstMetric(c.services, prometheus.GaugeValue, float64(n), k.approach, k.delivery, k.state)
	}
	endpoints, inZone, overload := 0, 0.0, 0.0
	for i := range all {
		for _, f := range all[i].families {
			endpoints += f.endpoints
			inZone += f.figures.InZone * float64(f.endpoints)
			overload = max(overload, f.figures.Overload)
		}
	}
	if endpoints > 0 {
		samples <- prometheus.MustNewConstMetric(c.totalInZone, prometheus.GaugeValue, inZone/float64(endpoints))
		samples <- prometheus.MustNewConstMetric(c.totalOverload, prometheus.GaugeValue, overload)
	}
	for _, one := range c.largest(all) {
		for _, f := range one.families {
			labels := []string{one.key.Namespace, one.key.Name, string(f.family)}
			samples <- prometheus.MustNewConstMetric(c.inZone, prometheus.GaugeValue, f.figures.InZone, labels...)
			samples <- prometheus.MustNewConstMetric(c.overload, prometheus.GaugeValue, f.figures.Overload, labels...)
			for _, l := range f.loads {
				samples <- prometheus.MustNewConstMetric(c.zoneLoad, prometheus.GaugeValue, l.load, append(labels, l.zone)...)
			}
		}
	}
}

func (c *serviceCollector) largest(all []sized) []sized {
	slices.SortFunc(all, func(a, b sized) int {
		return cmp.Or(
			cmp.Compare(b.endpoints(), a.endpoints()),
			strings.Compare(a.key.Namespace, b.key.Namespace),
			strings.Compare(a.key.Name, b.key.Name),
		)
	})
	return all[:min(len(all), c.top)]
}

func (m *metrics) initialize() {
	for _, approach := range intent.Approaches() {
		m.changes.WithLabelValues(string(approach))
	}
	for _, outcome := range shell.Outcomes() {
		m.syncs.WithLabelValues(string(outcome))
		m.writes.WithLabelValues(string(outcome))
	}
}
