package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// writers is how many requests are in flight while objects are made: enough to keep the API
// server busy.
const writers = 100

// cluster is a lab of a control plane.
type cluster struct {
	*lab.Cluster
	api     kubernetes.Interface
	untyped dynamic.Interface
	pods    int
	nodes   int
}

// bringUp makes the lab in a folder.
func (b *bench) bringUp(ctx context.Context) (*cluster, error) {
	labShape, err := shape.FromOptions(shape.Options{
		Name: fmt.Sprintf("bench-names-%d", os.Getpid()), NodesPerZone: []int{0}, ControlPlaneOnly: true, SingleStack: true,
	})
	if err != nil {
		return nil, err
	}
	// Nodes are objects that nothing reports on. Kubernetes must neither look at thousands of them every
	// second nor find them not ready.
	labShape.Timing.MonitorPeriod = shape.Duration{Duration: time.Hour}
	labShape.Timing.MonitorGrace = shape.Duration{Duration: 24 * time.Hour}
	up, err := lab.Up(ctx, labShape, lab.Options{Root: b.folder, Program: filepath.Join(b.bin, "vicinity-lab")})
	if err != nil {
		return nil, fmt.Errorf("bringing a lab up: %w", err)
	}
	c := &cluster{Cluster: up, pods: b.pods, nodes: b.pods / podsPerNode}
	if err := c.fill(ctx, b.say); err != nil {
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
func (c *cluster) fill(ctx context.Context, say func(string, ...any)) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	if err := client.ApplyCRDs(ctx); err != nil {
		return err
	}
	config := client.Config()
	if c.untyped, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	if c.api, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	if err := c.makeNamespace(ctx, namespace); err != nil {
		return err
	}
	for i := 0; i < c.pods; i += podsPerNamespace {
		if err := c.makeNamespace(ctx, podNamespace(i)); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		what string
		n    int
		do   func(context.Context, int) error
	}{
		{"nodes", c.nodes, c.makeNode},
		{"Services", vips + peers + nears, c.makeService},
		{"pods with their PodLocators", c.pods, c.makePod},
	} {
		say("%d %s", step.n, step.what)
		if err := meter.InParallel(ctx, writers, step.n, step.do); err != nil {
			return fmt.Errorf("making %s: %w", step.what, err)
		}
	}
	return nil
}

// makeNamespace makes a namespace with the account that pods have, which may be there first.
func (c *cluster) makeNamespace(ctx context.Context, name string) error {
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := c.api.CoreV1().Namespaces().Create(ctx, made, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making namespaces: %w", err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err := c.api.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (c *cluster) makeNode(ctx context.Context, i int) error {
	_, err := c.api.CoreV1().Nodes().Create(ctx, newNode(i), metav1.CreateOptions{})
	return err
}

// makeService makes a Service with its slice, and with its group if it asks for what is near.
func (c *cluster) makeService(ctx context.Context, i int) error {
	name, address := "", netip.Addr{}
	switch {
	case i < vips:
		name, address = fmt.Sprintf("%s-%d", vipName, i), vipAddress(i)
	case i < vips+peers:
		name = fmt.Sprintf("%s-%d", peerName, i-vips)
	default:
		name = fmt.Sprintf("%s-%d", nearName, i-vips-peers)
	}
	service := newService(name, address)
	if _, err := c.api.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{}); err != nil {
		return err
	}
	slice := newSlice(service, i*perService, c.pods, c.nodes)
	if _, err := c.api.DiscoveryV1().EndpointSlices(namespace).Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		return err
	}
	if i < vips+peers {
		return nil
	}
	return c.makeUntyped(ctx, "endpointgroups", newGroup(slice))
}

// makePod makes a pod that has its address, and its PodLocator.
func (c *cluster) makePod(ctx context.Context, i int) error {
	pods := c.api.CoreV1().Pods(podNamespace(i))
	made, err := pods.Create(ctx, newPod(i), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Status.PodIP = podAddress(i).String()
	made.Status.PodIPs = []corev1.PodIP{{IP: made.Status.PodIP}}
	if _, err := pods.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return c.makeUntyped(ctx, "podlocators", newLocator(made, i%c.nodes))
}

// makeUntyped makes an object of Vicinity.
func (c *cluster) makeUntyped(ctx context.Context, resource string, object metav1.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	_, err = c.untyped.Resource(v1alpha1.GroupVersion.WithResource(resource)).Namespace(object.GetNamespace()).
		Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	return err
}
