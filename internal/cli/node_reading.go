package cli

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/nodenet"
	"vicinity.dev/vicinity/internal/proxy/proxyflags"
	"vicinity.dev/vicinity/internal/proxy/view"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/handover"
	"vicinity.dev/vicinity/internal/routing/routingflags"
	"vicinity.dev/vicinity/internal/topology/netset"
)

type nodeReader struct {
	*clusterReader
	in inspect.NodeReading
	// ownNamespace is the namespace of Vicinity, or empty if it is unknown.
	ownNamespace string
	// running are the settings of the controller, as far as they are known.
	running routingflags.Running
}

func (r *clusterReader) readNode(ctx context.Context, name, nodeName string) (inspect.NodeReading, error) {
	n := nodeReader{clusterReader: r}
	err := n.read(ctx, name, nodeName)
	return n.in, err
}

func (r *nodeReader) read(ctx context.Context, name, nodeName string) error {
	in := &r.in
	var err error
	in.Service, err = r.typed.CoreV1().Services(r.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return r.serviceNotFound(ctx, name)
	}
	if err != nil {
		return r.explained(fmt.Sprintf("reading Service %s/%s", r.namespace, name), err)
	}
	if in.Node, err = r.node(ctx, nodeName); err != nil {
		return err
	}
	in.Zone = in.Node.Labels[corev1.LabelTopologyZone]
	if in.Slices, err = r.slices(ctx, r.namespace, discoveryv1.LabelServiceName+"="+name); err != nil {
		return err
	}
	if in.Groups, err = r.groups(ctx, r.namespace, v1alpha1.LabelService+"="+name); err != nil {
		return err
	}
	if in.Seen, err = seenGroups(in.Groups, in.Zone); err != nil {
		return err
	}
	if err := r.readProxy(ctx); err != nil {
		return err
	}
	if err := r.readDelivery(ctx); err != nil {
		return err
	}
	if in.Lease, err = r.lease(ctx); err != nil {
		return err
	}
	services, err := r.rivalServices(ctx, in.Service)
	if err != nil {
		return err
	}
	if err := r.readAddresses(ctx, services); err != nil {
		return err
	}
	in.Rivals, err = r.rivals(ctx, services)
	return err
}

// node returns a Linux node.
func (r *clusterReader) node(ctx context.Context, name string) (*corev1.Node, error) {
	nodes, err := listAll[corev1.Node](ctx, r.typed.CoreV1().Nodes(), metav1.ListOptions{})
	if err != nil {
		return nil, r.explained("reading Nodes", err)
	}
	var names []string
	for _, node := range nodes {
		names = append(names, node.Name)
		if node.Name != name {
			continue
		}
		if system := node.Labels[corev1.LabelOSStable]; system != "" && system != "linux" {
			return nil, fmt.Errorf("node %q runs %s; --node explains nodes with Linux only", name, system)
		}
		return node, nil
	}
	slices.Sort(names)
	return nil, fmt.Errorf("the cluster has no node %q; %s", name, listed(names))
}

// seenGroups returns the groups that the proxy of a node in the zone watches.
func seenGroups(groups []*v1alpha1.EndpointGroup, zone string) ([]*v1alpha1.EndpointGroup, error) {
	selector, err := labels.Parse(view.GroupSelector(zone))
	if err != nil {
		return nil, fmt.Errorf("zone %q: %w", zone, err)
	}
	var seen []*v1alpha1.EndpointGroup
	for _, group := range groups {
		if selector.Matches(labels.Set(group.Labels)) {
			seen = append(seen, group)
		}
	}
	return seen, nil
}

// defaultProxy returns the settings of vicinity-proxy without flags.
func defaultProxy() view.Settings {
	var none proxyflags.Flags
	none.Add(routingflags.SetOf("vicinity-proxy"))
	settings, _ := none.Settings()
	return settings
}

