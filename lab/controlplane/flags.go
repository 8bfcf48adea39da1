package controlplane

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// flags are the command lines of the components of one lab. They follow from the
// shape, the state folder and the ports alone.
type flags struct {
	shape shape.Shape
	dir   state.Dir
	at    endpoints
}

// etcd may lose its last writes when the machine goes down, never when its process
// does: without fsync they are the kernel's to write, which is all a lab asks for and
// spares it most of the time that a write takes on a slow disk. There is no other
// member to be elected, so a short election costs nothing and starts it at once.
func (f flags) etcd() []string {
	client, peer := "https://"+f.at.etcd.String(), "https://"+f.at.etcdPeer.String()
	certificate, key, ca := f.pki(etcdServerName+".crt"), f.pki(etcdServerName+".key"), f.pki(etcdCAName+".crt")
	return []string{
		"--name=" + f.shape.Name,
		"--data-dir=" + f.dir.Etcd(),
		"--listen-client-urls=" + client,
		"--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer,
		"--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + f.shape.Name + "=" + peer,
		"--listen-metrics-urls=http://" + f.at.etcdMetrics.String(),
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

// apiServer is the command line of the API server with an index from 0.
func (f flags) apiServer(index int) []string {
	at := f.at.apiServers[index]
	tolerate := strconv.Itoa(int(f.shape.Timing.Toleration.Seconds()))
	args := []string{
		"--bind-address=" + at.Addr().String(),
		"--secure-port=" + strconv.Itoa(int(at.Port())),
		"--advertise-address=" + at.Addr().String(),
		"--etcd-servers=https://" + f.at.etcd.String(),
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
		// Webhooks and aggregated APIs are then reached at a pod's address; there is
		// no kube-proxy in the fabric namespace to make their cluster IP work.
		"--enable-aggregator-routing",
		"--default-not-ready-toleration-seconds=" + tolerate,
		"--default-unreachable-toleration-seconds=" + tolerate,
	}
	if f.shape.ControlPlaneOnly {
		// A loopback address may not be an endpoint of the Service "kubernetes".
		args = append(args, "--endpoint-reconciler-type=none")
	}
	return args
}

func (f flags) controllerManager() []string {
	qps, burst := f.rate()
	args := f.controller(ControllerManager, f.at.controllerManager)
	return append(args,
		"--kubeconfig="+f.dir.ComponentKubeconfig(ControllerManager),
		"--leader-elect=false",
		"--cluster-name="+f.shape.Name,
		"--root-ca-file="+f.pki(caName+".crt"),
		"--cluster-signing-cert-file="+f.pki(caName+".crt"),
		"--cluster-signing-key-file="+f.pki(caName+".key"),
		"--service-account-private-key-file="+f.pki(serviceAccountName+".key"),
		// Each controller is a user of its own, as in real clusters: that is how an
		// admission webhook tells who writes.
		"--use-service-account-credentials",
		"--node-monitor-period="+f.shape.Timing.MonitorPeriod.String(),
		"--node-monitor-grace-period="+f.shape.Timing.MonitorGrace.String(),
		"--kube-api-qps="+strconv.Itoa(qps),
		"--kube-api-burst="+strconv.Itoa(burst),
	)
}

func (f flags) scheduler() []string {
	return append(f.controller(Scheduler, f.at.scheduler), "--config="+f.dir.Conf(schedulerConfigFile))
}

// controller is what the controller-manager and the scheduler have in common: how
// they serve their health and metrics, and to whom.
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

// schedulerConfigFile is the scheduler's configuration, which takes what no flag does.
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
	// For each pod that does not say how to spread, the scheduler would look at all
	// nodes and all pods of its kind, and score hundreds of nodes: with thousands of
	// nodes that is most of the time of a small machine.
	return append(config, `percentageOfNodesToScore: 1
profiles:
- pluginConfig:
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: []
`...)
}

// manyNodes is the number of nodes without network from which on the scheduler takes
// less care for each pod.
const manyNodes = 500

// proxy is the command line of the kube-proxy of a node. The limits of conntrack
// belong to the kernel as a whole, so it must not touch them; and it is no more worth
// keeping than others when the machine runs out of memory.
func (f flags) proxy(node shape.Node) []string {
	return []string{
		"--kubeconfig=" + f.dir.ComponentKubeconfig(KubeProxy),
		"--hostname-override=" + node.Name,
		"--proxy-mode=nftables",
		"--cluster-cidr=" + list(f.shape.PodCIDRs()),
		"--detect-local-mode=ClusterCIDR",
		"--conntrack-max-per-core=0",
		"--conntrack-tcp-timeout-established=0",
		"--conntrack-tcp-timeout-close-wait=0",
		"--oom-score-adj=0",
		// Among what this logs is the line that proxyDeaf looks for.
		"--vmodule=proxier=4",
	}
}

// rate is how many requests a second a controller may make, and how many at once. The
// defaults, made for a small cluster, would let a large one take most of an hour to
// come up.
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
