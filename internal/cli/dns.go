package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/names/corefile"
	"vicinity.dev/vicinity/internal/names/location"
	"vicinity.dev/vicinity/internal/routing/routingflags"
)

// dnsFlags name the cluster's DNS server, and what to do with it.
type dnsFlags struct {
	cluster clusterFlags
	name    string
	image   string
	timeout time.Duration
	dryRun  bool
}

func newDNSCommand(s command.Streams, reach connector, ask dnsAsker) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dns",
		Short: "Put vicinity-dns in place of the cluster's DNS server, and give it back",
	}
	var f dnsFlags
	add := func(verb *cobra.Command, run func(*dnsServer, context.Context) error) {
		verb.Args = command.NoArgs
		verb.RunE = func(cmd *cobra.Command, _ []string) error {
			d, err := f.server(cmd.Context(), s, reach)
			if err != nil {
				return err
			}
			d.ask = ask
			return run(d, cmd.Context())
		}
		flags := verb.Flags()
		flags.BoolVar(&f.dryRun, "dry-run", false, "check, and print what would change")
		flags.StringVar(&f.name, "deployment", "coredns", "`NAME` of CoreDNS's Deployment")
		flags.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long to wait for the pods of each change")
		f.cluster.add(flags, "`NAMESPACE` of the Deployment (default kube-system)")
		command.Share(flags, "DNS server flags", "dry-run", "deployment", "timeout", "namespace")
		cmd.AddCommand(verb)
	}
	enable := &cobra.Command{
		Use:   "enable",
		Short: "Put vicinity-dns in place of the cluster's CoreDNS",
		Long: `Enable sets the image of vicinity-dns in the Deployment of CoreDNS, grants its rights, adds the
line "vicinity" to the Corefile, and asks each pod test queries. After a failure or an
interruption it goes back by itself. Run it again after a kill, or for another image.`,
		Example: `  vicinity dns enable --dry-run
  vicinity dns enable --image registry.example.com/vicinity-dns:0.2.0`,
	}
	enable.Flags().StringVar(&f.image, "image", "", "`IMAGE` of vicinity-dns (default: with the registry and version of vicinity-controller)")
	add(enable, (*dnsServer).enable)
	add(&cobra.Command{
		Use:   "disable",
		Short: "Give the cluster's DNS server back to CoreDNS",
		Long: `Disable restores the image and the Corefile before enable, byte for byte, and removes the
rights. Later edits of the Corefile stay. Run it again after a kill.`,
	}, (*dnsServer).disable)
	return cmd
}

func (d *dnsServer) enable(ctx context.Context) error {
	if err := d.check(ctx); err != nil {
		return err
	}
	questions, err := d.questions(ctx)
	if err != nil {
		return err
	}
	if err := d.askPods(ctx, questions); err != nil {
		return cmp.Or(ctx.Err(), fmt.Errorf("nothing was changed, because the DNS server fails before: %w", err))
	}
	// Clusters without a way out have no answer for other names.
	outside := []dnsQuestion{{".", dns.TypeNS, ""}}
	if err := d.askPods(ctx, outside); err == nil && outside[0].want == dns.RcodeToString[dns.RcodeSuccess] {
		questions = append(questions, outside...)
	} else if ctx.Err() == nil {
		fmt.Fprintln(d.messages, "not tested: names outside the cluster, which the DNS server does not answer now")
	}
	ranBefore, record, image := d.before != nil && corefile.Has(d.corefile()), d.deployment.Annotations[v1alpha1.AnnotationDNSBefore], d.container.Image
	err = d.run(ctx, append(d.takeOver(), dnsStep{"ask each pod test queries", func(ctx context.Context) error { return d.askPods(ctx, questions) }}))
	if err == nil || d.dryRun {
		return err
	}
	fmt.Fprintf(d.messages, "going back: %s\n", command.OneLine(err))
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*d.timeout)
	defer cancel()
	failed := d.read(back)
	switch {
	case failed != nil:
	case ranBefore:
		failed = d.change(back, func() (any, any, string) { return record, "enabled", image })
	default:
		failed = d.disable(back)
	}
	if failed != nil {
		fmt.Fprintf(d.messages, "going back failed: %s; run \"vicinity dns disable\"\n", command.OneLine(failed))
	}
	return cmp.Or(ctx.Err(), err)
}

func (d *dnsServer) disable(ctx context.Context) error {
	_, isRecorded := d.config.Annotations[v1alpha1.AnnotationDNSBefore]
	switch {
	case d.before != nil:
		return d.run(ctx, d.giveBack())
	case isRecorded: // the Deployment was replaced, and its record with it
		return d.run(ctx, []dnsStep{d.restoreCorefile(), d.deleteRights()})
	case corefile.Has(d.corefile()):
		return d.byHand()
	}
	if _, err := d.typed.RbacV1().ClusterRoles().Get(ctx, d.rights(), metav1.GetOptions{}); err == nil { // an installer has replaced the records
		return d.run(ctx, []dnsStep{d.deleteRights()})
	}
	d.page.printf("%s has nothing to give back\n", d.title())
	return d.page.err
}

// byHand is the error for a Corefile with the plugin, which enable did not add.
func (d *dnsServer) byHand() error {
	return fmt.Errorf("the Corefile in %s has the plugin vicinity, which \"vicinity dns enable\" did not add: remove it first, by docs/dns.md#by-hand", d.configTitle())
}