// readProxy finds vicinity-proxy, its flags, and whether it should run on the node.
func (r *nodeReader) readProxy(ctx context.Context) error {
	r.in.Settings = defaultProxy()
	sets, err := listAll[appsv1.DaemonSet](ctx, r.typed.AppsV1().DaemonSets(metav1.NamespaceAll), metav1.ListOptions{LabelSelector: inspect.ProxySelector})
	if err != nil {
		r.in.Installed = true // also if that is unknown
		if err := r.optional("DaemonSets", "vicinity-proxy is assumed to have its default flags", err); err != nil {
			return err
		}
	}
	if err := r.readController(ctx, sets); err != nil {
		return err
	}
	for _, set := range sets {
		r.in.Installed = true
		for _, container := range set.Spec.Template.Spec.Containers {
			for _, variable := range container.Env {
				if address, err := netip.ParseAddr(variable.Value); err == nil && variable.Name == "KUBERNETES_SERVICE_HOST" {
					r.in.Settings.APIServer = netset.Of(address)
				}
			}
			if err := r.apply(&container); err != nil {
				r.leaveOut(fmt.Sprintf("DaemonSet %s/%s has an invalid flag (%v); default flags are assumed", set.Namespace, set.Name, err))
			}
		}
		if selector := set.Spec.Template.Spec.NodeSelector; !labels.SelectorFromSet(selector).Matches(labels.Set(r.in.Node.Labels)) {
			r.in.Kept = fmt.Sprintf("DaemonSet %s/%s does not run on nodes that lack the labels %s", set.Namespace, set.Name, labels.FormatLabels(selector))
			continue
		}
		pod := &corev1.Pod{Spec: set.Spec.Template.Spec}
		switch matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(r.in.Node); {
		case err != nil:
			r.leaveOut(fmt.Sprintf("DaemonSet %s/%s has an invalid node affinity (%v); it is assumed to run on the node", set.Namespace, set.Name, err))
		case !matches:
			r.in.Kept = fmt.Sprintf("DaemonSet %s/%s does not run on the node, since its node affinity excludes it", set.Namespace, set.Name)
		}
	}
	return nil
}

func (r *nodeReader) readController(ctx context.Context, proxies []*appsv1.DaemonSet) error {
	controller, err := r.controller(ctx)
	if err := r.optional("Deployments", "the namespace of Vicinity is assumed to be that of vicinity-proxy", err); err != nil {
		return err
	}
	r.ownNamespace = inspect.Home(controller, proxies)
	if r.running = routingflags.Defaults(); controller != nil {
		r.running, _ = routingflags.RunningOf(controller)
	}
	return nil
}

// readDelivery finds out whether groups deliver the Service's plan. Policies matter only without the Service's annotation.
func (r *nodeReader) readDelivery(ctx context.Context) error {
	in := routing.Input{Service: r.in.Service, Slices: r.in.Slices, Settings: r.running.Settings}
	if value := in.Service.Annotations[v1alpha1.AnnotationProxy]; value != "true" && value != "false" {
		var err error
		if in.Policies, err = r.policies(ctx, r.namespace); err != nil {
			return err
		}
		wide, err := r.clusterSettings(ctx, r.namespace)
		if err != nil {
			return err
		}
		wide.selectFor(&in, r.now)
	}
	excluded := r.running.Exclusion.Reason(in.Service.Namespace, in.Service.Name) != ""
	r.in.Wanted = !excluded && routing.DeliveryOf(in) == allocate.DeliveryGroups
	return nil
}

// apply takes over the flags of vicinity-proxy that affect its rules, or none if one is invalid.
func (r *nodeReader) apply(container *corev1.Container) error {
	var given proxyflags.Flags
	flags := routingflags.SetOf("vicinity-proxy")
	given.Add(flags)
	if err := flags.Parse(container.Args); err != nil {
		return err
	}
	settings, err := given.Settings()
	if err != nil {
		return err
	}
	settings.APIServer = r.in.Settings.APIServer
	settings.Elements = view.BoundsWithin(memoryOf(container), settings.Elements)
	r.in.Settings = settings
	return nil
}

// memoryOf returns the memory limit of a container as the program finds it: the smaller of the limit
// and GOMEMLIMIT, or zero.
func memoryOf(container *corev1.Container) int64 {
	least := container.Resources.Limits.Memory().Value()
	for _, variable := range container.Env {
		// Go writes MiB where Kubernetes writes Mi.
		limit, err := resource.ParseQuantity(strings.TrimSuffix(variable.Value, "B"))
		if variable.Name == "GOMEMLIMIT" && err == nil && limit.Value() > 0 && (least == 0 || limit.Value() < least) {
			least = limit.Value()
		}
	}
	return least
}

// lease returns the Lease of the node's proxy, or nil if it does not exist or may not be read.
func (r *nodeReader) lease(ctx context.Context) (*coordinationv1.Lease, error) {
	const consequence = "whether the node's proxy runs, and what it has programmed, is unknown"
	if r.ownNamespace == "" {
		if r.in.Installed {
			r.unread = append(r.unread, inspect.KindLeases)
			r.leaveOut("the namespace of Vicinity is not known, so " + consequence)
		}
		return nil, nil
	}
	options := metav1.ListOptions{
		LabelSelector: v1alpha1.LabelProxyLease + "=true",
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.ProxyLeasePrefix+r.in.Node.Name).String(),
	}
	leases, err := listAll[coordinationv1.Lease](ctx, r.typed.CoordinationV1().Leases(r.ownNamespace), options)
	if err != nil {
		return nil, r.optional(inspect.KindLeases, consequence, err)
	}
	for _, lease := range leases {
		if handover.LeaseNode(lease) == r.in.Node.Name {
			return lease, nil
		}
	}
	return nil, nil
}

