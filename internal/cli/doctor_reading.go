package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/charts"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/inspect/doctor"
	"vicinity.dev/vicinity/internal/kit/command"
	kitversion "vicinity.dev/vicinity/internal/kit/version"
	"vicinity.dev/vicinity/internal/routing/consumer"
	"vicinity.dev/vicinity/internal/routing/routingflags"
)

const (
	dnsSelector = inspect.PartSelector + ",app.kubernetes.io/component=dns"
	// reachTime is the timeout for an answer of the webhooks.
	reachTime = 5 * time.Second
)

var felixResource = schema.GroupVersionResource{Group: "crd.projectcalico.org", Version: "v1", Resource: "felixconfigurations"}

var definitionResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// sourceReader reads lists for doctor. It goes on without what the user may not read.
type sourceReader struct {
	*clusterReader
	unread map[doctor.Source]string
	err    error // the first one that ends the command
}

// readSource lists all objects of a source, unless an error came before.
func readSource[T any, L runtime.Object](ctx context.Context, r *sourceReader, source doctor.Source, from lister[L]) (list []*T) {
	if r.err == nil {
		list, r.err = listAll[T](ctx, from, metav1.ListOptions{})
		what := "list " + string(source)
		if !strings.Contains(what, " in ") {
			what += " at the cluster scope"
		}
		r.err = r.without(source, what, r.err)
	}
	return list
}

// without notes that a source may not be read or is not served. It returns other errors.
func (r *sourceReader) without(source doctor.Source, what string, err error) error {
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsForbidden(err):
		if _, known := r.unread[source]; !known {
			r.unread[source] = "you may not " + what
		}
		return nil
	}
	return r.explained("reading "+string(source), err)
}

// doctorReader reads a cluster for doctor.
type doctorReader struct {
	*sourceReader
	in *doctor.Reading
	// namespace is where to look for Vicinity, all if empty.
	namespace string
}

func (r *clusterReader) doctor(namespace string) *doctorReader {
	unread := map[doctor.Source]string{}
	return &doctorReader{&sourceReader{clusterReader: r, unread: unread}, &doctor.Reading{
		Unread: unread, Backends: map[types.NamespacedName]doctor.Backend{}, Grouped: map[types.NamespacedName]bool{}, Leftovers: map[string][]doctor.Object{},
	}, namespace}
}

// examined reads a cluster. It fails if the cluster does not answer, or if the user may read none of
// it.
func (r *clusterReader) examined(ctx context.Context, namespace string) (*doctor.Reading, error) {
	d := r.doctor(namespace)
	if err := d.own(); err != nil {
		return nil, err
	}
	release, err := r.typed.Discovery().ServerVersion()
	if err != nil {
		return nil, r.explained("asking for the version", err)
	}
	d.in.Version = release.GitVersion
	for _, read := range []func(context.Context) error{
		d.nodes, d.webhooks, d.installation, d.networks, d.clients, d.leases, d.definitions, d.backends, d.services, d.policies, d.workloads, d.leftovers,
	} {
		if err := read(ctx); err != nil {
			return nil, err
		}
	}
	if u := d.unread; u[doctor.SourceNodes] != "" && u[doctor.SourceServices] != "" && u[doctor.SourceDeployments] != "" {
		return nil, fmt.Errorf("you may not list nodes, services or deployments in all namespaces, so doctor can check nothing; see %s", doctorPermissions)
	}
	if server, local := r.clock.Read(); !server.IsZero() {
		d.in.Server = server.Add(d.in.Local.Sub(local))
	}
	return d.in, nil
}

const doctorPermissions = "docs/doctor.md"

func (d *doctorReader) own() error {
	texts, err := charts.CRDs()
	if err != nil {
		return err
	}
	for _, text := range texts {
		var object map[string]any
		if err := yaml.Unmarshal([]byte(text), &object); err != nil {
			return fmt.Errorf("reading the CRDs of this program: %w", err)
		}
		d.in.Needed = append(d.in.Needed, definitionOf(&unstructured.Unstructured{Object: object}))
	}
	source, err := charts.Version()
	if err != nil {
		return err
	}
	for _, chart := range []string{kitversion.Released(), source} {
		if chart != "" {
			d.in.Charts = append(d.in.Charts, strings.ReplaceAll(chart, "+", "_")) // labels cannot have a plus
		}
	}
	return nil
}

