package doctor

import (
	"fmt"
	"maps"
	"slices"
)

// Severity is the importance of a finding.
type Severity string

// The severities. A problem does not work. A warning does not work as intended, or will soon not work. A notice is no
// fault.
const (
	Problem Severity = "problem"
	Warning Severity = "warning"
	Notice  Severity = "notice"
)

func (s Severity) rank() int { return slices.Index([]Severity{Problem, Warning, Notice}, s) }

// Check is a kind of finding. Its ID, severity and subject stay the same between releases.
type Check struct {
	ID       string
	Severity Severity
	// About describes the objects of the finding.
	About string
	// Why is the consequence.
	Why string
	// Runbook is a file of the repository, with the heading.
	Runbook string
}

// Runbooks of several checks.
const (
	runbookZones     = "docs/runbooks/zones-and-nodes.md#what-to-do"
	runbookClocks    = "docs/runbooks/clocks-differ.md#what-to-do"
	runbookVersions  = "docs/runbooks/versions-differ.md#what-to-do"
	runbookHints     = "docs/runbooks/hints-do-not-survive.md#what-to-do"
	runbookWebhook   = "docs/runbooks/webhook-slow-or-down.md#what-to-do"
	runbookDown      = "docs/runbooks/controller-down.md#what-to-do"
	runbookProxy     = "docs/runbooks/proxy.md#what-to-do"
	runbookUninstall = "docs/runbooks/uninstall.md#what-to-do"
	runbookNear      = "docs/runbooks/traffic-not-near.md#what-to-do"
	runbookMembers   = "docs/runbooks/members-hidden.md#what-to-do"
	runbookBudget    = "docs/runbooks/budget-blocked.md#what-to-do"
	runbookEvictions = "docs/runbooks/evictions-fail.md#what-to-do"
	runbookRefused   = "docs/runbooks/write-refused.md#what-to-do"
	runbookNames     = "docs/runbooks/location-unknown.md#what-to-do"
	runbookRollout   = "docs/runbooks/rollout-failed.md#what-to-do"
	runbookShift     = "docs/runbooks/zone-shift.md#what-to-do"
	runbookLose      = "docs/runbooks/lose-a-zone.md#what-to-do"
)

// check is a kind of finding by its place in the catalogue.
type check int

func (c check) String() string { return catalogue[c].ID }

var catalogue []Check

func define(id string, severity Severity, about, why, runbook string) check {
	catalogue = append(catalogue, Check{id, severity, about, why, runbook})
	return check(len(catalogue) - 1)
}

