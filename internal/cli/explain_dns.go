package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/names"
)

type explainDNSFlags struct {
	cluster clusterFlags
	from    string
	zone    string
	plan    bool
	output  outputFlag

	// fromCalled is the name of --from in messages, if it is not a flag.
	fromCalled string
}

func newExplainDNSCommand(s command.Streams, reach connector) *cobra.Command {
	var f explainDNSFlags
	cmd := &cobra.Command{
		Use:   "dns NAME --from POD|IP",
		Short: "Explain which endpoints of a headless Service a client gets for a name",
		Long: `Explain dns says which endpoints of a headless Service vicinity-dns gives to one client: the
records, the rule that decides, how the client's address is located, and what to do next. It
sends no DNS query: it reads the cluster and decides by the server's code.

NAME is full, such as web.shop.svc.cluster.local, or short, such as web or web.shop: then the
first Service in the pod's search list counts. Names of ports (_http._tcp.web) and names with a
zone (zone-a.prefer._zone.web) work too.

Names with a zone to prefer follow the plan only with the directive plan in the server's
Corefile: give --plan. For a Service named "dns" use "vicinity explain svc/dns".`,
		Example: `  vicinity explain dns web.shop --from shop/client-1
  vicinity explain dns web -n shop --from 10.1.0.7
  vicinity explain dns zone-a.prefer._zone.web.shop --from shop/client-1 --plan -o json`,
		Args: oneName("Service or port, such as web.shop"), ValidArgsFunction: reach.complete("services"),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), s, reach, args[0]) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.from, "from", "", "the client: a `POD` as NAMESPACE/NAME or NAME, or an address")
	f.cluster.add(flags, "`NAMESPACE` of the pod, and of short names from an address (default the context's)")
	flags.StringVar(&f.zone, "zone", "cluster.local", "`DOMAIN` of the cluster")
	flags.BoolVar(&f.plan, "plan", false, "the server's Corefile has the directive plan")
	f.output.add(flags, "text", "json", "yaml")
	return cmd
}

func (f *explainDNSFlags) run(ctx context.Context, s command.Streams, reach connector, name string) error {
	if _, err := f.question(name); err != nil {
		return err
	}
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	e, err := f.explain(ctx, r, name)
	if err != nil {
		return err
	}
	return f.output.write(s.Out, e, func(p *page) { writeName(p, e) })
}

func (f *explainDNSFlags) explain(ctx context.Context, r *clusterReader, name string) (*inspect.NameExplanation, error) {
	q, err := f.question(name)
	if err != nil {
		return nil, err
	}
	n := nameReader{clusterReader: r, question: q}
	if err := n.readClient(ctx, q.from); err != nil {
		return nil, err
	}
	return n.explain(ctx, name)
}

func (f *explainDNSFlags) question(name string) (q nameQuestion, err error) {
	q.plan = f.plan
	if q.zone, err = f.zoneName(); err != nil {
		return q, err
	}
	if err = checkName(name); err != nil {
		return q, err
	}
	q.from, err = f.client()
	return q, err
}

// zoneName returns the domain of the cluster with a dot at its end.
func (f *explainDNSFlags) zoneName() (string, error) {
	zone := strings.ToLower(strings.TrimSuffix(f.zone, "."))
	if reasons := validation.IsDNS1123Subdomain(zone); len(reasons) > 0 {
		return "", command.UsageErrorf("--zone %q is not a domain; it must be the cluster's, such as cluster.local", f.zone)
	}
	return zone + ".", nil
}

