package controlplane

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

type flags struct {
	shape shape.Shape
	dir   state.Dir
	addrs endpoints
}

// etcd returns the flags of etcd. Without fsync it may lose writes if the machine crashes, but
// not if only its process does, and it is much faster on a slow disk. Short timeouts let it, the
// only member, elect itself quickly.
func (f flags) etcd() []string {
	client, peer := "https://"+f.addrs.etcd.String(), "https://"+f.addrs.etcdPeer.String()
	certificate, key, ca := f.pki(etcdServerName+".crt"), f.pki(etcdServerName+".key"), f.pki(etcdCAName+".crt")
	return []string{
		"--name=" + f.shape.Name,
		"--data-dir=" + f.dir.Etcd(),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + f.shape.Name + "=" + peer,
		"--listen-metrics-urls=http://" + f.addrs.etcdMetrics.String(),
		"--cert-file=" + certificate, "--key-file=" + key,
		"--client-cert-auth", "--trusted-ca-file=" + ca,
		"--peer-cert-file=" + certificate, "--peer-key-file=" + key,
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + ca,
		"--enable-grpc-gateway=false",
		"--unsafe-no-fsync",
		"--heartbeat-interval=20", "--election-timeout=200",
		"--quota-backend-bytes=8589934592",
		"--log-level=warn",
	}
}

