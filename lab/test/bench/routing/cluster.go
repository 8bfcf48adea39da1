package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// writers is how many requests are in flight while objects are made: enough to keep the API
// server busy.
const writers = 100

// cluster is a lab without the controller.
type cluster struct {
	*lab.Cluster
	api   kubernetes.Interface
	plans []plan
	*planner
}

// bringUp makes the lab in a folder.
func (b *bench) bringUp(ctx context.Context, folder string) (*cluster, error) {
	labShape, err := shape.FromOptions(shape.Options{
		Name: fmt.Sprintf("bench-routing-%d", os.Getpid()), NodesPerZone: []int{0}, FakeNodes: b.nodes,
		ControlPlaneOnly: true, SingleStack: true,
	})
	if err != nil {
		return nil, err
	}
	up, err := lab.Up(ctx, labShape, lab.Options{Root: folder, Program: filepath.Join(b.bin, "vicinity-lab")})
	if err != nil {
		return nil, fmt.Errorf("bringing a lab up: %w", err)
	}
	b.say("the nodes are ready")
	c := &cluster{Cluster: up, planner: newPlanner(labShape.FakeNodeList())}
	if err := c.fill(ctx, b.services); err != nil {
		return nil, errors.Join(err, c.takeDown(ctx))
	}
	return c, nil
}

func (c *cluster) takeDown(ctx context.Context) error {
	// Even if the context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return c.Down(ctx)
}

// fill makes the CRDs and all objects.
func (c *cluster) fill(ctx context.Context, services int) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	if err := client.ApplyCRDs(ctx); err != nil {
		return err
	}
	config := client.Config()
	config.ContentType = "application/vnd.kubernetes.protobuf"
	if c.api, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	for i := range services {
		c.plans = append(c.plans, c.plan(i))
	}
	namespaces := (services + perNamespace - 1) / perNamespace
	err = meter.InParallel(ctx, writers, namespaces, func(ctx context.Context, i int) error {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespaceOf(i * perNamespace)}}
		if _, err := c.api.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
			return err
		}
		return client.Apply(ctx, namespace.Name, policy)
	})
	if err != nil {
		return fmt.Errorf("making namespaces and policies: %w", err)
	}
	err = meter.InParallel(ctx, writers, services, func(ctx context.Context, i int) error { return c.make(ctx, c.plans[i]) })
	if err != nil {
		return fmt.Errorf("making Services: %w", err)
	}
	return nil
}

// make makes a Service with its slices.
func (c *cluster) make(ctx context.Context, p plan) error {
	namespace := p.service.Namespace
	if _, err := c.api.CoreV1().Services(namespace).Create(ctx, p.service, metav1.CreateOptions{}); err != nil {
		return err
	}
	for _, slice := range p.slices {
		if _, err := c.api.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) sliceCount() int {
	n := 0
	for _, p := range c.plans {
		n += len(p.slices)
	}
	return n
}
