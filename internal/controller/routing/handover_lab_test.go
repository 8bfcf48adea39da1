package routing

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/internal/translate"
	"vicinity.dev/vicinity/test/rig"
)

// vicinityNamespace is where proxies keep their Leases.
const vicinityNamespace = "vicinity-system"

// groupLab is a cluster with the controller, and proxies that a test plays.
type groupLab struct {
	rig.ControlPlane
	api   client.WithWatch
	space string
	nodes []corev1.Node
}

func startGroupLab(t *testing.T) *groupLab {
	t.Helper()
	g := &groupLab{ControlPlane: rig.Start(t)}
	g.Make("", "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+vicinityNamespace+"}\n")
	var err error
	if g.space, err = g.MakeNamespace(t.Context(), "groups-"); err != nil {
		t.Fatal(err)
	}
	if g.api, err = client.NewWithWatch(g.Config(), client.Options{Scheme: testScheme(t)}); err != nil {
		t.Fatal(err)
	}
	var nodes corev1.NodeList
	if err := g.api.List(t.Context(), &nodes); err != nil {
		t.Fatal(err)
	}
	g.nodes = nodes.Items
	g.control()
	return g
}

// control runs the controller until the test ends.
func (g *groupLab) control() {
	g.Helper()
	options := Options{
		Settings: routing.DefaultSettings(), Exclusion: translate.Exclusion{Own: vicinityNamespace, Namespaces: translate.DefaultExcluded()},
		Workers: 2, TopServices: 1, HandBackGrace: time.Second,
	}
	options.Settings.ShrinkGrace = time.Second
	mgr, err := manager.New(g.Config(), manager.Options{
		Scheme: testScheme(g), Cache: CacheOptions(options), Metrics: server.Options{BindAddress: "0"},
		Logger: logr.Discard(),
	})
	if err != nil {
		g.Fatal(err)
	}
	log.SetLogger(logr.Discard())
	ctx, stop := context.WithCancel(context.Background())
	if err := Add(ctx, mgr, options); err != nil {
		g.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	g.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			g.Errorf("the controller: %v", err)
		}
	})
}

func (g *groupLab) service(ctx context.Context) (*corev1.Service, error) {
	return g.CoreV1().Services(g.space).Get(ctx, "echo", metav1.GetOptions{})
}

func (g *groupLab) annotate(annotations string) {
	g.Helper()
	if err := g.PatchService(g.Context(), g.space, "echo", `{"metadata":{"annotations":{`+annotations+`}}}`); err != nil {
		g.Fatal(err)
	}
}

// proxies plays the proxies of some nodes, as they are at a moment: what they see may
// be written the moment after.
func (g *groupLab) proxies(nodes []corev1.Node) {
	g.Helper()
	for i := range nodes {
		g.proxy(&nodes[i])
	}
}

// proxy plays the proxy of a node: it reads the groups that the node sees and
// acknowledges them, if they are others, or it is time to renew its Lease.
func (g *groupLab) proxy(node *corev1.Node) {
	g.Helper()
	ctx := g.Context()
	hidden, err := labels.NewRequirement(v1alpha1.LabelNotForPrefix+node.Labels[topology.Zone], selection.DoesNotExist, nil)
	if err != nil {
		g.Fatal(err)
	}
	var groups v1alpha1.EndpointGroupList
	if err := g.api.List(ctx, &groups, client.MatchingLabelsSelector{Selector: labels.NewSelector().Add(*hidden)}); err != nil {
		g.Fatal(err)
	}
	highest := 0
	for i := range groups.Items {
		if groups.Items[i].Labels[v1alpha1.LabelHandOver] != "true" {
			continue
		}
		version, err := strconv.Atoi(groups.Items[i].ResourceVersion)
		if err != nil {
			g.Fatal(err)
		}
		highest = max(highest, version)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: vicinityNamespace, Name: "vicinity-proxy-" + node.Name}}
	err = g.api.Get(ctx, client.ObjectKeyFromObject(lease), lease)
	if err != nil && !apierrors.IsNotFound(err) {
		g.Fatal(err)
	}
	if lease.UID != "" && lease.Annotations[v1alpha1.AnnotationProgrammed] == strconv.Itoa(highest) && time.Since(lease.Spec.RenewTime.Time) < time.Second {
		return
	}
	lease.Labels = map[string]string{v1alpha1.LabelProxyLease: "true"}
	lease.Annotations = map[string]string{v1alpha1.AnnotationProgrammed: strconv.Itoa(highest)}
	lease.Spec.HolderIdentity = &node.Name
	lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
	if lease.UID == "" {
		err = g.api.Create(ctx, lease)
	} else {
		err = g.api.Update(ctx, lease)
	}
	if err != nil {
		g.Fatal(err)
	}
}

