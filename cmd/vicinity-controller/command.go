package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	disruptioncontroller "vicinity.dev/vicinity/internal/disruption/controller"
	kitcommand "vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/daemon"
	"vicinity.dev/vicinity/internal/kit/version"
	namescontroller "vicinity.dev/vicinity/internal/names/controller"
	"vicinity.dev/vicinity/internal/routing"
	routingcontroller "vicinity.dev/vicinity/internal/routing/controller"
	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/routing/routingflags"
)

// config has the values of flags and the environment.
type config struct {
	kubeconfig     string
	qps            float32
	burst          int
	namespace      string
	serviceAccount string
	node           string
	leaderElect    bool
	nodeAddresses  bool
	health         string
	metrics        string
	pprof          string
	log            daemon.Log
	clock          *kitcommand.Clock // set with the API server
	routing        routingcontroller.Options
	locators       namescontroller.Mode
	budgets        bool
	budgetOptions  disruptioncontroller.Options
	responder      bool
	scaleDown      bool
	rollouts       bool
	releasePods    bool
	webhooks       webhookConfig
}

// webhookConfig says which webhooks are served, and how.
type webhookConfig struct {
	endpointSlices, services, policies, budgets, evictions, pods, scales, ordinals bool

	port           int
	name, service  string
	secret, folder string
	clients        string // file with the authorities of clients
}

func (w *webhookConfig) any() bool { return w.mutates() || w.validates() }

func (w *webhookConfig) mutates() bool {
	return w.endpointSlices || w.evictions || w.pods || w.scales || w.ordinals
}

func (w *webhookConfig) validates() bool { return w.services || w.policies || w.budgets }

func newCommand() *cobra.Command {
	c := &config{}
	command := &cobra.Command{
		Use:   "vicinity-controller",
		Short: "Route the traffic of Services by topology",
		Long: `Route the traffic of Services by topology: decide which endpoints the clients of each zone use,
and write that to EndpointSlices and EndpointGroups for proxies and DNS servers.

Of several replicas one leads and writes; all serve the webhooks.`,
		Version:           version.Read().Version,
		Args:              cobra.NoArgs,
		DisableAutoGenTag: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := c.check(); err != nil {
				return err
			}
			return c.run(command.Context())
		},
	}
	c.addFlags(command.Flags())
	command.Flags().Bool("version", false, "print the version and exit")
	return command
}

func (c *config) addFlags(flags *pflag.FlagSet) {
	flags.SortFlags = false
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG, or the pod's service account)")
	flags.Float32Var(&c.qps, "kube-api-qps", 200, "requests per second to the API server")
	flags.IntVar(&c.burst, "kube-api-burst", 400, "burst of requests to the API server")
	c.namespace = os.Getenv("POD_NAMESPACE")
	routingflags.AddNamespace(flags, &c.namespace)
	flags.StringVar(&c.serviceAccount, "service-account", os.Getenv("POD_SERVICE_ACCOUNT"), "service account of the controller, whose writes the webhooks allow (default $POD_SERVICE_ACCOUNT)")
	flags.StringVar(&c.node, "node-name", os.Getenv("NODE_NAME"), "node of this replica, which stands by when a ZoneShift takes the node out of service (default $NODE_NAME)")
	flags.BoolVar(&c.leaderElect, "leader-elect", true, "let only one replica write")
	flags.BoolVar(&c.nodeAddresses, "publish-node-addresses", false, "keep the addresses of all nodes in the ConfigMap vicinity-node-addresses, for vicinity-proxy")
	flags.StringVar(&c.health, "health-probe-bind-address", ":8081", "address of /healthz and /readyz; 0 for none")
	flags.StringVar(&c.metrics, "metrics-bind-address", ":8080", "address of /metrics; 0 for none")
	flags.StringVar(&c.pprof, "pprof-bind-address", "", "address of /debug/pprof/ (default none)")
	c.log.AddFlags(flags)
	c.addRoutingFlags(flags)
	flags.StringVar((*string)(&c.locators), "locators", string(namescontroller.Unset), "which pods get a PodLocator: all, auto (addresses outside of their node's pod CIDRs), or off (PodLocators are removed); without it, PodLocators stay as they are")
	flags.BoolVar(&c.budgets, "budgets", false, "keep TopologyDisruptionBudgets, and label namespaces whose evictions are checked")
	flags.BoolVar(&c.budgetOptions.ProjectPDBs, "project-pdbs", false, "keep a PodDisruptionBudget per zone for budgets that it can express; without it, they are removed")
	flags.BoolVar(&c.responder, "eviction-responder", false, "answer EvictionRequests for pods with the responder vicinity.dev/budget")
	flags.IntVar(&c.budgetOptions.Top, "top-budgets", disruptioncontroller.DefaultTop, "number of budgets with metrics of their own, the ones that allow the fewest evictions")
	flags.BoolVar(&c.scaleDown, "scale-down", false, "keep the spread of workloads with the annotation vicinity.dev/keep-spread, or in a namespace with it, by pod deletion costs")
	flags.BoolVar(&c.rollouts, "rollouts", false, "follow DomainRollouts: replace pods by failure domain, as budgets allow")
	flags.BoolVar(&c.releasePods, "release-pods", false, "remove the scheduling gate of rollouts from waiting pods, after --rollouts was switched off")
	flags.BoolVar(&c.webhooks.scales, "pace-scale-downs", false, "serve the webhooks that limit scale-downs in namespaces with the label vicinity.dev/pace-scale-down, and continue limited ones")
	c.addWebhookFlags(flags)
}

