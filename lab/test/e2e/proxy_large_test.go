package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/load"
	"vicinity.dev/vicinity/lab/shape"
)

const (
	// A Service of this size with the endpoints of echo is an object of about 50 KB. It needs more
	// than a million elements on each node.
	largePorts, largeExternalIPs = 100, 2000
	// largeFirstPort is the lowest of its ports.
	largeFirstPort = 1000
)

// largeRange contains its external IPs.
var largeRange = netip.MustParsePrefix("198.18.0.0/15")

// tooLarge brings up a lab of its own without kube-proxy, which the Service would keep busy for
// long. A tenant writes a Service that exceeds the limits. Nodes program a part of it, it is not
// handed over, and changes of other Services are still programmed.
func tooLarge(ctx context.Context, s *scene) (figure string, err error) {
	wanted := shape.Default()
	wanted.Name, wanted.Proxy = fmt.Sprintf("large-%d", os.Getpid()), shape.ProxyVicinity
	wanted.Zones = wanted.Zones[:2]
	for z := range wanted.Zones {
		wanted.Zones[z].Nodes = wanted.Zones[z].Nodes[:1]
	}
	cluster := must(lab.Up(ctx, wanted, s.options))
	defer undo(&err, func() error { return cluster.Down(context.WithoutCancel(ctx)) })
	check(cluster.InstallVicinity(ctx, quickValues...))
	client := must(cluster.Client())
	large := &scene{Client: client, cluster: cluster, namespace: metav1.NamespaceDefault, options: s.options}
	check(large.deploy(ctx))
	check(large.Apply(ctx, large.namespace, largeService()))
	others, longest, err := large.serveOthers(ctx)
	check(err)
	object := must(large.CoreV1().Services(large.namespace).Get(ctx, "large", metav1.GetOptions{}))
	if object.Labels["service.kubernetes.io/service-proxy-name"] == "vicinity" {
		return "", errors.New("the Service is handed over although the nodes program a part of it")
	}
	return fmt.Sprintf("a Service of %d ports, %d external IPs and %d endpoints is not handed over and %d nodes report why; each of %d other Services was handed over meanwhile and answered, after %.1f s at most",
		largePorts, largeExternalIPs, echoes, len(wanted.Nodes()), others, longest.Seconds()), nil
}

// largeService returns the tenant's Service.
func largeService() string {
	text := "apiVersion: v1\nkind: Service\nmetadata: {name: large, annotations: {vicinity.dev/proxy: \"true\"}}\nspec:\n" +
		"  ipFamilyPolicy: SingleStack\n  ipFamilies: [IPv4]\n  selector: {app: echo}\n  ports:\n"
	for n := range largePorts {
		text += fmt.Sprintf("  - {name: p%d, port: %d, targetPort: 8080}\n", n, largeFirstPort+n)
	}
	text += "  externalIPs:\n"
	address := largeRange.Addr()
	for range largeExternalIPs {
		address = address.Next()
		text += "  - " + address.String() + "\n"
	}
	return text
}

// serveOthers makes Services one after the other until all nodes have reported by an event that the
// large one is too large. Each must be handed over and answer all clients. It returns their number
// and the longest time.
func (s *scene) serveOthers(ctx context.Context) (others int, longest time.Duration, err error) {
	for {
		name := fmt.Sprintf("other-%d", others)
		begun := time.Now()
		if err := s.Apply(ctx, s.namespace, twin(name, `vicinity.dev/proxy: "true"`)); err != nil {
			return others, longest, err
		}
		if err := s.waitServedBy(ctx, name, true); err != nil {
			return others, longest, err
		}
		job, err := s.planLoadOf(ctx, name, lightPlan())
		if err != nil {
			return others, longest, err
		}
		if _, err := flawlessly(job.Run(ctx, load.Watch{})); err != nil {
			return others, longest, fmt.Errorf("%s: %w", name, err)
		}
		others++
		longest = max(longest, time.Since(begun))
		nodes, err := s.countTooLarge(ctx)
		if err != nil || nodes == len(s.cluster.Shape().Nodes()) {
			return others, longest, err
		}
	}
}

// countTooLarge returns the number of nodes that reported that the large Service is too large.
func (s *scene) countTooLarge(ctx context.Context) (int, error) {
	list, err := s.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Service,reason=TooManyElements"})
	if err != nil {
		return 0, err
	}
	reporters := map[string]bool{}
	for _, event := range list.Items {
		if event.InvolvedObject.Name != "large" || !strings.Contains(event.Message, "and --max-service-elements allows ") {
			return 0, fmt.Errorf("an event about %s has the message %q", event.InvolvedObject.Name, event.Message)
		}
		reporters[event.ReportingInstance] = true
	}
	return len(reporters), nil
}