func (d *doctorReader) nodes(ctx context.Context) error {
	d.in.Nodes = readSource[corev1.Node](ctx, d.sourceReader, doctor.SourceNodes, d.typed.CoreV1().Nodes())
	d.in.NodeLeases = readSource[coordinationv1.Lease](ctx, d.sourceReader, doctor.SourceNodeLeases, d.typed.CoordinationV1().Leases(corev1.NamespaceNodeLease))
	return d.err
}

// inPlace says where a verb and resource are not allowed.
func (d *doctorReader) inPlace(what string) string {
	if d.namespace == metav1.NamespaceAll {
		return what + " in all namespaces; -n names that of Vicinity"
	}
	return what + " in namespace " + d.namespace
}

func (d *doctorReader) deployments(ctx context.Context, selector string) ([]*appsv1.Deployment, error) {
	found, err := listAll[appsv1.Deployment](ctx, d.typed.AppsV1().Deployments(d.namespace), metav1.ListOptions{LabelSelector: selector})
	slices.SortFunc(found, func(a, b *appsv1.Deployment) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return found, err
}

// installation reads the parts of Vicinity, and the flags of the controller.
func (d *doctorReader) installation(ctx context.Context) error {
	controllers, err := d.deployments(ctx, routingflags.ControllerSelector)
	if err := d.without(doctor.SourceDeployments, d.inPlace("list deployments"), err); err != nil {
		return err
	}
	called := inspect.WebhookNamespace(d.in.Webhooks)
	routingflags.SortControllers(controllers, called)
	for i, deployment := range controllers {
		d.in.Controllers = append(d.in.Controllers, doctor.Controller{Deployment: deployment})
		for _, container := range deployment.Spec.Template.Spec.Containers {
			readPartFlags(&d.in.Controllers[i], container.Args)
		}
	}
	var controller *appsv1.Deployment
	if len(controllers) > 0 {
		controller = controllers[0]
	}
	running, _ := routingflags.RunningOf(controller) // one with flags that make no sense does not start, which is a finding
	d.in.Exclusion, d.in.Settings = running.Exclusion, running.Settings
	if _, unread := d.unread[doctor.SourceDeployments]; !unread && len(controllers) == 0 && d.namespace != metav1.NamespaceAll {
		d.unread[doctor.SourceDeployments] = fmt.Sprintf("namespace %s has no vicinity-controller; without -n doctor looks in all namespaces", d.namespace)
	}
	d.in.NameServers, err = d.deployments(ctx, dnsSelector)
	if err := d.without(doctor.SourceDeployments, d.inPlace("list deployments"), err); err != nil {
		return err
	}
	d.in.Proxies, err = listAll[appsv1.DaemonSet](ctx, d.typed.AppsV1().DaemonSets(d.namespace), metav1.ListOptions{LabelSelector: inspect.ProxySelector})
	return d.without(doctor.SourceDaemonSets, d.inPlace("list daemonsets"), err)
}

// clients reads the Corefile, and the clients of a DNS server that locates them: one of the chart, or that of the cluster.
func (d *doctorReader) clients(ctx context.Context) error {
	for _, name := range []string{"coredns", "node-local-dns"} {
		data, err := d.configMap(ctx, metav1.NamespaceSystem, name)
		if err != nil {
			return err
		}
		d.in.Corefile += data[dnsKey] + "\n"
	}
	servers, err := listAll[appsv1.Deployment](ctx, d.typed.AppsV1().Deployments(metav1.NamespaceSystem), metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
	for _, server := range servers {
		if server.Annotations[v1alpha1.AnnotationDNSBefore] != "" {
			d.in.NameServers = append(d.in.NameServers, server)
		}
	}
	if err == nil && len(d.in.NameServers) > 0 {
		d.in.Pods, d.in.Locators, err = d.allClients(ctx)
	}
	return d.without(doctor.SourceClients, "list deployments in namespace kube-system, and pods and podlocators in all namespaces", err)
}

// allClients reads the pods and PodLocators of all namespaces.
func (r *clusterReader) allClients(ctx context.Context) (pods []*corev1.Pod, locators []*v1alpha1.PodLocator, err error) {
	if pods, err = listAll[corev1.Pod](ctx, r.typed.CoreV1().Pods(metav1.NamespaceAll), metav1.ListOptions{}); err != nil {
		return nil, nil, err
	}
	locators, err = listOwn[v1alpha1.PodLocator](ctx, r, ownList{"podlocators", metav1.NamespaceAll, ""})
	return pods, locators, ignoreNotFound(err)
}

// readPartFlags reads which parts a controller runs, and which webhooks it serves.
func readPartFlags(c *doctor.Controller, args []string) {
	flags := routingflags.SetOf("vicinity-controller")
	name, routes := flags.String("webhook-name", "vicinity", ""), flags.Bool("routing", true, "")
	on := map[string]*bool{}
	for _, flag := range []string{
		"webhook-endpointslices", "webhook-services", "webhook-policies", "webhook-budgets", "webhook-evictions", "webhook-pods", "webhook-ordinals", "pace-scale-downs",
		"budgets", "eviction-responder", "rollouts", "release-pods", "scale-down",
	} {
		on[flag] = flags.Bool(flag, false, "")
	}
	if err := flags.Parse(args); err != nil {
		return // it does not start with these flags
	}
	c.WebhookName = *name
	c.Mutates = *on["webhook-endpointslices"] || *on["webhook-evictions"] || *on["webhook-pods"] || *on["webhook-ordinals"] || *on["pace-scale-downs"]
	c.Validates = *on["webhook-services"] || *on["webhook-policies"] || *on["webhook-budgets"]
	c.ReleasesPods = *on["release-pods"]
	c.Off = map[string]bool{
		doctor.ValueRouting: !*routes, doctor.ValueDisruption: !*on["budgets"], doctor.ValueEvictionRequests: !*on["eviction-responder"], doctor.ValueRollouts: !*on["rollouts"],
		doctor.ValueScaleDown: !*on["scale-down"], doctor.ValuePacing: !*on["pace-scale-downs"], doctor.ValueOrdinals: !*on["webhook-ordinals"],
	}
}

func (d *doctorReader) networks(ctx context.Context) (err error) {
	in := &d.in.Networks
	sets, doing := d.typed.AppsV1().DaemonSets, "list daemonsets in all namespaces"
	in.DaemonSets, err = listAll[appsv1.DaemonSet](ctx, sets(metav1.NamespaceAll), metav1.ListOptions{})
	if apierrors.IsForbidden(err) {
		here, failed := listAll[appsv1.DaemonSet](ctx, sets(metav1.NamespaceSystem), metav1.ListOptions{})
		if failed == nil && slices.ContainsFunc(here, consumer.IsKubeProxy) {
			d.leaveOut("whether a program outside kube-system serves Services is unknown: you may not " + doing)
			in.DaemonSets, err = here, nil
		}
	}
	if err := d.without(doctor.SourceKubeSystem, doing, err); err != nil {
		return err
	}
	namespace := metav1.NamespaceSystem
	in.DaemonSets = slices.DeleteFunc(in.DaemonSets, func(set *appsv1.DaemonSet) bool {
		if consumer.IsKubeProxy(set) {
			namespace = set.Namespace
		}
		return set.Namespace != metav1.NamespaceSystem && !consumer.IsKubeProxy(set) && set.Name != "calico-node" && set.Name != "ovnkube-node"
	})
	if slices.ContainsFunc(in.DaemonSets, func(set *appsv1.DaemonSet) bool { return set.Name == "calico-node" }) {
		if felix, err := d.dynamic.Resource(felixResource).Get(ctx, "default", metav1.GetOptions{}); err == nil {
			in.CalicoBPF, _, _ = unstructured.NestedBool(felix.Object, "spec", "bpfEnabled")
		} else if !apierrors.IsNotFound(err) {
			d.leaveOut("whether Calico serves Services by eBPF is unknown: " + command.OneLine(err))
		}
	}
	// The first label is kubeadm's, the second one EKS'.
	for _, at := range []struct{ configMap, key string }{{"kube-proxy", "config.conf"}, {"kube-proxy-config", "config"}} {
		data, err := d.configMap(ctx, namespace, at.configMap)
		if err != nil {
			return err
		}
		if in.KubeProxy == nil {
			in.KubeProxy = d.proxyConfig(namespace, at.configMap, data[at.key])
		}
	}
	if in.Cilium, err = d.configMap(ctx, metav1.NamespaceSystem, "cilium-config"); err != nil {
		return err
	}
	antrea, err := d.configMap(ctx, metav1.NamespaceSystem, "antrea-config")
	if err != nil {
		return err
	}
	in.Antrea = d.proxyConfig(metav1.NamespaceSystem, "antrea-config", antrea["antrea-agent.conf"])
	return nil
}

// consumers returns the programs that serve Services, or none if one may be missing.
func (r *clusterReader) consumers(ctx context.Context) ([]consumer.Consumer, error) {
	d := r.doctor("")
	if err := d.networks(ctx); err != nil {
		return nil, err
	}
	if reason := cmp.Or(d.unread[doctor.SourceKubeSystem], d.unread[doctor.SourceConfig]); reason != "" {
		r.leaveOut("which programs serve the Service is unknown: " + reason)
		return nil, nil
	}
	return d.in.Networks.Consumers(), nil
}

// configMap returns the data of a ConfigMap, or nil if it does not exist.
func (d *doctorReader) configMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	found, err := d.typed.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, d.without(doctor.SourceConfig, "get the configmap "+name+" in namespace "+namespace, err)
	}
	return found.Data, nil
}