// rivalServices returns all Services if another one may have an address of this Service. Cluster IPs
// and node ports are unique; external IPs and load balancer addresses need not be.
func (r *clusterReader) rivalServices(ctx context.Context, service *corev1.Service) ([]*corev1.Service, error) {
	if len(outsideAddresses(service)) == 0 {
		return nil, nil
	}
	all, err := listAll[corev1.Service](ctx, r.typed.CoreV1().Services(metav1.NamespaceAll), metav1.ListOptions{})
	if err != nil {
		return nil, r.optional("Services of other namespaces", "whether another has an address of this one is unknown", err)
	}
	return all, nil
}

// readAddresses reads the reserved addresses of the cluster, if they make a difference.
func (r *nodeReader) readAddresses(ctx context.Context, services []*corev1.Service) error {
	r.in.Book = compile.NewAddressBook()
	claims := len(outsideAddresses(r.in.Service)) > 0
	if !r.in.Installed || !claims && !r.in.Settings.AllServices {
		return nil
	}
	ranges, err := listAll[networkingv1.ServiceCIDR](ctx, r.typed.NetworkingV1().ServiceCIDRs(), metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err): // the proxy ignores that, too
	case err != nil:
		if err := r.optional("ServiceCIDRs", "the ranges of cluster IPs are unknown", err); err != nil {
			return err
		}
	}
	var prefixes []netip.Prefix
	for _, one := range ranges {
		prefixes = append(prefixes, nodenet.Prefixes(one.Spec.CIDRs)...)
	}
	r.in.Settings.ServiceRanges = netset.New(prefixes)
	if !claims {
		return nil
	}
	nodes, pods, err := r.readPublished(ctx)
	if err != nil {
		return err
	}
	r.in.Book.SetReserved(r.in.Settings.Reserved(r.in.Node, nodes, pods))
	for _, service := range append([]*corev1.Service{r.in.Service}, services...) {
		r.in.Book.SetService(types.NamespacedName{Namespace: service.Namespace, Name: service.Name}, service)
	}
	return nil
}

// readPublished reads the addresses that vicinity-controller publishes.
func (r *nodeReader) readPublished(ctx context.Context) (nodes, pods netset.Set, err error) {
	const unknown = "only the addresses of this node and its pods are known"
	if r.ownNamespace == "" {
		return nodes, pods, nil // readProxy has noted why
	}
	published, err := r.typed.CoreV1().ConfigMaps(r.ownNamespace).Get(ctx, v1alpha1.ConfigMapNodeAddresses, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		r.leaveOut(fmt.Sprintf("there is no ConfigMap %s/%s, so %s, to vicinity-proxy too", r.ownNamespace, v1alpha1.ConfigMapNodeAddresses, unknown))
		return nodes, pods, nil
	}
	if err != nil {
		return nodes, pods, r.optional("ConfigMap "+v1alpha1.ConfigMapNodeAddresses, unknown, err)
	}
	// The proxy ignores invalid lines, too.
	nodes, _ = netset.Parse(published.Data[v1alpha1.KeyNodeAddresses])
	pods, _ = netset.Parse(published.Data[v1alpha1.KeyPodRanges])
	return nodes, pods, nil
}

// rivals returns the other Services with an address of this one.
func (r *nodeReader) rivals(ctx context.Context, all []*corev1.Service) ([]compile.Input, error) {
	wanted := outsideAddresses(r.in.Service)
	var rivals []compile.Input
	for _, other := range all {
		same := other.Namespace == r.in.Service.Namespace && other.Name == r.in.Service.Name
		if same || !slices.ContainsFunc(outsideAddresses(other), func(address string) bool { return slices.Contains(wanted, address) }) {
			continue
		}
		rival := compile.Input{Service: other}
		groups, err := r.groups(ctx, other.Namespace, v1alpha1.LabelService+"="+other.Name)
		if err != nil {
			return nil, err
		}
		if rival.Groups, err = seenGroups(groups, r.in.Zone); err != nil {
			return nil, err
		}
		if rival.Slices, err = r.slices(ctx, other.Namespace, discoveryv1.LabelServiceName+"="+other.Name); err != nil {
			return nil, err
		}
		rivals = append(rivals, rival)
	}
	return rivals, nil
}

// outsideAddresses are addresses that other Services may have too.
func outsideAddresses(service *corev1.Service) []string {
	all := slices.Clone(service.Spec.ExternalIPs)
	for _, ingress := range service.Status.LoadBalancer.Ingress {
		if ingress.IP != "" {
			all = append(all, ingress.IP)
		}
	}
	return all
}
