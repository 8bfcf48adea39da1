package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// perNamespace is the number of Services per namespace, perSlice the number of endpoints per slice,
// as in Kubernetes.
const perNamespace, perSlice = 100, 100

// endpointsOf returns the number of endpoints of a Service: 190 in two slices for every hundredth,
// 30 for every other tenth, 6 for the rest; 10 on average.
func endpointsOf(service int) int {
	switch {
	case service%100 == 0:
		return 190
	case service%10 == 0:
		return 30
	}
	return 6
}

// policy keeps all Services of a namespace in their zones. Annotations alone would leave the small
// ones balanced.
const policy = `
apiVersion: vicinity.dev/v1alpha1
kind: RoutingPolicy
metadata: {name: bench}
spec: {selector: {}, mode: Prefer, level: Zone, startingThreshold: 1, padding: 0}
`

type plan struct {
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
}

func (p plan) key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.service.Namespace, Name: p.service.Name}
}

// planner makes the same objects for the same nodes.
type planner struct {
	locations []shape.Node
	random    *rand.Rand
	// endpoints is the number of endpoints so far. Each has its own address.
	endpoints int
}

func newPlanner(nodes []shape.Node) *planner {
	return &planner{locations: nodes, random: rand.New(rand.NewPCG(1, 2))}
}

func namespaceOf(service int) string { return fmt.Sprintf("bench-%d", service/perNamespace) }

// plan makes the Service with an index. Endpoints of small Services are spread over zones, and others
// are placed at random.
func (p *planner) plan(index int) plan {
	service := meter.NewService(namespaceOf(index), fmt.Sprintf("service-%d", index), meter.ClusterIP(index), 8080)
	made := plan{service: service}
	first := p.random.IntN(len(p.locations))
	for i := range endpointsOf(index) {
		if i%perSlice == 0 {
			made.slices = append(made.slices, meter.NewSlice(service, len(made.slices)))
		}
		at := first + i
		if index%10 == 0 {
			at = p.random.IntN(len(p.locations))
		}
		slice := made.slices[len(made.slices)-1]
		slice.Endpoints = append(slice.Endpoints, p.endpoint(at))
	}
	return made
}

// endpoint makes an endpoint on the node with an index, modulo the number of nodes.
func (p *planner) endpoint(index int) discoveryv1.Endpoint {
	node := p.locations[index%len(p.locations)]
	p.endpoints++
	return meter.NewEndpoint(meter.Address(10, p.endpoints), node.Name, node.Zone)
}

// fill makes the CRDs and all objects.
func (b *bench) fill(ctx context.Context) error {
	if err := b.Client.ApplyCRDs(ctx); err != nil {
		return err
	}
	b.planner = newPlanner(b.Cluster.Shape().FakeNodeList())
	for i := range b.services {
		b.plans = append(b.plans, b.plan(i))
	}
	namespaces := (b.services + perNamespace - 1) / perNamespace
	err := meter.InParallel(ctx, meter.Writers, namespaces, func(ctx context.Context, i int) error {
		name := namespaceOf(i * perNamespace)
		if err := b.CreateNamespace(ctx, name); err != nil {
			return err
		}
		return b.Client.Apply(ctx, name, policy)
	})
	if err != nil {
		return fmt.Errorf("making namespaces and policies: %w", err)
	}
	err = meter.InParallel(ctx, meter.Writers, b.services, func(ctx context.Context, i int) error {
		return b.CreateService(ctx, b.plans[i].service, b.plans[i].slices...)
	})
	if err != nil {
		return fmt.Errorf("making Services: %w", err)
	}
	return nil
}
