package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// Status is the status of a lab.
type Status struct {
	Name       string            `json:"name"`
	Created    time.Time         `json:"created"`
	Kubeconfig string            `json:"kubeconfig"`
	Components []ComponentStatus `json:"components"`
	// DNS is the DNS server, or nil if none was installed.
	DNS   *DNSStatus   `json:"dns,omitempty"`
	Nodes []NodeStatus `json:"nodes"`
	// Impaired has the zones with an impaired uplink.
	Impaired map[string]shape.Impairment `json:"impaired,omitempty"`
	// FakeNodes are nodes without network, which are not listed.
	FakeNodes int `json:"fakeNodes,omitempty"`
	// Pods is the number of the lab's pods, or nil if the API does not answer.
	Pods *int `json:"pods"`
	// Memory is the memory of all processes of the lab in bytes. Shared memory counts once.
	Memory uint64 `json:"memory"`
}

// ComponentStatus is the status of a component.
type ComponentStatus struct {
	Name string `json:"name"`
	// State is ready, paused, stopped, or why it is not ready.
	State  string `json:"state"`
	PID    int    `json:"pid,omitempty"`
	Memory uint64 `json:"memory,omitempty"`
}

// DNSStatus is the status of the cluster's DNS server.
type DNSStatus struct {
	Kind shape.DNS `json:"kind"`
	// Addresses are its cluster IPs.
	Addresses []netip.Addr `json:"addresses"`
	// State is ready, or why it is not.
	State string `json:"state"`
}

// NodeStatus is the status of a node.
type NodeStatus struct {
	Name    string `json:"name"`
	Zone    string `json:"zone"`
	Region  string `json:"region"`
	Address string `json:"address"`
	// State is Ready or NotReady, with Cordoned, Stopped and CutOff appended.
	State string `json:"state"`
	// Pods is the number of pods that are bound to the node, or nil if the API does not answer.
	Pods *int `json:"pods"`
}

// statusTime limits each request: the component may be the one that fails.
const statusTime = 3 * time.Second

// Status returns the status of a lab. A component that does not answer is not an error.
func (c *Cluster) Status(ctx context.Context) (Status, error) {
	now := c.current()
	status := Status{
		Name: c.dir.Name(), Created: now.Created, Kubeconfig: c.Kubeconfig(), FakeNodes: now.Shape.FakeNodes,
		Impaired: now.Impaired,
	}
	// Concurrently, so that one that does not answer does not delay the others.
	var work sync.WaitGroup
	failed := make([]error, 4)
	work.Go(func() { status.Components, failed[0] = c.componentStatus(ctx) })
	work.Go(func() { failed[1] = c.nodeStatus(ctx, &status) })
	work.Go(func() { status.Memory, failed[2] = c.memory() })
	work.Go(func() { status.DNS, failed[3] = c.dnsStatus(ctx) })
	work.Wait()
	return status, errors.Join(failed...)
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
	all, failed := make([]ComponentStatus, len(names)), make([]error, len(names))
	var work sync.WaitGroup
	for i, name := range names {
		work.Go(func() { all[i], failed[i] = c.statusOf(ctx, plane, name) })
	}
	work.Wait()
	return all, errors.Join(failed...)
}

func (c *Cluster) statusOf(ctx context.Context, plane *controlplane.ControlPlane, name string) (ComponentStatus, error) {
	one := ComponentStatus{Name: name, State: "stopped"}
	running, err := c.findComponent(name)
	if errors.Is(err, process.ErrNotFound) {
		return one, nil
	} else if err != nil {
		return one, err
	}
	if !running.Alive() {
		one.State = "ended by itself"
		return one, nil
	}
	one.PID, one.Memory = running.PID, memoryOf(running.PID)
	if running.Paused() {
		one.State = "paused"
		return one, nil
	}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	if node, ok := c.proxyNode(name); ok {
		err = c.proxyReady(ctx, node)
	} else {
		err = plane.Ready(ctx, name)
	}
	one.State = "ready"
	if err != nil {
		one.State = "not ready: " + err.Error()
	}
	return one, nil
}

func (c *Cluster) dnsStatus(ctx context.Context) (*DNSStatus, error) {
	s := c.Shape()
	if s.DNS == "" || s.DNS == shape.DNSNone {
		return nil, nil
	}
	cuts, err := c.cuts()
	if err != nil {
		return nil, err
	}
	status := &DNSStatus{Kind: s.DNS, Addresses: s.DNSAddrs(), State: "not ready: all nodes are cut off"}
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	nodes := s.Nodes()
	if at := slices.IndexFunc(nodes, func(node shape.Node) bool { return !isCutOff(node, cuts) }); at >= 0 {
		status.State = "ready"
		if err := c.checkDNS(ctx, nodes[at]); err != nil {
			status.State = "not ready: " + err.Error()
		}
	}
	return status, nil
}

func (c *Cluster) findComponent(name string) (*process.Process, error) {
	if node, ok := c.proxyNode(name); ok {
		return c.findProxy(node)
	}
	return process.Find(c.dir, name)
}

func (c *Cluster) nodeStatus(ctx context.Context, status *Status) error {
	cuts, err := c.cuts()
	if err != nil {
		return err
	}
	s := c.Shape()
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	states, pods, err := c.readNodes(ctx)
	hasPods := err == nil
	if hasPods {
		all := 0
		for _, count := range pods {
			all += count
		}
		status.Pods = &all
	}
	for _, node := range s.Nodes() {
		one := NodeStatus{
			Name: node.Name, Zone: node.Zone, Region: node.Region,
			Address: s.NodeAddrs(node)[0].String(),
		}
		state := []string{cmp.Or(states[node.Name], "Unknown")}
		if slices.Contains(cuts.Zones, node.Zone) {
			state = append(state, "CutOff")
		}
		if slices.Contains(cuts.Nodes, node.Name) {
			state = append(state, "Stopped")
		}
		one.State = strings.Join(state, ",")
		if hasPods {
			count := pods[node.Name]
			one.Pods = &count
		}
		status.Nodes = append(status.Nodes, one)
	}
	return nil
}

// readNodes reads the states of nodes and the number of pods on each from the API.
func (c *Cluster) readNodes(ctx context.Context) (states map[string]string, pods map[string]int, err error) {
	client, err := c.Client()
	if err != nil {
		return nil, nil, err
	}
	// From the API server's cache, which is cheap for thousands of objects.
	cached := metav1.ListOptions{ResourceVersion: "0"}
	nodes, err := client.CoreV1().Nodes().List(ctx, cached)
	if err != nil {
		return nil, nil, err
	}
	states, pods = map[string]string{}, map[string]int{}
	for i := range nodes.Items {
		states[nodes.Items[i].Name] = nodeState(&nodes.Items[i])
	}
	list, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, cached)
	if err != nil {
		return states, nil, err
	}
	for i := range list.Items {
		pods[list.Items[i].Spec.NodeName]++
	}
	return states, pods, nil
}

func nodeState(node *corev1.Node) string {
	state := "NotReady"
	if kube.NodeReady(node) {
		state = "Ready"
	}
	if node.Spec.Unschedulable {
		state += ",Cordoned"
	}
	return state
}

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

// memoryOf is the memory of a process, with its part of shared memory, or 0 if it has ended.
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