func (g *groupLab) groups(ctx context.Context) ([]v1alpha1.EndpointGroup, error) {
	var list v1alpha1.EndpointGroupList
	err := g.api.List(ctx, &list, client.InNamespace(g.space), client.MatchingLabels{v1alpha1.LabelService: "echo"})
	return list.Items, err
}

// groupsAre waits until the groups are as wanted, each as "consumers:endpoints", of
// IPv4.
func (g *groupLab) groupsAre(want ...string) {
	g.Helper()
	slices.Sort(want)
	g.Await("the groups "+strings.Join(want, " "), func(ctx context.Context) (string, error) {
		list, err := g.groups(ctx)
		if err != nil {
			return "", err
		}
		var have []string
		for i := range list {
			if list[i].Spec.AddressType != corev1.IPv4Protocol {
				continue
			}
			var zones []string
			for _, c := range list[i].Spec.Consumers {
				zones = append(zones, c.Zone)
			}
			have = append(have, fmt.Sprintf("%s:%d", strings.Join(zones, ","), len(list[i].Spec.Endpoints)))
		}
		slices.Sort(have)
		if slices.Equal(have, want) {
			return "", nil
		}
		return "there are " + strings.Join(have, " "), nil
	})
}

// watchZones looks at each state of the groups through the eyes of each zone, and
// fails the test if one has no ready endpoint. It returns how to end, which tells how
// many states there were.
func (g *groupLab) watchZones(zones ...string) (stop func() int) {
	g.Helper()
	var begin v1alpha1.EndpointGroupList
	if err := g.api.List(g.Context(), &begin, client.InNamespace(g.space)); err != nil {
		g.Fatal(err)
	}
	groups := map[string]*v1alpha1.EndpointGroup{}
	for i := range begin.Items {
		groups[begin.Items[i].Name] = &begin.Items[i]
	}
	w, err := g.api.Watch(g.Context(), &v1alpha1.EndpointGroupList{}, client.InNamespace(g.space), &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: begin.ResourceVersion},
	})
	if err != nil {
		g.Fatal(err)
	}
	states := 0
	quit := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			var event watch.Event
			select {
			case <-quit:
				return
			case event = <-w.ResultChan():
			}
			group, ok := event.Object.(*v1alpha1.EndpointGroup)
			if !ok {
				g.Errorf("watching groups: %v", event.Object)
				return
			}
			groups[group.Name] = group
			if event.Type == watch.Deleted {
				delete(groups, group.Name)
			}
			states++
			for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
				for _, zone := range zones {
					if !servesZone(groups, family, zone) {
						g.Errorf("state %d: zone %s has no %s endpoint", states, zone, family)
					}
				}
			}
		}
	})
	return func() int {
		close(quit)
		done.Wait()
		w.Stop()
		return states
	}
}

// servesZone reports whether nodes of a zone have a ready endpoint, whatever the node,
// by what the documentation of the package groups says about tiers and visibility.
func servesZone(groups map[string]*v1alpha1.EndpointGroup, family corev1.IPFamily, zone string) bool {
	for _, g := range groups {
		if g.Spec.AddressType != family || g.Labels[v1alpha1.LabelNotForPrefix+zone] != "" {
			continue
		}
		named := slices.ContainsFunc(g.Spec.Consumers, func(c v1alpha1.GroupConsumer) bool { return c.Zone == zone })
		if g.Spec.LocalOnly && !named {
			continue
		}
		hardZone := slices.Equal(g.Spec.Tiers, []string{topology.Zone})
		for _, e := range g.Spec.Endpoints {
			if !e.NotReady && (!hardZone || e.Zone == zone) {
				return true
			}
		}
	}
	return false
}

// echo is a Service of twelve endpoints, spread over the zones.
const echo = `
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  ipFamilyPolicy: PreferDualStack
  selector: {app: echo}
  ports:
  - {name: http, port: 80, targetPort: http}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: echo}
spec:
  replicas: 12
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: echo}}}
      containers:
      - {name: echo, image: lab/echo, ports: [{name: http, containerPort: 8080}]}
`

