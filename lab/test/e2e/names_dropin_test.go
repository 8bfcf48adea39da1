package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// dropIn puts vicinity-dns in place of a cluster's CoreDNS and back by the command line, while pods keep resolving names. It also
// goes back by itself from an image that does not exist, and gives the server back after a killed run.
func dropIn(ctx context.Context, s *scene) (figure string, err error) {
	text := must(os.ReadFile(root + "/docs/dns.md"))
	with := must(documentedBlock(string(text), "corefile", "vicinity cluster.local"))
	defer undo(&err, func() error { return configureNames(context.WithoutCancel(ctx), s.cluster) })
	check(s.cluster.ConfigureDNS(ctx, lab.DNSOptions{Kind: shape.DNSCoreDNS, Corefile: withoutLine(with, "vicinity cluster.local")}))
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
	before := must(s.nameServer(ctx))
	st := must(s.askSteadily(ctx, all))
	defer st.stop()
	check(st.more(ctx, 200))
	enable := func(ctx context.Context, image string, more ...string) error {
		_, err := s.vicinity(ctx, append([]string{"dns", "enable", "--image", image}, more...)...)
		return err
	}
	disable := func() error {
		_, err := s.vicinity(ctx, "dns", "disable")
		return err
	}
	if failure := fmt.Sprint(enable(ctx, "no-such-program:1", "--timeout", "10s")); !strings.Contains(failure, "going back") {
		return "", fmt.Errorf("with an image that does not exist: got %s, want a way back", failure)
	}
	check(s.expectNameServer(ctx, before, "after a failed enable"))
	check(s.killAtFirstChange(ctx, func(ctx context.Context) error { return enable(ctx, "vicinity-dns:documented") }))
	check(disable())
	check(s.expectNameServer(ctx, before, "after a killed enable and disable"))
	for range 2 {
		check(enable(ctx, "vicinity-dns:documented"))
	}
	if config := must(s.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{})); strings.TrimSpace(config.Data["Corefile"]) != with {
		return "", fmt.Errorf("the Corefile is\n%s\nand docs/dns.md has\n%s", config.Data["Corefile"], with)
	}
	if _, err := s.answers(ctx, append(all, near...)); err != nil {
		return "", fmt.Errorf("by vicinity-dns: %w", err)
	}
	check(disable())
	check(s.expectNameServer(ctx, before, "after disable"))
	if _, err := s.answers(ctx, append(all, far...)); err != nil {
		return "", fmt.Errorf("by CoreDNS again: %w", err)
	}
	check(errors.Join(st.more(ctx, 200), st.end()))
	return fmt.Sprintf("CoreDNS to vicinity-dns and back by vicinity dns, also after a failure and a kill: %s", st), nil
}

// killAtFirstChange kills a command when it has changed the DNS server.
func (s *scene) killAtFirstChange(ctx context.Context, run func(context.Context) error) error {
	running, kill := context.WithCancel(ctx)
	defer kill()
	ended := make(chan error, 1)
	go func() { ended <- run(running) }()
	err := kube.Wait(ctx, "a change of the DNS server", func(ctx context.Context) (string, error) {
		server, err := s.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{})
		if err == nil && server.Annotations[v1alpha1.AnnotationDNSBefore] == "" {
			return "none yet", nil
		}
		return "", err
	})
	kill()
	if <-ended == nil {
		return errors.Join(err, errors.New("the command ended before it was killed"))
	}
	return err
}

// nameServer returns the DNS server's Deployment and ConfigMap as users write them.
func (s *scene) nameServer(ctx context.Context) (string, error) {
	server, err := s.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	config, err := s.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, "coredns", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	delete(server.Annotations, v1alpha1.AnnotationDeploymentRevision)
	text, err := json.MarshalIndent([]any{server.Labels, server.Annotations, server.Spec, config.Labels, config.Annotations, config.Data}, "", " ")
	return string(text), err
}

func (s *scene) expectNameServer(ctx context.Context, want, when string) error {
	got, err := s.nameServer(ctx)
	if err == nil && got != want {
		err = fmt.Errorf("%s the DNS server is\n%s\nand was\n%s", when, got, want)
	}
	return err
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