// proxyConfig reads settings in YAML, or returns nil if there are none.
func (d *doctorReader) proxyConfig(namespace, configMap, text string) *consumer.ProxyConfig {
	if text == "" {
		return nil
	}
	var read struct {
		Mode         string          `json:"mode"`
		FeatureGates map[string]bool `json:"featureGates"`
		AntreaProxy  struct {
			Enable *bool `json:"enable"`
		} `json:"antreaProxy"`
	}
	if err := yaml.Unmarshal([]byte(text), &read); err != nil {
		d.unread[doctor.SourceConfig] = fmt.Sprintf("the ConfigMap %s/%s is invalid: %s", namespace, configMap, command.OneLine(err))
		return nil
	}
	gates := map[string]bool{}
	maps.Copy(gates, read.FeatureGates)
	if on := read.AntreaProxy.Enable; on != nil {
		gates["AntreaProxy"] = *on // whose releases had a feature gate before
	}
	return &consumer.ProxyConfig{Namespace: namespace, ConfigMap: configMap, Mode: read.Mode, Gates: gates}
}

// leases computes ages at once: reading a large cluster takes longer than a Lease lasts.
func (d *doctorReader) leases(ctx context.Context) (err error) {
	d.in.Local = time.Now()
	home := d.in.Home()
	if home == "" {
		return nil
	}
	d.in.Leases, err = listAll[coordinationv1.Lease](ctx, d.typed.CoordinationV1().Leases(home), metav1.ListOptions{})
	return d.without(doctor.SourceLeases, "list leases in namespace "+home, err)
}

