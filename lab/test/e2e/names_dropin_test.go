package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// dropIn replaces the DNS server of a cluster by vicinity-dns and back, with the commands and the
// Corefile of docs/dns.md, while pods keep resolving names.
func dropIn(ctx context.Context, s *scene) (figure string, err error) {
	text := must(os.ReadFile(root + "/docs/dns.md"))
	with := must(documentedBlock(string(text), "corefile", "vicinity cluster.local"))
	without := withoutLine(with, "vicinity cluster.local")
	defer undo(&err, func() error { return configureNames(context.WithoutCancel(ctx), s.cluster) })
	check(s.cluster.ConfigureDNS(ctx, lab.DNSOptions{Kind: shape.DNSCoreDNS, Corefile: without}))
	check(s.namedPods(ctx, headlessOf("near", keysAnnotation, zoneKey)+headlessOf("whole"), inEachZone...))
	check(s.Apply(ctx, s.namespace, resolvedManifests))
	// Early answers would stay in the cache.
	for _, service := range []string{"near", "whole"} {
		check(s.WaitEndpoints(ctx, s.namespace, service, len(inEachZone)))
	}
	all, near, far := s.dropInQuestions(ctx)
	if _, err := s.answers(ctx, append(all, far...)); err != nil {
		return "", fmt.Errorf("by CoreDNS: %w", err)
	}
	st := must(s.askSteadily(ctx, all))
	defer st.stop()
	check(st.more(ctx, 200))
	before := must(s.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{}))
	names := strings.NewReplacer("vicinity-dns:TAG", "vicinity-dns:documented", "THE-IMAGE-BEFORE", before.Spec.Template.Spec.Containers[0].Image)
	run := func(has string) error {
		script, err := documentedBlock(string(text), "sh", has)
		if err != nil {
			return err
		}
		return s.bash(ctx, names.Replace(script))
	}
	check(errors.Join(run("create clusterrole "), run("=vicinity-dns:TAG"), s.rewriteCorefile(ctx, with)))
	if _, err := s.answers(ctx, append(all, near...)); err != nil {
		return "", fmt.Errorf("by vicinity-dns: %w", err)
	}
	check(errors.Join(s.rewriteCorefile(ctx, without), run("THE-IMAGE-BEFORE"), s.WaitDeployment(ctx, metav1.NamespaceSystem, "coredns")))
	if _, err := s.answers(ctx, append(all, far...)); err != nil {
		return "", fmt.Errorf("by CoreDNS again: %w", err)
	}
	check(errors.Join(st.more(ctx, 200), st.end()))
	return fmt.Sprintf("CoreDNS to vicinity-dns and back by the commands of docs/dns.md, 4 rollouts: %s", st), nil
}

// dropInQuestions returns queries that both servers answer alike, and queries of a Service that
// prefers near endpoints, with the answers of vicinity-dns and of other servers.
func (s *scene) dropInQuestions(ctx context.Context) (all, near, far []asked) {
	member := must(s.until(ctx, "member", kube.PodReady))
	clients := must(s.fromClients(ctx))
	whole := must(s.podsOf(ctx, inEachZone...))
	echo := must(s.CoreV1().Services(s.namespace).Get(ctx, "echo", metav1.GetOptions{}))
	for _, zone := range s.cluster.Shape().Zones {
		inZone := must(s.podsOf(ctx, zone.Nodes[0].Name))
		from, query := clients[zone.Nodes[1].Name], dnsquery.Query{Name: s.fqdn("near")}
		near, far = append(near, asked{from, query, inZone}), append(far, asked{from, query, whole})
		all = append(all,
			asked{from, dnsquery.Query{Name: s.fqdn("echo")}, echo.Spec.ClusterIP},
			asked{from, dnsquery.Query{Name: s.fqdn("whole")}, whole},
			asked{from, dnsquery.Query{Name: s.fqdn("pod-0.db")}, "member"},
			asked{from, dnsquery.Query{Name: reverse(member.Status.PodIP), Type: "PTR"}, s.fqdn("pod-0.db")},
			asked{from, dnsquery.Query{Name: s.fqdn("nothing")}, noName},
		)
	}
	return all, near, far
}

// documentedBlock returns the document's first block of a language that contains a text.
func documentedBlock(document, language, has string) (string, error) {
	var block []string
	inBlock := false
	for _, line := range strings.Split(document, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case inBlock && trimmed == "```":
			if text := strings.Join(block, "\n"); strings.Contains(text, has) {
				return text, nil
			}
			inBlock, block = false, nil
		case inBlock:
			block = append(block, line)
		case trimmed == "```"+language:
			inBlock = true
		}
	}
	return "", fmt.Errorf("no block of %s in the document contains %q", language, has)
}

// withoutLine removes the lines that contain a text.
func withoutLine(text, has string) string {
	var kept []string
	for _, line := range strings.Split(text, "\n") {
		if !strings.Contains(line, has) {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n")
}

// rewriteCorefile writes the Corefile as kubectl edit does. It replaces the pods, because a reload
// may take two minutes.
func (s *scene) rewriteCorefile(ctx context.Context, corefile string) error {
	api := s.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	config, err := api.Get(ctx, "coredns", metav1.GetOptions{})
	if err != nil {
		return err
	}
	config.Data = map[string]string{"Corefile": corefile}
	if _, err := api.Update(ctx, config, metav1.UpdateOptions{}); err != nil {
		return err
	}
	return s.bash(ctx, "kubectl -n kube-system rollout restart deployment/coredns && kubectl -n kube-system rollout status deployment/coredns")
}

// bash runs commands with the lab's kubectl and kubeconfig.
func (s *scene) bash(ctx context.Context, script string) error {
	binaries, err := filepath.Abs(root + "/bin")
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "bash", "-euc", script)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig(), "PATH="+binaries+":"+os.Getenv("PATH"))
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", script, err, output)
	}
	return nil
}

// resolvedManifests has a Service under which a pod has a name, and one that names a host outside
// the cluster.
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

// reverse returns the name for a reverse lookup of an address.
func reverse(address string) string {
	name, _ := dns.ReverseAddr(address) // addresses of the API are well-formed
	return name
}
