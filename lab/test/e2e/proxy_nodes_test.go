package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// joinsLabel is the label of the nodes of joiningNodes.
const joinsLabel = "example.com/joins"

// joiners runs a client on each of these nodes. It does not tolerate the start-up taint.
const joiners = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: joiner}
spec:
  selector: {matchLabels: {app: joiner}}
  template:
    metadata: {labels: {app: joiner}}
    spec:
      terminationGracePeriodSeconds: 5
      nodeSelector: {` + joinsLabel + `: "true"}
      containers: [{name: client, image: lab/client}]
`

// joiningNodes adds nodes with the start-up taint while a Service of vicinity-proxy has load. A
// foreign table keeps the first node from getting ready: it keeps its taint and gets no pod. From
// the moment when a taint is gone, no connection of the node and of its first pod fails.
func joiningNodes(ctx context.Context, s *scene) (figure string, err error) {
	check(s.deployed(ctx, echoes, ""))
	check(s.Apply(ctx, s.namespace, joiners))
	var added []string
	defer undo(&err, func() (err error) {
		for _, name := range added {
			err = errors.Join(err, s.removeNode(context.WithoutCancel(ctx), name))
		}
		return err
	})
	refused := 0
	u := must(s.unharmed(ctx, func(ctx context.Context, t *traffic) error {
		for i, zone := range s.cluster.Shape().Zones[:2] {
			j, err := s.joining(ctx, zone.Name)
			if err != nil {
				return err
			}
			added = append(added, j.node.Name)
			n, err := j.join(ctx, i == 0)
			if err != nil {
				return fmt.Errorf("node %s: %w", j.node.Name, err)
			}
			refused += n
			if err := t.more(ctx, newRate); err != nil {
				return err
			}
		}
		return nil
	}))
	return fmt.Sprintf("%d nodes joined with the taint, one of them held back; %d connections of the nodes were refused before it was removed, none afterwards, and none of their first pods; %s",
		len(added), refused, u), nil
}

// removeNode also deletes the pods of a node, which would stay for a minute.
func (s *scene) removeNode(ctx context.Context, name string) error {
	if err := s.cluster.RemoveNode(ctx, name); err != nil {
		return err
	}
	pods, err := s.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if err := s.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewDeleteOptions(0)); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// joining is a node that is about to join.
type joining struct {
	*scene
	node shape.Node
	to   netip.AddrPort // of the echo Service
}

// joining makes the Node as a kubelet with --register-with-taints does, and with its pod CIDRs.
func (s *scene) joining(ctx context.Context, zone string) (joining, error) {
	with, node, err := s.cluster.Shape().With(shape.Node{Zone: zone, Labels: map[string]string{joinsLabel: "true"}})
	if err != nil {
		return joining{}, err
	}
	object := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}}
	object.Spec.Taints = []corev1.Taint{{Key: v1alpha1.TaintProxyNotReady, Effect: corev1.TaintEffectNoSchedule}}
	for _, cidr := range with.NodePodCIDRs(node) {
		object.Spec.PodCIDRs = append(object.Spec.PodCIDRs, cidr.String())
	}
	object.Spec.PodCIDR = object.Spec.PodCIDRs[0]
	if _, err := s.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{}); err != nil {
		return joining{}, err
	}
	service, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
	if err != nil {
		return joining{}, err
	}
	address, err := netip.ParseAddr(service.Spec.ClusterIP)
	return joining{s, node, netip.AddrPortFrom(address, 81)}, err
}

// join starts the node, and connects from it all the time. It returns how many connections were
// refused before the taint was removed.
func (j joining) join(ctx context.Context, held bool) (refused int, err error) {
	started := make(chan error, 1)
	go func() {
		made, err := j.cluster.AddNode(ctx, shape.Node{Name: j.node.Name, Zone: j.node.Zone, Labels: j.node.Labels})
		if err == nil && made.Index != j.node.Index {
			err = fmt.Errorf("it has the index %d, and its pod CIDRs are those of %d", made.Index, j.node.Index)
		}
		started <- err
	}()
	var release func() error
	if held {
		release, err = j.hold(ctx)
	}
	dials := j.dial(ctx)
	defer dials.end()
	if err := errors.Join(err, <-started); err != nil {
		return 0, err
	}
	if held {
		if err := errors.Join(j.staysTainted(ctx), release()); err != nil {
			return 0, err
		}
	}
	if err := kube.Wait(ctx, "the start-up taint to be removed", func(ctx context.Context) (string, error) {
		tainted, err := j.isTainted(ctx)
		if tainted {
			return "it is still there", err
		}
		return "", err
	}); err != nil {
		return 0, err
	}
	gone := time.Now()
	if err := kube.Wait(ctx, "the first pod of the node", func(ctx context.Context) (string, error) {
		pods, err := j.CoreV1().Pods(j.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=joiner", FieldSelector: "spec.nodeName=" + j.node.Name})
		if err == nil && (len(pods.Items) == 0 || !kube.PodReady(&pods.Items[0])) {
			return "it is not ready", nil
		}
		return "", err
	}); err != nil {
		return 0, err
	}
	if _, err := j.flawless(ctx, lab.LoadOptions{Nodes: []string{j.node.Name}, Selector: "app=joiner", Plan: load.Plan{Rate: 200, Duration: 2 * time.Second}}); err != nil {
		return 0, err
	}
	if dials.end(); dials.last.After(gone) {
		return 0, fmt.Errorf("a connection failed %s after the taint was removed: %w", dials.last.Sub(gone).Round(time.Millisecond), dials.err)
	}
	return dials.refused, nil
}

// hold adds the foreign table as soon as the node has a network, long before its proxy starts.
func (j joining) hold(ctx context.Context) (release func() error, err error) {
	add, remove, err := j.foreignTable(ctx)
	if err != nil {
		return nil, err
	}
	err = kube.Wait(ctx, "a table in the network of the node", func(ctx context.Context) (string, error) {
		_, err := j.nft(ctx, j.node, add)
		return "", err
	})
	return func() error {
		_, err := j.nft(ctx, j.node, remove)
		return err
	}, err
}

// staysTainted waits until the proxy reports that its probe fails. The node still has its taint then,
// and no pod of the DaemonSet.
func (j joining) staysTainted(ctx context.Context) error {
	if err := kube.Wait(ctx, "the probe to fail", func(ctx context.Context) (string, error) {
		failure, err := j.probeFailure(ctx, j.node.Name)
		if err == nil && !strings.Contains(failure, "does not end at vicinity-proxy") {
			return fmt.Sprintf("the Lease has the failure %q", failure), nil
		}
		return "", err
	}); err != nil {
		return err
	}
	tainted, err := j.isTainted(ctx)
	if err != nil {
		return err
	}
	pods, err := j.CoreV1().Pods(j.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=joiner"})
	if err != nil {
		return err
	}
	if !tainted || len(pods.Items) > 0 {
		return fmt.Errorf("while its probe fails, the node has its taint: %t, and %d pods", tainted, len(pods.Items))
	}
	return nil
}

func (j joining) isTainted(ctx context.Context) (bool, error) {
	node, err := j.CoreV1().Nodes().Get(ctx, j.node.Name, metav1.GetOptions{})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == v1alpha1.TaintProxyNotReady }), nil
}

// dials are connections from the network of a node, one after the other. Their results may be read
// after the end.
type dials struct {
	stop  func()
	ended chan struct{}
	// refused counts the refused connections. last is when the last failed one began.
	refused int
	last    time.Time
	err     error
}

func (j joining) dial(ctx context.Context) *dials {
	ctx, cancel := context.WithCancel(ctx)
	d := &dials{stop: cancel, ended: make(chan struct{})}
	p := probe{namespace: shape.NodeNamespace(j.cluster.Shape().Name, j.node.Index), network: "tcp", to: j.to, timeout: answerWait}
	go func() {
		defer close(d.ended)
		for ctx.Err() == nil {
			begun := time.Now()
			if _, _, err := exchange(ctx, p); err != nil && ctx.Err() == nil {
				d.last, d.err = begun, err
				if errors.Is(err, syscall.ECONNREFUSED) {
					d.refused++
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	return d
}

func (d *dials) end() {
	d.stop()
	<-d.ended
}
