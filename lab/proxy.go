package lab

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"vicinity.dev/vicinity/lab/cri"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/release"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// proxyImage is the image of vicinity-proxy, its program, and the prefix of its component names. As a
// component it replaces kube-proxy, but it is a pod of Vicinity's chart: its node starts and restarts
// it.
const proxyImage = "vicinity-proxy"

// Default health ports of vicinity-proxy on each node: beside kube-proxy, and in its place.
const (
	proxyHealthPort     = 10266
	kubeProxyHealthPort = 10256
)

func (c *Cluster) healthPort() int {
	if c.Shape().Proxy.KubeProxy() {
		return proxyHealthPort
	}
	return kubeProxyHealthPort
}

func (c *Cluster) proxies(nodes ...shape.Node) []string {
	if !c.Shape().Proxy.Vicinity() || c.Shape().ControlPlaneOnly {
		return nil
	}
	var names []string
	for _, node := range nodes {
		names = append(names, proxyImage+"-"+node.Name)
	}
	return names
}

func (c *Cluster) proxyNode(component string) (shape.Node, bool) {
	name, ok := strings.CutPrefix(component, proxyImage+"-")
	if !ok || !c.Shape().Proxy.Vicinity() || c.Shape().ControlPlaneOnly {
		return shape.Node{}, false
	}
	return c.Shape().Node(name)
}

// findProxy finds the process of a node's vicinity-proxy. The error is process.ErrNotFound if it
// does not run.
func (c *Cluster) findProxy(node shape.Node) (*process.Process, error) {
	return process.FindContained(c.dir, proxyImage+"-"+node.Name, proxyImage, cri.NodeVariable(node.Name))
}

func (c *Cluster) proxyReady(ctx context.Context, node shape.Node) error {
	plane, err := c.controlPlane()
	if err != nil {
		return err
	}
	return plane.Get(ctx, shape.NodeNamespace(c.Shape().Name, node.Index), "http://127.0.0.1:"+strconv.Itoa(c.healthPort())+"/readyz")
}

func (c *Cluster) waitProxy(ctx context.Context, node shape.Node) error {
	return kube.Wait(ctx, proxyImage+"-"+node.Name+" to be ready", func(ctx context.Context) (string, error) {
		if _, err := c.findProxy(node); err != nil {
			return "", err
		}
		return "", c.proxyReady(ctx, node)
	})
}

// proxyLog reads the logs of vicinity-proxy's containers on a node from the kubelet's files. It needs
// no API.
func (c *Cluster) proxyLog(node shape.Node) ([]byte, error) {
	logs, err := filepath.Glob(filepath.Join(c.dir.Node(node.Name), "logs", release.Namespace+"_"+proxyDaemonSet+"-*", "*", "*.log"))
	if err == nil && len(logs) == 0 {
		err = fs.ErrNotExist
	}
	var all []byte
	for _, log := range logs {
		text, failed := os.ReadFile(log)
		all, err = append(all, text...), errors.Join(err, failed)
	}
	return all, err
}
