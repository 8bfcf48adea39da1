// Package doctor finds problems of a cluster that has Vicinity or will have it, and says what to do about them.
// "vicinity doctor" reads a cluster and prints a Report of this package. Examine judges the cluster as it is, and Rehearse
// without one of its zones.
//
// It judges objects that were read at one moment. It reads nothing and knows no clock. Objects that may not be read are
// unknown: it says so, and never takes that for a fault. It decides nothing about routing or evictions, and uses the
// stored decisions of the controller.
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
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/consumer"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Reading is the input of a report, as it was read of a cluster.
type Reading struct {
	// Unread says why sources could not be read. Their fields are empty.
	Unread map[Source]string

	// Version is that of the API server.
	Version string
	// Local and Server are the times of this machine and of the API server when Leases were read. Server is zero if it
	// is unknown.
	Local, Server time.Time

	Nodes []*corev1.Node
	// NodeLeases are those of kubelets, and Leases those in Vicinity's namespace.
	NodeLeases, Leases []*coordinationv1.Lease

	// Networks are other programs that serve Services.
	Networks consumer.Settings
	// Corefile has those of the ConfigMaps coredns and node-local-dns, empty without any.
	Corefile string

	// Controllers, Proxies and NameServers are the parts of Vicinity. Controllers that are scaled to zero come last.
	Controllers []Controller
	Proxies     []*appsv1.DaemonSet
	NameServers []*appsv1.Deployment
	// Pods and Locators are those of all namespaces. They are read only if there are NameServers.
	Pods     []*corev1.Pod
	Locators []*v1alpha1.PodLocator
	// Charts are the versions of this program's chart: of the packaged one, if the program is a release, and of the one
	// in its sources.
	Charts []string

	// Definitions are Vicinity's CRDs in the cluster, and Needed those of this program. Served are the names of the
	// resources that the API server serves.
	Definitions, Needed []Definition
	Served              []string

	// Webhooks are Vicinity's, and Backends their Services.
	Webhooks []inspect.WebhookConfiguration
	Backends map[types.NamespacedName]Backend

	// Services, with the objects that affect their requests.
	Services []*corev1.Service
	Policies []*v1alpha1.RoutingPolicy
	Defaults []*v1alpha1.ClusterRoutingPolicy
	Gateways inspect.Gateways
	// Grouped are the Services that have EndpointGroups.
	Grouped    map[types.NamespacedName]bool
	Namespaces []*corev1.Namespace
	Exclusion  intent.Exclusion
	Settings   routing.Settings

	Budgets      []*v1alpha1.TopologyDisruptionBudget
	Rollouts     []*v1alpha1.DomainRollout
	Shifts       []*v1alpha1.ZoneShift
	PDBs         []*policyv1.PodDisruptionBudget
	Deployments  []*appsv1.Deployment
	StatefulSets []*appsv1.StatefulSet

	// Leftovers are objects that an uninstall leaves, by kind. They are read only if no controller is installed.
	Leftovers map[string][]Object
}

// Controller is a Deployment of vicinity-controller with some of its flags.
type Controller struct {
	*appsv1.Deployment
	// WebhookName is the name of its webhook configurations. Mutates and Validates say which it serves.
	WebhookName        string
	Mutates, Validates bool
	// Off has the values of the chart whose parts it does not run. ReleasesPods says that it removes the scheduling gate
	// of rollouts from pods.
	Off          map[string]bool
	ReleasesPods bool
}

// Home returns the namespace of Vicinity, empty if neither a controller nor a proxy is known.
func (r *Reading) Home() string {
	var controller *appsv1.Deployment
	if len(r.Controllers) > 0 {
		controller = r.Controllers[0].Deployment
	}
	return inspect.Home(controller, r.Proxies)
}

// Object names an object of the cluster. The namespace is empty for cluster-wide objects.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// String returns the object as texts name it.
func (o Object) String() string {
	if o.Namespace == "" {
		return o.Kind + " " + o.Name
	}
	return o.Kind + " " + o.Namespace + "/" + o.Name
}

