package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// serviceView explains one Service.
type serviceView struct {
	// Explanation is the output of "vicinity explain -o json".
	Explanation *inspect.Explanation `json:"explanation"`
	Families    []familyView         `json:"families"`
	// Traffic is the measured traffic of both families.
	Traffic  *inspect.ServiceTraffic `json:"traffic,omitempty"`
	Measured measuredOver            `json:"measured"`
	HandOver inspect.HandOver        `json:"handOver"`
	// Policy is the RoutingPolicy or ClusterRoutingPolicy in force, as it is written.
	Policy     string `json:"policy,omitempty"`
	policyName string
}

// familyView shows one address family.
type familyView struct {
	Family string           `json:"family"`
	Flows  []inspect.Flow   `json:"flows"`
	Served []inspect.Served `json:"served,omitempty"`
	Zones  []endpointsView  `json:"endpointsByZone"`

	Matrix *matrix         `json:"-"`
	Of     *inspect.Family `json:"-"`
}

type endpointsView struct {
	Zone      string         `json:"zone"`
	Number    int            `json:"number"`
	Nodes     int            `json:"nodes"`
	Endpoints []endpointView `json:"endpoints"`
	// More is the number of items that are not shown.
	More int `json:"more,omitempty"`
}

type endpointView struct {
	Address string `json:"address"`
	Node    string `json:"node,omitempty"`
	Pod     string `json:"pod,omitempty"`
	// Zones use the endpoint by the plan, if Vicinity decides.
	Zones []string `json:"usedBy,omitempty"`
}

// endpointsShown limits the listed endpoints of a zone.
const endpointsShown = 50

func (v *serviceView) title() string {
	return "Service " + v.Explanation.Namespace + "/" + v.Explanation.Service
}

func (v *serviceView) parts() []part {
	parts := []part{partService(v.Explanation.Namespace, v.Explanation.Service), partTraffic}
	if v.HandOver.DependsOnProxies() {
		parts = append(parts, partProxies)
	}
	return parts
}

func (c *console) serviceView(ctx context.Context, r *http.Request, s *snapshot) (view, *about, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("name")
	service := s.service(namespace, name)
	if service == nil {
		return nil, nil, s.serviceNotFound(namespace, name)
	}
	a := c.about(s)
	e, notKnown, err := c.explain(ctx, s, service)
	if err != nil {
		return nil, nil, fmt.Errorf("explaining Service %s/%s: %w", namespace, name, err)
	}
	a.NotKnown = append(a.NotKnown, notKnown...)
	m := c.traffic.newest()
	a.NotKnown = append(a.NotKnown, m.NotKnown...)
	v := &serviceView{Explanation: e, Families: []familyView{}, Traffic: m.of(namespace, name), Measured: m.over()}
	reading := s.reading(service)
	reading.Now = c.now()
	if v.HandOver = inspect.HandOverOf(&reading, e.Delivery, nil); v.HandOver.DependsOnProxies() {
		v.HandOver = inspect.HandOverOf(&reading, e.Delivery, c.proxies(ctx, s, &a))
	}
	v.policyName, v.Policy = s.policy(e)
	ready := intent.SliceEndpoints(intent.ProxySlices(service, reading.Slices), s.cluster)
	for i := range e.Families {
		f := &e.Families[i]
		one := familyView{
			Family: f.Family, Flows: append([]inspect.Flow{}, e.Flows(f)...), Served: e.Served(f), Zones: endpointsOf(ready[corev1.IPFamily(f.Family)], f), Of: f,
		}
		one.Matrix = newMatrix(one.Flows, routesOf(v.Traffic))
		v.Families = append(v.Families, one)
	}
	return v, &a, nil
}

// serviceNotFound says that there is no such Service, as far as that is known.
func (s *snapshot) serviceNotFound(namespace, name string) error {
	switch {
	case slices.Contains(s.unread, kindServices):
		return notFoundf("Service %s/%s is not shown: Services may not be read", namespace, name)
	case slices.Contains(s.waiting, kindServices):
		return notFoundf("Service %s/%s is not known yet: Services are still being read", namespace, name)
	}
	return notFoundf("no Service %q is in namespace %q", name, namespace)
}

// policy returns the name and the YAML of the policy in force for a Service.
func (s *snapshot) policy(e *inspect.Explanation) (name, text string) {
	var spec any
	switch {
	case e.Policy != "":
		name = "RoutingPolicy " + e.Policy
		for _, policy := range s.policies[e.Namespace] {
			if policy.Name == e.Policy {
				spec = policy.Spec
			}
		}
	case e.ClusterPolicy != "":
		name = "ClusterRoutingPolicy " + e.ClusterPolicy
		for _, policy := range s.wide.Defaults {
			if policy.Name == e.ClusterPolicy {
				spec = policy.Spec
			}
		}
	}
	if spec == nil {
		return name, ""
	}
	written, err := yaml.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return name, err.Error()
	}
	return name, string(written)
}

// PolicyName is the kind and name of the policy in force.
func (v *serviceView) PolicyName() string { return v.policyName }

