package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/dnsquery"
)

// resolvedManifests are Services of other kinds than those of the echo pods: one under which a pod
// has a name, and one that is a name outside of the cluster.
const resolvedManifests = `---
apiVersion: v1
kind: Service
metadata: {name: db}
spec:
  clusterIP: None
  ipFamilyPolicy: PreferDualStack
  selector: {app: db}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: member, labels: {app: db}}
spec:
  hostname: pod-0
  subdomain: db
  terminationGracePeriodSeconds: 0
  containers: [{name: echo, image: lab/echo}]
---
apiVersion: v1
kind: Service
metadata: {name: elsewhere}
spec: {type: ExternalName, externalName: www.example.com}
`

// namesResolve resolves names of all kinds that clusters have, as an own query from each node and by
// the C library of a pod, with the pod's resolv.conf.
func namesResolve(ctx context.Context, s *scene) (string, error) {
	if err := s.Apply(ctx, s.namespace, resolvedManifests); err != nil {
		return "", err
	}
	if _, err := s.until(ctx, "member", kube.PodReady); err != nil {
		return "", err
	}
	if err := s.Apply(ctx, s.namespace, echoOf+headlessOf("whole")); err != nil {
		return "", err
	}
	manifests := ""
	for _, node := range s.cluster.Shape().Nodes() {
		manifests += placedPod("client-"+node.Name, node.Name, "client")
	}
	nodes := []string{"zone-a-1", "zone-c-1"}
	for _, node := range nodes {
		manifests += placedPod("echo-"+node, node, "echo")
	}
	if err := s.Apply(ctx, s.namespace, manifests); err != nil {
		return "", err
	}
	if err := s.podsReady(ctx, 1+len(nodes)+len(s.cluster.Shape().Nodes())); err != nil {
		return "", err
	}
	member, err := s.pod(ctx, "member")
	if err != nil {
		return "", err
	}
	echo, err := s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	whole, err := s.podsOf(ctx, nodes...)
	if err != nil {
		return "", err
	}
	queries := map[dnsquery.Query]string{
		{Name: s.fqdn("echo")}:                                echo.Spec.ClusterIPs[0],
		{Name: s.fqdn("echo"), Type: "AAAA"}:                  echo.Spec.ClusterIPs[1],
		{Name: s.fqdn("_http._tcp.echo"), Type: "SRV"}:        "0 50 80 " + s.fqdn("echo"),
		{Name: s.fqdn("whole")}:                               whole,
		{Name: s.fqdn("whole"), Type: "AAAA"}:                 whole,
		{Name: s.fqdn("db")}:                                  "member",
		{Name: s.fqdn("pod-0.db")}:                            "member",
		{Name: s.fqdn("pod-0.db"), Type: "AAAA"}:              "member",
		{Name: s.fqdn("pod-1.db")}:                            noName,
		{Name: s.fqdn("elsewhere")}:                           exampleAddress,
		{Name: "www.example.com."}:                            exampleAddress,
		{Name: s.podFQDN(member.Status.PodIP)}:                "member",
		{Name: reverse(echo.Spec.ClusterIP), Type: "PTR"}:     s.fqdn("echo"),
		{Name: reverse(member.Status.PodIP), Type: "PTR"}:     s.fqdn("pod-0.db"),
		{Name: reverse(echo.Spec.ClusterIPs[1]), Type: "PTR"}: s.fqdn("echo"),
	}
	clients, err := s.fromClients(ctx)
	if err != nil {
		return "", err
	}
	var all []asked
	for _, node := range slices.Sorted(maps.Keys(clients)) {
		for query, want := range queries {
			all = append(all, asked{clients[node], query, want})
		}
	}
	right, err := s.answers(ctx, all)
	if err != nil {
		return "", err
	}
	short := map[string]string{
		"echo": echo.Spec.ClusterIP, "echo." + s.namespace: echo.Spec.ClusterIP, "echo." + s.namespace + ".svc": echo.Spec.ClusterIP,
		"whole": whole, "pod-0.db": "member", "elsewhere": exampleAddress, "www.example.com": exampleAddress, "nothing": "",
	}
	for name, want := range short {
		if err := s.looksUp(ctx, "client-zone-b-2", name, want); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d answers for %d names of Services, pods, endpoints, addresses and outside of the cluster; %d short names by the C library of a pod",
		right, len(queries), len(short)), nil
}

// reverse is the name of an address.
func reverse(address string) string {
	name, _ := dns.ReverseAddr(address) // addresses of the API are well-formed
	return name
}

// podFQDN is the name of a pod by its address.
func (s *scene) podFQDN(address string) string {
	return strings.ReplaceAll(address, ".", "-") + "." + s.namespace + ".pod.cluster.local."
}

// looksUp has the C library of a pod look up a name by the pod's resolv.conf.
func (s *scene) looksUp(ctx context.Context, pod, name, want string) error {
	names, err := s.podNames(ctx)
	if err != nil {
		return err
	}
	return kube.Wait(ctx, "pod "+pod+" to look up "+name, func(ctx context.Context) (string, error) {
		output, err := s.exec(ctx, lab.ExecOptions{Pod: pod, Command: []string{"getent", "ahostsv4", name}})
		if err != nil && want != "" {
			return "", err
		}
		seen := map[string]bool{}
		for line := range strings.Lines(output) {
			address, _, _ := strings.Cut(line, " ")
			if pod, known := names[address]; known {
				address = pod
			}
			seen[address] = true
		}
		if is := strings.Join(slices.Sorted(maps.Keys(seen)), " "); is != want && (want != "" || err == nil) {
			return fmt.Sprintf("it gets %q in place of %q", is, want), nil
		}
		return "", nil
	})
}
