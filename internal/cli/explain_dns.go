package cli

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/names"
)

type explainDNSFlags struct {
	cluster clusterFlags
	from    string
	zone    string
	kind    string
	plan    bool
	output  string

	// fromCalled is what messages call the client, if not --from.
	fromCalled string
}

func newExplainDNSCommand(s command.Streams, reach connector) *cobra.Command {
	var f explainDNSFlags
	cmd := &cobra.Command{
		Use:   "dns NAME --from POD|IP",
		Short: "Say which records a client gets for a name, and why",
		Long: `Explain dns says what vicinity-dns answers to one client for the name of a Service: the
records, the rule that decides, how the client is located by its address, and what to do
next. It asks no DNS server: it reads the cluster, and answers by the code of the server.

NAME is whole, as web.shop.svc.cluster.local, or short, as web or web.shop: then the names
of a search list are tried, and the first that exists is explained. It is the pod's, by its
dnsPolicy and dnsConfig. Where these leave it to the node, and where an address is given,
it is that of most pods (dnsPolicy ClusterFirst), in the namespace of the pod or of -n.
Names of ports (_http._tcp.web), of endpoints (db-0.db) and with a zone
(zone-a.prefer._zone.web) are explained as well.

The client is a pod, as NAMESPACE/NAME, or NAME in the namespace of -n; or any address of
either family.

Give --plan if the Corefile of the server has the directive plan: names with a zone to
prefer follow the plan only then.

A Service of the name "dns" is explained by "vicinity explain svc/dns".`,
		Example: `  vicinity explain dns web.shop --from shop/client-1
  vicinity explain dns web -n shop --from 10.1.0.7
  vicinity explain dns _http._tcp.web.shop --from shop/client-1 --type SRV
  vicinity explain dns zone-a.prefer._zone.web.shop --from shop/client-1 --plan -o json`,
		Args: explainDNSArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd.Context(), s, reach, args[0]) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.from, "from", "", "the client: a `POD` as NAMESPACE/NAME or NAME, or an address")
	f.cluster.add(flags, "the `NAMESPACE` of the pod, and of short names from an address (default that of the context)")
	flags.StringVar(&f.kind, "type", "", "`TYPE` of the records: A, AAAA or SRV (default both types of addresses)")
	flags.StringVar(&f.zone, "zone", "cluster.local", "`DOMAIN` of the cluster")
	flags.BoolVar(&f.plan, "plan", false, "the Corefile of the server has the directive plan")
	flags.StringVarP(&f.output, "output", "o", "text", "`FORMAT` of the output: text, json or yaml")
	return cmd
}

func explainDNSArgs(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return fmt.Errorf("no name is given; give one such as web.shop, and --from with a pod or an address")
	case 1:
		return nil
	}
	return fmt.Errorf("unexpected argument %q: one name is explained at a time", args[1])
}

