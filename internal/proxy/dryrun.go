package proxy

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/probe"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// DryRun writes the rules that the node would have, in the syntax of nft, and changes
// nothing. Each Service is kept to its bound, and not all of them to theirs: what a node has
// of these depends on what came first.
func DryRun(ctx context.Context, o Options, out io.Writer) error {
	c, err := newClient(o.API)
	if err != nil {
		return err
	}
	return dryRun(ctx, c, o, out)
}

func dryRun(ctx context.Context, a api, o Options, out io.Writer) error {
	known := newCatalogue(clock.RealClock{}, func() {})
	if err := readAll(ctx, a, &o, known); err != nil {
		return err
	}
	node, zone := known.position()
	if node == nil {
		return fmt.Errorf("the API does not have the node %q", o.NodeName)
	}
	var local []netip.Addr
	if o.NodePorts.ByPrefix() {
		var err error
		if local, err = interfaceAddresses(); err != nil {
			return err
		}
	}
	settings := o.settings()
	options := settings.Options(node, zone, local)
	options.Addresses = addressBook(known, settings)
	settings.ServiceRanges = known.reserved(settings).ServiceRanges

	names := slices.SortedFunc(maps.Keys(known.names()), compareNames)
	results := make([]compile.Result, len(names))
	var compiled []compile.Family
	for i, name := range names {
		results[i] = o.compiled(name, known.entry(name), options)
		compiled = append(compiled, results[i].Families...)
	}
	tables := map[ruleset.Family]*ruleset.Table{}
	odd := map[ruleset.Family]map[string]error{}
	for _, number := range settings.Families() {
		if !slices.ContainsFunc(compiled, func(f compile.Family) bool { return f.Family == number }) {
			continue
		}
		table, omissions := view.Table(settings.Config(number, node), compiled)
		tables[number], odd[number] = table, map[string]error{}
		for _, one := range omissions {
			odd[number][one.Port] = one.Err
		}
	}
	for i, name := range names {
		o.remark(out, name, &results[i], odd)
	}
	for _, number := range settings.Families() {
		if tables[number] != nil {
			fmt.Fprint(out, tables[number].Text())
		}
	}
	return nil
}

// remark writes what is to be said of a Service besides its rules.
func (o *Options) remark(out io.Writer, name types.NamespacedName, result *compile.Result, odd map[ruleset.Family]map[string]error) {
	for _, note := range result.Notes {
		fmt.Fprintf(out, "# %s: %s\n", name, note)
	}
	if o.Elements.one(result.Elements) < result.Elements {
		fmt.Fprintf(out, "# %s: %s\n", name, o.Elements.beyond(result.Elements))
	}
	for _, refused := range result.Refused.Sentences(len(result.Refused.First)) {
		fmt.Fprintf(out, "# %s: %s\n", name, refused)
	}
	for i := range result.Families {
		f := &result.Families[i]
		for j := range f.Ports {
			if err := odd[f.Family][f.Ports[j].Name]; err != nil {
				fmt.Fprintf(out, "# %s: %v\n", f.Ports[j].Name, err)
			}
		}
	}
}

// compiled is what the rules of the node would do for a Service.
func (o *Options) compiled(name types.NamespacedName, e entry, options compile.Options) compile.Result {
	if o.ProbeService == "" || name != (types.NamespacedName{Namespace: o.LeaseNamespace, Name: o.ProbeService}) {
		return compile.Service(compile.Input{Service: e.service, Groups: e.groups, Slices: e.slices, MaxElements: o.Elements.Service}, options)
	}
	return compileProbed(e.service, options, func(_ int, family ruleset.Family) netip.AddrPort {
		for _, address := range options.Node.Addresses {
			if address.Is6() == (family == ruleset.IPv6) {
				return netip.AddrPortFrom(address, cmp.Or(o.ProbePort, probe.DefaultPort))
			}
		}
		return netip.AddrPort{}
	})
}

func compareNames(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) }

// readAll reads once what the proxy watches.
func readAll(ctx context.Context, a api, o *Options, known *catalogue) error {
	nodes, _, err := list[*corev1.Node](ctx, a.node(o.NodeName))
	if err != nil {
		return fmt.Errorf("reading node %s: %w", o.NodeName, err)
	}
	if len(nodes) == 0 {
		return nil
	}
	services, version, err := list[*corev1.Service](ctx, a.services())
	if err != nil {
		return fmt.Errorf("reading Services: %w", err)
	}
	zone := nodes[0].Labels[corev1.LabelTopologyZone]
	groups, groupVersion, err := list[*v1alpha1.EndpointGroup](ctx, a.groups(view.GroupSelector(zone)))
	if absent := o.AllServices && apierrors.IsNotFound(err); err != nil && !absent {
		return fmt.Errorf("reading EndpointGroups: %w", err)
	}
	known.fill(func() {
		known.setNode(nodes[0])
		known.replaceServices(services, version)
		known.replaceGroups(groups, groupVersion, zone)
	})
	if err := readAddresses(ctx, a, o, known); err != nil {
		return err
	}
	if !o.AllServices {
		return nil
	}
	all, version, err := list[*discoveryv1.EndpointSlice](ctx, a.slices())
	if err != nil {
		return fmt.Errorf("reading EndpointSlices: %w", err)
	}
	known.fill(func() { known.replaceSlices(all, version) })
	return nil
}

// readAddresses reads which addresses belong to the cluster, as far as the API has that
// and lets it be read.
func readAddresses(ctx context.Context, a api, o *Options, known *catalogue) error {
	ranges, _, err := list[*networkingv1.ServiceCIDR](ctx, a.serviceRanges())
	if err != nil && !unreadable(err) {
		return fmt.Errorf("reading ServiceCIDRs: %w", err)
	}
	known.fill(func() { known.replaceRanges(ranges) })
	if o.LeaseNamespace == "" {
		return nil
	}
	published, _, err := list[*corev1.ConfigMap](ctx, a.nodeAddresses(o.LeaseNamespace))
	if err != nil && !unreadable(err) {
		return fmt.Errorf("reading the addresses of nodes: %w", err)
	}
	for _, one := range published {
		known.fill(func() { err = known.setNodeAddresses(one) })
		if err != nil {
			return fmt.Errorf("reading the addresses of nodes: %w", err)
		}
	}
	return nil
}

// list reads all objects of a source.
func list[T any](ctx context.Context, source cache.ListerWatcher) (objects []T, version string, err error) {
	listed, err := cache.ToListerWithContext(source).ListWithContext(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, "", err
	}
	items, err := meta.ExtractList(listed)
	if err != nil {
		return nil, "", err
	}
	for _, item := range items {
		if typed, ok := item.(T); ok {
			objects = append(objects, typed)
		}
	}
	access, err := meta.ListAccessor(listed)
	if err != nil {
		return nil, "", err
	}
	return objects, access.GetResourceVersion(), nil
}
