package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab/agent"
	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/cri"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
	"vicinity.dev/vicinity/test/kube"
)

// StopNode disconnects a node: its heartbeats stop, and no traffic reaches it or its pods. It
// does not wait for the cluster to notice.
func (c *Cluster) StopNode(ctx context.Context, name string) error {
	return c.disconnectNode(ctx, name, func() error {
		if !c.hasNetwork(name) {
			return agent.StopNode(c.dir, name)
		}
		return c.changeCuts(func(network *fabric.Fabric) error { return network.CutNode(name) })
	})
}

// StartNode reverts StopNode and waits until the node is ready, unless its zone is cut off.
func (c *Cluster) StartNode(ctx context.Context, name string) error {
	return c.disconnectNode(ctx, name, func() error {
		var err error
		if !c.hasNetwork(name) {
			err = agent.StartNode(c.dir, name)
		} else {
			err = c.changeCuts(func(network *fabric.Fabric) error { return network.HealNode(name) })
		}
		if err != nil {
			return err
		}
		return c.waitUnlessCutOff(ctx, name)
	})
}

func (c *Cluster) hasNetwork(name string) bool {
	_, found := c.Shape().Node(name)
	return found && !c.Shape().ControlPlaneOnly
}

// disconnectNode is changeNode that also accepts nodes without network.
func (c *Cluster) disconnectNode(ctx context.Context, name string, do func() error) error {
	if !slices.ContainsFunc(c.Shape().FakeNodeList(), func(n shape.Node) bool { return n.Name == name }) {
		return c.changeNode(ctx, name, do)
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return do()
}

func (c *Cluster) changeNode(ctx context.Context, name string, do func() error) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, ok := c.Shape().Node(name); !ok {
		return fmt.Errorf("node %q: lab %q has no node of this name with a network", name, c.Shape().Name)
	}
	return do()
}

// AddNode adds a node in a new or existing zone, and waits until it is ready. It returns
// the node with its defaults set. If it fails, it removes the node again.
func (c *Cluster) AddNode(ctx context.Context, node shape.Node) (shape.Node, error) {
	unlock, err := c.lock(ctx)
	if err != nil {
		return shape.Node{}, err
	}
	defer unlock()
	now := c.current()
	before := now.Shape
	node.Index = now.NextIndex
	if now.Shape, node, err = before.With(node); err != nil {
		return shape.Node{}, err
	}
	now.NextIndex = node.Index + 1
	cuts, err := c.cuts()
	if err != nil {
		return shape.Node{}, err
	}
	if isCutOff(node, cuts) {
		return shape.Node{}, fmt.Errorf("zone %q of node %q is cut off, so the node would not become ready; heal the zone first", node.Zone, node.Name)
	}
	if err := c.bringUpNode(ctx, now, node); err != nil {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), removalTimeout)
		defer cancel()
		return shape.Node{}, errors.Join(err, c.takeDownNode(limited, node, before))
	}
	return node, nil
}

func (c *Cluster) bringUpNode(ctx context.Context, now state.Lab, node shape.Node) error {
	if !now.Shape.ControlPlaneOnly {
		network, err := c.network()
		if err != nil {
			return err
		}
		if err := network.AddNode(node); err != nil {
			return err
		}
	}
	// The runtime and the agent read the node from the file.
	if err := c.save(now); err != nil {
		return err
	}
	plane, err := c.controlPlane()
	if err != nil {
		return err
	}
	if err := c.startNodes(ctx, plane); err != nil {
		return err
	}
	if err := plane.StartProxies(); err != nil {
		return err
	}
	if err := plane.Wait(ctx); err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return err
	}
	return client.WaitNodes(ctx, true, node.Name)
}

// RemoveNode removes a node with its pods, without evictions; their controllers replace them.
func (c *Cluster) RemoveNode(ctx context.Context, name string) error {
	return c.changeNode(ctx, name, func() error {
		before := c.Shape()
		node, _ := before.Node(name)
		return c.takeDownNode(ctx, node, before.Without(name))
	})
}

// takeDownNode removes a node, even an incomplete one, and sets the shape to after. It continues after
// errors.
func (c *Cluster) takeDownNode(ctx context.Context, node shape.Node, after shape.Shape) error {
	now := c.current()
	with := now.Shape
	plane, err := c.controlPlane()
	if err != nil {
		return err
	}
	// The kubelet first: it would restart containers that the runtime ends.
	failed := []error{c.stop(ctx, cri.KubeletOf(node.Name), 0), c.stop(ctx, controlplane.KubeProxy+"-"+node.Name, 0), plane.RemoveNode(node)}
	now.Shape = after
	if err := c.save(now); err != nil {
		return err
	}
	client, err := c.Client()
	if err != nil {
		return errors.Join(append(failed, err)...)
	}
	failed = append(failed, c.waitForRuntime(ctx, node), client.deletePods(ctx, node.Name))
	err = client.CoreV1().Nodes().Delete(ctx, node.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		failed = append(failed, fmt.Errorf("deleting node %s: %w", node.Name, err))
	}
	if _, made := with.Node(node.Name); made && !with.ControlPlaneOnly {
		network, err := fabric.Open(with)
		if err == nil {
			err = network.RemoveNode(node.Name)
		}
		failed = append(failed, err)
	}
	// Otherwise a later node of this name would start as stopped.
	return errors.Join(append(failed, agent.StartNode(c.dir, node.Name))...)
}

// waitForRuntime waits until the runtime has ended the containers of a removed node. A stopped runtime
// does so when it starts.
func (c *Cluster) waitForRuntime(ctx context.Context, node shape.Node) error {
	running, err := process.Find(c.dir, controlplane.Runtime)
	if errors.Is(err, process.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return kube.Wait(ctx, "the containers of "+node.Name+" to end", func(context.Context) (string, error) {
		if _, err := os.Stat(c.dir.Node(node.Name)); errors.Is(err, fs.ErrNotExist) || !running.Alive() || running.Paused() {
			return "", nil
		}
		return "some still run", nil
	})
}

// Cordon sets whether a node is unschedulable.
func (c *Client) Cordon(ctx context.Context, node string, cordoned bool) error {
	patch := fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, cordoned)
	_, err := c.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: kube.FieldManager})
	if err != nil {
		return fmt.Errorf("cordoning node %s: %w", node, err)
	}
	return nil
}

// deletePods deletes the pods of a node whose kubelet has ended.
func (c *Client) deletePods(ctx context.Context, node string) error {
	pods, err := c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(),
	})
	if err != nil {
		return fmt.Errorf("listing the pods of node %s: %w", node, err)
	}
	var failed []error
	for i := range pods.Items {
		pod := &pods.Items[i]
		err := c.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			failed = append(failed, fmt.Errorf("deleting pod %s/%s: %w", pod.Namespace, pod.Name, err))
		}
	}
	return errors.Join(failed...)
}
