package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/capacity"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/translate"
)

// statusFlags are the flags of "vicinity status" as they are given.
type statusFlags struct {
	cluster clusterFlags
	all     bool
	traffic trafficFlags
	output  string
}

func newStatusCommand(s streams, reach connector) *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List the Services of a cluster with what their traffic does",
		Long: `Status lists the Services of a cluster: what each asks for and the state of it, how
many endpoints it has in how many zones, how much of its traffic is expected to stay in
its zone, what overload that makes, how the plan gets to proxies, and what is worth a
look. "vicinity explain" says more about one of them.

With --traffic it lists instead what vicinity-proxy has counted on all nodes: the
connections and bytes of each Service that it serves, how much of them stayed in their
zone, and how much crossed to another; -o wide has a line for each two zones. Who sends
the most to other zones comes first. Bytes are known where nodes count them. What was
counted is of the time since each proxy started, or with --for of that long from now,
per second. --cost-per-gib says what crossing costs in a month of 730 hours if it goes
on as measured, requests and replies alike.

It shows all namespaces unless -n names one, and reads only; what it must be allowed to
read is in docs/reference/permissions.md.`,
		Example: `  vicinity status
  vicinity status -n shop -o wide
  vicinity status --traffic
  vicinity status --traffic --for 5m --cost-per-gib 0.02`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), s, reach)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	f.cluster.add(flags, "list the Services of one `NAMESPACE`")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "list those of all namespaces, which is the default without -n")
	f.traffic.add(flags)
	flags.StringVarP(&f.output, "output", "o", "table", "`FORMAT` of the output: table, wide, json or yaml")
	return cmd
}

// run does what the flags say.
func (f *statusFlags) run(ctx context.Context, s streams, reach connector) error {
	if err := f.traffic.check(); err != nil {
		return err
	}
	if f.traffic.wanted {
		return f.runTraffic(ctx, s, reach)
	}
	write, err := serviceListFormat(f.output)
	if err != nil {
		return err
	}
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	namespace := f.namespace()
	inputs, err := r.inputs(ctx, namespace)
	if err != nil {
		return err
	}
	if len(inputs) == 0 && namespace != metav1.NamespaceAll {
		if err := r.expectNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	var rows []statusRow
	for i := range inputs {
		if err := ctx.Err(); err != nil {
			return err
		}
		made, err := r.statusRows(inputs[i])
		if err != nil {
			return fmt.Errorf("looking at Service %s/%s: %w", inputs[i].Service.Namespace, inputs[i].Service.Name, err)
		}
		rows = append(rows, made...)
	}
	r.sayMissing(s)
	if len(rows) == 0 {
		fmt.Fprintf(s.err, "no Service is in %s\n", where(namespace))
	}
	return write(s.out, statusOutput{rows, r.missing})
}

// namespace is that of the Services to list, empty for all.
func (f *statusFlags) namespace() string {
	if f.all {
		return metav1.NamespaceAll
	}
	return f.cluster.namespace
}

// sayMissing tells what was left out.
func (r *clusterReader) sayMissing(s streams) {
	for _, sentence := range r.missing {
		fmt.Fprintln(s.err, "not known: "+sentence)
	}
}

// where says which Services were looked at.
func where(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return "the cluster"
	}
	return fmt.Sprintf("namespace %q", namespace)
}

