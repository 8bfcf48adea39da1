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

	"vicinity.dev/vicinity/internal/kube"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

// victim is a Service whose addresses a tenant claims, with its port.
type victim struct {
	namespace, name string
	port            int32
	network         string
	// byKubeProxy means that vicinity-proxy does not serve it.
	byKubeProxy bool
	// silent means that its endpoints do not say who they are.
	silent bool
}

// victims are those of the namespace of a scene, and the API server.
func (s *scene) victims() []victim {
	return append(s.protected(), []victim{
		{namespace: s.namespace, name: "echo", port: 80, network: "tcp", byKubeProxy: true},
		{namespace: s.namespace, name: "dns", port: 53, network: "udp", byKubeProxy: true},
		{namespace: s.namespace, name: "dns", port: 53, network: "tcp", byKubeProxy: true},
		{namespace: metav1.NamespaceDefault, name: "kubernetes", port: 443, network: "tcp", byKubeProxy: true, silent: true},
	}...)
}

// protected are those victims that vicinity-proxy serves.
func (s *scene) protected() []victim {
	return []victim{{namespace: s.namespace, name: "ledger", port: 81, network: "tcp"}}
}

// tenantsTakeNothing has a tenant's Service claim the cluster IPs of others, of a DNS
// Service and of the API server among them. While kube-proxy alone serves it, connections to
// victims that kube-proxy serves reach it: this is the attack. During its hand-over the rules
// of vicinity-proxy lead none of these addresses anywhere, and that of the victim which
// vicinity-proxy serves to its endpoints alone. Once vicinity-proxy alone serves the tenant's
// Service, no connection reaches the tenant. No connection to the victim of vicinity-proxy
// ever does.
func tenantsTakeNothing(ctx context.Context, s *scene) (figure string, err error) {
	if err := s.deploy(ctx); err != nil {
		return "", err
	}
	victims := "apiVersion: v1\nkind: Service\nmetadata: {name: dns}\nspec:\n  ipFamilyPolicy: PreferDualStack\n  selector: {app: echo}\n" +
		"  ports: [{name: dns, port: 53, targetPort: 8082, protocol: UDP}, {name: dns-tcp, port: 53, targetPort: 8081}]\n---\n" +
		"apiVersion: v1\nkind: Service\nmetadata: {name: ledger, annotations: {vicinity.dev/proxy: \"true\"}}\nspec:\n  ipFamilyPolicy: PreferDualStack\n  selector: {app: echo}\n" +
		"  ports: [{name: tcp, port: 81, targetPort: 8081}]\n"
	if err := s.Apply(ctx, s.namespace, victims); err != nil {
		return "", err
	}
	if err := s.servedBy(ctx, "ledger", true); err != nil {
		return "", err
	}
	tenant := &scene{Client: s.Client, cluster: s.cluster, options: s.options}
	if tenant.namespace, err = s.MakeNamespace(ctx, "tenant"); err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, s.RemoveNamespace(context.WithoutCancel(ctx), tenant.namespace)) }()
	addresses, err := s.addressesOf(ctx)
	if err != nil {
		return "", err
	}
	if err := tenant.Apply(ctx, tenant.namespace, lab.EchoManifests("taker", 3)+"---\n"+takingService(addresses)); err != nil {
		return "", err
	}
	if err := tenant.WaitDeployment(ctx, tenant.namespace, "taker"); err != nil {
		return "", err
	}
	before := 0
	err = kube.Wait(ctx, "connections to reach the tenant while kube-proxy serves its Service", func(ctx context.Context) (string, error) {
		var err error
		if before, _, err = s.taken(ctx, tenant.namespace, s.victims()); err != nil || before > 0 {
			return "", err
		}
		return "none does", nil
	})
	if err != nil {
		return "", err
	}
	// Without the victim that vicinity-proxy serves.
	asked := 0
	wrong := func(ctx context.Context) (string, error) {
		taken, of, err := s.taken(ctx, tenant.namespace, s.protected())
		if err != nil {
			return "", err
		}
		if asked += of; taken > 0 {
			return fmt.Sprintf("%d of %d connections to a Service that vicinity-proxy serves reach the tenant", taken, of), nil
		}
		return s.wrongRules(ctx)
	}
	if is, err := wrong(ctx); is != "" || err != nil {
		return "", errors.Join(errors.New("before the hand-over: "+is), err)
	}
	if err := tenant.PatchService(ctx, tenant.namespace, "takes", byVicinity); err != nil {
		return "", err
	}
	looks, found := 0, ""
	err = kube.Wait(ctx, "the tenant's Service to be served by vicinity-proxy", func(ctx context.Context) (missing string, err error) {
		looks++
		if found, err = wrong(ctx); found != "" || err != nil {
			return "", err // what is wrong may not pass
		}
		object, err := s.CoreV1().Services(tenant.namespace).Get(ctx, "takes", metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		if object.Labels["service.kubernetes.io/service-proxy-name"] != "vicinity" {
			return tenant.whyNotServed(ctx, object), nil
		}
		return "", nil
	})
	if found != "" {
		err = errors.New("during the hand-over: " + found)
	}
	if err != nil {
		return "", err
	}
	// kube-proxy lets go of it in a moment.
	err = kube.Wait(ctx, "connections to reach who has the addresses", func(ctx context.Context) (string, error) {
		taken, _, err := s.taken(ctx, tenant.namespace, s.victims())
		if err == nil && taken > 0 {
			return fmt.Sprintf("%d reach the tenant", taken), nil
		}
		return "", err
	})
	if err != nil {
		return "", err
	}
	const rounds = 2
	all := 0
	for range rounds {
		taken, of, err := s.taken(ctx, tenant.namespace, s.victims())
		if err != nil {
			return "", err
		}
		if taken > 0 {
			return "", fmt.Errorf("%d of %d connections reach the tenant", taken, of)
		}
		all += of
		if is, err := s.wrongRules(ctx); is != "" || err != nil {
			return "", errors.Join(errors.New("after the hand-over: "+is), err)
		}
	}
	told, err := tenant.refusalReported(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("of %d connections to the addresses of 4 Services 0 reach the tenant that claims them, with kube-proxy serving it %d do; until it was handed over 0 of %d to the Service that vicinity-proxy serves; the rules of vicinity-proxy never led an address to it, looked at %d times; %d nodes told",
		all, before, asked, 1+looks+rounds, told), nil
}

// takingService claims addresses by the ports that their Services have.
func takingService(addresses []netip.Addr) string {
	var quoted []string
	for _, address := range addresses {
		quoted = append(quoted, fmt.Sprintf("%q", address))
	}
	return "apiVersion: v1\nkind: Service\nmetadata: {name: takes}\nspec:\n  ipFamilyPolicy: PreferDualStack\n  selector: {app: taker}\n  externalIPs: [" + strings.Join(quoted, ", ") + "]\n" +
		"  ports: [{name: http, port: 80, targetPort: 8080}, {name: dns, port: 53, targetPort: 8082, protocol: UDP}, {name: dns-tcp, port: 53, targetPort: 8081}, {name: tcp, port: 81, targetPort: 8081}, {name: https, port: 443, targetPort: 8081}]\n"
}

// addressesOf are the cluster IPs of all victims.
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

// taken counts connections from clients on all nodes to some victims, and those of them that
// the pods of a tenant answered. One of the others is answered by the Service that it is
// for, or not by an echo at all.
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
					to: to, http: victim.port == 80, timeout: patient,
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

// wrongRules says which node's rules of vicinity-proxy have an address of a victim that it
// does not serve, or do not lead that of one which it serves to its endpoints alone.
func (s *scene) wrongRules(ctx context.Context) (string, error) {
	pods, err := s.CoreV1().Pods(s.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=echo"})
	if err != nil {
		return "", err
	}
	own := map[string]bool{}
	for i := range pods.Items {
		for _, address := range pods.Items[i].Status.PodIPs {
			own[address.IP] = true
		}
	}
	addresses := map[victim][]string{}
	for _, victim := range s.victims() {
		object, err := s.CoreV1().Services(victim.namespace).Get(ctx, victim.name, metav1.GetOptions{})
		if err != nil {
			return "", err
		}
		addresses[victim] = object.Spec.ClusterIPs
	}
	for _, node := range s.cluster.Shape().Nodes() {
		for _, family := range []string{"ip", "ip6"} {
			text, err := s.nft(ctx, node, "list", "table", family, "vicinity")
			if err != nil {
				return "", err
			}
			for victim, all := range addresses {
				for _, address := range all {
					if strings.Contains(address, ":") != (family == "ip6") {
						continue
					}
					if wrong := victim.wrongIn(text, address, own); wrong != "" {
						return fmt.Sprintf("the rules of vicinity-proxy on %s %s of %s/%s", node.Name, wrong, victim.namespace, victim.name), nil
					}
				}
			}
		}
	}
	return "", nil
}

// wrongIn says what rules do wrongly with an address of the victim, whose endpoints have own addresses.
func (v victim) wrongIn(rules, address string, own map[string]bool) string {
	if v.byKubeProxy {
		if slices.Contains(strings.FieldsFunc(rules, notOfAddress), address) {
			return "have the address " + address
		}
		return ""
	}
	targets := heldBy(rules).targets(address)
	if len(targets) == 0 {
		return "lead nowhere the address " + address
	}
	for _, target := range targets {
		if !own[target] {
			return fmt.Sprintf("lead to %s, which is not an endpoint, the address %s", target, address)
		}
	}
	return ""
}

// targets are the addresses that the slots of an address, at any port, lead to.
func (h holds) targets(address string) []string {
	var all []string
	for _, name := range []string{"map slots", "map local-slots"} {
		for _, element := range h[name] {
			if key, target, _ := strings.Cut(element, " : "); strings.HasPrefix(key, address+" . ") {
				all = append(all, strings.Fields(target)[0])
			}
		}
	}
	return all
}

// refusalReported waits until all nodes have reported refused addresses by an event, and
// returns their number.
func (s *scene) refusalReported(ctx context.Context) (nodes int, err error) {
	err = kube.Wait(ctx, "all nodes to tell that addresses are refused", func(ctx context.Context) (string, error) {
		list, err := s.CoreV1().Events(s.namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Service,involvedObject.name=takes,reason=AddressRefused"})
		if err != nil {
			return "", err
		}
		tellers := map[string]bool{}
		for _, event := range list.Items {
			if !strings.Contains(event.Message, "is the cluster IP of Service ") {
				return "", fmt.Errorf("an event says %q", event.Message)
			}
			tellers[event.ReportingInstance] = true
		}
		if nodes = len(tellers); nodes < len(s.cluster.Shape().Nodes()) {
			return fmt.Sprintf("%d nodes have", nodes), nil
		}
		return "", nil
	})
	return nodes, err
}
