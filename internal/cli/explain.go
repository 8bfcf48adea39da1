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
	"vicinity.dev/vicinity/internal/kit/plaintext"
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
		Args:              oneName("Service or pod, as svc/NAME or pod/NAME"),
		ValidArgsFunction: reach.complete("svc/services", "pod/pods"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, isPod, err := explainTarget(args[0])
			ofNode := cmd.Flags().Changed("node")
			switch {
			case err != nil:
				return err
			case isPod && (ofNode || f.all):
				return command.UsageErrorf("--all and --node are for Services only")
			case isPod:
				return f.runPod(cmd.Context(), s, reach, name)
			case !ofNode:
				return f.run(cmd.Context(), s, reach, name)
			case f.all:
				return command.UsageErrorf("--all and --node do not go together; --node shows everything")
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

var (
	serviceKinds = []string{"svc", "service", "services"}
	podKinds     = []string{"po", "pod", "pods"}
)

// explainTarget reads an argument such as web, svc/web or pod/web-0.
func explainTarget(arg string) (name string, isPod bool, err error) {
	kind, name, qualified := strings.Cut(arg, "/")
	if !qualified {
		return arg, false, nil
	}
	isPod = slices.Contains(podKinds, strings.ToLower(kind))
	switch {
	case !isPod && !slices.Contains(serviceKinds, strings.ToLower(kind)):
		err = command.UsageErrorf("%q is neither a Service nor a pod; give svc/NAME or pod/NAME, with -n for its namespace", arg)
	case name == "" || strings.Contains(name, "/"):
		err = command.UsageErrorf("%q has no name; give svc/NAME or pod/NAME, with -n for its namespace", arg)
	}
	return name, isPod, err
}

func (f *explainFlags) run(ctx context.Context, s command.Streams, reach connector, name string) error {
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
		return inspect.Reading{}, r.serviceNotFound(ctx, name)
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

// serviceNotFound names other namespaces that have a Service with the name, or the Services of the namespace.
func (r *clusterReader) serviceNotFound(ctx context.Context, name string) error {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	elsewhere, err := r.typed.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: selector, Limit: pageSize})
	var namespaces, names []string
	for i := range elsewhere.Items {
		if err == nil && elsewhere.Items[i].Name == name {
			namespaces = append(namespaces, elsewhere.Items[i].Namespace)
		}
	}
	if len(namespaces) > 0 {
		return fmt.Errorf("no Service %q is in namespace %q; a Service with this name is in %s", name, r.namespace, plaintext.List(namespaces))
	}
	here, err := r.typed.CoreV1().Services(r.namespace).List(ctx, metav1.ListOptions{Limit: pageSize})
	for i := range here.Items {
		names = append(names, here.Items[i].Name)
	}
	return r.notFound(ctx, fmt.Sprintf("Service %q", name), names, err)
}

// notFound names the objects of the namespace. Without them it says that the namespace does not exist, if that is so. err says that
// they may not be read.
func (r *clusterReader) notFound(ctx context.Context, what string, names []string, err error) error {
	missing := fmt.Sprintf("no %s is in namespace %q", what, r.namespace)
	if err != nil {
		return errors.New(missing)
	}
	if len(names) == 0 {
		if err := r.expectNamespace(ctx, r.namespace); err != nil {
			return err
		}
	}
	slices.Sort(names)
	return fmt.Errorf("%s; %s", missing, listed(names))
}