// definitions gets Vicinity's CRDs one by one: clusters can have hundreds of others.
func (d *doctorReader) definitions(ctx context.Context) error {
	for i := range d.in.Needed {
		found, err := d.dynamic.Resource(definitionResource).Get(ctx, d.in.Needed[i].Name, metav1.GetOptions{})
		if err := d.without(doctor.SourceDefinitions, "get customresourcedefinitions", err); err != nil {
			return err
		}
		if err == nil {
			d.in.Definitions = append(d.in.Definitions, definitionOf(found))
		}
	}
	served, err := d.typed.Discovery().ServerResourcesForGroupVersion(v1alpha1.GroupVersion.String())
	if err := d.without(doctor.SourceServed, "ask what is served", err); err != nil {
		return err
	}
	if err == nil {
		for i := range served.APIResources {
			d.in.Served = append(d.in.Served, served.APIResources[i].Name)
		}
	}
	return nil
}

// definitionOf reads the compared fields of a CRD, and leaves out invalid ones.
func definitionOf(object *unstructured.Unstructured) doctor.Definition {
	definition := doctor.Definition{Name: object.GetName(), Versions: map[string]map[string]any{}}
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, condition := range conditions {
		if c, ok := condition.(map[string]any); ok && c["type"] == "Established" && c["status"] == "True" {
			definition.Established = true
		}
	}
	versions, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "versions")
	list, _ := versions.([]any)
	for _, version := range list {
		v, ok := version.(map[string]any)
		if !ok || v["served"] != true {
			continue
		}
		name, _ := v["name"].(string)
		properties, _, _ := unstructured.NestedFieldNoCopy(v, "schema", "openAPIV3Schema", "properties")
		definition.Versions[name], _ = properties.(map[string]any)
	}
	return definition
}

func (d *doctorReader) webhooks(ctx context.Context) (err error) {
	d.in.Webhooks, err = d.webhookConfigurations(ctx)
	return d.without(doctor.SourceWebhooks, "list mutatingwebhookconfigurations and validatingwebhookconfigurations", err)
}