func endpointsOf(ready []intent.Endpoint, f *inspect.Family) []endpointsView {
	zones := []endpointsView{}
	nodes := map[string]bool{}
	for i := range ready {
		e := &ready[i]
		at := slices.IndexFunc(zones, func(z endpointsView) bool { return z.Zone == e.Zone })
		if at < 0 {
			at = len(zones)
			zones = append(zones, endpointsView{Zone: e.Zone, Endpoints: []endpointView{}})
		}
		z := &zones[at]
		z.Number++
		if e.Node != "" && !nodes[e.Node] {
			nodes[e.Node] = true
			z.Nodes++
		}
		if len(z.Endpoints) == endpointsShown {
			z.More++
			continue
		}
		z.Endpoints = append(z.Endpoints, endpointView{e.Address, e.Node, e.Pod, f.Endpoints[e.Address]})
	}
	slices.SortFunc(zones, func(a, b endpointsView) int { return strings.Compare(a.Zone, b.Zone) })
	return zones
}

// explained caches an explanation until its input changes.
type explained struct {
	of          *inspect.ServiceStatus // of the same decision
	at          time.Time
	explanation *inspect.Explanation
	notKnown    []string
}

type explanations struct {
	mu   sync.Mutex
	kept map[string]explained
}

// Limits of the cache. Old entries expire because not all of it is watched.
const (
	mostKept = 64
	keptFor  = time.Minute
)

func (c *console) explain(ctx context.Context, s *snapshot, service *corev1.Service) (*inspect.Explanation, []string, error) {
	name := keyOf(service)
	var of *inspect.ServiceStatus
	if statuses := s.statuses[name]; len(statuses) > 0 {
		of = &statuses[0]
	}
	c.explanations.mu.Lock()
	known, found := c.explanations.kept[name.String()]
	c.explanations.mu.Unlock()
	if found && known.of == of && c.now().Sub(known.at) < keptFor {
		return known.explanation, known.notKnown, nil
	}
	reading := s.reading(service)
	reading.Now = c.now() // a handover can depend on the time
	e, err := inspect.Explain(reading)
	if err != nil {
		return nil, nil, err
	}
	if err := e.Advise(); err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithTimeout(ctx, askFor)
	defer stop()
	notKnown, err := c.options.Cluster.Complete(ctx, e, service)
	if err != nil {
		// The next request tries again.
		return e, append(notKnown, fmt.Sprintf("what else affects the Service is not known: %v", err)), nil
	}
	c.explanations.mu.Lock()
	defer c.explanations.mu.Unlock()
	if len(c.explanations.kept) >= mostKept {
		clear(c.explanations.kept)
	}
	c.explanations.kept[name.String()] = explained{of, c.now(), e, notKnown}
	return e, notKnown, nil
}

// matrix compares planned and measured traffic from zone to zone.
type matrix struct {
	Zones []string
	Rows  []matrixRow
	// Planned and Measured report whether these values are known.
	Planned, Measured bool
	// Ways are the largest flows, shown instead of a table of too many zones.
	Ways []way
	More int
}

type matrixRow struct {
	From  string
	Cells []way
}

// way is the traffic from one zone to another, in percent of all traffic.
type way struct {
	From, To          string
	Planned, Measured *float64
}

// Stays reports whether the traffic stays in its zone.
func (w way) Stays() bool { return w.From == w.To }

// Heat is the amount of planned traffic, or of measured traffic without a plan, from 0 to 4.
func (m *matrix) Heat(w way) int {
	shown := w.Measured
	if m.Planned {
		shown = w.Planned
	}
	switch {
	case shown == nil || *shown == 0:
		return 0
	case *shown < 5:
		return 1
	case *shown < 15:
		return 2
	case *shown < 30:
		return 3
	}
	return 4
}

// zonesInMatrix limits the zones of a table, and waysShown the flows of a list.
const (
	zonesInMatrix = 12
	waysShown     = 50
)

// routesOf returns the shares of counted connections from zone to zone, in percent.
func routesOf(t *inspect.ServiceTraffic) map[[2]string]float64 {
	if t == nil || t.Connections == 0 {
		return nil
	}
	routes := map[[2]string]float64{}
	for i := range t.Routes {
		route := &t.Routes[i]
		routes[[2]string{route.From, route.To}] += 100 * route.Connections / t.Connections
	}
	return routes
}

func newMatrix(flows []inspect.Flow, routes map[[2]string]float64) *matrix {
	ways := map[[2]string]*way{}
	one := func(from, to string) *way {
		key := [2]string{from, to}
		if ways[key] == nil {
			ways[key] = &way{From: from, To: to}
		}
		return ways[key]
	}
	m := &matrix{Planned: len(flows) > 0, Measured: routes != nil}
	for i := range flows {
		one(flows[i].From, flows[i].To).Planned = &flows[i].Percent
	}
	for key, percent := range routes {
		one(key[0], key[1]).Measured = &percent
	}
	for key := range ways {
		for _, zone := range key {
			if !slices.Contains(m.Zones, zone) {
				m.Zones = append(m.Zones, zone)
			}
		}
	}
	slices.Sort(m.Zones)
	if len(m.Zones) > zonesInMatrix {
		for _, w := range ways {
			m.Ways = append(m.Ways, *w)
		}
		slices.SortFunc(m.Ways, func(a, b way) int {
			return cmp.Or(comparePointers(b.Planned, a.Planned), comparePointers(b.Measured, a.Measured), strings.Compare(a.From, b.From), strings.Compare(a.To, b.To))
		})
		m.More = max(0, len(m.Ways)-waysShown)
		m.Ways = m.Ways[:len(m.Ways)-m.More]
		return m
	}
	for _, from := range m.Zones {
		row := matrixRow{From: from}
		for _, to := range m.Zones {
			row.Cells = append(row.Cells, *one(from, to))
		}
		m.Rows = append(m.Rows, row)
	}
	return m
}
