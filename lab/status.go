package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/agent"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/process"
)

// Status is how a lab fares.
type Status struct {
	Name       string            `json:"name"`
	Created    time.Time         `json:"created"`
	Kubeconfig string            `json:"kubeconfig"`
	Components []ComponentStatus `json:"components"`
	Nodes      []NodeStatus      `json:"nodes"`
	// FakeNodes are nodes without network, which are not listed one by one.
	FakeNodes int `json:"fakeNodes,omitempty"`
	// Pods are those of the whole lab.
	Pods int `json:"pods"`
	// Memory is what all processes of the lab hold, shared memory counted once, in
	// bytes.
	Memory uint64 `json:"memory"`
}

// ComponentStatus is how a process of the lab's own fares.
type ComponentStatus struct {
	Name string `json:"name"`
	// State is ready, paused, stopped, or else why it is not ready.
	State  string `json:"state"`
	PID    int    `json:"pid,omitempty"`
	Memory uint64 `json:"memory,omitempty"`
}

// NodeStatus is how a node fares.
type NodeStatus struct {
	Name    string `json:"name"`
	Zone    string `json:"zone"`
	Region  string `json:"region"`
	Address string `json:"address"`
	// State is Ready or NotReady as the API says, with what was done to the node or
	// its zone: Cordoned, Stopped, CutOff.
	State string `json:"state"`
	Pods  int    `json:"pods"`
}

// statusTime bounds how long the API may take to answer. It may be what fails.
const statusTime = 3 * time.Second

// Status looks at a lab. That the API does not answer is no error but part of it.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	status := Status{
		Name: c.dir.Name(), Created: c.lab.Created, Kubeconfig: c.Kubeconfig(), FakeNodes: c.lab.Shape.FakeNodes,
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	var err error
	if status.Components, err = c.componentStatus(ctx); err != nil {
		return Status{}, err
	}
	if err := c.nodeStatus(ctx, &status); err != nil {
		return Status{}, err
	}
	status.Memory, err = c.memory()
	return status, err
}

func (c *Cluster) componentStatus(ctx context.Context) ([]ComponentStatus, error) {
	names, err := c.Components()
	if err != nil {
		return nil, err
	}
	plane, err := c.controlPlane()
	if err != nil {
		return nil, err
	}
	var all []ComponentStatus
	for _, name := range names {
		one := ComponentStatus{Name: name, State: "stopped"}
		running, err := process.Find(c.dir, name)
		switch {
		case errors.Is(err, process.ErrNotFound):
		case err != nil:
			return nil, err
		case !running.Alive():
			one.State = "ended by itself"
		default:
			one.PID, one.Memory = running.PID, memoryOf(running.PID)
			one.State = "ready"
			if running.Paused() {
				one.State = "paused"
			} else if !c.isAgent(name) {
				if err := plane.Ready(ctx, name); err != nil {
					one.State = "not ready: " + err.Error()
				}
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// nodeStatus adds the nodes and the number of pods.
func (c *Cluster) nodeStatus(ctx context.Context, status *Status) error {
	stopped, err := agent.StoppedNodes(c.dir)
	if err != nil {
		return err
	}
	var cut []string
	err = c.ofNetwork(func(network *fabric.Fabric) (err error) {
		_, cut, err = network.Cuts()
		return err
	})
	if err != nil {
		return err
	}
	seen, pods := c.ask(ctx)
	for _, count := range pods {
		status.Pods += count
	}
	for _, node := range c.lab.Shape.Nodes() {
		state := []string{seen[node.Name]}
		if state[0] == "" {
			state[0] = "Unknown"
		}
		switch {
		case slices.Contains(cut, node.Zone):
			state = append(state, "CutOff")
		case slices.Contains(stopped, node.Name):
			state = append(state, "Stopped")
		}
		status.Nodes = append(status.Nodes, NodeStatus{
			Name: node.Name, Zone: node.Zone, Region: node.Region,
			Address: c.lab.Shape.NodeAddrs(node)[0].String(),
			State:   strings.Join(state, ","), Pods: pods[node.Name],
		})
	}
	return nil
}

// ask asks the API for the states of nodes, and how many pods each has. Without an
// answer there are none.
func (c *Cluster) ask(ctx context.Context) (states map[string]string, pods map[string]int) {
	states, pods = map[string]string{}, map[string]int{}
	client, err := c.Client()
	if err != nil {
		return states, pods
	}
	// From the API server's memory, which thousands of objects do not burden.
	cached := metav1.ListOptions{ResourceVersion: "0"}
	nodes, err := client.CoreV1().Nodes().List(ctx, cached)
	if err != nil {
		return states, pods
	}
	for i := range nodes.Items {
		states[nodes.Items[i].Name] = stateOf(&nodes.Items[i])
	}
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, cached)
	if err != nil {
		return states, pods
	}
	for i := range list.Items {
		pods[list.Items[i].Spec.NodeName]++
	}
	return states, pods
}

func stateOf(node *corev1.Node) string {
	state := "NotReady"
	if NodeReady(node) {
		state = "Ready"
	}
	if node.Spec.Unschedulable {
		state += ",Cordoned"
	}
	return state
}

// memory is what all processes of the lab hold.
func (c *Cluster) memory() (uint64, error) {
	namespaces, err := ownNamespaces(c.dir)
	if err != nil {
		return 0, err
	}
	pids, err := process.Strays(c.dir, namespaces...)
	if err != nil {
		return 0, err
	}
	var sum uint64
	for _, pid := range pids {
		sum += memoryOf(pid)
	}
	return sum, nil
}

// memoryOf is what a process holds; what it shares with others counts in part, so that
// a sum over processes counts it once. A process that has ended holds nothing.
func memoryOf(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "Pss:"); ok {
			kibibytes, err := strconv.ParseUint(strings.Fields(value)[0], 10, 64)
			if err != nil {
				return 0
			}
			return kibibytes << 10
		}
	}
	return 0
}