func (f *explainDNSFlags) run(ctx context.Context, s command.Streams, reach connector, name string) error {
	write, err := dnsFormat(f.output)
	if err != nil {
		return err
	}
	if _, err := f.asked(name); err != nil {
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
	return write(s.Out, e)
}

// explain explains a name to the client that the flags mean.
func (f *explainDNSFlags) explain(ctx context.Context, r *clusterReader, name string) (*inspect.NameExplanation, error) {
	q, err := f.asked(name)
	if err != nil {
		return nil, err
	}
	n := nameReader{clusterReader: r, question: q}
	if err := n.readClient(ctx, q.from); err != nil {
		return nil, err
	}
	return n.explain(ctx, name)
}

// asked is what is asked for about a name.
func (f *explainDNSFlags) asked(name string) (q nameQuestion, err error) {
	q.plan = f.plan
	if q.zone, err = f.zoneName(); err != nil {
		return q, err
	}
	if q.types, err = f.types(); err != nil {
		return q, err
	}
	if err = checkName(name); err != nil {
		return q, err
	}
	q.from, err = f.client()
	return q, err
}

// zoneName is the domain of the cluster, with a dot at its end.
func (f *explainDNSFlags) zoneName() (string, error) {
	zone := strings.ToLower(strings.TrimSuffix(f.zone, "."))
	if reasons := validation.IsDNS1123Subdomain(zone); len(reasons) > 0 {
		return "", command.UsageErrorf("--zone %q is no domain; it must be that of the cluster, such as cluster.local", f.zone)
	}
	return zone + ".", nil
}

func (f *explainDNSFlags) types() ([]string, error) {
	kind := strings.ToUpper(f.kind)
	switch kind {
	case "":
		return nil, nil
	case inspect.TypeA, inspect.TypeAAAA, inspect.TypeSRV:
		return []string{kind}, nil
	}
	return nil, command.UsageErrorf("--type %q is not explained; it must be A, AAAA or SRV", f.kind)
}

// checkName refuses what is no name in DNS.
func checkName(name string) error {
	const longest, longestLabel = 253, 63
	const allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	whole := strings.TrimSuffix(name, ".")
	if _, err := netip.ParseAddr(whole); err == nil {
		return command.UsageErrorf("name %q is an address; it must be the name of a Service, of one of its endpoints or ports, or of a pod, such as web.shop", name)
	}
	if len(whole) > longest {
		return command.UsageErrorf("name %q has %d characters; it must have at most %d", name, len(whole), longest)
	}
	for label := range strings.SplitSeq(whole, ".") {
		if label == "" || len(label) > longestLabel {
			return command.UsageErrorf("name %q is no DNS name; it must be labels of 1 to %d characters with dots between them, such as web.shop", name, longestLabel)
		}
	}
	if at := strings.IndexFunc(name, func(r rune) bool { return !strings.ContainsRune(allowed, r) }); at >= 0 {
		return command.UsageErrorf("name %q has %q; it must have letters, digits, hyphens and underscores only, with dots between labels, such as web.shop", name, []rune(name[at:])[0])
	}
	return nil
}

// nameClient is who asks, as --from says it.
type nameClient struct {
	called         string     // in messages
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
	if strings.Contains(f.from, ".") && strings.Trim(f.from, "0123456789.") == "" {
		return nameClient{}, command.UsageErrorf("%s %q is neither a pod's name nor an address; %s", called, f.from, allowed)
	}
	if _, err := netip.ParsePrefix(f.from); err == nil {
		return nameClient{}, command.UsageErrorf("%s %q is a range; %s", called, f.from, allowed)
	}
	namespace, pod, qualified := strings.Cut(f.from, "/")
	if !qualified {
		namespace, pod = "", f.from
	}
	if len(validation.IsDNS1123Subdomain(pod)) > 0 || qualified && len(validation.IsDNS1123Label(namespace)) > 0 {
		return nameClient{}, command.UsageErrorf("%s %q is neither; %s", called, f.from, allowed)
	}
	return nameClient{called: called, namespace: namespace, pod: pod}, nil
}

// nameQuestion is what is asked for, beside the name.
type nameQuestion struct {
	from  nameClient
	zone  string
	types []string
	plan  bool
}

// nameReader reads what the answer for a name depends on.
type nameReader struct {
	*clusterReader
	question nameQuestion
	client   inspect.ClientReading
}

// in has a reader read another namespace.
func (r *clusterReader) in(namespace string) {
	other := *r.connection
	other.namespace = namespace
	r.connection = &other
}

// readClient reads who asks, and all that locates clients.
func (n *nameReader) readClient(ctx context.Context, from nameClient) error {
	n.client.Addresses = []netip.Addr{from.address}
	if !from.address.IsValid() {
		if from.namespace != "" {
			n.in(from.namespace)
		}
		if err := n.readPod(ctx, from); err != nil {
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

func (n *nameReader) readPod(ctx context.Context, from nameClient) error {
	name := from.pod
	pod, err := n.typed.CoreV1().Pods(n.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		hint := ""
		if from.namespace != "" {
			hint = fmt.Sprintf("what stands before the slash in %s is the namespace of the pod", from.called)
		}
		return n.podNotFound(ctx, name, hint)
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
		return fmt.Errorf("pod %s/%s has finished and asks for nothing any more; give one that runs, or an address", n.namespace, name)
	case len(n.client.Addresses) == 0:
		return fmt.Errorf("pod %s/%s has no address yet; wait until it runs, or give an address", n.namespace, name)
	}
	return nil
}

// locators are the PodLocators of all namespaces that have one of the addresses.
func (r *clusterReader) locators(ctx context.Context, addresses []netip.Addr) ([]*v1alpha1.PodLocator, error) {
	resource := r.dynamic.Resource(v1alpha1.GroupVersion.WithResource("podlocators"))
	read := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		list, err := resource.List(ctx, o)
		if err != nil {
			return nil, err
		}
		list.Items = slices.DeleteFunc(list.Items, func(object unstructured.Unstructured) bool {
			texts, _, _ := unstructured.NestedStringSlice(object.Object, "ips")
			return !slices.ContainsFunc(texts, func(text string) bool {
				address, err := netip.ParseAddr(text)
				return err == nil && slices.Contains(addresses, address.Unmap())
			})
		})
		return list, nil
	}
	list, err := listRead[v1alpha1.PodLocator](ctx, metav1.ListOptions{}, read)
	return list, r.optional(inspect.KindLocators, "pods are located by the ranges of nodes alone", err)
}

// servedGroups are the groups that the DNS server answers from for a Service: unlike the controller it goes by
// what they say, not by the label with the Service's name.
func (r *clusterReader) servedGroups(ctx context.Context, service *corev1.Service) ([]*v1alpha1.EndpointGroup, error) {
	all, err := r.groups(ctx, service.Namespace, names.Selector)
	return slices.DeleteFunc(all, func(g *v1alpha1.EndpointGroup) bool { return g.Spec.Service != service.Name }), err
}

// explain explains the first of the names that a client tries that exists.
func (n *nameReader) explain(ctx context.Context, name string) (*inspect.NameExplanation, error) {
	list, known := names.UsualSearch(n.namespace, n.question.zone), true
	if n.client.Pod != nil {
		list, known = names.SearchOf(n.client.Pod, n.question.zone)
	}
	search := list.Names(name, n.question.zone)
	e, err := n.explainFirst(ctx, search)
	if err == nil && !known && len(search) > 1 {
		e.NotKnown = append(e.NotKnown, fmt.Sprintf("which names the pod tries for %s: by its dnsPolicy or hostNetwork its search list may be another than the usual one, which was taken", name))
	}
	if err == nil && e.Rule == inspect.RuleOutside {
		adviseOutside(e, name)
	}
	return e, err
}

// adviseOutside says what may be meant by a name that is of another zone.
func adviseOutside(e *inspect.NameExplanation, name string) {
	short, dotted := strings.CutSuffix(name, ".")
	labels := strings.Split(short, ".")
	for at := 2; at+1 < len(labels); at++ {
		if names.Same(labels[at], "svc") {
			e.Next = append(e.Next, fmt.Sprintf("give --zone %s if that is the domain of the cluster", strings.Join(labels[at+1:], ".")))
			return
		}
	}
	if dotted {
		e.Why = append(e.Why, "the dot at the end makes the name whole, so clients do not look for it in their search lists")
		e.Next = append(e.Next, fmt.Sprintf("leave out the dot if %s is a short name of a Service", short))
	}
}

func (n *nameReader) explainFirst(ctx context.Context, search []string) (*inspect.NameExplanation, error) {
	var candidates, before []string
	for _, name := range search {
		if _, ofService := names.Parse(name, []string{n.question.zone}); ofService {
			candidates = append(candidates, name)
		}
	}
	if len(search) == 1 && len(candidates) == 0 {
		e, _, err := n.explainWhole(ctx, search[0])
		return e, err
	}
	var empty *inspect.NameExplanation
	var refused error
	for _, name := range search {
		if !slices.Contains(candidates, name) {
			if !names.Within(name, n.question.zone) {
				before = append(before, name)
			}
			continue
		}
		e, found, err := n.explainWhole(ctx, name)
		switch {
		case apierrors.IsForbidden(err):
			refused = err
		case err != nil:
			return nil, err
		case !found:
		case e.Exists():
			if len(before) > 0 {
				e.NotKnown = append(e.NotKnown, fmt.Sprintf("whether the client gets to this name: it tries %s before, which may exist outside of the cluster", strings.Join(before, " and ")))
			}
			return e, nil
		case empty == nil:
			empty = e
		}
	}
	switch {
	case empty != nil:
		return empty, nil
	case refused != nil:
		return nil, n.explained("reading Services", refused)
	}
	return n.withoutService(ctx, search, candidates)
}

// withoutService is about names of which none is that of a Service that exists. The candidates are those that
// have the form of one.
func (n *nameReader) withoutService(ctx context.Context, search, candidates []string) (*inspect.NameExplanation, error) {
	// The name as it was given is the shortest.
	whole := slices.MinFunc(search, func(a, b string) int { return len(a) - len(b) })
	qualified := strings.Count(whole, ".") > 1
	outside := func() (*inspect.NameExplanation, error) {
		e, _, err := n.explainWhole(ctx, whole)
		return e, err
	}
	short := len(search) > 1
	if len(candidates) == 0 || short && qualified && len(candidates) == 1 {
		return outside()
	}
	meant := candidates[0]
	if short && qualified {
		meant = candidates[1]
	}
	parsed, _ := names.Parse(meant, []string{n.question.zone})
	namespace, service := parsed.ServiceName()
	n.in(namespace)
	if !short || !qualified {
		return nil, n.notFound(ctx, service)
	}
	missing := n.expectNamespace(ctx, namespace)
	if missing == nil {
		return nil, n.notFound(ctx, service)
	}
	e, err := outside()
	// Names with more dots are those of other zones more often than of endpoints and ports.
	if err == nil && parsed.Prefix == "" {
		e.Why = append(e.Why, fmt.Sprintf("%s, so it is not the name of a Service", missing))
	}
	return e, err
}

// mostAliases is how many names of a chain are followed, as CoreDNS does.
const mostAliases = 10

// explainWhole explains a whole name, to which a chain of aliases leads. exists is false for a name
// of a Service that does not exist.
func (n *nameReader) explainWhole(ctx context.Context, name string, chain ...string) (e *inspect.NameExplanation, exists bool, err error) {
	in := inspect.NameReading{Name: name, Zone: n.question.zone, Types: n.question.types, Plan: n.question.plan, Client: n.client}
	exists = true
	if parsed, ofService := names.Parse(name, []string{in.Zone}); ofService {
		namespace, service := parsed.ServiceName()
		n.in(namespace)
		found, err := n.typed.CoreV1().Services(namespace).Get(ctx, service, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			exists = false
		case err != nil:
			return nil, false, err
		default:
			reading, err := n.inputFor(ctx, found, n.client.Nodes, n.servedGroups)
			if err != nil {
				return nil, false, err
			}
			in.Service = &reading
		}
	}
	in.Unread = n.unread
	if e, err = inspect.ExplainName(in); err != nil {
		return nil, false, fmt.Errorf("explaining %s: %w", name, err)
	}
	chain = append(chain, name)
	switch alias := e.Alias(); {
	case alias == "":
	case slices.ContainsFunc(chain, func(before string) bool { return names.Same(before, alias) }):
		e.EndLoop()
	case len(chain) <= mostAliases && names.Within(alias, in.Zone):
		target, _, err := n.explainWhole(ctx, alias, chain...)
		if err != nil {
			return nil, false, err
		}
		e.Follow(target)
	}
	if len(chain) == 1 {
		e.NotKnown = append(e.NotKnown, n.missing...)
	}
	return e, exists, nil
}
