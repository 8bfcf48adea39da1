package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/test/kube"
)

// victim is a Service whose addresses a tenant claims, with its port.
type victim struct {
	namespace, name string
	port            int32
	network         string
	// silent says that its endpoints do not name themselves.
	silent bool
}

// victims returns those of the namespace of a scene, and the API server.
func (s *scene) victims() []victim {
	return append(s.protected(), []victim{
		{namespace: s.namespace, name: "echo", port: 80, network: "tcp"},
		{namespace: s.namespace, name: "dns", port: 53, network: "udp"},
		{namespace: s.namespace, name: "dns", port: 53, network: "tcp"},
		{namespace: metav1.NamespaceDefault, name: "kubernetes", port: 443, network: "tcp", silent: true},
	}...)
}

// protected returns the victims that vicinity-proxy serves.
func (s *scene) protected() []victim {
	return []victim{{namespace: s.namespace, name: "ledger", port: 81, network: "tcp"}}
}

// tenantsTakeNothing claims the cluster IPs of other Services for a tenant's Service, among them
// those of a DNS Service and of the API server. While kube-proxy serves it, connections to
// kube-proxy's victims reach the tenant: this is the attack. Once vicinity-proxy alone serves it,
// none does. Connections to the victim of vicinity-proxy never reach the tenant.
func tenantsTakeNothing(ctx context.Context, s *scene) (figure string, err error) {
	check(s.deploy(ctx))
	victims := "apiVersion: v1\nkind: Service\nmetadata: {name: dns}\nspec:\n  ipFamilyPolicy: PreferDualStack\n  selector: {app: echo}\n" +
		"  ports: [{name: dns, port: 53, targetPort: 8082, protocol: UDP}, {name: dns-tcp, port: 53, targetPort: 8081}]\n---\n" +
		"apiVersion: v1\nkind: Service\nmetadata: {name: ledger, annotations: {vicinity.dev/proxy: \"true\"}}\nspec:\n  ipFamilyPolicy: PreferDualStack\n  selector: {app: echo}\n" +
		"  ports: [{name: tcp, port: 81, targetPort: 8081}]\n"
	check(s.Apply(ctx, s.namespace, victims))
	check(s.waitServedBy(ctx, "ledger", true))
	tenant := &scene{Client: s.Client, cluster: s.cluster, options: s.options}
	tenant.namespace = must(s.MakeNamespace(ctx, "tenant"))
	defer undo(&err, func() error { return s.RemoveNamespace(context.WithoutCancel(ctx), tenant.namespace) })
	addresses := must(s.addressesOf(ctx))
	check(tenant.Apply(ctx, tenant.namespace, lab.EchoManifests("taker", 3)+"---\n"+takingService(addresses)))
	check(tenant.WaitDeployment(ctx, tenant.namespace, "taker"))
	before := 0
	check(kube.Wait(ctx, "connections to reach the tenant while kube-proxy serves its Service", func(ctx context.Context) (string, error) {
		var err error
		if before, _, err = s.taken(ctx, tenant.namespace, s.victims()); err != nil || before > 0 {
			return "", err
		}
		return "none does", nil
	}))
	// No connection to the victim of vicinity-proxy reaches the tenant, before and during the
	// hand-over.
	asked := 0
	wrong := func(ctx context.Context) (string, error) {
		taken, of, err := s.taken(ctx, tenant.namespace, s.protected())
		if err != nil {
			return "", err
		}
		if asked += of; taken > 0 {
			return fmt.Sprintf("%d of %d connections to a Service that vicinity-proxy serves reach the tenant", taken, of), nil
		}
		return "", nil
	}
	if is, err := wrong(ctx); is != "" || err != nil {
		return "", errors.Join(errors.New("before the hand-over: "+is), err)
	}
	check(tenant.PatchService(ctx, tenant.namespace, "takes", byVicinity))
	found := ""
	err = kube.Wait(ctx, "the tenant's Service to be served by vicinity-proxy", func(ctx context.Context) (missing string, err error) {
		if found, err = wrong(ctx); found != "" || err != nil {
			return "", err // a wrong outcome must not be retried
		}
		object, err := s.CoreV1().Services(tenant.namespace).Get(ctx, "takes", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if object.Labels["service.kubernetes.io/service-proxy-name"] != "vicinity" {
			return whyNotServed(object), nil
		}
		return "", nil
	})
	if found != "" {
		err = errors.New("during the hand-over: " + found)
	}
	check(err)
	// kube-proxy drops the Service after a moment.
	check(kube.Wait(ctx, "connections to reach the owners of the addresses", func(ctx context.Context) (string, error) {
		taken, _, err := s.taken(ctx, tenant.namespace, s.victims())
		if err == nil && taken > 0 {
			return fmt.Sprintf("%d reach the tenant", taken), nil
		}
		return "", err
	}))
	const rounds = 2
	all := 0
	for range rounds {
		taken, of, err := s.taken(ctx, tenant.namespace, s.victims())
		check(err)
		if taken > 0 {
			return "", fmt.Errorf("%d of %d connections reach the tenant", taken, of)
		}
		all += of
	}
	return fmt.Sprintf("0 of %d connections to the addresses of 4 Services reach the tenant that claims them, %d do while kube-proxy serves it; until the hand-over 0 of %d reach it to the Service that vicinity-proxy serves",
		all, before, asked), nil
}

// takingService returns a Service that claims addresses, with the ports of their Services.
func takingService(addresses []netip.Addr) string {
	var quoted []string
	for _, address := range addresses {
		quoted = append(quoted, fmt.Sprintf("%q", address))
	}
	return "apiVersion: v1\nkind: Service\nmetadata: {name: takes}\nspec:\n  ipFamilyPolicy: PreferDualStack\n  selector: {app: taker}\n  externalIPs: [" + strings.Join(quoted, ", ") + "]\n" +
		"  ports: [{name: http, port: 80, targetPort: 8080}, {name: dns, port: 53, targetPort: 8082, protocol: UDP}, {name: dns-tcp, port: 53, targetPort: 8081}, {name: tcp, port: 81, targetPort: 8081}, {name: https, port: 443, targetPort: 8081}]\n"
}

// addressesOf returns the cluster IPs of all victims.
func (s *scene) addressesOf(ctx context.Context) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, victim := range s.victims() {
		object, err := s.CoreV1().Services(victim.namespace).Get(ctx, victim.name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		for _, text := range object.Spec.ClusterIPs {
			if address := netip.MustParseAddr(text); !slices.Contains(all, address) {
				all = append(all, address)
			}
		}
	}
	return all, nil
}

// taken counts the connections from clients on all nodes to some victims, and how many of them the
// pods of a tenant answered. The others must be answered by the right Service, or by a program
// other than echo.
func (s *scene) taken(ctx context.Context, tenant string, victims []victim) (taken, all int, err error) {
	clients, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=client"})
	if err != nil {
		return 0, 0, err
	}
	takers, err := s.CoreV1().Pods(tenant).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, 0, err
	}
	for _, victim := range victims {
		object, err := s.CoreV1().Services(victim.namespace).Get(ctx, victim.name, metav1.GetOptions{})
		if err != nil {
			return 0, 0, err
		}
		for _, text := range object.Spec.ClusterIPs {
			to := netip.AddrPortFrom(netip.MustParseAddr(text), uint16(victim.port))
			for i := range clients.Items {
				answer, _, err := exchange(ctx, probe{
					namespace: shape.PodNamespace(s.cluster.Shape().Name, string(clients.Items[i].UID)), network: victim.network,
					to: to, http: victim.port == 80, timeout: answerWait,
				})
				all++
				switch {
				case slices.ContainsFunc(takers.Items, func(pod corev1.Pod) bool { return err == nil && pod.Name == answer.Pod }):
					taken++
				case err != nil && !victim.silent:
					return 0, 0, fmt.Errorf("%s/%s at %s/%s does not answer %s: %w", victim.namespace, victim.name, to, victim.network, clients.Items[i].Spec.NodeName, err)
				}
			}
		}
	}
	return taken, all, nil
}