func (f flags) apiServer() []string {
	at := f.addrs.apiServer
	tolerate := strconv.Itoa(int(f.shape.Timing.Toleration.Seconds()))
	args := []string{
		"--bind-address=" + at.Addr().String(),
		"--secure-port=" + strconv.Itoa(int(at.Port())),
		"--advertise-address=" + at.Addr().String(),
		"--etcd-servers=https://" + f.addrs.etcd.String(),
		"--etcd-cafile=" + f.pki(etcdCAName+".crt"),
		"--etcd-certfile=" + f.pki(etcdClientName+".crt"),
		"--etcd-keyfile=" + f.pki(etcdClientName+".key"),
		"--client-ca-file=" + f.pki(caName+".crt"),
		"--tls-cert-file=" + f.pki(apiServerName+".crt"),
		"--tls-private-key-file=" + f.pki(apiServerName+".key"),
		"--kubelet-certificate-authority=" + f.pki(caName+".crt"),
		"--kubelet-client-certificate=" + f.pki(kubeletClientName+".crt"),
		"--kubelet-client-key=" + f.pki(kubeletClientName+".key"),
		"--kubelet-preferred-address-types=InternalIP",
		"--requestheader-client-ca-file=" + f.pki(frontProxyCAName+".crt"),
		"--requestheader-allowed-names=" + frontProxyName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + f.pki(frontProxyName+".crt"),
		"--proxy-client-key-file=" + f.pki(frontProxyName+".key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + f.pki(serviceAccountName+".pub"),
		"--service-account-signing-key-file=" + f.pki(serviceAccountName+".key"),
		"--service-cluster-ip-range=" + list(f.shape.ServiceCIDRs()),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged",
		// Calls webhooks and aggregated APIs by pod addresses: cluster IPs do not work in
		// It calls webhooks and aggregated APIs by pod addresses: the fabric namespace has no
		// kube-proxy, so cluster IPs do not work there.
		"--enable-aggregator-routing",
		"--default-not-ready-toleration-seconds=" + tolerate,
		"--default-unreachable-toleration-seconds=" + tolerate,
	}
	if f.shape.EvictionRequests {
		args = append(args, "--feature-gates=EvictionRequestAPI=true", "--runtime-config=lifecycle.k8s.io/v1alpha1=true")
	}
	if f.shape.ControlPlaneOnly {
		// A loopback address cannot be an endpoint of the Service "kubernetes".
		args = append(args, "--endpoint-reconciler-type=none")
	}
	return args
}

func (f flags) controllerManager() []string {
	qps, burst := f.rate()
	args := f.controller(ControllerManager, f.addrs.controllerManager)
	return append(args,
		"--kubeconfig="+f.dir.ComponentKubeconfig(ControllerManager),
		"--leader-elect=false",
		"--cluster-name="+f.shape.Name,
		"--root-ca-file="+f.pki(caName+".crt"),
		"--cluster-signing-cert-file="+f.pki(caName+".crt"),
		"--cluster-signing-key-file="+f.pki(caName+".key"),
		"--service-account-private-key-file="+f.pki(serviceAccountName+".key"),
		// Each controller has its own user, as in real clusters: admission webhooks
		// distinguish them.
		"--use-service-account-credentials",
		"--node-monitor-period="+f.shape.Timing.MonitorPeriod.Duration.String(),
		"--node-monitor-grace-period="+f.shape.Timing.MonitorGrace.Duration.String(),
		// Evicts the pods of a lost zone about as soon as those of a lost node, instead of one node
		// every 10 seconds. A rate of 1 does not work: the controller mistakes the limiter of a partly
		// lost zone, which lets nothing pass, for one of that rate, and keeps it.
		"--node-eviction-rate=2",
		// Autoscalers run five times as often as in other clusters: people and tests wait for them
		// here.
		"--horizontal-pod-autoscaler-sync-period=3s",
		"--kube-api-qps="+strconv.Itoa(qps),
		"--kube-api-burst="+strconv.Itoa(burst),
	)
}

func (f flags) scheduler() []string {
	return append(f.controller(Scheduler, f.addrs.scheduler), "--config="+f.dir.Conf(schedulerConfigFile))
}

// controller returns the flags for health and metrics that the controller-manager and the
// scheduler share.
func (f flags) controller(name string, at netip.AddrPort) []string {
	return []string{
		"--bind-address=" + at.Addr().String(),
		"--secure-port=" + strconv.Itoa(int(at.Port())),
		"--tls-cert-file=" + f.pki(name+".crt"),
		"--tls-private-key-file=" + f.pki(name+".key"),
		"--authentication-kubeconfig=" + f.dir.ComponentKubeconfig(name),
		"--authorization-kubeconfig=" + f.dir.ComponentKubeconfig(name),
	}
}

// schedulerConfigFile has the scheduler's settings that have no flags.
const schedulerConfigFile = "kube-scheduler.yaml"

func (f flags) schedulerConfig() []byte {
	qps, burst := f.rate()
	config := fmt.Appendf(nil, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  kubeconfig: %q
  qps: %d
  burst: %d
`, f.dir.ComponentKubeconfig(Scheduler), qps, burst)
	if f.shape.FakeNodes < manyNodes {
		return config
	}
	// By default the scheduler looks at all nodes and pods to spread each pod, which takes
	// too long with thousands of nodes.
	return append(config, `percentageOfNodesToScore: 1
profiles:
- pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: []
`...)
}

// manyNodes is the smallest number of nodes without network for which scheduling is simplified.
const manyNodes = 500

// proxy returns the flags of a kube-proxy. It must not change the kernel's limit of tracked
// connections, which all nodes share, and is not protected from the OOM killer. Timeouts of
// connections are separate for each node.
func (f flags) proxy(node shape.Node) []string {
	return []string{
		"--kubeconfig=" + f.dir.ComponentKubeconfig(KubeProxy),
		"--hostname-override=" + node.Name,
		"--proxy-mode=nftables",
		"--cluster-cidr=" + list(f.shape.PodCIDRs()),
		"--detect-local-mode=ClusterCIDR",
		"--conntrack-max-per-core=0",
		"--oom-score-adj=0",
		// Logs the line that proxyMissedZone looks for.
		"--vmodule=proxier=4",
	}
}

// rate returns a controller's limit of requests per second. The default is too low for a large
// cluster.
func (f flags) rate() (qps, burst int) {
	qps = 300 + f.shape.FakeNodes/2
	return qps, 2 * qps
}

func (f flags) pki(file string) string { return f.dir.PKI(file) }

func list[T fmt.Stringer](values []T) string {
	texts := make([]string, len(values))
	for i, value := range values {
		texts[i] = value.String()
	}
	return strings.Join(texts, ",")
}