// inputs are what the decisions about all Services of a namespace, or of all
// namespaces, depend on, in the order of namespaces and names.
func (r *clusterReader) inputs(ctx context.Context, namespace string) ([]reading, error) {
	services, err := r.services(ctx, namespace)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(services, func(a, b *corev1.Service) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	nodes, err := r.nodes(ctx)
	if err != nil {
		return nil, err
	}
	eps, err := r.slices(ctx, namespace, "")
	if err != nil {
		return nil, err
	}
	policies, err := r.policies(ctx, namespace)
	if err != nil {
		return nil, err
	}
	var defaults map[string][]*v1alpha1.ClusterRoutingPolicy
	if len(services) > 0 {
		if defaults, err = r.defaults(ctx, namespace); err != nil {
			return nil, err
		}
	}
	groups, err := r.groups(ctx, namespace, "")
	if err != nil {
		return nil, err
	}
	settings, err := r.settings(ctx)
	if err != nil {
		return nil, err
	}
	slicesOf := map[types.NamespacedName][]*discoveryv1.EndpointSlice{}
	for _, slice := range eps {
		key := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		slicesOf[key] = append(slicesOf[key], slice)
	}
	groupsOf := map[types.NamespacedName][]*v1alpha1.EndpointGroup{}
	for _, group := range groups {
		key := types.NamespacedName{Namespace: group.Namespace, Name: group.Labels[v1alpha1.LabelService]}
		groupsOf[key] = append(groupsOf[key], group)
	}
	policiesOf := map[string][]*v1alpha1.RoutingPolicy{}
	for _, policy := range policies {
		policiesOf[policy.Namespace] = append(policiesOf[policy.Namespace], policy)
	}
	cluster := capacity.NewCluster(nodes)
	planner := new(allocate.Planner)
	inputs := make([]reading, len(services))
	for i, service := range services {
		key := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
		inputs[i] = settings.reading(routing.Input{
			Service: service, Slices: slicesOf[key], Groups: groupsOf[key], Cluster: cluster,
			Policies: policiesOf[service.Namespace], Defaults: defaults[service.Namespace], Planner: planner,
		})
	}
	return inputs, nil
}

// statusRow is what there is to say about a Service, or one address family of it.
type statusRow struct {
	namespace, name string
	family          corev1.IPFamily // empty unless several differ
	request         translate.Request
	delivery        routing.Delivery
	state           string
	// planned says that there is a plan; what follows is about it.
	planned          bool
	endpoints, zones int
	capacity         bool // some zone has any, so that the figures mean something
	figures          allocate.Figures
	why              string
	// notes are what is worth a look, what matters most first.
	notes []string
	// certain are those of them that hold whatever is known of the nodes.
	certain []string
}

// statusRows are those of one Service: one, or one for each of its families if they
// differ.
func (r *clusterReader) statusRows(in reading) ([]statusRow, error) {
	rows, err := r.plannedRows(in)
	if sentence := in.abandoned(); sentence != "" {
		for i := range rows {
			rows[i].tell(sentence)
		}
	}
	return rows, err
}

// plannedRows are the rows of a Service as vicinity-controller decides about it.
func (r *clusterReader) plannedRows(in reading) ([]statusRow, error) {
	decision, err := in.decide()
	if err != nil {
		return nil, err
	}
	row := statusRow{
		namespace: in.Service.Namespace, name: in.Service.Name,
		request: decision.Request, delivery: decision.Delivery, state: "-",
	}
	row.notes = slices.Concat(pending(in.Input, decision, r), decision.Notes, decision.Request.Warnings)
	row.certain = decision.Request.Warnings
	inForce := &decision
	if awaitsProxy(in.Service, decision.Delivery) {
		inForce = decision.Hinted()
		row.tell("stock proxies serve it until every node has vicinity-proxy")
	}
	if decision.Request.NoPlan != "" {
		row.notes = append([]string{decision.Request.NoPlan}, row.notes...)
		return []statusRow{row}, nil
	}
	endpoints := translate.SliceEndpoints(in.Slices, in.Cluster)
	var rows []statusRow
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		ready, found := endpoints[family]
		if !found {
			continue
		}
		one := row
		if len(endpoints) > 1 {
			one.family = family
		}
		if err := one.fill(in.Input, inForce, familyOf{family, ready}); err != nil {
			return nil, err
		}
		if slices.Contains(r.unread, kindNodes) {
			one.forget()
		}
		rows = append(rows, one)
	}
	if len(rows) == 2 && rows[0].alike(&rows[1]) {
		rows = rows[:1]
		rows[0].family = ""
	}
	if len(rows) == 0 {
		row.notes = append(row.notes, in.withoutAddresses())
		rows = append(rows, row)
	}
	return rows, nil
}

// familyOf are the ready endpoints of an address family.
type familyOf struct {
	family corev1.IPFamily
	ready  []translate.Endpoint
}

// fill describes the plan: the one that is decided, or what is expected to happen
// where Vicinity decides nothing.
func (r *statusRow) fill(in routing.Input, decision *routing.Decision, of familyOf) error {
	at := slices.IndexFunc(decision.Families, func(d routing.FamilyDecision) bool { return d.Family == of.family })
	var region allocate.Region
	var outcome allocate.Outcome
	switch {
	case at >= 0:
		region, outcome = decision.Families[at].Region, decision.Families[at].Outcome
		r.state = outcome.State.String()
	default:
		var err error
		region = in.Cluster.Region(decision.Request.Capacity, of.ready)
		if _, outcome, err = allocate.Allocate(region, decision.Request.Intent, allocate.Previous{}); err != nil {
			return err
		}
		if decision.Request.Upstream {
			r.state = "upstream"
		}
	}
	if decision.Undelivered {
		// There are no hints, so all zones use all endpoints.
		r.state = "undelivered"
		var err error
		if _, outcome, err = allocate.Allocate(region, allocate.Intent{}, allocate.Previous{}); err != nil {
			return err
		}
	}
	r.planned, r.figures, r.endpoints = true, outcome.Figures, len(of.ready)
	r.capacity = slices.ContainsFunc(region.Zones, func(z allocate.Zone) bool { return z.Capacity > 0 })
	for _, zone := range region.Zones {
		if zone.Endpoints > 0 && zone.Name != "" {
			r.zones++
		}
	}
	r.why = explain.Outcome(outcome)
	if outcome.Figures.Unreached > 0 && len(of.ready) > 0 {
		r.notes = append([]string{explain.Unreached(outcome.Figures.Unreached)}, r.notes...)
	}
	if outcome.IsBalanced() && outcome.Rule != allocate.RuleAsked {
		r.notes = append(slices.Clone(r.notes), r.why)
	}
	for _, limit := range explain.Limits(region) {
		r.notes = append(slices.Clone(r.notes), limit.Text)
	}
	return nil
}

// tell notes what matters more than all that is noted already, and holds whatever is known
// of the nodes.
func (r *statusRow) tell(sentence string) {
	r.notes = append([]string{sentence}, r.notes...)
	r.certain = append([]string{sentence}, r.certain...)
}

// forget drops what nobody can know without the nodes.
func (r *statusRow) forget() {
	r.figures, r.why, r.notes = allocate.Figures{}, "", r.certain
	if r.delivery != routing.DeliveryNone {
		r.state = "unknown"
	}
}

// alike reports whether there is nothing to say of one family that is not so of the
// other.
func (r *statusRow) alike(other *statusRow) bool {
	return r.state == other.state && r.endpoints == other.endpoints && r.zones == other.zones &&
		r.figures == other.figures && r.capacity == other.capacity && r.why == other.why && slices.Equal(r.notes, other.notes)
}

// title is the name, with the family where there are two.
func (r *statusRow) title() string {
	if r.family == "" {
		return r.name
	}
	return r.name + " (" + string(r.family) + ")"
}