var dnsName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?$`)

func checkName(name string) error {
	const longest = 253
	whole := strings.TrimSuffix(name, ".")
	if _, err := netip.ParseAddr(whole); err != nil && len(whole) <= longest && dnsName.MatchString(name) {
		return nil
	}
	return command.UsageErrorf("name %q is not the name of a Service or of a port, such as web.shop; "+
		"it must have labels of 1 to 63 letters, digits, hyphens and underscores with dots between them, and at most %d characters", name, longest)
}

// nameClient is the client in --from.
type nameClient struct {
	address        netip.Addr // invalid for a pod
	namespace, pod string
}

func (f *explainDNSFlags) client() (nameClient, error) {
	called := cmp.Or(f.fromCalled, "--from")
	const allowed = "it must be a pod as NAMESPACE/NAME or NAME, or an address such as 10.1.0.7"
	if f.from == "" {
		return nameClient{}, command.UsageErrorf("%s is missing: %s", called, allowed)
	}
	if address, err := netip.ParseAddr(f.from); err == nil {
		return nameClient{address: address.Unmap().WithZone("")}, nil
	}
	likeAddress := strings.Contains(f.from, ".") && strings.Trim(f.from, "0123456789.") == ""
	namespace, pod, qualified := strings.Cut(f.from, "/")
	if !qualified {
		namespace, pod = "", f.from
	}
	if likeAddress || len(validation.IsDNS1123Subdomain(pod)) > 0 || qualified && len(validation.IsDNS1123Label(namespace)) > 0 {
		return nameClient{}, command.UsageErrorf("%s %q is neither a pod's name nor an address; %s", called, f.from, allowed)
	}
	return nameClient{namespace: namespace, pod: pod}, nil
}

type nameQuestion struct {
	from nameClient
	zone string
	plan bool
}

type nameReader struct {
	*clusterReader
	question nameQuestion
	client   inspect.ClientReading
}

func (r *clusterReader) in(namespace string) {
	other := *r.connection
	other.namespace = namespace
	r.connection = &other
}

func (n *nameReader) readClient(ctx context.Context, from nameClient) error {
	n.client.Addresses = []netip.Addr{from.address}
	if !from.address.IsValid() {
		if from.namespace != "" {
			n.in(from.namespace)
		}
		if err := n.readPod(ctx, from.pod); err != nil {
			return err
		}
	}
	var err error
	if n.client.Nodes, err = n.nodes(ctx); err != nil {
		return err
	}
	n.client.Locators, err = n.locators(ctx, n.client.Addresses)
	return err
}

func (n *nameReader) readPod(ctx context.Context, name string) error {
	pod, err := n.typed.CoreV1().Pods(n.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return n.podNotFound(ctx, name)
	}
	if err != nil {
		return n.explained(fmt.Sprintf("reading Pod %s/%s", n.namespace, name), err)
	}
	n.client.Pod, n.client.Addresses = pod, nil
	texts := []string{pod.Status.PodIP}
	for _, ip := range pod.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil && !slices.Contains(n.client.Addresses, address) {
			n.client.Addresses = append(n.client.Addresses, address)
		}
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return fmt.Errorf("pod %s/%s has finished; give a running pod, or an address", n.namespace, name)
	case len(n.client.Addresses) == 0:
		return fmt.Errorf("pod %s/%s has no address yet; wait until it runs, or give an address", n.namespace, name)
	}
	return nil
}

// locators lists the PodLocators of all namespaces that have one of the addresses.
func (r *clusterReader) locators(ctx context.Context, addresses []netip.Addr) ([]*v1alpha1.PodLocator, error) {
	resource := r.dynamic.Resource(v1alpha1.GroupVersion.WithResource("podlocators"))
	var list []*v1alpha1.PodLocator
	err := eachItem(ctx, resource, metav1.ListOptions{}, func(object *unstructured.Unstructured) error {
		locator, err := convertTo[v1alpha1.PodLocator](object)
		if err == nil && slices.ContainsFunc(locator.IPs, func(text string) bool {
			address, err := netip.ParseAddr(text)
			return err == nil && slices.Contains(addresses, address.Unmap())
		}) {
			list = append(list, locator)
		}
		return err
	})
	return list, r.optional(inspect.KindLocators, "pods are located only by the pod CIDRs of nodes", err)
}

// servedGroups finds groups as the DNS server does: by spec.service, not by the controller's label.
func (r *clusterReader) servedGroups(ctx context.Context, service *corev1.Service) ([]*v1alpha1.EndpointGroup, error) {
	all, err := r.groups(ctx, service.Namespace, names.Selector)
	return slices.DeleteFunc(all, func(g *v1alpha1.EndpointGroup) bool { return g.Spec.Service != service.Name }), err
}

// explain explains the first of the client's names that belongs to a Service.
func (n *nameReader) explain(ctx context.Context, name string) (*inspect.NameExplanation, error) {
	list, known := names.UsualSearch(n.namespace, n.question.zone), true
	if n.client.Pod != nil {
		list, known = names.SearchOf(n.client.Pod, n.question.zone)
	}
	search := list.Names(name, n.question.zone)
	var before []string // names outside of the cluster's domain
	var tried []names.Name
	var refused error
	var missing *inspect.NameExplanation // the first Service without such a name
	for _, whole := range search {
		parsed, ofService := names.Parse(whole, []string{n.question.zone})
		if !ofService {
			if !names.Within(whole, n.question.zone) {
				before = append(before, whole)
			}
			continue
		}
		tried = append(tried, parsed)
		namespace, service := parsed.ServiceName()
		found, err := n.typed.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case apierrors.IsForbidden(err):
			refused = err
			continue
		case err != nil:
			return nil, n.explained("reading Services", err)
		}
		e, err := n.explainWhole(ctx, whole, found)
		if err != nil {
			return nil, err
		}
		if len(before) > 0 {
			e.NotKnown = append(e.NotKnown, fmt.Sprintf("whether the client reaches this name: it first tries %s, which may exist outside of the cluster", strings.Join(before, " and ")))
		}
		if !known && len(search) > 1 {
			e.NotKnown = append(e.NotKnown, fmt.Sprintf("which names the pod tries for %s: its dnsPolicy or hostNetwork may give it another search list than the usual one", name))
		}
		if !e.Missing {
			return e, nil
		}
		missing = cmp.Or(missing, e)
	}
	domain := strings.TrimSuffix(n.question.zone, ".")
	switch {
	case missing != nil:
		return missing, nil
	case refused != nil:
		return nil, n.explained("reading Services", refused)
	case len(tried) == 0:
		return nil, fmt.Errorf("%s is not the name of a Service in the domain %s (--zone), so Vicinity does not change its answer", name, domain)
	}
	meant := tried[0]
	if len(tried) > 1 && strings.Contains(name, ".") {
		meant = tried[1] // SERVICE.NAMESPACE
	}
	namespace, service := meant.ServiceName()
	n.in(namespace)
	if err := n.expectNamespace(ctx, namespace); err != nil {
		return nil, fmt.Errorf("%s is not the name of a Service in the domain %s (--zone): %w", name, domain, err)
	}
	return nil, n.serviceNotFound(ctx, service)
}

func (n *nameReader) explainWhole(ctx context.Context, name string, service *corev1.Service) (*inspect.NameExplanation, error) {
	n.in(service.Namespace)
	reading, err := n.inputFor(ctx, service, n.client.Nodes, n.servedGroups)
	if err != nil {
		return nil, err
	}
	e, err := inspect.ExplainName(inspect.NameReading{
		Name: name, Zone: n.question.zone, Plan: n.question.plan, Client: n.client, Service: &reading, Unread: n.unread,
	})
	if err != nil {
		return nil, fmt.Errorf("explaining %s: %w", name, err)
	}
	e.NotKnown = append(e.NotKnown, n.notKnown...)
	return e, nil
}