// check returns all reasons against a change, and completes the image.
func (d *dnsServer) check(ctx context.Context) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if owner := cmp.Or(addOnOwner(d.deployment), addOnOwner(d.config)); owner != "" {
		fault("%s belongs to %s, which undoes changes: run vicinity-dns beside it, by docs/dns.md#as-a-dns-server-of-its-own", d.title(), owner)
	}
	if program := d.container.Command; len(program) > 0 {
		fault("container %s of %s has the command %q, which vicinity-dns lacks: remove it, so that the image's own runs", d.container.Name, d.title(), program)
	}
	if !keepsFileCapability(d.container.SecurityContext) {
		fault("container %s of %s drops the capability NET_BIND_SERVICE, and vicinity-dns does not start without it: add it to securityContext.capabilities.add", d.container.Name, d.title())
	}
	if _, err := corefile.Domain(d.corefile()); err != nil {
		fault("the Corefile in %s: %w", d.configTitle(), err)
	}
	missing, imports := corefile.Missing(d.corefile())
	if len(missing) > 0 {
		fault("the Corefile in %s has plugins that vicinity-dns lacks: %s; remove their lines, or keep CoreDNS", d.configTitle(), strings.Join(missing, ", "))
	}
	if len(imports) > 0 {
		fmt.Fprintf(d.messages, "not checked: plugins in files that the Corefile imports (%s)\n", strings.Join(imports, ", "))
	}
	if d.before == nil && corefile.Has(d.corefile()) {
		faults = append(faults, d.byHand())
	}
	return errors.Join(append(faults, d.findImage(ctx), d.checkClients(ctx))...)
}

// keepsFileCapability reports whether a container keeps the capability without which the image's file does not start.
func keepsFileCapability(c *corev1.SecurityContext) bool {
	if c == nil || c.Capabilities == nil {
		return true
	}
	has := func(list []corev1.Capability, wanted string) bool {
		return slices.ContainsFunc(list, func(c corev1.Capability) bool {
			return strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_") == wanted
		})
	}
	const name, all = "NET_BIND_SERVICE", "ALL"
	add, drop := c.Capabilities.Add, c.Capabilities.Drop
	return !has(drop, name) && (has(add, name) || !has(drop, all))
}

// addOnOwner returns the add-on manager that reconciles an object, empty without one. EKS applies its add-ons as the manager
// "eks". The addon-manager of AKS and GKE leaves objects with the mode EnsureExists alone.
func addOnOwner(object metav1.Object) string {
	if object.GetLabels()["addonmanager.kubernetes.io/mode"] == "Reconcile" {
		return "the add-on manager of its cloud (label addonmanager.kubernetes.io/mode=Reconcile)"
	}
	if slices.ContainsFunc(object.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == "eks" && m.Operation == metav1.ManagedFieldsOperationApply
	}) {
		return "an add-on of EKS (field manager eks)"
	}
	return ""
}

// findImage completes the image by the last enable, or by the controller's registry and version. Every user who may write a
// Deployment can set the controller's labels, so only the namespace that the webhooks call counts.
func (d *dnsServer) findImage(ctx context.Context) error {
	if d.image == "" && d.before != nil {
		d.image = d.before.With
	}
	if d.image != "" {
		return nil
	}
	webhooks, failed := d.webhookConfigurations(ctx)
	controllers, err := listAll[appsv1.Deployment](ctx, d.typed.AppsV1().Deployments(metav1.NamespaceAll), metav1.ListOptions{LabelSelector: routingflags.ControllerSelector})
	for _, controller := range controllers {
		for _, container := range controller.Spec.Template.Spec.Containers {
			registry, _, found := strings.Cut(container.Image, "vicinity-controller")
			if version := controller.Labels["app.kubernetes.io/version"]; found && version != "" && controller.Namespace == inspect.WebhookNamespace(webhooks) {
				d.image = registry + "vicinity-dns:" + version
				return nil
			}
		}
	}
	return cmp.Or(d.explained("finding the image of vicinity-controller", cmp.Or(failed, err)), errors.New("no webhook of Vicinity calls a namespace with an image named vicinity-controller, which would tell that of vicinity-dns: give --image"))
}

// checkClients fails if pods are located neither by ranges of nodes nor by PodLocators.
func (d *dnsServer) checkClients(ctx context.Context) error {
	nodes, err := listAll[corev1.Node](ctx, d.typed.CoreV1().Nodes(), metav1.ListOptions{})
	pods, locators, failed := d.allClients(ctx)
	if err := cmp.Or(err, failed); err != nil {
		return d.explained("reading nodes, pods and PodLocators", err)
	}
	lost := location.Unlocated(location.IndexOf(nodes, locators), pods, d.now.Add(-time.Minute))
	if len(lost) == 0 {
		return nil
	}
	problem := fmt.Sprintf("vicinity-dns would not find %s on their nodes (%s): for them, headless Services with hard keys would resolve to nothing",
		plaintext.Plural(len(lost), "pod"), plaintext.FirstOf(lost, 3))
	if len(locators) > 0 {
		fmt.Fprintf(d.messages, "%s; see docs/runbooks/location-unknown.md\n", problem)
		return nil
	}
	return errors.New(problem + "; switch PodLocators on first, by " + switchOn + "locators.enabled=true")
}
