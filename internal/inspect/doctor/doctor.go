// Package doctor says what is wrong in a cluster that Vicinity is in, or is to be in, and what to
// do about it: "vicinity doctor" reads a cluster, and what it prints is a Report of this package.
//
// It judges objects as they were read at one moment. It reads nothing, knows no clock, and takes
// what may not be read as unknown: that is said, and never taken for a fault. It decides nothing
// about routing or evictions; where the controller has, it goes by what the controller stored.
package doctor

import (
	"cmp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Reading is all that is judged, as it was read of a cluster.
type Reading struct {
	// Unread says, by what could not be read, why. What is in there is empty below.
	Unread map[Source]string

	// Version is that of the API server.
	Version string
	// Local and Server are the clocks here and of the API server when Leases were read. Server is
	// zero if that is not known.
	Local, Server time.Time

	Nodes []*corev1.Node
	// NodeLeases are those of kubelets, and Leases those in the namespace of Vicinity.
	NodeLeases, Leases []*coordinationv1.Lease

	// Networks are what is known of programs of others that serve Services.
	Networks Networks

	// Controllers, Proxies and NameServers are what is installed of Vicinity. Controllers that are scaled to
	// nothing come last.
	Controllers []Controller
	Proxies     []*appsv1.DaemonSet
	NameServers []*appsv1.Deployment
	// Charts are the versions of this program's chart: of the packaged one, if the program is a release, and of
	// the one in its sources.
	Charts []string

	// Definitions are Vicinity's CRDs as the cluster has them, and Needed as this program was built with
	// them. Served are the names of the resources that the API server serves.
	Definitions, Needed []Definition
	Served              []string

	// Webhooks are Vicinity's, and Backends their Services.
	Webhooks []inspect.WebhookConfiguration
	Backends map[types.NamespacedName]Backend

	// Services, with all that says what they ask for.
	Services []*corev1.Service
	Policies []*v1alpha1.RoutingPolicy
	Defaults []*v1alpha1.ClusterRoutingPolicy
	// Grouped are the Services that have EndpointGroups.
	Grouped    map[types.NamespacedName]bool
	Namespaces []*corev1.Namespace
	Exclusion  intent.Exclusion
	TakesAuto  bool

	Budgets      []*v1alpha1.TopologyDisruptionBudget
	PDBs         []*policyv1.PodDisruptionBudget
	Deployments  []*appsv1.Deployment
	StatefulSets []*appsv1.StatefulSet

	// Leftovers are names of objects that an uninstall leaves, by their kind. They are read only where no
	// controller is installed.
	Leftovers map[string][]Object
}

// Controller is a Deployment of vicinity-controller with what its flags say of webhooks.
type Controller struct {
	*appsv1.Deployment
	// WebhookName is the name of its webhook configurations. Mutates and Validates say which it serves.
	WebhookName        string
	Mutates, Validates bool
}

// Home is the namespace of Vicinity, empty if neither a controller nor a proxy is known.
func (r *Reading) Home() string {
	var controller *appsv1.Deployment
	if len(r.Controllers) > 0 {
		controller = r.Controllers[0].Deployment
	}
	return inspect.Home(controller, r.Proxies)
}

// Object names an object of the cluster. The namespace is empty for what has none.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String is the object as texts name it.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// at are the flags by which kubectl finds the object's namespace, with the space before.
func (o Object) at() string {
	if o.Namespace == "" {
		return ""
	}
	return " -n " + o.Namespace
}

// Report is what there is to say about a cluster.
type Report struct {
	Cluster  Cluster   `json:"cluster"`
	Findings []Finding `json:"findings"`
	// Problems, Warnings and Notices are how many findings there are of each severity.
	Problems int `json:"problems"`
	Warnings int `json:"warnings"`
	Notices  int `json:"notices"`
	// NotKnown are sentences about what could not be read, and what follows.
	NotKnown []string `json:"notKnown,omitempty"`
}

// Finding is something in a cluster that people should know.
type Finding struct {
	check check

	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Object   Object   `json:"object"`
	// What says in one sentence what is wrong, and Why what it leads to.
	What string `json:"what"`
	Why  string `json:"why"`
	// Next is a command that shows more or puts it right.
	Next string `json:"next"`
	// Runbook is a file of the repository, with the heading.
	Runbook string `json:"runbook"`
}

// Examine judges what was read.
func Examine(r *Reading) *Report {
	e := examination{Reading: r}
	e.kubernetes()
	e.zones()
	e.networks()
	e.installation()
	e.definitions()
	e.webhooks()
	e.leader()
	e.proxies()
	e.leftovers()
	e.services()
	e.policies()
	e.budgets()
	e.pdbs()
	e.clocks()
	report := &Report{Cluster: e.cluster(), Findings: e.found, NotKnown: e.notKnown()}
	if report.Findings == nil {
		report.Findings = []Finding{}
	}
	slices.SortFunc(report.Findings, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(a.check, b.check),
			strings.Compare(a.Object.Namespace, b.Object.Namespace), strings.Compare(a.Object.Name, b.Object.Name),
			strings.Compare(a.Object.Kind, b.Object.Kind), strings.Compare(a.What, b.What),
		)
	})
	for i := range report.Findings {
		switch report.Findings[i].Severity {
		case Problem:
			report.Problems++
		case Warning:
			report.Warnings++
		default:
			report.Notices++
		}
	}
	return report
}

// examination collects findings.
type examination struct {
	*Reading
	found []Finding
}

// add notes a finding. next is a command for a shell.
func (e *examination) add(c check, object Object, what, next string) {
	check := catalogue[c]
	e.found = append(e.found, Finding{
		check: c, ID: check.ID, Severity: check.Severity, Object: object, What: what, Why: check.Why, Next: next, Runbook: check.Runbook,
	})
}

func (e *examination) knows(sources ...Source) bool {
	return !slices.ContainsFunc(sources, func(s Source) bool {
		_, unread := e.Unread[s]
		return unread
	})
}

// now is the time of the API server, or else that of this machine.
func (e *examination) now() time.Time {
	if e.Server.IsZero() {
		return e.Local
	}
	return e.Server
}

// installed reports whether a controller is installed, as far as that is known.
func (e *examination) installed() bool { return len(e.Controllers) > 0 }

func (e *examination) home() string {
	home := e.Home()
	if home == "" && len(e.NameServers) > 0 {
		home = e.NameServers[0].Namespace
	}
	return cmp.Or(home, "vicinity-system")
}

func (e *examination) release() string {
	if len(e.Controllers) > 0 {
		return cmp.Or(e.Controllers[0].Labels["app.kubernetes.io/instance"], "vicinity")
	}
	return "vicinity"
}

// chartFile is the packaged chart of the running controller. Unlike the chart in the sources it has the digests of images.
func (e *examination) chartFile() string {
	return "vicinity-" + cmp.Or(strings.ReplaceAll(e.controllerChart(), "_", "+"), "VERSION") + ".tgz"
}

// upgrade is the command that writes the objects of the chart again.
func (e *examination) upgrade() string {
	return "helm upgrade " + e.release() + " " + e.chartFile() + " -n " + e.home() + " --reset-then-reuse-values"
}

func (e *examination) applyCRDs() string {
	return "helm show crds " + e.chartFile() + " | kubectl apply --server-side --force-conflicts -f -"
}
