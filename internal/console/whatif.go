package console

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing/capacity"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// whatIfView compares a Service before and after a change.
type whatIfView struct {
	Families []whatIfFamily `json:"families"`
	// Problem says why nothing can be predicted.
	Problem string `json:"problem,omitempty"`

	Namespace string `json:"-"`
	Service   string `json:"-"`
	Zone      string `json:"-"`
	Endpoints string `json:"-"`
	Algorithm string `json:"-"`
	// Zones, Algorithms and Services are the choices of the form.
	Zones      []string             `json:"-"`
	Algorithms []allocate.Algorithm `json:"-"`
	Services   []string             `json:"-"`
}

type whatIfFamily struct {
	inspect.WhatIf
	Rows []whatIfZone `json:"-"`
}

type whatIfZone struct {
	Zone      string
	Now, Then *inspect.Zone
	// NowStays and ThenStays are the shares of the zone's traffic that stay in it, in percent.
	NowStays, ThenStays *float64
}

func (*whatIfView) title() string { return "What if" }

func (v *whatIfView) parts() []part {
	if v.Service == "" {
		return []part{partCluster}
	}
	return []part{partService(v.Namespace, v.Service), partCluster}
}

func (c *console) whatIfView(_ context.Context, r *http.Request, s *snapshot) (view, *about, error) {
	query := r.URL.Query()
	v := &whatIfView{
		Families: []whatIfFamily{}, Zones: s.cluster.Zones(), Algorithms: allocate.Algorithms(),
		Zone: query.Get("zone"), Endpoints: query.Get("endpoints"), Algorithm: query.Get("algorithm"),
	}
	for _, service := range s.services[:min(suggested, len(s.services))] {
		v.Services = append(v.Services, service.Namespace+"/"+service.Name)
	}
	a := c.about(s)
	name := query.Get("service")
	if name == "" {
		return v, &a, nil
	}
	namespace, short, qualified := cutName(name)
	if !qualified {
		return nil, nil, badRequestf("service %q is not allowed; it must be NAMESPACE/NAME", name)
	}
	v.Namespace, v.Service = namespace, short
	service := s.service(namespace, short)
	if service == nil {
		return nil, nil, s.serviceNotFound(namespace, short)
	}
	change := inspect.Change{Zone: v.Zone, Algorithm: allocate.Algorithm(v.Algorithm)}
	if v.Endpoints != "" {
		number, err := strconv.Atoi(v.Endpoints)
		if err != nil {
			return nil, nil, badRequestf("endpoints %q is not allowed; it must be a number from 0 to %d", v.Endpoints, inspect.MostEndpoints)
		}
		change.Endpoints = &number
	}
	families, err := inspect.ForeseeChange(s.reading(service), change, s.without(change.Zone))
	if err != nil {
		return nil, nil, badRequestf("%v", err)
	}
	for i := range families {
		v.Families = append(v.Families, whatIfFamily{families[i], rowsOf(&families[i])})
	}
	return v, &a, nil
}

// without returns the cluster without a zone.
func (s *snapshot) without(zone string) *intent.Cluster {
	if zone == "" {
		return s.cluster
	}
	return capacity.NewCluster(slices.DeleteFunc(slices.Clone(s.nodes), func(n *corev1.Node) bool { return s.cluster.Labels(n.Name)[topology.Zone] == zone }))
}

// rowsOf pairs the state before and after.
func rowsOf(w *inspect.WhatIf) []whatIfZone {
	var rows []whatIfZone
	row := func(zone string) *whatIfZone {
		at := slices.IndexFunc(rows, func(r whatIfZone) bool { return r.Zone == zone })
		if at < 0 {
			at = len(rows)
			rows = append(rows, whatIfZone{Zone: zone})
		}
		return &rows[at]
	}
	if w.Now != nil {
		for i := range w.Now.Zones {
			z := &w.Now.Zones[i]
			row(z.Zone).Now, row(z.Zone).NowStays = z, staysIn(w.Now, z)
		}
	}
	if w.Then != nil {
		for i := range w.Then.Zones {
			z := &w.Then.Zones[i]
			row(z.Zone).Then, row(z.Zone).ThenStays = z, staysIn(w.Then, z)
		}
	}
	return rows
}

// staysIn returns the share of a zone's traffic that stays in it, or nil if the zone sends none.
func staysIn(p *inspect.Prospect, z *inspect.Zone) *float64 {
	if z.Traffic == 0 {
		return nil
	}
	stays := 0.0
	for _, flow := range p.Flows {
		if flow.From == z.Zone && flow.To == z.Zone {
			stays = 100 * flow.Percent / z.Traffic
		}
	}
	return &stays
}
