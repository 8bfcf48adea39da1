package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/capacity"
)

type explainFlags struct {
	cluster clusterFlags
	node    string
	all     bool
	output  outputFlag
}

func newExplainCommand(s command.Streams, reach connector, here machine) *cobra.Command {
	var f explainFlags
	cmd := &cobra.Command{
		Use:   "explain SERVICE | pod/NAME",
		Short: "Explain where a Service's traffic goes, or whether a pod may be evicted",
		Long: `Explain says what a Service asks for, what is in force and why, and what to do next. Its figures
are those of the plan; "vicinity status --traffic" has measured ones.

--all adds tables of endpoints, other algorithms, stock proxies, and limits of the plan. JSON and
YAML always have them.

--node explains the rules of one node: addresses, where connections go, and the share of each
endpoint. On that node as root it also compares the rules with the kernel's, and fails if they
differ.

For pod/NAME it says whether budgets allow its eviction now, and what to do if not.

SERVICE is svc/NAME, service/NAME or NAME. Explain only reads, also without Vicinity.
docs/reference/permissions.md lists the permissions.`,
		Example: `  vicinity explain svc/web -n shop
  vicinity explain svc/web -n shop --all
  vicinity explain svc/web -n shop --node worker-1
  vicinity explain pod/web-7f9c6d5b8-x2x7k -n shop`,
		Args:              explainArgs,
		ValidArgsFunction: reach.complete("svc/services", "pod/pods"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if asksForPod(args) {
				if cmd.Flags().Changed("node") {
					return command.UsageErrorf("--node is for Services only")
				}
				return f.runPod(cmd.Context(), s, reach, args)
			}
			if !cmd.Flags().Changed("node") {
				return f.run(cmd.Context(), s, reach, args)
			}
			if f.all {
				return command.UsageErrorf("--all and --node do not go together; --node shows everything")
			}
			name, err := serviceName(args)
			if err != nil {
				return err
			}
			return f.runNode(cmd.Context(), s, reach, here, name)
		},
	}
	flags := cmd.Flags()
	f.cluster.add(flags, "`NAMESPACE` of the Service or pod (default the context's)")
	flags.StringVar(&f.node, "node", "", "`NODE` whose rules to explain")
	flags.BoolVar(&f.all, "all", false, "show all tables")
	f.output.add(flags, "text", "json", "yaml")
	cmd.AddCommand(newExplainDNSCommand(s, reach))
	return cmd
}

var serviceKinds = []string{"svc", "service", "services"}

func isServiceKind(word string) bool { return slices.Contains(serviceKinds, strings.ToLower(word)) }

func explainArgs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no Service is named; give svc/NAME")
	}
	words := 1
	what := "Service"
	if isServiceKind(args[0]) || isPodKind(args[0]) {
		words = 2
	}
	if isPodKind(args[0]) {
		what = "pod"
	}
	if len(args) > words {
		return fmt.Errorf("unexpected argument %q: one %s is explained at a time", args[words], what)
	}
	return nil
}

func serviceName(args []string) (string, error) {
	kind, name, qualified := strings.Cut(strings.Join(args, "/"), "/")
	switch {
	case !qualified:
		return kind, nil
	case !isServiceKind(kind):
		return "", command.UsageErrorf("%q is neither a Service nor a pod; give svc/NAME or pod/NAME, with -n for its namespace", strings.Join(args, " "))
	case name == "" || strings.Contains(name, "/"):
		return "", command.UsageErrorf("%q names no Service; give svc/NAME", strings.Join(args, " "))
	}
	return name, nil
}

func (f *explainFlags) run(ctx context.Context, s command.Streams, reach connector, args []string) error {
	name, err := serviceName(args)
	if err != nil {
		return err
	}
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	in, err := r.inputOf(ctx, name)
	if err != nil {
		return err
	}
	e, err := inspect.Explain(in)
	if err != nil {
		return fmt.Errorf("explaining Service %s/%s: %w", r.namespace, name, err)
	}
	if err := r.complete(ctx, e, in.Service); err != nil {
		return err
	}
	e.NotKnown = r.notKnown
	if f.all && f.output.form == "text" {
		return f.output.write(s.Out, e, func(p *page) { writeExplanation(p, e) })
	}
	// The text of --all does not show what to do next.
	if err := e.Advise(); err != nil {
		return fmt.Errorf("looking for improvements of Service %s/%s: %w", r.namespace, name, err)
	}
	return f.output.write(s.Out, e, func(p *page) { writeAnswer(p, e) })
}

