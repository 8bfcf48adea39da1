package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/cli/manifest"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	routingcapacity "vicinity.dev/vicinity/internal/routing/capacity"
	"vicinity.dev/vicinity/internal/routing/explain"
	"vicinity.dev/vicinity/internal/routing/intent"
)

type planFlags struct {
	files      []string
	namespace  string
	algorithms []string
	delivery   string
	thresholds thresholdFlags
	capacity   string
	details    bool
	output     outputFlag
}

func newPlanCommand(s command.Streams) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan -f FILE [SERVICE ...]",
		Short: "Show what each algorithm would do for the Services in manifests",
		Long: `Plan reads Kubernetes manifests and shows what each Service asks for, what each algorithm would
give it, which rule decides, and which pods to move or add. It needs no cluster.

It reads Nodes, Services, EndpointSlices, Pods, RoutingPolicies, ClusterRoutingPolicies and
Namespaces: YAML or JSON, as kubectl prints them. Without EndpointSlices, a Service's endpoints
are the ready pods that it selects. Flags override the thresholds of a policy.

More than three Services are only a table: to see one in full, name it as NAME or
NAMESPACE/NAME. A Service that asks for nothing is shown as if it preferred its zone.`,
		Example: `  kubectl get nodes,endpointslices,svc -A -o yaml | vicinity plan -f -
  kubectl get nodes,ns,endpointslices,svc,rp,crp -A -o yaml | vicinity plan -f -
  vicinity plan -f cluster.yaml shop/web
  vicinity plan -f cluster.yaml --algorithm local,optimal --starting-threshold 0 --padding 0`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd.Context(), s, args)
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.files, "filename", "f", nil, "`FILE` or directory of manifests, or - for standard input; can be repeated")
	flags.StringVarP(&f.namespace, "namespace", "n", "", "show only the Services of one `NAMESPACE`")
	flags.StringSliceVar(&f.algorithms, "algorithm", []string{"all"}, "`LIST` of algorithms to compare, or all: "+joinNames(allocate.Algorithms()))
	flags.StringVar(&f.delivery, "delivery", "", "hints or groups (default hints, or groups for Services that ask for vicinity-proxy)")
	flags.StringVar(&f.capacity, "capacity", "", "estimate the traffic of zones by nodes or cpu (default cpu for Services that ask for Auto, else nodes)")
	f.thresholds.add(flags)
	flags.BoolVar(&f.details, "details", false, "show all Services in full")
	f.output.add(flags, "table", "json", "yaml")
	return cmd
}

func (f *planFlags) run(ctx context.Context, s command.Streams, names []string) error {
	question, note, err := f.question()
	if err != nil {
		return err
	}
	groups := question
	if f.delivery == "" {
		if _, err := f.deliver(&groups, allocate.DeliveryGroups); err != nil {
			return err
		}
	}
	manifests := manifest.NewSet()
	if err := f.read(ctx, s.In, manifests); err != nil {
		return err
	}
	services, err := chooseServices(manifests, f.namespace, names)
	if err != nil {
		return err
	}
	cluster := routingcapacity.NewCluster(manifests.Nodes)
	if note != "" {
		fmt.Fprintln(s.Err, note)
	}
	for _, note := range manifests.Notes() {
		fmt.Fprintln(s.Err, note)
	}
	for _, warning := range cluster.Warnings() {
		fmt.Fprintln(s.Err, "warning: "+warning)
	}
	p := inspect.Planner{Manifests: manifests, Policies: manifests.Policies, Cluster: cluster, Question: question, Groups: groups, Capacity: intent.CapacityType(f.capacity)}
	sections := []inspect.Section{}
	for _, service := range services {
		if err := ctx.Err(); err != nil {
			return err
		}
		made, err := p.Sections(service)
		if err != nil {
			return err
		}
		sections = append(sections, made...)
	}
	full := f.details || len(names) > 0 || len(services) <= fewServices || f.output.form != "table"
	if full {
		for i := range sections {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := sections[i].Advise(); err != nil {
				return err
			}
		}
	}
	if err := f.output.write(s.Out, sections, func(p *page) { writePlan(p, sections, full) }); err != nil {
		return err
	}
	if !full {
		fmt.Fprintln(s.Err, "To see a Service in full, name it; to see all, give --details.")
	}
	return nil
}

// fewServices is the number of Services that are shown in full by default.
const fewServices = 3

// question is common to all Services. note is a message for standard error.
func (f *planFlags) question() (q explain.Question, note string, err error) {
	if note, err = f.deliver(&q, allocate.Delivery(cmp.Or(f.delivery, string(allocate.DeliveryHints)))); err != nil {
		return q, "", err
	}
	capacities := []intent.CapacityType{intent.CapacityNodes, intent.CapacityCPU}
	if f.capacity != "" && !slices.Contains(capacities, intent.CapacityType(f.capacity)) {
		return q, "", command.UsageErrorf("--capacity %q is unknown; allowed are %s", f.capacity, joinNames(capacities))
	}
	if q.Thresholds, err = f.thresholds.read(); err != nil {
		return q, "", err
	}
	return q, note, nil
}

// deliver keeps the algorithms of the flag that the delivery can carry.
func (f *planFlags) deliver(q *explain.Question, delivery allocate.Delivery) (note string, err error) {
	flags := algorithmFlags{names: f.algorithms, delivery: string(delivery)}
	q.Algorithms, q.Delivery, note, err = flags.read(allocate.Algorithms())
	return note, err
}

// read reads all files and checks that they suffice for a plan.
func (f *planFlags) read(ctx context.Context, stdin io.Reader, manifests *manifest.Set) error {
	if err := manifest.ReadFiles(ctx, stdin, f.files, manifests.Read); err != nil {
		return err
	}
	switch {
	case len(manifests.Nodes) == 0:
		return errors.New(`no Node is in the manifests, so the zones are unknown; "kubectl get nodes -o yaml" prints them`)
	case len(manifests.Services) == 0:
		return errors.New(`no Service is in the manifests; "kubectl get services -A -o yaml" prints them`)
	case len(manifests.Slices) == 0 && len(manifests.Pods) == 0:
		return errors.New(`neither EndpointSlices nor Pods are in the manifests, so the endpoints are unknown; "kubectl get endpointslices -A -o yaml" prints them`)
	}
	return nil
}

// chooseServices returns the named Services of the namespace, sorted by namespace and name.
func chooseServices(manifests *manifest.Set, namespace string, names []string) ([]*corev1.Service, error) {
	all := slices.Clone(manifests.Services)
	slices.SortFunc(all, func(a, b *corev1.Service) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	if namespace != "" {
		all = slices.DeleteFunc(all, func(service *corev1.Service) bool { return service.Namespace != namespace })
		if len(all) == 0 {
			return nil, fmt.Errorf("no Service of namespace %q is in the manifests", namespace)
		}
	}
	if len(names) == 0 {
		return all, nil
	}
	wanted := map[*corev1.Service]bool{}
	for _, name := range names {
		found := false
		for _, service := range all {
			if name == service.Name || name == service.Namespace+"/"+service.Name {
				wanted[service], found = true, true
			}
		}
		if !found {
			var there []string
			for _, service := range all {
				there = append(there, service.Namespace+"/"+service.Name)
			}
			return nil, fmt.Errorf("service %q is not in the manifests; they have %s", name, plaintext.FirstOf(there, mostListed))
		}
	}
	return slices.DeleteFunc(all, func(service *corev1.Service) bool { return !wanted[service] }), nil
}
