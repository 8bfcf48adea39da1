package controller

import (
	"context"
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/capacity"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Forecast predicts the plans of Services without some pods. It decides as the reconciler does, and writes nothing.
type Forecast struct {
	client  client.Reader
	options Options
}

// NewForecast returns a Forecast that reads a cache with CacheOptions and the indexes of Add.
func NewForecast(c client.Reader, options Options) *Forecast {
	return &Forecast{client: c, options: options}
}

// forecastSteps bounds the plans of a forecast between the removal of the first and the last pod of a set.
const forecastSteps = 16

// Overload returns the greatest overload of an endpoint in the plans of a namespace without some pods, for each set of
// pods. It covers the removal in order and all at once, because a plan that is good enough is kept, so the results can
// differ. Services count if they have a plan and a ready endpoint among these pods; without any the overload is 0. It
// is infinite if a Service would lose its last endpoint, or a zone all endpoints that it reaches now. A set is missing
// in the result if a plan cannot be made.
func (f *Forecast) Overload(ctx context.Context, namespace string, sets map[string][]string) (map[string]float64, error) {
	found := make(map[string]float64, len(sets))
	all := map[string]bool{}
	for set, pods := range sets {
		found[set] = 0
		for _, pod := range pods {
			all[pod] = true
		}
	}
	if f.options.Settings.WithoutRouting {
		return found, nil // no Service has a plan
	}
	var services corev1.ServiceList
	if err := f.client.List(ctx, &services, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("reading the Services of %s: %w", namespace, err)
	}
	var nodes corev1.NodeList
	if err := f.client.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("reading Nodes: %w", err)
	}
	cluster := capacity.NewCluster(shell.Pointers(nodes.Items))
	for i := range services.Items {
		service := &services.Items[i]
		if service.DeletionTimestamp != nil || f.options.Exclusion.Reason(namespace, service.Name) != "" {
			continue
		}
		in, err := read(ctx, f.client, service)
		if err != nil {
			return nil, err
		}
		in.Cluster, in.Settings, in.Planner = cluster, f.options.Settings, new(allocate.Planner)
		if !isServedBy(in.Slices, cluster, all) {
			continue
		}
		now, err := routing.Decide(in)
		if err != nil {
			return map[string]float64{}, nil // no set is known
		}
		for set, pods := range sets {
			load, known := found[set]
			if !known {
				continue
			}
			more, err := overloadWithout(in, &now, pods)
			if err != nil {
				delete(found, set)
				continue
			}
			found[set] = max(load, more)
		}
	}
	return found, nil
}

func isServedBy(eps []*discoveryv1.EndpointSlice, cluster *intent.Cluster, pods map[string]bool) bool {
	for _, endpoints := range intent.SliceEndpoints(eps, cluster) {
		if slices.ContainsFunc(endpoints, func(e intent.Endpoint) bool { return pods[e.Pod] }) {
			return true
		}
	}
	return false
}

// overloadWithout returns the overload of a Service's plan without some pods. Without a plan Kubernetes spreads traffic
// evenly over all endpoints.
func overloadWithout(in routing.Input, now *routing.Decision, pods []string) (float64, error) {
	eps := in.Slices
	removed := make(map[string]bool, len(pods))
	var worst float64
	// In order, each plan follows the one before it. All at once, the present plan is the previous one.
	for _, steps := range []int{1, min(len(pods), forecastSteps)} {
		clear(removed)
		in.Last = now
		for step := range steps {
			for _, pod := range pods[step*len(pods)/steps : (step+1)*len(pods)/steps] {
				removed[pod] = true
			}
			in.Slices = slicesWithout(eps, removed)
			then, err := routing.Decide(in)
			if err != nil {
				return 0, err
			}
			in.Last = &then
			worst = max(worst, overload(now, in.Last))
		}
	}
	return worst, nil
}

// overload returns the overload of a plan. It is infinite if a family loses its last endpoint, or a zone all endpoints
// that it reaches now.
func overload(now, then *routing.Decision) float64 {
	worst := 0.0
	for i := range then.Families {
		family := &then.Families[i]
		figures := &family.Outcome.Figures
		at := slices.IndexFunc(now.Families, func(f routing.FamilyDecision) bool { return f.Family == family.Family })
		if before := now.Families; at >= 0 && (len(family.Endpoints) == 0 && len(before[at].Endpoints) > 0 || figures.Unreached > before[at].Outcome.Figures.Unreached) {
			return math.Inf(1)
		}
		if !then.Undelivered {
			worst = max(worst, figures.Overload)
		}
	}
	return worst
}

func slicesWithout(eps []*discoveryv1.EndpointSlice, pods map[string]bool) []*discoveryv1.EndpointSlice {
	remaining := make([]*discoveryv1.EndpointSlice, len(eps))
	for i, slice := range eps {
		trimmed := *slice // the cache shares the slice
		trimmed.Endpoints = slices.DeleteFunc(slices.Clone(slice.Endpoints), func(e discoveryv1.Endpoint) bool {
			return e.TargetRef != nil && e.TargetRef.Kind == "Pod" && pods[e.TargetRef.Name]
		})
		remaining[i] = &trimmed
	}
	return remaining
}