// backends reads the Services of the webhooks, and asks them for an answer.
func (d *doctorReader) backends(ctx context.Context) error {
	for i := range d.in.Webhooks {
		for _, webhook := range d.in.Webhooks[i].Webhooks {
			client := webhook.Client
			if client.Service == nil {
				continue
			}
			name := types.NamespacedName{Namespace: client.Service.Namespace, Name: client.Service.Name}
			if _, known := d.in.Backends[name]; known {
				continue
			}
			backend, err := d.backend(ctx, name, client.Service.Port)
			if err != nil {
				return err
			}
			d.in.Backends[name] = backend
		}
	}
	return nil
}

func (d *doctorReader) backend(ctx context.Context, name types.NamespacedName, port *int32) (b doctor.Backend, err error) {
	_, err = d.typed.CoreV1().Services(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if b.Exists = err == nil; !b.Exists {
		return b, d.without(doctor.SourceBackends, "get services in namespace "+name.Namespace, err)
	}
	selector := discoveryv1.LabelServiceName + "=" + name.Name
	found, err := listAll[discoveryv1.EndpointSlice](ctx, d.typed.DiscoveryV1().EndpointSlices(name.Namespace), metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return b, d.without(doctor.SourceBackends, "list endpointslices in namespace "+name.Namespace, err)
	}
	for _, slice := range found {
		for i := range slice.Endpoints {
			if endpoint.StateOf(&slice.Endpoints[i]).IsReady() {
				b.Ready++
			}
		}
	}
	if b.Ready > 0 {
		b.Unreached, err = d.unreached(ctx, name, port)
	}
	return b, err
}

// unreached says why the API server gets no answer from a Service over TLS, or is empty. Any HTTP
// status is an answer: webhooks refuse a request that is no review.
func (d *doctorReader) unreached(ctx context.Context, name types.NamespacedName, port *int32) (string, error) {
	number := 443
	if port != nil {
		number = int(*port)
	}
	within, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	// DoRaw loses the API server's message about an unreachable backend.
	answer, err := d.typed.CoreV1().Services(name.Namespace).ProxyGet("https", name.Name, strconv.Itoa(number), "/", nil).Stream(within)
	if err == nil {
		_ = answer.Close() // the answer itself does not matter
	}
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case within.Err() != nil:
		return "there is no answer within " + reachTime.String(), nil
	case apierrors.IsForbidden(err):
		return "", d.without(doctor.SourceReach, "get services/proxy in namespace "+name.Namespace, err)
	case apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		// Webhooks with a client CA answer so: the API server shows no certificate when it proxies.
		if strings.Contains(err.Error(), "remote error: tls: certificate required") {
			return "", nil
		}
		return command.OneLine(err), nil
	}
	return "", nil
}

func (d *doctorReader) services(ctx context.Context) (err error) {
	d.in.Services = readSource[corev1.Service](ctx, d.sourceReader, doctor.SourceServices, d.typed.CoreV1().Services(metav1.NamespaceAll))
	d.in.Namespaces = readSource[corev1.Namespace](ctx, d.sourceReader, doctor.SourceNamespaces, d.typed.CoreV1().Namespaces())
	if d.err != nil {
		return d.err
	}
	d.in.Gateways, err = d.gateways(ctx, metav1.NamespaceAll)
	if err := d.without(doctor.SourceGateways, "list ingresses, ingressclasses, httproutes or grpcroutes in all namespaces", err); err != nil {
		if ctx.Err() != nil {
			return err
		}
		d.unread[doctor.SourceGateways] = command.OneLine(err)
	}
	// Metadata is enough: groups hold all endpoints.
	if !slices.ContainsFunc(d.in.Services, func(s *corev1.Service) bool {
		return s.Labels[v1alpha1.LabelServiceProxyName] == v1alpha1.ServiceProxyName
	}) {
		return nil
	}
	groups, err := d.named(ctx, v1alpha1.GroupVersion.WithResource("endpointgroups"), "")
	for _, group := range groups {
		d.in.Grouped[types.NamespacedName{Namespace: group.Namespace, Name: group.Labels[v1alpha1.LabelService]}] = true
	}
	return d.without(doctor.SourceGroups, "list endpointgroups in all namespaces", err)
}