// All checks, in the order in which findings of a severity are listed.
var (
	kubernetesTooOld = define("kubernetes-too-old", Problem, "an API server older than "+OldestKubernetes, "Vicinity is not tested with this release, and the Kubernetes project no longer patches it.", runbookVersions)
	kubeletVersion   = define("kubelet-version", Warning, "a node whose kubelet is newer than the API server, or more than three minor releases older", "Kubernetes does not support this pair. kube-proxy mostly has the kubelet's release, so it may not follow hints.", runbookVersions)

	zonesMissing         = define("zones-missing", Problem, "a cluster where no node has the label `topology.kubernetes.io/zone`", "Nothing can stay in its zone: no endpoint and no client has one.", runbookZones)
	zonesLookAlike       = define("zones-look-alike", Problem, "a zone whose name differs from another's only by case, hyphens or dots", "Kubernetes and Vicinity take them for two zones, so traffic and budgets are divided over what may be one place.", runbookZones)
	zoneWithoutReadyNode = define("zone-without-ready-node", Problem, "a zone without a ready node", "The zone does not count: no traffic is expected from it, and its pods count as down in every budget.", runbookZones)
	zoneInTwoRegions     = define("zone-in-two-regions", Warning, "a zone whose nodes have different labels `topology.kubernetes.io/region`", "The first region by name counts for the whole zone, so traffic that should stay in a region may leave it.", runbookZones)
	nodeWithoutZone      = define("node-without-zone", Warning, "a node for pods of users, without the label `topology.kubernetes.io/zone`", "Its clients use all endpoints, its endpoints are near no client, and no zone counts its capacity.", runbookZones)
	nodeNotReady         = define("node-not-ready", Warning, "a node that is not ready", "Its zone does not count it, and its pods count as down in budgets.", runbookZones)
	oneZone              = define("one-zone", Notice, "a cluster whose nodes are all in one zone", "With one zone there is nothing to choose, so Vicinity does nothing about zones.", runbookZones)

	kubeProxyGateOff      = define("kube-proxy-gate-off", Problem, "kube-proxy with a feature gate for hints switched off", "kube-proxy does not follow hints, or not those for nodes, so Services that ask for near endpoints use all of them.", runbookHints)
	ciliumIgnoresHints    = define("cilium-ignores-hints", Problem, "Cilium in place of kube-proxy, without `enable-service-topology`", "Cilium does not follow hints, so Services that ask for near endpoints use all of them.", runbookHints)
	antreaIgnoresHints    = define("antrea-ignores-hints", Problem, "Antrea with the feature gate `TopologyAwareHints` switched off", "AntreaProxy does not follow hints, so Services that ask for near endpoints use all of them.", runbookHints)
	kubeRouterIgnoresHint = define("kube-router-ignores-hints", Problem, "kube-router with its service proxy", "Its service proxy does not follow hints, so Services that ask for near endpoints use all of them.", runbookHints)
	ovnIgnoresHints       = define("ovn-kubernetes-ignores-hints", Problem, "OVN-Kubernetes", "It reads no hints, so Services that ask for near endpoints use all of them.", runbookHints)
	kubeProxyVersion      = define("kube-proxy-version", Warning, "a kube-proxy that is newer than the API server, or more than three minor releases older", "Kubernetes does not support this pair. kube-proxy follows few hints before 1.31, and no hints for nodes before 1.34.", runbookVersions)
	windowsIgnoresHints   = define("windows-ignores-hints", Notice, "a node with Windows", "kube-proxy on Windows does not follow hints: clients on this node use all endpoints.", runbookHints)
	nodeIgnoresNodeHints  = define("node-ignores-node-hints", Notice, "a node without Windows whose kubelet is older than 1.34", "kube-proxy mostly has the kubelet's release, and ignores hints for nodes before 1.34: clients on this node use all endpoints that their zone may use.", runbookVersions)
	kubeProxyIPVS         = define("kube-proxy-ipvs", Notice, "kube-proxy in the mode `ipvs`", "It follows hints, but kube-proxy 1.37 says that the mode is deprecated, off by default in 1.40 and removed in 1.43.", runbookVersions)

	controllerNotReady   = define("controller-not-ready", Problem, "a vicinity-controller without a ready pod", "Nothing is written: plans do not follow pods, webhooks do not answer, and evictions under budgets and paced scale-downs are refused.", runbookDown)
	controllersMany      = define("controllers-many", Problem, "a second vicinity-controller", "Two controllers undo each other's work: both write hints and groups, and one without PodLocators deletes those of the other.", runbookVersions)
	leaderMissing        = define("leader-missing", Problem, "the Lease of vicinity-controller, if no pod holds or renews it", "No controller writes: plans and budgets do not follow pods.", runbookDown)
	nameServerNotReady   = define("dns-not-ready", Problem, "a vicinity-dns without a ready pod", "Queries to it are not answered.", runbookNames)
	clientsNotLocated    = define("clients-not-located", Warning, "pods that vicinity-dns does not locate, or locates on a wrong node, by their addresses", "Headless Services with hard keys resolve to nothing for these clients, and others to far endpoints.", runbookNames)
	controllerShort      = define("controller-short", Warning, "a vicinity-controller with fewer ready pods than it should have", "When the last pod fails, nothing is written, and evictions under budgets and paced scale-downs are refused.", runbookDown)
	versionsDiffer       = define("versions-differ", Warning, "a vicinity-proxy or vicinity-dns of another version than vicinity-controller", "One part may not understand what the other writes.", runbookVersions)
	programVersionDiffer = define("program-version-differs", Notice, "a vicinity-controller of another version than this program", "CRDs are not compared, and other findings may not fit that version.", runbookVersions)
	notInstalled         = define("not-installed", Notice, "a cluster without vicinity-controller and without leftovers of it", "This is no fault. Findings about the cluster hold for a later installation.", runbookVersions)

	crdMissing  = define("crd-missing", Problem, "a CRD of Vicinity that the cluster lacks", "vicinity-controller cannot start, or cannot read what users write.", runbookVersions)
	crdNotReady = define("crd-not-served", Problem, "a CRD that the API server does not serve in the needed version", "vicinity-controller cannot read or write objects of this kind.", runbookVersions)
	crdOld      = define("crd-old", Problem, "a CRD that lacks fields of this version", "The API server drops these fields from every write, without an error.", runbookVersions)

	webhookMissing          = define("webhook-missing", Problem, "a webhook configuration that vicinity-controller serves and the cluster lacks", "Hints are lost when Kubernetes rewrites slices, mistakes are not refused, or evictions are not checked.", runbookWebhook)
	webhookWithoutAuthority = define("webhook-without-authority", Problem, "a webhook configuration without a certificate to trust", "Each call fails: hints are lost, and evictions under budgets and paced scale-downs are refused.", runbookWebhook)
	webhookExpired          = define("webhook-authority-expired", Problem, "a webhook configuration whose certificates have expired or are not valid yet", "Each call fails: hints are lost, and evictions under budgets and paced scale-downs are refused.", runbookWebhook)
	webhookWithoutService   = define("webhook-without-service", Problem, "a webhook configuration whose Service does not exist", "Each call fails: hints are lost, and evictions under budgets and paced scale-downs are refused.", runbookWebhook)
	webhookWithoutEndpoint  = define("webhook-without-endpoint", Problem, "a Service of the webhooks without a ready endpoint", "Each call fails: hints are lost, and evictions under budgets and paced scale-downs are refused.", runbookWebhook)
	webhookUnreachable      = define("webhook-unreachable", Problem, "a Service of the webhooks that the API server does not reach", "Calls fail or time out: slices are written late, hints are lost, and evictions under budgets and paced scale-downs are refused.", runbookWebhook)
	webhookExpires          = define("webhook-authority-expires", Warning, "a webhook configuration whose certificates expire within 30 days", "vicinity-controller renews the authority 90 days before its end, and has not done so.", runbookWebhook)

	proxyLeaseMissing = define("proxy-lease-missing", Problem, "a ready node that should run vicinity-proxy and has no Lease of it", "vicinity-proxy does not run there or has programmed nothing, and every hand-over waits for it.", runbookProxy)
	proxyLeaseStale   = define("proxy-lease-stale", Problem, "a Lease of a node's vicinity-proxy that was not renewed for 45 s", "The node does not follow changes: its connections may go to pods that are gone.", runbookProxy)
	proxyProbeFails   = define("proxy-probe-fails", Problem, "a Lease of a node's vicinity-proxy with a failed probe", "Packets of the node do not come through the rules: handed-over Services may not work there, and no hand-over ends.", runbookProxy)
	proxyTaintStays   = define("proxy-taint-stays", Problem, "a ready node that still has the taint `vicinity.dev/proxy-not-ready` 5 minutes after it joined", "Pods that do not tolerate the taint do not start on the node.", runbookProxy)
	proxyNotReady     = define("proxy-not-ready", Warning, "a vicinity-proxy that is not available on some nodes", "These nodes keep their old rules, and every hand-over waits for them.", runbookProxy)
	proxyLeavesOut    = define("proxy-leaves-services-out", Warning, "a Lease of a node's vicinity-proxy that names Services", "The node cannot program all groups of these Services, so they are not handed over.", runbookProxy)

	leftoverWebhooks   = define("leftover-webhooks", Problem, "a webhook configuration of Vicinity without vicinity-controller", "The API server calls a Service that does not exist: writes are slow, and evictions under budgets and paced scale-downs are refused.", runbookUninstall)
	leftoverHandedOver = define("leftover-handed-over", Problem, "a Service with the label `service.kubernetes.io/service-proxy-name: vicinity`, without vicinity-controller", "kube-proxy ignores the Service, and its groups no longer follow its pods.", runbookUninstall)
	leftoverServices   = define("leftover-services", Warning, "Services with the label `vicinity.dev/routed` or the condition of Vicinity, without vicinity-controller", "The label and the condition are out of date.", runbookUninstall)
	leftoverSlices     = define("leftover-slices", Warning, "EndpointSlices with the label `vicinity.dev/routed`, without vicinity-controller", "Kubernetes does not update these hints, and proxies follow them although pods change.", runbookUninstall)
	leftoverNamespaces = define("leftover-namespaces", Warning, "namespaces with the label `vicinity.dev/disruption-budgets`, without vicinity-controller", "If a webhook for evictions is left too, or returns without budgets, evictions there are refused.", runbookUninstall)
	leftoverObjects    = define("leftover-objects", Notice, "CRDs, Leases, PodLocators or PodDisruptionBudgets of Vicinity, without vicinity-controller", "They do nothing, except PodDisruptionBudgets: these limit evictions by numbers that no longer follow the pods.", runbookUninstall)

	serviceServedByNone      = define("service-served-by-none", Problem, "a Service that is handed over to vicinity-proxy, without groups or without vicinity-proxy", "No proxy serves the Service: connections to it fail.", runbookProxy)
	serviceHintsLost         = define("service-hints-lost", Problem, "a Service whose condition says `HintsLost`", "Its traffic is spread over all zones, because something removes the hints.", runbookHints)
	serviceNotWritten        = define("service-not-written", Problem, "a Service whose condition says `NotWritten`", "Its traffic follows an old plan or none, because the API server refuses the writes of the controller.", runbookRefused)
	serviceNeedsGroups       = define("service-needs-groups", Warning, "a Service whose condition says `NeedsGroups`", "Its request has no effect, because hints cannot express it.", runbookNear)
	serviceAwaitsProxy       = define("service-awaits-proxy", Warning, "a Service that asks for vicinity-proxy, if that is not installed or has not served it for a minute", "Until vicinity-proxy serves it, the Service gets hints, or its request has no effect.", runbookProxy)
	serviceNotOnWindows      = define("service-not-on-windows", Warning, "a Service that asks for vicinity-proxy, in a cluster with a Windows node", "vicinity-proxy needs Linux: pods on Windows nodes cannot reach the Service once it is handed over.", runbookProxy)
	serviceHintsIgnored      = define("service-hints-ignored", Warning, "a Service whose hints a program ignores, though it follows those of other Services, or whose condition says `NotInForce`", "Clients on the nodes of the program use all endpoints.", runbookHints)
	serviceLeftAlone         = define("service-left-alone", Warning, "a Service that asks for routing in a namespace that vicinity-controller ignores", "Its request has no effect.", runbookNear)
	serviceNotRoutable       = define("service-not-routable", Warning, "a Service that asks for routing and has no possible plan", "Its request has no effect.", runbookNear)
	servicePartIgnored       = define("service-part-ignored", Warning, "a Service with a setting that has no effect", "Its traffic does not follow all its settings.", runbookNear)
	serviceMembersHidden     = define("service-members-hidden", Warning, "a headless Service that asks for near endpoints, and by which its members may find each other", "A member that does not see the others can lose its quorum or form its own cluster.", runbookMembers)
	serviceNamesUnserved     = define("service-names-unserved", Warning, "a headless Service that asks for near endpoints, while no client is known to ask a DNS server with the plugin vicinity", "Its names resolve to all endpoints.", runbookNames)
	serviceWithoutController = define("service-without-controller", Warning, "a Service that asks for routing, without vicinity-controller or while `routing.enabled` is off", "Its request has no effect.", runbookNear)
	serviceBypassed          = define("service-bypassed", Notice, "a Service that asks for routing, whose Ingress or route lacks the annotation for the cluster IP", "The controller of the Ingress or route chooses endpoints, so this traffic does not follow the plan.", runbookNear)
	policyFaulty             = define("policy-faulty", Warning, "a RoutingPolicy or ClusterRoutingPolicy with a value that is not allowed", "A default is used in place of the value.", runbookNear)
	policyMatchesNothing     = define("policy-matches-nothing", Warning, "a RoutingPolicy or ClusterRoutingPolicy that applies to no Service", "It has no effect.", runbookNear)

	gateWithoutRollouts = define("gate-without-rollouts", Problem, "a Deployment with the scheduling gate `vicinity.dev/rollout` while `rollouts.enabled` is off", "Its new pods are never scheduled.", runbookRollout)
	partOff             = define("part-off", Warning, "an object that needs a part of Vicinity that is off", "It has no effect.", runbookDown)

	budgetInvalid       = define("budget-invalid", Problem, "a TopologyDisruptionBudget with an invalid spec", "No pod that its selector matches may be evicted until the spec is corrected.", runbookBudget)
	budgetBlocks        = define("budget-blocks-for-ever", Problem, "a TopologyDisruptionBudget that allows no eviction even if all pods are healthy", "Drains, upgrades of nodes and autoscalers wait for ever.", runbookBudget)
	budgetNotEnforced   = define("budget-not-enforced", Problem, "a TopologyDisruptionBudget whose condition `Enforced` is false", "Evictions of its pods are not checked.", runbookEvictions)
	pdbsOverlap         = define("pdbs-overlap", Problem, "a workload with pods under two PodDisruptionBudgets or more", "The API server refuses every eviction of a pod that more than one PodDisruptionBudget covers.", runbookBudget)
	pdbSyncFailed       = define("pdb-sync-failed", Problem, "a PodDisruptionBudget whose condition `DisruptionAllowed` says `SyncFailed`", "Kubernetes cannot compute how many pods may go, so the API server refuses to evict its ready pods.", runbookBudget)
	budgetCoversNothing = define("budget-covers-nothing", Warning, "a TopologyDisruptionBudget that covers no pod and no workload", "The pods that it should protect are not protected.", runbookBudget)
	budgetLeavesOut     = define("budget-leaves-pods-out", Warning, "a TopologyDisruptionBudget with pods on nodes that are in no domain", "These pods are not protected, and the budget counts without them.", runbookBudget)
	budgetGlassBroken   = define("budget-glass-broken", Warning, "a TopologyDisruptionBudget with break-glass in force", "Every eviction of its pods is admitted.", runbookBudget)
	pdbBlocks           = define("pdb-blocks-for-ever", Warning, "a PodDisruptionBudget that allows no eviction although all its pods are healthy", "Drains, upgrades of nodes and autoscalers wait for ever.", runbookBudget)
	pdbCoversNothing    = define("pdb-covers-nothing", Warning, "a PodDisruptionBudget that covers no pod and no workload", "The pods that it should protect are not protected.", runbookBudget)

	clockOfNode    = define("clock-of-node", Problem, "a node whose clock differs from that of the API server by more than 10 s", "Leases compare the times of two clocks: a live proxy or leader may count as gone, or a dead one as alive.", runbookClocks)
	clockOfMachine = define("clock-of-machine", Warning, "the machine that runs vicinity, if its clock differs from that of the API server by more than 10 s", "Ages that vicinity prints are wrong by as much, and certificates may seem expired.", runbookClocks)

	shiftRefused = define("zone-shift-refused", Warning, "a ZoneShift that is not accepted", "Its domain stays in service.", runbookShift)
	shiftOver    = define("zone-shift-over", Notice, "a ZoneShift whose time is over", "It does nothing any more. Raising its time would take the domain out of service again.", runbookShift)
)

