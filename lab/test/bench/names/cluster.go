package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

func (b *bench) bringUp(ctx context.Context) error {
	err := b.Up(ctx, shape.Options{NodesPerZone: []int{0}, ControlPlaneOnly: true, SingleStack: true}, func(s *shape.Shape) {
		// Nodes are objects without kubelets. Kubernetes must neither check thousands of them every
		// second nor mark them as not ready.
		s.Timing.MonitorPeriod = shape.Duration{Duration: time.Hour}
		s.Timing.MonitorGrace = shape.Duration{Duration: 24 * time.Hour}
	})
	if err != nil {
		return err
	}
	if err := b.Client.ApplyCRDs(ctx); err != nil {
		return err
	}
	if b.untyped, err = dynamic.NewForConfig(b.Client.Config()); err != nil {
		return err
	}
	if err := b.makeNamespace(ctx, namespace); err != nil {
		return err
	}
	for i := 0; i < b.pods; i += podsPerNamespace {
		if err := b.makeNamespace(ctx, podNamespace(i)); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		what string
		n    int
		do   func(context.Context, int) error
	}{
		{"nodes", b.nodes, b.makeNode},
		{"Services", vips + peers + nears, b.makeService},
		{"pods with their PodLocators", b.pods, b.makePod},
	} {
		b.Say("%d %s", step.n, step.what)
		if err := meter.InParallel(ctx, meter.Writers, step.n, step.do); err != nil {
			return fmt.Errorf("making %s: %w", step.what, err)
		}
	}
	return nil
}

// makeNamespace makes a namespace and its service account, which Kubernetes may have made already.
func (b *bench) makeNamespace(ctx context.Context, name string) error {
	if err := b.CreateNamespace(ctx, name); err != nil {
		return fmt.Errorf("making namespaces: %w", err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err := b.API.CoreV1().ServiceAccounts(name).Create(ctx, account, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (b *bench) makeNode(ctx context.Context, i int) error {
	_, err := b.API.CoreV1().Nodes().Create(ctx, newNode(i), metav1.CreateOptions{})
	return err
}

// makeService makes a Service with its slice, and with its group if it prefers near endpoints.
func (b *bench) makeService(ctx context.Context, i int) error {
	name, clusterIP := fmt.Sprintf("%s-%d", nearName, i-vips-peers), corev1.ClusterIPNone
	switch {
	case i < vips:
		name, clusterIP = fmt.Sprintf("%s-%d", vipName, i), meter.ClusterIP(i)
	case i < vips+peers:
		name = fmt.Sprintf("%s-%d", peerName, i-vips)
	}
	service := meter.NewService(namespace, name, clusterIP, portNumber)
	slice := newSlice(service, i*perService, b.pods, b.nodes)
	if err := b.CreateService(ctx, service, slice); err != nil {
		return err
	}
	if i < vips+peers {
		return nil
	}
	return b.makeUntyped(ctx, "endpointgroups", newGroup(slice))
}

func (b *bench) makePod(ctx context.Context, i int) error {
	pods := b.API.CoreV1().Pods(podNamespace(i))
	made, err := pods.Create(ctx, newPod(i), metav1.CreateOptions{})
	if err != nil {
		return err
	}
	made.Status.PodIP = podAddress(i).String()
	made.Status.PodIPs = []corev1.PodIP{{IP: made.Status.PodIP}}
	if _, err := pods.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return b.makeUntyped(ctx, "podlocators", newLocator(made, i%b.nodes))
}

func (b *bench) makeUntyped(ctx context.Context, resource string, object metav1.Object) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return err
	}
	_, err = b.untyped.Resource(v1alpha1.GroupVersion.WithResource(resource)).Namespace(object.GetNamespace()).
		Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	return err
}