// at returns the flags of kubectl for the object's namespace, with a space before.
func (o Object) at() string {
	if o.Namespace == "" {
		return ""
	}
	return " -n " + o.Namespace
}

// Report is the judgement about a cluster.
type Report struct {
	// Cluster is the summary of an examination, and Loss that of a rehearsal.
	Cluster  Cluster   `json:"cluster,omitzero"`
	Loss     *LostZone `json:"loss,omitempty"`
	Findings []Finding `json:"findings"`
	// Problems, Warnings and Notices count the findings of each severity.
	Problems int `json:"problems"`
	Warnings int `json:"warnings"`
	Notices  int `json:"notices"`
	// NotKnown are sentences about unread sources and their consequences.
	NotKnown []string `json:"notKnown,omitempty"`
}

// Finding is one problem, warning or notice.
type Finding struct {
	check check

	ID       string   `json:"id"`
	Severity Severity `json:"severity"`
	Object   Object   `json:"object"`
	// What states the fault in one sentence, and Why its consequence.
	What string `json:"what"`
	Why  string `json:"why"`
	// Next is a command that shows more or solves the problem.
	Next string `json:"next"`
	// Runbook is a file of the repository, with the heading.
	Runbook string `json:"runbook"`
}

// Examine judges a reading.
func Examine(r *Reading) *Report {
	e := examination{Reading: r}
	e.checkKubernetes()
	e.checkZones()
	e.checkNetworks()
	e.checkInstallation()
	e.checkClients()
	e.checkDefinitions()
	e.checkWebhooks()
	e.checkLeader()
	e.checkProxies()
	e.checkStartupTaints()
	e.checkLeftovers()
	e.checkServices()
	e.checkPolicies()
	e.checkBudgets()
	e.checkPDBs()
	e.checkParts()
	e.checkClocks()
	e.checkShifts()
	report := e.report()
	report.Cluster, report.NotKnown = e.cluster(), notKnown(consequences, e.Unread)
	return report
}

// findings collects findings.
type findings struct {
	found []Finding
}

// add adds a finding. next is a command for a shell.
func (f *findings) add(c check, object Object, what, next string) {
	check := catalogue[c]
	f.found = append(f.found, Finding{
		check: c, ID: check.ID, Severity: check.Severity, Object: object, What: what, Why: check.Why, Next: next, Runbook: check.Runbook,
	})
}

// report returns a report with the findings, sorted and counted.
func (f *findings) report() *Report {
	report := &Report{Findings: f.found}
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

// examination judges a reading.
type examination struct {
	*Reading
	findings
}

func (e *examination) knows(sources ...Source) bool {
	return !slices.ContainsFunc(sources, func(s Source) bool {
		_, unread := e.Unread[s]
		return unread
	})
}

// now returns the time of the API server, or else that of this machine.
func (e *examination) now() time.Time {
	if e.Server.IsZero() {
		return e.Local
	}
	return e.Server
}

// isInstalled reports whether a controller is known to be installed.
func (e *examination) isInstalled() bool { return len(e.Controllers) > 0 }

func (e *examination) home() string {
	home := e.Home()
	if home == "" && len(e.NameServers) > 0 && e.NameServers[0].Labels[labelChart] != "" {
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

// chartFile returns the packaged chart of the running controller. Unlike the chart in the sources it has the digests of
// images.
func (e *examination) chartFile() string {
	return "vicinity-" + cmp.Or(strings.ReplaceAll(e.controllerChart(), "_", "+"), "VERSION") + ".tgz"
}

// upgrade returns the command that writes the objects of the chart again.
func (e *examination) upgrade() string {
	return "helm upgrade " + e.release() + " " + e.chartFile() + " -n " + e.home() + " --reset-then-reuse-values"
}

func (e *examination) applyCRDs() string {
	return "helm show crds " + e.chartFile() + " | kubectl apply --server-side --force-conflicts -f -"
}