// TestHandOverInACluster hands a Service over to proxies that the test plays, changes
// what it asks for while each state is watched, hands it back and deletes it.
func TestHandOverInACluster(t *testing.T) {
	g := startGroupLab(t)
	ctx := t.Context()
	if err := g.Apply(ctx, g.space, echo); err != nil {
		t.Fatal(err)
	}
	if err := g.WaitEndpoints(ctx, g.space, "echo", 12); err != nil {
		t.Fatal(err)
	}
	g.annotate(`"vicinity.dev/proxy":"true"`)
	g.groupsAre("zone-a,zone-b,zone-c:12")

	// The last node has no proxy.
	last := len(g.nodes) - 1
	g.Await("the condition to name the node without a proxy", func(ctx context.Context) (string, error) {
		g.proxies(g.nodes[:last])
		service, err := g.service(ctx)
		if err != nil {
			return "", err
		}
		condition := meta.FindStatusCondition(service.Status.Conditions, v1alpha1.ConditionTopologyRouting)
		switch {
		case service.Labels[v1alpha1.LabelServiceProxyName] != "":
			t.Fatal("the Service is handed over though a node has no proxy")
		case condition == nil:
			return "there is no condition", nil
		case !strings.Contains(condition.Message, "on node "+g.nodes[last].Name):
			return condition.Message, nil
		}
		return "", nil
	})
	g.Await("the Service to be handed over", func(ctx context.Context) (string, error) {
		g.proxies(g.nodes)
		service, err := g.service(ctx)
		if err != nil || service.Labels[v1alpha1.LabelServiceProxyName] == v1alpha1.ServiceProxyName {
			return "", err
		}
		return "it has no label", nil
	})
	g.Await("the groups to lose their label", func(ctx context.Context) (string, error) {
		list, err := g.groups(ctx)
		for i := range list {
			if list[i].Labels[v1alpha1.LabelHandOver] != "" {
				return list[i].Name, err
			}
		}
		return "", err
	})

	stop := g.watchZones("zone-a", "zone-b", "zone-c")
	divided := []string{"zone-a:4", "zone-b:4", "zone-c:4"}
	g.annotate(`"endpointslice.kubernetes.io/same-zone":"Require"`)
	g.groupsAre(divided...)
	g.annotate(`"endpointslice.kubernetes.io/same-zone":"Prefer"`)
	g.groupsAre(divided...)
	g.annotate(`"endpointslice.kubernetes.io/same-zone":null,"vicinity.dev/topology-keys":"kubernetes.io/hostname,*"`)
	g.Await("balanced groups", func(ctx context.Context) (string, error) {
		list, err := g.groups(ctx)
		for i := range list {
			if len(list[i].Spec.Consumers) != 3 {
				return fmt.Sprintf("%s has %d consumers", list[i].Name, len(list[i].Spec.Consumers)), err
			}
		}
		return "", err
	})
	if states := stop(); states < 6 {
		t.Errorf("only %d states were seen", states)
	}

	g.annotate(`"vicinity.dev/proxy":null`)
	// Looks may miss what was first; TestHandBackWaitsForKubernetes shows the order.
	g.Await("the Service to be kube-proxy's and the groups to go", func(ctx context.Context) (string, error) {
		list, err := g.groups(ctx)
		if err != nil {
			return "", err
		}
		service, err := g.service(ctx)
		if err != nil {
			return "", err
		}
		labelled := service.Labels[v1alpha1.LabelServiceProxyName] != ""
		if len(list) == 0 && labelled {
			t.Fatal("the groups went before the Service was handed back")
		}
		if labelled || len(list) > 0 {
			return fmt.Sprintf("label %t, %d groups", labelled, len(list)), nil
		}
		return "", nil
	})

	g.annotate(`"vicinity.dev/proxy":"true"`)
	g.Await("groups", func(ctx context.Context) (string, error) {
		list, err := g.groups(ctx)
		if err == nil && len(list) == 0 {
			return "there are none", nil
		}
		return "", err
	})
	if err := g.CoreV1().Services(g.space).Delete(ctx, "echo", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	g.Await("the groups of a deleted Service to go", func(ctx context.Context) (string, error) {
		list, err := g.groups(ctx)
		return map[bool]string{true: fmt.Sprintf("%d are left", len(list))}[len(list) > 0], err
	})
}