func (c *config) addRoutingFlags(flags *pflag.FlagSet) {
	o := &c.routing
	o.Settings, o.Exclusion.Namespaces = routing.DefaultSettings(), intent.DefaultExcluded()
	routingflags.Add(flags, &o.Settings, &o.Exclusion)
	flags.StringVar(&o.MarkServices, "mark-services", routingcontroller.MarkAuto, "which Services with hints get the annotation service.kubernetes.io/topology-mode: vicinity.dev/Routed for Cilium: auto (where the ConfigMap cilium-config in kube-system says that it follows hints), always, or never")
	flags.DurationVar(&o.HandBackGrace, "hand-back-grace", routingcontroller.DefaultHandBackGrace, "how long kube-proxy has to take a Service back before its groups are deleted")
	o.ProxyNodes = routingcontroller.DefaultProxyNodes()
	flags.Var(&o.ProxyNodes, "proxy-nodes", "label selector of the nodes that must program a Service before it is handed over; can be repeated, and one must match")
	flags.DurationVar(&o.ReplanAfter, "replan-after", routingcontroller.DefaultReplanAfter, "how long a Service must be unchanged before it gets a better plan; 0 for never")
	flags.IntVar(&o.ReplanRate, "replan-rate", routingcontroller.DefaultReplanRate, "endpoints that may move per minute for better plans")
	flags.IntVar(&o.Workers, "workers", routingcontroller.DefaultWorkers, "Services to sync concurrently")
	flags.IntVar(&o.TopServices, "top-services", routingcontroller.DefaultTopServices, "Services with metrics of their own: the largest ones")
}

func (c *config) addWebhookFlags(flags *pflag.FlagSet) {
	w := &c.webhooks
	flags.BoolVar(&w.endpointSlices, "webhook-endpointslices", false, "serve the webhook that keeps hints when others rewrite a slice")
	flags.BoolVar(&w.services, "webhook-services", false, "serve the webhook that checks Services")
	flags.BoolVar(&w.policies, "webhook-policies", false, "serve the webhooks that check RoutingPolicies and ClusterRoutingPolicies")
	flags.BoolVar(&w.budgets, "webhook-budgets", false, "serve the webhook that checks TopologyDisruptionBudgets")
	flags.BoolVar(&w.evictions, "webhook-evictions", false, "serve the webhooks that limit evictions by TopologyDisruptionBudgets")
	flags.BoolVar(&w.pods, "webhook-pods", false, "serve the webhook that adds the responder vicinity.dev/budget to new pods")
	flags.BoolVar(&w.ordinals, "webhook-ordinals", false, "serve the webhook that spreads StatefulSet ordinals over failure domains")
	flags.IntVar(&w.port, "webhook-port", 9443, "port of the webhooks")
	flags.StringVar(&w.clients, "webhook-client-ca", "", "PEM `file` with the authorities of client certificates that the webhooks demand (default none)")
	flags.StringVar(&w.name, "webhook-name", "vicinity", "name of the webhook configurations")
	flags.StringVar(&w.service, "webhook-service", "vicinity-webhook", "Service of the webhooks")
	flags.StringVar(&w.secret, "certificate-secret", "vicinity-webhook-certificate", "Secret with the certificate of the webhooks")
	flags.StringVar(&w.folder, "certificate-dir", "", "writable folder for the certificate rotation (default the one for temporary files)")
}