// The checks of a rehearsal.
var (
	loseControlPlane = define("lose-control-plane", Problem, "a cluster whose API servers are all in the lost zone", "Nothing can be changed, and no lost pod is started elsewhere.", runbookLose)
	loseDNS          = define("lose-dns", Problem, "the cluster's DNS Service, with all ready endpoints in the lost zone", "No pod of the cluster resolves names until a DNS pod runs elsewhere.", runbookLose)
	loseWebhook      = define("lose-webhook", Problem, "a webhook configuration of any program, with `failurePolicy: Fail` and all ready endpoints in the lost zone", "The API server refuses the writes that the webhook should see. These can include new pods in other zones.", runbookLose)
	loseQuorum       = define("lose-quorum", Problem, "a StatefulSet with three pods or more, or etcd, that keeps no majority of ready members", "Members that vote stop to accept writes without a majority.", runbookLose)
	loseVolume       = define("lose-volume", Problem, "a workload with pods whose volume is only in the lost zone", "The pods cannot start elsewhere, because a volume does not move.", runbookLose)
	losePinned       = define("lose-pinned", Problem, "a workload whose node selector or node affinity only nodes of the lost zone match", "Its lost pods stay pending until the zone is back or the pods may run elsewhere.", runbookLose)
	loseAntiAffinity = define("lose-anti-affinity", Problem, "a workload whose required pod anti-affinity leaves too few nodes or domains", "Its lost pods stay pending: each other domain already has a pod that they avoid.", runbookLose)
	loseSpread       = define("lose-spread-deadlock", Problem, "a workload whose `topologySpreadConstraints` with `DoNotSchedule` leave its lost pods no domain", "The scheduler balances pods over all domains. While Node objects of the lost zone exist, the zone mostly counts as an empty domain.", runbookLose)
	loseNoRoom       = define("lose-no-room", Problem, "lost pods that find no room on the other nodes", "Lost pods without room stay pending until there are more nodes, or other pods go.", runbookLose)

	loseServiceAlone  = define("lose-service-alone", Warning, "another Service with all ready endpoints in the lost zone", "Connections to it fail until its pods run elsewhere.", runbookLose)
	loseWorkloadAlone = define("lose-workload-alone", Warning, "a Deployment or StatefulSet with all ready pods in the lost zone, unless another finding names it or its Service", "It does nothing until its pods run elsewhere.", runbookLose)
	loseWebhookSlow   = define("lose-webhook-slow", Warning, "a webhook configuration of any program, with `failurePolicy: Ignore` and all ready endpoints in the lost zone", "Each write that the webhook should see waits for its timeout, and then passes unseen.", runbookLose)
	loseOverload      = define("lose-overload", Warning, "a Service whose other endpoints get more additional traffic than `--max-overload`", "Each endpoint that stays takes its share of the lost ones' traffic, and may fail under it.", runbookLose)
	loseAutoscaler    = define("lose-hpa-at-maximum", Warning, "a HorizontalPodAutoscaler with pods in the lost zone, at its maximum or below the need of `lose-overload`", "It cannot add pods for the traffic that the others take over.", runbookLose)
	loseBudgetFreezes = define("lose-budget-freezes", Warning, "a PodDisruptionBudget with fewer healthy pods than it wants after the loss", "Drains, upgrades of nodes and autoscalers wait until the pods run elsewhere.", runbookLose)
)