// complete adds to an explanation what is read only where it matters.
func (r *clusterReader) complete(ctx context.Context, e *inspect.Explanation, service *corev1.Service) error {
	if e.Divided() {
		autoscalers, err := r.autoscalers(ctx, service)
		if err != nil {
			return err
		}
		e.Autoscaled(autoscalers)
	}
	if e.Delivery == allocate.DeliveryNone || e.Undelivered || e.Headless {
		return nil // proxies have no plan
	}
	if kinds := e.HintKinds(); e.Delivery == allocate.DeliveryHints && e.NoProxy == "" && (kinds.Zones || kinds.Nodes) {
		consumers, err := r.consumers(ctx)
		if err != nil {
			return err
		}
		for i := range consumers {
			sentence, _ := inspect.Follows(&consumers[i], service, kinds)
			e.ServedBy = append(e.ServedBy, sentence)
		}
	}
	gateways, err := r.gateways(ctx, service.Namespace)
	for _, bypass := range gateways.Bypasses(service) {
		e.Warnings = append(e.Warnings, bypass.Sentence)
	}
	const unknown = "whether all gateways follow the plan is unknown"
	if err = r.optional("Ingresses, IngressClasses, HTTPRoutes or GRPCRoutes", unknown, err); err == nil || ctx.Err() != nil {
		return err
	}
	r.leaveOut(command.OneLine(err) + ", so " + unknown)
	return nil
}

// inputOf reads all objects that the decision about a Service depends on.
func (r *clusterReader) inputOf(ctx context.Context, name string) (inspect.Reading, error) {
	service, err := r.typed.CoreV1().Services(r.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return inspect.Reading{}, r.notFound(ctx, name)
	}
	if err != nil {
		return inspect.Reading{}, r.explained(fmt.Sprintf("reading Service %s/%s", r.namespace, name), err)
	}
	nodes, err := r.nodes(ctx)
	if err != nil {
		return inspect.Reading{}, err
	}
	return r.inputFor(ctx, service, nodes, r.writtenGroups)
}

// writtenGroups finds the groups of a Service as the controller does, by their label.
func (r *clusterReader) writtenGroups(ctx context.Context, service *corev1.Service) ([]*v1alpha1.EndpointGroup, error) {
	return r.groups(ctx, service.Namespace, v1alpha1.LabelService+"="+service.Name)
}

// groupReader reads the groups of a Service.
type groupReader func(context.Context, *corev1.Service) ([]*v1alpha1.EndpointGroup, error)

func (r *clusterReader) inputFor(ctx context.Context, service *corev1.Service, nodes []*corev1.Node, groups groupReader) (inspect.Reading, error) {
	in := routing.Input{Service: service, Cluster: capacity.NewCluster(nodes)}
	var err error
	if in.Slices, err = r.slices(ctx, r.namespace, discoveryv1.LabelServiceName+"="+service.Name); err != nil {
		return inspect.Reading{}, err
	}
	if in.Policies, err = r.policies(ctx, r.namespace); err != nil {
		return inspect.Reading{}, err
	}
	wide, err := r.clusterSettings(ctx, r.namespace)
	if err != nil {
		return inspect.Reading{}, err
	}
	wide.selectFor(&in, r.now)
	if in.Groups, err = groups(ctx, service); err != nil {
		return inspect.Reading{}, err
	}
	settings, err := r.settings(ctx)
	if err != nil {
		return inspect.Reading{}, err
	}
	return r.reading(&settings, in), nil
}

// notFound names the Services of the namespace, or other namespaces that have a Service with the name.
func (r *clusterReader) notFound(ctx context.Context, name string) error {
	missing := fmt.Sprintf("no Service %q is in namespace %q", name, r.namespace)
	here, err := r.typed.CoreV1().Services(r.namespace).List(ctx, metav1.ListOptions{Limit: pageSize})
	if err != nil {
		return errors.New(missing) // the names are optional
	}
	var names []string
	for i := range here.Items {
		names = append(names, here.Items[i].Name)
	}
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	elsewhere, err := r.typed.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: selector, Limit: pageSize})
	var namespaces []string
	for i := range elsewhere.Items {
		if err == nil && elsewhere.Items[i].Name == name {
			namespaces = append(namespaces, elsewhere.Items[i].Namespace)
		}
	}
	slices.Sort(namespaces)
	switch {
	case len(namespaces) > 0:
		return fmt.Errorf("%s; a Service with this name is in %s", missing, strings.Join(namespaces[:min(3, len(namespaces))], ", "))
	case len(names) > 0:
		slices.Sort(names)
		return fmt.Errorf("%s; %s", missing, listed(names, ""))
	}
	if err := r.expectNamespace(ctx, r.namespace); err != nil {
		return err
	}
	return fmt.Errorf("%s, which has none", missing)
}
