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
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/capacity"
)

type statusFlags struct {
	cluster clusterFlags
	all     bool
	traffic trafficFlags
	output  outputFlag
}

func newStatusCommand(s command.Streams, reach connector) *cobra.Command {
	var f statusFlags
	cmd := &cobra.Command{
		Use:   "status",
		Short: "List Services with their traffic",
		Long: `Status lists Services with their plans, after the zone shifts in force. "vicinity explain" has
more about one.

--traffic lists instead how many connections and bytes vicinity-proxy has counted for each
Service, and how many crossed zones, most first. -o wide has a line for each pair of zones.
Counts begin with each proxy's start; with --interval they begin now, and are per second. Ctrl-C
ends them early. --cost-per-gib adds what crossing zones would cost in a month of 730 hours.

It only reads. docs/reference/permissions.md lists the permissions.`,
		Example: `  vicinity status
  vicinity status -n shop -o wide
  vicinity status --traffic
  vicinity status --traffic --interval 5m --cost-per-gib 0.02`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), s, reach)
		},
	}
	flags := cmd.Flags()
	f.cluster.add(flags, "list one `NAMESPACE`")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "list all namespaces (the default)")
	f.traffic.add(flags)
	f.output.add(flags, "table", "wide", "json", "yaml")
	return cmd
}

func (f *statusFlags) run(ctx context.Context, s command.Streams, reach connector) error {
	if err := f.traffic.check(); err != nil {
		return err
	}
	if f.traffic.isWanted {
		return f.runTraffic(ctx, s, reach)
	}
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	namespace := f.namespace()
	inputs, shifts, err := r.inputs(ctx, namespace)
	if err != nil {
		return err
	}
	if len(inputs) == 0 && namespace != metav1.NamespaceAll {
		if err := r.expectNamespace(ctx, namespace); err != nil {
			return err
		}
	}
	status := inspect.Status{ZoneShifts: shifts, Services: []inspect.ServiceStatus{}}
	for i := range inputs {
		if err := ctx.Err(); err != nil {
			return err
		}
		of, err := inspect.StatusOf(inputs[i])
		if err != nil {
			return fmt.Errorf("explaining Service %s/%s: %w", inputs[i].Service.Namespace, inputs[i].Service.Name, err)
		}
		status.Services = append(status.Services, of...)
	}
	status.NotKnown = r.notKnown
	r.printMissing(s)
	if len(status.Services) == 0 {
		fmt.Fprintf(s.Err, "no Service is in %s\n", where(namespace))
	}
	return f.output.write(s.Out, &status, func(p *page) { writeStatus(p, &status, f.output.form == "wide") })
}

// namespace returns the namespace to list, empty for all.
func (f *statusFlags) namespace() string {
	if f.all {
		return metav1.NamespaceAll
	}
	return f.cluster.namespace
}

func (r *clusterReader) printMissing(s command.Streams) {
	for _, sentence := range r.notKnown {
		fmt.Fprintln(s.Err, "not known: "+sentence)
	}
}

// where names the listed namespaces in messages.
func where(namespace string) string {
	if namespace == metav1.NamespaceAll {
		return "the cluster"
	}
	return fmt.Sprintf("namespace %q", namespace)
}

// inputs reads the input of all Services in a namespace, or in all, sorted by namespace and name, and the zone shifts in
// force.
func (r *clusterReader) inputs(ctx context.Context, namespace string) ([]inspect.Reading, []inspect.ShiftStatus, error) {
	services, err := r.services(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(services, func(a, b *corev1.Service) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	nodes, err := r.nodes(ctx)
	if err != nil {
		return nil, nil, err
	}
	eps, err := r.slices(ctx, namespace, "")
	if err != nil {
		return nil, nil, err
	}
	policies, err := r.policies(ctx, namespace)
	if err != nil {
		return nil, nil, err
	}
	var wide clusterSettings
	if len(services) > 0 {
		if wide, err = r.clusterSettings(ctx, namespace); err != nil {
			return nil, nil, err
		}
	}
	groups, err := r.groups(ctx, namespace, "")
	if err != nil {
		return nil, nil, err
	}
	settings, err := r.settings(ctx)
	if err != nil {
		return nil, nil, err
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
	inputs := make([]inspect.Reading, len(services))
	for i, service := range services {
		key := types.NamespacedName{Namespace: service.Namespace, Name: service.Name}
		in := routing.Input{
			Service: service, Slices: slicesOf[key], Groups: groupsOf[key], Cluster: cluster,
			Policies: policiesOf[service.Namespace], Planner: planner,
		}
		wide.selectFor(&in, r.now)
		inputs[i] = r.reading(&settings, in)
	}
	return inputs, inspect.AcceptedShifts(wide.Shifts, r.now), nil
}