// Checks returns all kinds of findings, in the order in which findings of a severity are listed.
func Checks() []Check { return slices.Clone(catalogue) }

// Source is a part of a cluster that a user may lack the right to read.
type Source string

// The sources. Each is named as in "you may not list SOURCE".
var (
	SourceNodes        = source("nodes", "zones, regions, versions of kubelets and which nodes should run vicinity-proxy")
	SourceNodeLeases   = source("leases in kube-node-lease", "whether the clocks of nodes are right")
	SourceLeases       = source("leases of Vicinity", "whether a controller leads, and whether the proxies of nodes live")
	SourceKubeSystem   = source("daemonsets in kube-system", "which kube-proxy there is")
	SourceConfig       = source("configmaps in kube-system", "whether kube-proxy, Cilium, Calico or Antrea follow hints, and which plugins CoreDNS has")
	SourceDeployments  = source("deployments", "whether Vicinity is installed, and what it does for Services")
	SourceDaemonSets   = source("daemonsets", "whether vicinity-proxy is installed")
	SourceDefinitions  = source("customresourcedefinitions", "whether the CRDs have all fields")
	SourceServed       = source("the resources of vicinity.dev", "which CRDs there are")
	SourceWebhooks     = source("webhook configurations", "whether webhooks are there, and whether their certificates are valid")
	SourceBackends     = source("the endpoints of the webhooks", "whether webhooks have ready endpoints")
	SourceReach        = source("the webhooks by the API server", "whether the API server reaches the webhooks, beyond that their endpoints are ready")
	SourceServices     = source("services", "whether what Services ask for has an effect")
	SourcePolicies     = source("routingpolicies", "whether RoutingPolicies have an effect")
	SourceDefaults     = source("clusterroutingpolicies", "whether ClusterRoutingPolicies have an effect")
	SourceGroups       = source("endpointgroups", "whether Services that vicinity-proxy serves have groups")
	SourceNamespaces   = source("namespaces", "which namespaces ClusterRoutingPolicies select, and which have a label of Vicinity")
	SourceBudgets      = source("topologydisruptionbudgets", "whether TopologyDisruptionBudgets block")
	SourceRollouts     = source("domainrollouts", "whether DomainRollouts have an effect")
	SourcePDBs         = source("poddisruptionbudgets", "whether PodDisruptionBudgets block")
	SourceGateways     = source("ingresses and routes", "whether ingress and gateway controllers follow plans")
	SourceStatefulSets = source("statefulsets", "which headless Services have members that find each other by them")
	SourceWorkloads    = source("deployments of users", "which workloads budgets are for, and which need a part that is off")
	SourceClients      = source("clients of the DNS server", "whether vicinity-dns locates its clients, and whether any ask it")
	SourceLeftovers    = source("what an uninstall leaves", "whether an uninstall left anything")
	SourceShifts       = source("zoneshifts", "whether ZoneShifts are refused or over")
)

// consequences are the judgements that need a source.
var consequences = map[Source]string{}

func source(name Source, consequence string) Source {
	consequences[name] = consequence
	return name
}

// Sources returns all sources, sorted.
func Sources() []Source { return slices.Sorted(maps.Keys(consequences)) }

// notKnown returns a sentence for each unread source, sorted by source.
func notKnown(consequences, unread map[Source]string) []string {
	var sentences []string
	for _, source := range slices.Sorted(maps.Keys(unread)) {
		sentences = append(sentences, fmt.Sprintf("cannot tell %s: %s", consequences[source], unread[source]))
	}
	return sentences
}