func (d *doctorReader) named(ctx context.Context, resource schema.GroupVersionResource, selector string) ([]*metav1.PartialObjectMetadata, error) {
	return listAll[metav1.PartialObjectMetadata](ctx, d.metadata.Resource(resource), metav1.ListOptions{LabelSelector: selector})
}

func (d *doctorReader) policies(ctx context.Context) error {
	d.in.Policies = readOwn[v1alpha1.RoutingPolicy](ctx, d, doctor.SourcePolicies)
	d.in.Defaults = readOwn[v1alpha1.ClusterRoutingPolicy](ctx, d, doctor.SourceDefaults)
	d.in.Rollouts = readOwn[v1alpha1.DomainRollout](ctx, d, doctor.SourceRollouts)
	d.in.Shifts = readOwn[v1alpha1.ZoneShift](ctx, d, doctor.SourceShifts)
	d.in.Budgets = readOwn[v1alpha1.TopologyDisruptionBudget](ctx, d, doctor.SourceBudgets)
	return d.err
}

// readOwn lists objects of Vicinity's API; source is also the resource. It notes an object that
// cannot be decoded.
func readOwn[T any](ctx context.Context, d *doctorReader, source doctor.Source) (list []*T) {
	objects := readSource[unstructured.Unstructured](ctx, d.sourceReader, source, d.dynamic.Resource(v1alpha1.GroupVersion.WithResource(string(source))))
	for _, object := range objects {
		if item, err := convertTo[T](object); err != nil {
			d.unread[source] = "an object is invalid: " + command.OneLine(err)
		} else {
			list = append(list, item)
		}
	}
	return list
}

func (d *doctorReader) workloads(ctx context.Context) error {
	apps := d.typed.AppsV1()
	d.in.PDBs = readSource[policyv1.PodDisruptionBudget](ctx, d.sourceReader, doctor.SourcePDBs, d.typed.PolicyV1().PodDisruptionBudgets(metav1.NamespaceAll))
	d.in.StatefulSets = readSource[appsv1.StatefulSet](ctx, d.sourceReader, doctor.SourceStatefulSets, apps.StatefulSets(metav1.NamespaceAll))
	if len(d.in.PDBs)+len(d.in.Budgets)+len(d.in.Controllers) > 0 {
		d.in.Deployments = readSource[appsv1.Deployment](ctx, d.sourceReader, doctor.SourceWorkloads, apps.Deployments(metav1.NamespaceAll))
	}
	return d.err
}

// leftovers reads what an uninstall can leave behind, if there is no controller.
func (d *doctorReader) leftovers(ctx context.Context) error {
	if len(d.in.Controllers) > 0 {
		return nil
	}
	keep := func(kind, namespace, name string) {
		d.in.Leftovers[kind] = append(d.in.Leftovers[kind], doctor.Object{Kind: kind, Namespace: namespace, Name: name})
	}
	for i := range d.in.Definitions {
		keep("CustomResourceDefinition", "", d.in.Definitions[i].Name)
	}
	for _, pdb := range d.in.PDBs {
		if pdb.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByController {
			keep("PodDisruptionBudget", pdb.Namespace, pdb.Name)
		}
	}
	for _, options := range []metav1.ListOptions{
		{LabelSelector: v1alpha1.LabelProxyLease + "=true"},
		{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, "vicinity-controller").String()},
	} {
		leases, err := listAll[coordinationv1.Lease](ctx, d.typed.CoordinationV1().Leases(metav1.NamespaceAll), options)
		if err := d.without(doctor.SourceLeftovers, "list leases in all namespaces", err); err != nil {
			return err
		}
		for _, lease := range leases {
			keep("Lease", lease.Namespace, lease.Name)
		}
	}
	for _, of := range []struct {
		kind, selector string
		resource       schema.GroupVersionResource
	}{
		{"EndpointSlice", v1alpha1.LabelRouted, discoveryv1.SchemeGroupVersion.WithResource("endpointslices")},
		{"PodLocator", v1alpha1.LabelManagedBy + "=" + v1alpha1.ManagedByController, v1alpha1.GroupVersion.WithResource("podlocators")},
	} {
		found, err := d.named(ctx, of.resource, of.selector)
		if err := d.without(doctor.SourceLeftovers, "list "+of.resource.Resource+" in all namespaces", err); err != nil {
			return err
		}
		for _, object := range found {
			keep(of.kind, object.Namespace, object.Name)
		}
	}
	return nil
}
