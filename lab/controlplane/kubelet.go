package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/lab/cri"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

func (c *ControlPlane) runtimes() []component {
	if c.config.Shape.ControlPlaneOnly {
		return nil
	}
	return []component{{name: Runtime, args: c.config.Runtime, namespace: c.namespace, ready: c.runtimeReady}}
}

func (c *ControlPlane) runtimeReady(ctx context.Context) error {
	for _, node := range c.config.Shape.Nodes() {
		if err := cri.Dial(ctx, c.config.Dir, node.Name); err != nil {
			return fmt.Errorf("the runtime does not serve node %s: %w", node.Name, err)
		}
	}
	return nil
}

func (c *ControlPlane) kubelets() []component {
	if c.config.Shape.ControlPlaneOnly {
		return nil
	}
	var all []component
	for _, node := range c.config.Shape.Nodes() {
		namespace := shape.NodeNamespace(c.config.Shape.Name, node.Index)
		all = append(all, component{
			name:      cri.KubeletOf(node.Name),
			args:      c.command(Kubelet, c.flags.kubelet(node)),
			namespace: namespace,
			mounts:    c.kubeletMounts,
			ready:     func(ctx context.Context) error { return c.Get(ctx, namespace, "http://127.0.0.1:10248/healthz") },
		})
	}
	return all
}

// kubeletMounts returns the path of the kubelets' mount namespace, which the runtime holds.
func (c *ControlPlane) kubeletMounts() (string, error) {
	runtime, err := process.Find(c.config.Dir, Runtime)
	if err == nil && !runtime.Alive() {
		err = c.exitError(Runtime)
	}
	if err != nil {
		return "", fmt.Errorf("a kubelet needs component %s: %w", Runtime, err)
	}
	return cri.MountsOf(runtime.PID), nil
}

func (f flags) kubelet(node shape.Node) []string {
	folder := path.Join(cri.KubeletFolder, node.Name)
	labels := map[string]string{
		zoneLabel:                       node.Zone,
		"topology.kubernetes.io/region": node.Region,
	}
	for name, value := range node.Labels {
		// A kubelet refuses labels of Kubernetes; the Node has them already.
		if domain, _, _ := strings.Cut(name, "/"); !strings.HasSuffix(domain, "kubernetes.io") && !strings.HasSuffix(domain, "k8s.io") {
			labels[name] = value
		}
	}
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, name+"="+labels[name])
	}
	return []string{
		"--config=" + f.dir.Conf(kubeletConfigFile(node)),
		"--kubeconfig=" + f.dir.ComponentKubeconfig(Kubelet),
		"--hostname-override=" + node.Name,
		"--node-ip=" + list(f.shape.NodeAddrs(node)),
		"--node-labels=" + strings.Join(pairs, ","),
		"--root-dir=" + folder,
		"--cert-dir=" + path.Join(folder, "pki"),
		"--capacity=cpu=" + node.CPU + ",memory=" + node.Memory + ",ephemeral-storage=100Gi",
	}
}

func kubeletConfigFile(node shape.Node) string { return cri.KubeletOf(node.Name) + ".yaml" }

// prepareKubelets writes the configuration files of the kubelets, and missing certificates.
func (f flags) prepareKubelets(ca *Authority) error {
	if f.shape.ControlPlaneOnly {
		return nil
	}
	for _, node := range f.shape.Nodes() {
		id := Identity{Name: "system:node:" + node.Name, Groups: []string{groupNodes}, DNS: []string{node.Name}}
		id.IPs = append(f.shape.NodeAddrs(node), netip.AddrFrom4([4]byte{127, 0, 0, 1}))
		if err := ensureLeaf(f.pki(cri.KubeletOf(node.Name)), ca, id); err != nil {
			return err
		}
		text, err := f.kubeletConfig(node)
		if err != nil {
			return err
		}
		if err := state.WriteFile(f.dir.Conf(kubeletConfigFile(node)), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// RemoveNode removes the configuration and the certificate of a node's kubelet: a later node with this
// name has other addresses.
func (c *ControlPlane) RemoveNode(node shape.Node) error {
	var failed []error
	pki := c.config.Dir.PKI(cri.KubeletOf(node.Name))
	for _, file := range []string{c.config.Dir.Conf(kubeletConfigFile(node)), pki + ".crt", pki + ".key"} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// kubeletConfig turns off features that would affect the machine: control groups, evictions for disk
// or memory, and iptables rules.
func (f flags) kubeletConfig(node shape.Node) ([]byte, error) {
	folder := path.Join(cri.KubeletFolder, node.Name)
	dns := make([]string, 0, 2)
	if f.shape.DNSServer() != shape.DNSNone {
		for _, addr := range f.shape.DNSAddrs() {
			dns = append(dns, addr.String())
		}
	}
	certificate := f.pki(cri.KubeletOf(node.Name))
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",

		"containerRuntimeEndpoint": "unix://" + path.Join(folder, cri.Socket),
		"podLogsDir":               path.Join(folder, "logs"),
		"volumePluginDir":          path.Join(folder, "volume-plugins"),

		"tlsCertFile": certificate + ".crt", "tlsPrivateKeyFile": certificate + ".key",
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false},
			"webhook":   map[string]any{"enabled": false},
			"x509":      map[string]any{"clientCAFile": f.pki(caName + ".crt")},
		},
		"authorization": map[string]any{"mode": "Webhook"},

		"clusterDomain": "cluster.local", "clusterDNS": dns,
		"maxPods":                     shape.PodsPerNode,
		"serializeImagePulls":         false,
		"imageGCHighThresholdPercent": 100,
		"evictionHard":                map[string]string{"memory.available": "0%"},

		"cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{},
		"failSwapOn": false, "failCgroupV1": false, "makeIPTablesUtilChains": false, "oomScoreAdj": 0,

		// The kubelet renews the lease four times in this duration.
		"nodeLeaseDurationSeconds": int(f.shape.Timing.LeaseDuration.Seconds()),
		// A node that was lost is ready again after this time.
		"nodeStatusUpdateFrequency": "2s", "nodeStatusReportFrequency": "1m",
		// Volumes follow their objects after this time.
		"syncFrequency": "10s",
	}
	if _, err := os.Stat(cri.MachineResolver); err != nil {
		config["resolvConf"] = ""
	}
	return yaml.Marshal(config)
}