// check returns an error about the first invalid flag.
func (c *config) check() error {
	o := &c.routing
	switch s := &o.Settings; {
	case s.GroupSize < 1 || s.GroupSize > groups.MaxSize:
		return fmt.Errorf("--group-size: %d is not allowed; it must be from 1 to %d", s.GroupSize, groups.MaxSize)
	case s.ShrinkGrace < 0 || s.ShrinkGrace > time.Hour:
		return fmt.Errorf("--shrink-grace: %s is not allowed; it must be from 0 to 1h", s.ShrinkGrace)
	case !slices.Contains([]string{routingcontroller.MarkAuto, routingcontroller.MarkAlways, routingcontroller.MarkNever}, o.MarkServices):
		return fmt.Errorf("--mark-services: %q is unknown; allowed are auto, always, never", o.MarkServices)
	case o.HandBackGrace < 0 || o.HandBackGrace > time.Hour:
		return fmt.Errorf("--hand-back-grace: %s is not allowed; it must be from 0 to 1h", o.HandBackGrace)
	case o.ReplanAfter < 0 || o.ReplanAfter > 24*time.Hour:
		return fmt.Errorf("--replan-after: %s is not allowed; it must be from 0 to 24h", o.ReplanAfter)
	case o.ReplanRate < 1 || o.ReplanRate > 1_000_000:
		return fmt.Errorf("--replan-rate: %d is not allowed; it must be from 1 to 1000000", o.ReplanRate)
	case o.Workers < 1 || o.Workers > 1000:
		return fmt.Errorf("--workers: %d is not allowed; it must be from 1 to 1000", o.Workers)
	case o.TopServices < 0 || o.TopServices > 1000:
		return fmt.Errorf("--top-services: %d is not allowed; it must be from 0 to 1000", o.TopServices)
	case !(c.qps > 0):
		return fmt.Errorf("--kube-api-qps: %g is not allowed; it must be above 0", c.qps)
	case c.burst < 1:
		return fmt.Errorf("--kube-api-burst: %d is not allowed; it must be 1 or more", c.burst)
	case c.namespace == "" && (c.leaderElect || c.webhooks.any()):
		return fmt.Errorf("--namespace: it is empty, and the lease and the certificate are kept there")
	case c.namespace == "" && c.nodeAddresses:
		return fmt.Errorf("--namespace: it is empty, and the addresses of nodes are published there")
	case c.namespace == "" && !s.WithoutGroups:
		return fmt.Errorf("--namespace: it is empty, and only leases of proxies there count; without it, --groups must be false")
	case s.WithoutHints && c.webhooks.endpointSlices:
		return fmt.Errorf("--webhook-endpointslices: true is not allowed with --hints=false; it keeps hints, and there are none")
	case s.WithoutRouting && (c.webhooks.endpointSlices || c.webhooks.services || c.webhooks.policies):
		return fmt.Errorf("--routing: false is not allowed with --webhook-endpointslices, --webhook-services or --webhook-policies; they serve routing")
	case c.rollouts && c.releasePods:
		return fmt.Errorf("--release-pods: true is not allowed with --rollouts; pods would not wait for their domain's turn")
	case c.locators != namescontroller.Unset && !slices.Contains(namescontroller.Modes(), c.locators):
		return fmt.Errorf("--locators: %q is unknown; allowed are all, auto, off", c.locators)
	case c.serviceAccount == "" && c.webhooks.endpointSlices:
		return fmt.Errorf("--service-account: it is empty, and the webhook must know which writes are the controller's own")
	}
	o.Exclusion.Own = c.namespace
	if err := c.checkBudgets(); err != nil {
		return err
	}
	return c.log.Check()
}

// checkBudgets checks the flags of disruption.
func (c *config) checkBudgets() error {
	w, top := &c.webhooks, c.budgetOptions.Top
	switch {
	case c.budgets && c.namespace == "":
		return fmt.Errorf("--namespace: it is empty, and evictions there must not be checked")
	case c.budgetOptions.ProjectPDBs && !c.budgets:
		return fmt.Errorf("--project-pdbs: true is not allowed without --budgets; there is nothing to project")
	case w.evictions && !c.budgets:
		return fmt.Errorf("--webhook-evictions: true is not allowed without --budgets; no namespace would be labelled")
	case c.responder && !c.budgets:
		return fmt.Errorf("--eviction-responder: true is not allowed without --budgets; there is nothing to wait for")
	case w.pods && !c.responder:
		return fmt.Errorf("--webhook-pods: true is not allowed without --eviction-responder; requests to evict the pods would wait 20 minutes for an answer")
	case top < 0 || top > 1000:
		return fmt.Errorf("--top-budgets: %d is not allowed; it must be from 0 to 1000", top)
	case w.scales && !c.budgets:
		return fmt.Errorf("--pace-scale-downs: true is not allowed without --budgets; there is nothing to hold scale-downs to")
	case w.scales && c.serviceAccount == "":
		return fmt.Errorf("--service-account: it is empty, and the webhooks of scale-downs must know which writes are the controller's own")
	}
	return nil
}

// user is the controller's user name at the API server.
func (c *config) user() string {
	return "system:serviceaccount:" + cmp.Or(c.namespace, "default") + ":" + c.serviceAccount
}
